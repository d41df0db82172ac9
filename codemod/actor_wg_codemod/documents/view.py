"""A document's Python as one module text, and the way back from it into the document."""

from __future__ import annotations

import ast
import dataclasses
import warnings
from dataclasses import dataclass

from actor_wg_codemod.model import Edit, Finding, Fix, Safety, Span


@dataclass(frozen=True)
class Line:
    """One line of Python that may have lost parts on the way out of its document.

    Each shift `(at, by)` says that `by` characters were cut out in front of column `at`.
    """

    text: str
    shifts: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Row:
    """Where one line of a view stands: in which cell, at which line there, what was cut out."""

    cell: int | None
    line: int
    shifts: tuple[tuple[int, int], ...] = ()

    def column(self, column: int, *, end: bool = False) -> int:
        """The document's column for a column of the view; an end belongs to what is before it."""
        cut = sum(by for at, by in self.shifts if (at < column if end else at <= column))
        return column + cut


@dataclass(frozen=True)
class PythonView:
    """The Python of a document as one parseable module, names flowing from part to part.

    `rows` has one entry for each line of `source`. `problem` says in one line which parts had
    to be left out because they are not Python, or is None.
    """

    source: str
    rows: tuple[Row, ...]
    problem: str | None = None

    def place(self, span: Span) -> tuple[int | None, Span]:
        """The cell (None where there are no cells) and the span there of a span of `source`."""
        first, last = self.rows[span.line - 1], self.rows[span.end_line - 1]
        return first.cell, Span(
            first.line,
            first.column(span.column),
            last.line,
            last.column(span.end_column, end=True),
        )

    def relocate(self, finding: Finding) -> Finding:
        """A finding about `source` as a finding about the document.

        A fix has to stay within one cell; where an edit lies in another cell than the finding,
        nobody can apply a part of it, so a person has to.
        """
        cell, span = self.place(finding.span)
        if finding.fix is None:
            return dataclasses.replace(finding, cell=cell, span=span)
        edits = []
        for edit in finding.fix.edits:
            edit_cell, edit_span = self.place(edit.span)
            if edit_cell != cell:
                message = f"{finding.message}; it is also used in cell {edit_cell}"
                return Finding("AWG902", span, message, Safety.MANUAL, cell=cell)
            edits.append(Edit(edit_span, edit.text))
        fix = Fix(finding.fix.message, tuple(edits))
        return dataclasses.replace(finding, cell=cell, span=span, fix=fix)


def syntax_problem(source: str) -> tuple[int, str] | None:
    """The line and the reason why `source` is not Python, or None if it is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(source)
    except SyntaxError as error:
        return error.lineno or 1, error.msg
    except (ValueError, RecursionError, MemoryError) as error:
        return 1, str(error) or "nested too deeply"
    return None
