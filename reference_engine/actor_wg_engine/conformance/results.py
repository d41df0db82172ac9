"""What a check can come to: the value types that the runner, the plugin and `verify` exchange."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class CheckSkipped(Exception):  # noqa: N818 - an outcome, not an error
    """Raised by a check that does not apply; the text is the reason that is printed."""


class CheckFailed(AssertionError):  # noqa: N818 - an outcome, not an error
    """Raised by a check when the engine does not hold what the check asks."""


class Status(enum.Enum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    ADVISORY = "advisory"
    """Failed, but verl's own engines fail it too, so it does not count against this backend."""
    SKIPPED = "skipped"


@dataclass(frozen=True)
class CheckResult:
    """The end of one check.

    Args:
        id: The check's id, such as "C18".
        title: What it asks, in one line.
        status: How it ended.
        reason: Why it failed or was skipped; empty when it passed.
        seconds: How long it took.
    """

    id: str
    title: str
    status: Status
    reason: str = ""
    seconds: float = 0.0

    def line(self) -> str:
        """One line for a table of results."""
        tail = f": {self.reason.splitlines()[0]}" if self.reason else ""
        return f"{self.id:<4} {self.status.value:<8} {self.seconds:5.1f}s  {self.title}{tail}"
