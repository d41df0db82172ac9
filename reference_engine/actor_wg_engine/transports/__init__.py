"""One file per transport; each registers its backend when imported."""

from __future__ import annotations
