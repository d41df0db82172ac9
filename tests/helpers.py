"""Before and after: three checks for small texts, and what reads and runs the fixture cases."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import shlex
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from actor_wg_codemod.cli import main
from actor_wg_codemod.documents import PythonView
from actor_wg_codemod.model import Edit, Finding, Fix, Safety, Span

FIXTURES = Path(__file__).parent.parent / "fixtures"
_SECTION = re.compile(r"-- (?:(before|after|before-raw|after-raw): (.+)|(findings|left)) --")


@dataclass(frozen=True)
class Result:
    """What one command came to."""

    status: int
    out: str
    err: str

    @property
    def findings(self) -> list[str]:
        """The listed findings as `path:line:code:class`, sorted; for `--output-format json`."""
        return sorted(map(_finding_line, json.loads(self.out)))


@dataclass
class Case:
    """One fixture case; the format is described in fixtures/cases/README.md."""

    name: str = ""
    why: str = ""
    flags: list[str] = field(default_factory=list)
    before: dict[str, bytes] = field(default_factory=dict)
    after: dict[str, bytes] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def run(*argv: str, folder: Path | None = None) -> Result:
    """Runs `main` in a folder, with its output caught."""
    out, err = _Stream(), _Stream()
    with contextlib.ExitStack() as stack:
        if folder is not None:
            stack.enter_context(inside(folder))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        status = main(list(argv))
    return Result(status, out.text, err.text)


def check_noop(source: str | Mapping[str, str], *flags: str) -> None:
    """Nothing is found, and `migrate` leaves every byte as it is."""
    check_reported(source, (), *flags)


def check_fixed(
    before: str | Mapping[str, str], after: str | Mapping[str, str], *flags: str
) -> None:
    """`migrate` makes `after` of `before` and leaves nothing; a second run changes nothing."""
    files, expected = _files(before), _files(after)
    assert files != expected, "nothing is to be fixed"
    with _project(files) as folder:
        found = run("check", "--output-format", "json", *flags, folder=folder)
        assert found.status == 1, found
        result = run("migrate", "--output-format", "json", *flags, folder=folder)
        assert snapshot(folder) == expected
        assert (result.status, result.findings) == (0, [])
        _check_settled(folder, expected, [], flags)


def check_reported(source: str | Mapping[str, str], findings: Sequence[str], *flags: str) -> None:
    """These findings, `line:code` or `path:line:code`, are listed and none of them is fixed."""
    files = _files(source)
    expected = sorted(f if f.count(":") == 2 else f"example.py:{f}" for f in findings)
    with _project(files) as folder:
        for command in ("check", "migrate"):
            result = run(command, "--output-format", "json", *flags, folder=folder)
            assert [line.rpartition(":")[0] for line in result.findings] == expected, command
            assert result.status == bool(expected), result
        assert snapshot(folder) == files


def check_case(case: Case) -> None:
    """A fixture case: what is found, what is changed, what is left, and that it is then settled."""
    fails = "syntax-error" in case.name
    with _project(case.before) as folder:
        found = run("check", "--output-format", "json", *case.flags, folder=folder)
        assert found.findings == sorted(case.findings), found.err
        assert found.status == (2 if fails else bool(case.findings)), found.err
        assert snapshot(folder) == case.before, "check wrote something"
        result = run("migrate", "--output-format", "json", *case.flags, folder=folder)
        expected = {**case.before, **case.after}
        now = snapshot(folder)
        for name, data in expected.items():
            assert now[name] == data, name
        assert now.keys() == expected.keys()
        assert result.findings == sorted(case.left), result.err
        assert result.status == (2 if fails else bool(case.left)), result.err
        _check_settled(folder, expected, sorted(case.left), case.flags)


def read_case(path: Path) -> Case:
    """Reads a case file."""
    case = Case()
    head: dict[str, str] = {}
    kind = name = ""
    body: list[str] = []

    def close() -> None:
        text = "".join(body)
        if kind in ("findings", "left"):
            setattr(case, kind, text.split())
        elif kind:
            data = ast.literal_eval(text.strip()) if kind.endswith("-raw") else text.encode()
            (case.before if kind.startswith("before") else case.after)[name] = data

    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        section = _SECTION.fullmatch(line.rstrip("\n"))
        if section:
            close()
            kind, name, body = section[1] or section[3], section[2] or "", []
        elif kind:
            body.append(line)
        else:
            key, _, value = line.partition(": ")
            head[key] = value.strip()
    close()
    case.name, case.why = head["case"], head["why"]
    case.flags = shlex.split(head.get("flags", ""))
    return case


def write_tree(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes files given by their relative names."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def snapshot(folder: Path) -> dict[str, bytes]:
    """All files below a folder, without what git keeps for itself."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(folder).parts
    }


def _check_settled(
    folder: Path, expected: Mapping[str, bytes], left: list[str], flags: Sequence[str]
) -> None:
    """What is left is what `check` now lists, and a second run changes nothing."""
    assert run("check", "--output-format", "json", *flags, folder=folder).findings == left
    assert run("migrate", "--output-format", "json", *flags, folder=folder).findings == left
    assert snapshot(folder) == expected


def _files(source: str | Mapping[str, str]) -> dict[str, bytes]:
    named = {"example.py": source} if isinstance(source, str) else source
    files = {name: textwrap.dedent(text).lstrip("\n") for name, text in named.items()}
    for name, text in files.items():
        if name.endswith((".py", ".pyi")):
            ast.parse(text)
    return {name: text.encode() for name, text in files.items()}


def _finding_line(found: dict[str, object]) -> str:
    code, fix, location = found["code"], found["fix"], found["location"]
    assert isinstance(location, dict)
    safety = "manual"
    if str(code).startswith("AWG1"):
        safety = "naming"
    elif isinstance(fix, dict):
        safety = fix["applicability"]
    return f"{found['filename']}:{location['row']}:{code}:{safety}"


@contextlib.contextmanager
def _project(files: Mapping[str, bytes]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "project")
        folder.mkdir()
        write_tree(folder, files)
        yield folder


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Has this process work in a folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


class _Stream(io.TextIOWrapper):
    """A standard stream that keeps what is written to it, as text or as bytes."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", errors="backslashreplace", newline="")

    @property
    def text(self) -> str:
        self.flush()
        data = self.buffer
        assert isinstance(data, io.BytesIO)
        return data.getvalue().decode("utf-8", "backslashreplace")


def sites_in(view: PythonView, old: str, new: str) -> list[Finding]:
    """A finding for each old name in a document's Python, placed in the document, as an analysis would."""
    found = []
    for number, line in enumerate(view.source.split("\n"), 1):
        for match in re.finditer(rf"\b{old}\b", line):
            span = Span(number, match.start(), number, match.end())
            fix = Fix("rename", (Edit(span, new),))
            found.append(view.relocate(Finding("AWG001", span, "old", Safety.SAFE, fix)))
    return found
