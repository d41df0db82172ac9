"""Makes the plain modules beside the tests importable; the worker processes find them by themselves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))
