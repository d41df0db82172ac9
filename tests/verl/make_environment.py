"""Builds the environment of these tests: `python tests/verl/make_environment.py FOLDER`.

FOLDER/venv gets verl 0.9.1 and what it needs on CPU; FOLDER/verl-0.8.0 gets verl 0.8.0 alone, to be
reached by PYTHONPATH. Then:

    ACTOR_WG_VERL_080=FOLDER/verl-0.8.0 FOLDER/venv/bin/python -m pytest tests/verl
"""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

TORCH = ["torch==2.13.0"]
NEEDED = [
    "codetiming",
    "fastapi",
    "libcst",
    "msgspec",
    "numpy",
    "omegaconf",
    "packaging",
    "pytest",
    "pytest-timeout",
    "ray",
    "tensordict>=0.8,<=0.10",
    "transformers>=5.5.3,<5.11",
    "uvicorn",
    "xxhash",
]


def install(python: Path, *arguments: str) -> None:
    """Run pip in the new environment."""
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *arguments], check=True)


def main(argv: Sequence[str]) -> int:
    """Build it."""
    if len(argv) != 1:
        print("usage: make_environment.py FOLDER", file=sys.stderr)
        return 2
    folder = Path(argv[0]).resolve()
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    install(python, *TORCH)
    install(python, *NEEDED)
    install(python, "--no-deps", "verl==0.9.1")
    install(python, "--no-deps", "--target", str(folder / "verl-0.8.0"), "verl==0.8.0")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
