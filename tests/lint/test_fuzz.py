"""Programs made of installed packages by giving their names away to verl's: no crash, and agreement."""

from __future__ import annotations

import ast
import keyword
import random
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from flake8_runs import by_check, by_our_plugin

from actor_wg_codemod import renames
from helpers import FIXTURES, read_case, run

_WORD = re.compile(r"\b[A-Za-z_]\w*\b")
_IMPORTED = (renames.MANAGER, renames.ENGINE, renames.KIMI, renames.REGISTRY)
_HEAD = f"from {renames.VERL}.{renames.ENGINE_PACKAGE} import {', '.join(_IMPORTED)}\nimport ray\n"
_ROLES = (
    (re.compile(r"\b([a-z]\w*)\."), (renames.MANAGER_NAME_HINTS[0], "ray", "manager")),
    (re.compile(r"\.([a-z]\w*)\b(?!\()"), (*renames.FORWARD.table, *renames.REVERSE.table)),
    (re.compile(r"[(,]\s*(\w+)=(?!=)"), (*renames.FORWARD.table, "replicas", "backend")),
    (re.compile(r"[(,]\s*(\w+)\s*[,)]"), tuple(renames.FORWARD.table)),
    (re.compile(r"\bclass \w+\((\w+)\)"), _IMPORTED),
    (re.compile(r"(?<!def )(?<!\.)\b([A-Z]\w*)\("), _IMPORTED),
    (re.compile(r"\.([a-z]\w*)\("), (renames.TOPOLOGY_METHOD, renames.INIT_METHOD, "get")),
    (re.compile(r"\bdef (\w+)\("), (renames.TOPOLOGY_METHOD, renames.INIT_METHOD, "__init__")),
)
"""What a name is used as -> the names it may become."""
_SMALL, _LARGE = 40, 1500
_LONGEST = 60_000


def programs(count: int, seed: int) -> Iterator[str]:
    """Installed modules with a fixture case's module below, some names now names of the rename."""
    chance = random.Random(seed)
    roots = {sysconfig.get_path(name) for name in ("purelib", "stdlib")}
    paths = sorted(path for root in roots for path in Path(root).rglob("*.py"))
    cases = [data.decode("utf-8", "replace") for data in _modules()]
    while count:
        data = chance.choice(paths).read_bytes()
        if len(data) > _LONGEST:
            continue
        text = data.decode("utf-8", "replace") + "\n\n" + chance.choice(cases)
        table: dict[str, str] = {}
        for pattern, targets in _ROLES:
            names = [name for name in pattern.findall(text) if not keyword.iskeyword(name)]
            if names:
                table[chance.choice(names)] = chance.choice(targets)
        text = _WORD.sub(lambda match, t=table: t.get(match[0], match[0]), text)
        lines = text.splitlines(keepends=True)
        head = [line for line in lines if line.startswith("from __future__")]
        text = "".join([*head, _HEAD, *(line for line in lines if line not in head)])
        try:
            ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        count -= 1
        yield text


def _modules() -> Iterator[bytes]:
    for path in sorted(FIXTURES.glob("cases*/*.case")):
        files = read_case(path).before
        yield from (data for name, data in sorted(files.items()) if name.endswith(".py"))


@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("count", "seed"),
    [(_SMALL, 1), pytest.param(_LARGE, 2, marks=[pytest.mark.fuzz, pytest.mark.timeout(3000)])],
)
def test_nothing_crashes_and_the_faces_agree(tmp_path, count, seed):
    for number, text in enumerate(programs(count, seed)):
        (tmp_path / f"made_{number}.py").write_text(text, "utf-8")
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'made'\n", "utf-8")
    found = by_our_plugin(tmp_path, "--select=AWG0,AWG1,AWG2,AWG9")
    told = by_check(tmp_path, "--naming", "--unsafe-fixes")
    advised = by_check(tmp_path, "--select", "AWG201")
    assert found == sorted({*told, *advised})
    assert found, "the programs have nothing to find"
    run("migrate", "--quiet", "--naming", "--unsafe-fixes", folder=tmp_path)
    left = by_check(tmp_path, "--naming", "--unsafe-fixes")
    assert by_our_plugin(tmp_path, "--select=AWG0,AWG1,AWG9") == left
