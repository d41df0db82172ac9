"""verl.workers, as far as a checkpoint backend needs it."""

from __future__ import annotations
