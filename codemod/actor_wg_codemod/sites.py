"""The sites of one module: every old name in it goes to the room for its kind."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from actor_wg_codemod import renames
from actor_wg_codemod.bindings import DEFS, Chain
from actor_wg_codemod.model import Finding

if TYPE_CHECKING:
    pass

from actor_wg_codemod.call_sites import CallSites, is_key
from actor_wg_codemod.parameter_sites import ParameterSites
from actor_wg_codemod.string_sites import StringSites


class Sites(CallSites, StringSites, ParameterSites):
    """Decides about the old names of one module."""

    def findings(self) -> list[Finding]:
        """All breaking findings of the module, proven or not, in source order."""
        for word in (self.names.group, self.names.size):
            for chain in self.module.carriers(word):
                self._site(chain, word)
        for chain in self.module.chains(r"\*\*|\b(kwargs|kwds)\s*=(?!=)", ast.Call):
            self._splats(chain)
        for chain in self.module.carriers(renames.WITHDRAWN_KEYWORD):
            if isinstance(chain[-1][0], ast.keyword) and self._looks_constructed(chain[-2][0]):
                self._withdrawn(chain)
        return sorted(self.found.values(), key=lambda f: (f.span, f.code))

    def _site(self, chain: Chain, word: str) -> None:
        node = chain[-1][0]
        if isinstance(node, (ast.keyword, ast.Constant)) and is_key(chain):
            self._splatted_elsewhere(chain, word)
        if isinstance(node, ast.keyword):
            if isinstance(chain[-2][0], ast.Call):
                self._keyword(chain, word)
        elif isinstance(node, ast.Attribute):
            self._attribute(chain, word)
        elif isinstance(node, ast.Constant):
            self._string(chain, word)
        elif isinstance(node, ast.arg):
            self._parameter(chain, word)
        elif isinstance(node, DEFS):
            self._own_property(chain, word)
        elif isinstance(node, ast.MatchClass):
            self._pattern(chain, word)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            self._class_level(chain, word)
