"""Answers `import verl` with the reference engine, where verl itself is not installed.

Put the parent folder on PYTHONPATH. Only what a checkpoint backend or manager needs is here.
"""

from __future__ import annotations

__version__ = "0.9.1"
