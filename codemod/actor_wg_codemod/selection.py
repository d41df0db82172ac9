"""Which findings are shown: codes selected and ignored the way flake8 does it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from actor_wg_codemod.model import Finding, Safety

CODES = (
    "AWG001", "AWG002", "AWG003", "AWG011", "AWG012", "AWG013", "AWG021",
    "AWG101", "AWG102", "AWG201", "AWG901", "AWG902",
)  # fmt: skip
_OPT_IN = ("AWG1", "AWG2")
"""Groups that only an entry of `--select` longer than the common prefix turns on."""
_NAMING = "AWG1"
_ADVICE = "AWG2"

_SEPARATOR = re.compile(r"[,\s]+")


class CodeError(ValueError):
    """A code that no rule has; the text is one line for the user."""


@dataclass(frozen=True)
class Selection:
    """Decides whether a code is shown. Entries are codes or prefixes; the longest one wins."""

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    unsafe_fixes: bool = False
    naming: bool = False

    @property
    def wants_naming(self) -> bool:
        """Whether naming findings have to be looked for at all."""
        return self.naming or self._names_group(_NAMING)

    @property
    def wants_advice(self) -> bool:
        """Whether advice has to be looked for at all."""
        return self._names_group(_ADVICE)

    def shows(self, finding: Finding) -> bool:
        """Whether the finding is listed and, where it has a fix, fixed."""
        if finding.safety is Safety.UNSAFE and not self.unsafe_fixes:
            return False
        return self._selects(finding.code)

    def hides_as_unsafe(self, finding: Finding) -> bool:
        """Whether `--unsafe-fixes` alone would bring this finding up."""
        return (
            finding.safety is Safety.UNSAFE
            and not self.unsafe_fixes
            and self._selects(finding.code)
        )

    def _names_group(self, group: str) -> bool:
        return any(entry.startswith(group) for entry in self.select or ())

    def _selects(self, code: str) -> bool:
        group = code[: len(_NAMING)]
        asked = self._names_group(group) or (group == _NAMING and self.naming)
        if group in _OPT_IN and not asked:
            return False
        selected = max((len(e) for e in self._entries if code.startswith(e)), default=None)
        ignored = max((len(e) for e in self.ignore if code.startswith(e)), default=None)
        if selected is None:
            return False
        return ignored is None or selected > ignored

    @cached_property
    def _entries(self) -> tuple[str, ...]:
        return ("",) if self.select is None else self.select


def parse_codes(entries: Iterable[str]) -> tuple[str, ...]:
    """Codes or prefixes of codes, from values that may each hold several with commas between.

    Raises:
        CodeError: an entry is neither a code nor the beginning of one.
    """
    codes = []
    for entry in entries:
        for code in filter(None, _SEPARATOR.split(entry.strip())):
            known = code.upper()
            if not any(rule.startswith(known) for rule in CODES):
                raise CodeError(f"unknown code {code!r}; the codes are {', '.join(CODES)}")
            codes.append(known)
    return tuple(codes)
