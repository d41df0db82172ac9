"""The wheels of verl from the package index: 0.8.0 migrates as read by hand, 0.9.1 has nothing to migrate."""

from __future__ import annotations

import collections
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from actor_wg_codemod.cli import main

TRUTH = Path(__file__).parents[2] / "fixtures" / "verl-0.8.0.findings"

pytestmark = [pytest.mark.network, pytest.mark.timeout(300)]


def findings(
    folder: Path, capsys: pytest.CaptureFixture[str], *options: str
) -> list[dict[str, object]]:
    main(["check", "--output-format", "json", *options, str(folder)])
    return list(json.loads(capsys.readouterr().out))


def test_080_has_exactly_the_sites_that_were_read(
    wheel: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = wheel("0.8.0")
    lines = [line for line in TRUTH.read_text().splitlines() if line and not line.startswith("#")]
    expected = collections.Counter(lines)
    found: collections.Counter[str] = collections.Counter()
    for item in findings(folder, capsys, "--unsafe-fixes"):
        fix, place = item["fix"], item["location"]
        assert isinstance(place, dict)
        kind = fix["applicability"] if isinstance(fix, dict) else "manual"
        path = Path(str(item["filename"])).relative_to(folder).as_posix()
        found[f"{path}:{place['row']}:{item['code']}:{kind}"] += 1
    assert found == expected


def test_080_migrates_once_and_for_all(
    wheel: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = wheel("0.8.0")
    before = {}
    for path in source.rglob("*.py"):
        copy = tmp_path / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
        before[copy] = copy.read_bytes()
    assert main(["verify", "--static", str(tmp_path)]) == 1, "the old names do not bind"
    assert main(["migrate", str(tmp_path)]) == 0
    assert main(["verify", "--static", str(tmp_path)]) == 0, "all binds against verl 0.9.1"
    once = {path: path.read_bytes() for path in before}
    changed = {path for path in before if before[path] != once[path]}
    named = {line.rsplit(":", 3)[0] for line in TRUTH.read_text().splitlines() if line[:1] != "#"}
    assert {p.relative_to(tmp_path).as_posix() for p in changed} == {n for n in named if n}
    assert main(["migrate", str(tmp_path)]) == 0
    assert {path: path.read_bytes() for path in before} == once
    assert main(["migrate", "--reverse", str(tmp_path)]) == 0
    assert {path: path.read_bytes() for path in before} == before


def test_091_has_nothing_to_migrate(
    wheel: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert findings(wheel("0.9.1"), capsys, "--unsafe-fixes") == []


def test_the_blocking_calls_of_update_weights_are_found(
    wheel: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    found = findings(wheel("0.8.0"), capsys, "--select", "AWG201")
    base = [item for item in found if str(item["filename"]).endswith("checkpoint_engine/base.py")]
    assert len(base) == 3
