"""Finds and fixes the names that verl 0.9 renamed from trainer to actor_wg."""

from __future__ import annotations

__version__ = "0.1.0"
