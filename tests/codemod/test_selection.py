"""Which findings are shown: codes, prefixes, the two opt-ins."""

from __future__ import annotations

import pytest

from actor_wg_codemod.model import Finding, Safety, Span
from actor_wg_codemod.selection import (
    CODES,
    CodeError,
    Selection,
    parse_codes,
)

SAFETY = {"AWG901": Safety.UNSAFE, "AWG902": Safety.MANUAL, "AWG201": Safety.MANUAL}
BREAKING = {"AWG001", "AWG002", "AWG003", "AWG011", "AWG012", "AWG013", "AWG021"}
BY_DEFAULT = {*BREAKING, "AWG902"}


def finding(code):
    naming = code.startswith("AWG1")
    safety = Safety.NAMING if naming else SAFETY.get(code, Safety.SAFE)
    return Finding(code, Span(1, 0, 1, 7), "message", safety)


def shown(selection):
    return {code for code in CODES if selection.shows(finding(code))}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, BY_DEFAULT),
        ({"unsafe_fixes": True}, BY_DEFAULT | {"AWG901"}),
        ({"naming": True}, BY_DEFAULT | {"AWG101", "AWG102"}),
        ({"select": ("AWG003",)}, {"AWG003"}),
        ({"select": ("AWG01", "AWG902")}, {"AWG011", "AWG012", "AWG013", "AWG902"}),
        ({"select": ("AWG",)}, BY_DEFAULT),
        ({"select": ("AWG", "AWG2")}, BY_DEFAULT | {"AWG201"}),
        ({"select": ("AWG201",)}, {"AWG201"}),
        ({"select": ("AWG1",)}, {"AWG101", "AWG102"}),
        ({"select": ("AWG102",)}, {"AWG102"}),
        ({"select": ("AWG901",)}, set()),
        ({"select": ("AWG901",), "unsafe_fixes": True}, {"AWG901"}),
        ({"select": ("AWG003",), "naming": True}, {"AWG003"}),
        ({"ignore": ("AWG0",)}, {"AWG902"}),
        ({"ignore": ("AWG001", "AWG902")}, BREAKING - {"AWG001"}),
        ({"ignore": ("AWG102",), "naming": True}, BY_DEFAULT | {"AWG101"}),
        ({"ignore": ("AWG",)}, set()),
        ({"select": ("AWG001",), "ignore": ("AWG0",)}, {"AWG001"}),
        ({"select": ("AWG0",), "ignore": ("AWG001",)}, BREAKING - {"AWG001"}),
        ({"select": ("AWG001",), "ignore": ("AWG001",)}, set()),
    ],
)
def test_the_longest_entry_wins(options, expected):
    assert shown(Selection(**options)) == expected


def test_naming_is_looked_for_when_asked_or_selected():
    assert not Selection().wants_naming
    assert not Selection(select=("AWG",)).wants_naming
    assert Selection(naming=True).wants_naming
    assert Selection(select=("AWG10",)).wants_naming


def test_only_what_the_flag_alone_would_show_is_hidden_as_unsafe():
    assert Selection().hides_as_unsafe(finding("AWG901"))
    assert not Selection(unsafe_fixes=True).hides_as_unsafe(finding("AWG901"))
    assert not Selection(ignore=("AWG9",)).hides_as_unsafe(finding("AWG901"))
    assert not Selection().hides_as_unsafe(finding("AWG001"))


def test_codes_are_given_with_commas_and_in_any_case():
    assert parse_codes(["awg001, AWG1", "AWG902,"]) == ("AWG001", "AWG1", "AWG902")
    for wrong in ("E501", "AWG0012", "AWG4", "001"):
        with pytest.raises(CodeError, match=f"unknown code '{wrong}'; the codes are AWG001"):
            parse_codes(["AWG001", wrong])
