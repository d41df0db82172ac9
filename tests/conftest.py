"""Lets every test import `helpers`, and downloads a release of verl for those that read one."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Downloads and unpacks one release of verl, for any Python; once for each."""
    folder = tmp_path_factory.mktemp("verl")
    options = ["--quiet", "--no-deps", "--ignore-requires-python", "--dest", str(folder)]
    pip = [sys.executable, "-m", "pip", "download", *options]

    def unpack(version: str) -> Path:
        target = folder / version
        if not target.exists():
            subprocess.run([*pip, f"verl=={version}"], check=True, capture_output=True)
            with zipfile.ZipFile(next(folder.glob(f"verl-{version}-*.whl"))) as archive:
                archive.extractall(target)
        return target

    return unpack
