"""A class's attribute whose name many files say: only those that write it count, and too many prove nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from actor_wg_codemod.cli import main
from actor_wg_codemod.writing import MOST_WRITERS

LAUNCH = """\
from verl.checkpoint_engine import CheckpointEngineManager


class Launcher:
    maker = CheckpointEngineManager

    def build(self, cfg, wg, replicas):
        return self.maker(config=cfg, trainer=wg, replicas=replicas)
"""
READS = (
    "def show(tool):\n    return tool.maker(1) == tool.maker, f'{tool.maker}', {tool.maker: 1}\n"
)
WRITES = "class Tool:\n    pass\n\n\nTool.maker = int\n"
FAKE = "class Fake:\n    def __init__(self, config, trainer, replicas):\n        self.seen = trainer\n\n\n"


def codes(tree: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    main(["check", "--unsafe-fixes", "--output-format", "json", str(tree)])
    return [finding["code"] for finding in json.loads(capsys.readouterr().out)]


def many(tree: Path, text: str, number_of: int = MOST_WRITERS + 1) -> None:
    (tree / "launch.py").write_text(LAUNCH)
    for number in range(number_of):
        (tree / f"tool{number}.py").write_text(text)


def test_any_number_of_readers_leaves_it_proven(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many(tmp_path, READS)
    assert codes(tmp_path, capsys) == ["AWG001"]


def test_the_one_writer_among_many_readers_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many(tmp_path, READS)
    (tmp_path / "fake.py").write_text(
        f"from launch import Launcher\n\n\n{FAKE}Launcher.maker = Fake\n"
    )
    assert codes(tmp_path, capsys) == ["AWG902"]


def test_too_many_writers_to_look_at_prove_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many(tmp_path, WRITES)
    assert codes(tmp_path, capsys) == ["AWG901"]


def test_what_many_others_write_leaves_it_proven(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many(tmp_path, WRITES, MOST_WRITERS - 1)
    assert codes(tmp_path, capsys) == ["AWG001"]


@pytest.mark.parametrize(
    "write",
    [
        "Launcher.maker, size = Fake, 1",
        "size, (Launcher.maker, *rest) = 1, (Fake, 2)",
        "(\n    Launcher.maker,  # a note\n    size,\n) = Fake, 1",
        "Launcher.\\\n    maker = Fake",
        "Launcher . maker: type = Fake",
        "for Launcher.maker in (Fake,):\n    pass",
        "[0 for Launcher.maker in (Fake,)]",
        "setattr(Launcher, 'maker', Fake)",
        "vars(Launcher())['maker'] = Fake",
    ],
)
def test_every_way_to_write_it_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], write: str
) -> None:
    (tmp_path / "launch.py").write_text(LAUNCH)
    (tmp_path / "fake.py").write_text(f"from launch import Launcher\n\n\n{FAKE}{write}\n")
    assert codes(tmp_path, capsys) == ["AWG902"]
