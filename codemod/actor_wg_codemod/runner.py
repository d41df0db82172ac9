"""Runs the analysis over a project's files; applies, proves and writes what it found.

Nothing is written before every change is known and git has been asked about uncommitted work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from actor_wg_codemod import editing, git, noqa, writer
from actor_wg_codemod import source as reading
from actor_wg_codemod.analysis import Analysis
from actor_wg_codemod.discovery import Target, Tree, UsageError
from actor_wg_codemod.editing import Job, RefusedError
from actor_wg_codemod.model import FileResult, Finding, Problem
from actor_wg_codemod.selection import Selection

_WORTH_A_POOL = 64
"""Files to change from which on processes save more time than they cost."""
_SHOWN_DIRTY = 5

Progress = Callable[[int], None]
"""Called with how many of the tree's targets are done."""


@dataclass(frozen=True)
class Options:
    """What to look for and how. `overlay` holds bytes that stand in for files on disk."""

    selection: Selection = field(default_factory=Selection)
    verl_roots: tuple[str, ...] = ()
    reverse: bool = False
    jobs: int = 1
    overlay: Mapping[str, bytes] = field(default_factory=dict)
    progress: Progress | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of one file.

    `findings` are those to list: all of them after `check`, what is left after `migrate`, in
    places of the text as it is then on disk. `fixed` are those whose edits make `new` of `old`.
    """

    target: Target
    source: reading.Source | None
    findings: tuple[Finding, ...] = ()
    fixed: tuple[Finding, ...] = ()
    new: bytes | None = None

    @property
    def old(self) -> bytes:
        """The bytes that were analyzed."""
        return b"" if self.source is None else reading.encode(self.source, self.source.text)


@dataclass(frozen=True)
class Run:
    """The outcome of a run: files with findings or changes, in the order of their names.

    Problems name files as given on the command line. `hidden` counts the findings that only
    `--unsafe-fixes` shows; `skipped` the files that were named or found but not looked into.
    """

    outcomes: tuple[Outcome, ...]
    problems: tuple[Problem, ...]
    read: int
    skipped: int
    hidden: int = 0

    @property
    def changed(self) -> tuple[Outcome, ...]:
        """Files with new bytes."""
        return tuple(outcome for outcome in self.outcomes if outcome.new is not None)

    @property
    def left(self) -> int:
        """How many findings are listed."""
        return sum(len(outcome.findings) for outcome in self.outcomes)


def analyze(tree: Tree, options: Options) -> Analysis:
    """The analysis of the tree's project, for `check`; it can serve for several targets."""
    return Analysis(
        tree.root,
        tree.files,
        verl_roots=options.verl_roots,
        naming=options.selection.wants_naming,
        advice=options.selection.wants_advice,
        reverse=options.reverse,
        overlay=options.overlay,
    )


def check(tree: Tree, options: Options, analysis: Analysis | None = None) -> Run:
    """Lists the findings of the tree's targets; changes nothing."""
    selection = options.selection
    analysis = analysis or analyze(tree, options)
    outcomes = []
    problems = list(tree.problems)
    hidden = unread = 0
    for number, target in enumerate(tree.targets):
        if options.progress is not None:
            options.progress(number)
        if not analysis.relevant(target.path):
            reason = analysis.project.unreadable.get(target.path)
            if reason is not None:
                problems.append(Problem(target.shown, reason))
                unread += 1
            continue
        result = _findings(analysis, target.path)
        if result.problem is not None:
            problems.append(Problem(target.shown, result.problem.reason))
            unread += not result.findings
        if not result.findings:
            continue
        source = analysis.source(target.path)
        found = list(noqa.without_silenced(target.path, source, result.findings))
        hidden += sum(map(selection.hides_as_unsafe, found))
        shown = sorted(filter(selection.shows, found), key=_order)
        if shown:
            outcomes.append(Outcome(target, source, tuple(shown)))
    read = len(tree.targets) - unread
    return Run(tuple(outcomes), tuple(problems), read, tree.skipped + unread, hidden)


def migrate(tree: Tree, options: Options, *, write: bool = True, allow_dirty: bool = False) -> Run:
    """Applies the fixes of all listed findings that have one.

    A file that fails is left as it was, with its findings, and named in the problems.

    Args:
        tree: the project.
        options: what to look for.
        write: whether files are written, or the new bytes only returned.
        allow_dirty: whether files with uncommitted changes may be written.

    Raises:
        UsageError: git has uncommitted changes in a file to be written; nothing was written.
    """
    run = check(tree, options)
    problems = list(run.problems)
    jobs = []
    for outcome in run.outcomes:
        fixable = tuple(finding for finding in outcome.findings if finding.fix)
        if fixable and outcome.source is not None:
            jobs.append(Job(outcome.target.path, outcome.source, fixable))
    edited = dict(zip([job.path for job in jobs], _edited(jobs, options), strict=True))
    if write and not allow_dirty:
        _refuse_dirty(tree.root, [path for path, new in edited.items() if isinstance(new, bytes)])
    outcomes = []
    folders: set[Path] = set()
    for outcome in run.outcomes:
        new = edited.get(outcome.target.path)
        result = new if isinstance(new, str) else None
        if isinstance(new, bytes):
            if write:
                result = _write(tree.root / outcome.target.path, outcome.old, new, folders)
            if result is None:
                outcome = _changed(outcome, new, moved=write)
        if result is not None:
            problems.append(Problem(outcome.target.shown, result))
        outcomes.append(outcome)
    return Run(tuple(outcomes), tuple(problems), run.read, run.skipped, run.hidden)


def _findings(analysis: Analysis, path: str) -> FileResult:
    try:
        return analysis.findings(path)
    except RecursionError:
        reason = "nested too deeply for this Python"
        return FileResult(path, problem=Problem(path, reason))


def _order(finding: Finding) -> tuple[int, int, int, str]:
    return (finding.cell or 0, finding.span.line, finding.span.column, finding.code)


def _edited(jobs: Sequence[Job], options: Options) -> Iterator[bytes | str]:
    """For each job the new bytes, or the reason why there are none."""
    if len(jobs) < _WORTH_A_POOL or options.jobs < 2:
        yield from map(_edited_or_reason, jobs)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    from actor_wg_codemod import transformer  # noqa: F401  imported once, before the fork

    workers = min(options.jobs, len(jobs) // (_WORTH_A_POOL // 4))
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        futures = [pool.submit(_edited_or_reason, job) for job in jobs]
        for future in futures:
            try:
                yield future.result()
            except BrokenProcessPool:
                yield "the process that was to edit it died; run again with --jobs 1"


def _edited_or_reason(job: Job) -> bytes | str:
    try:
        return editing.edited(job)
    except RefusedError as error:
        return f"left alone: {error}"
    except RecursionError:
        return "left alone: nested too deeply for this Python"


def _refuse_dirty(root: Path, paths: Iterable[str]) -> None:
    checkouts: dict[Path, list[str]] = {}
    tops: dict[Path, Path | None] = {}
    for path in paths:
        full = root / path
        if full.parent not in tops:
            tops[full.parent] = git.top(full.parent)
        top = tops[full.parent]
        if top is not None:
            checkouts.setdefault(top, []).append(full.relative_to(top).as_posix())
    for top, names in checkouts.items():
        try:
            dirty = git.uncommitted(top, names)
        except git.GitError as error:
            raise UsageError(
                f"{top}: cannot ask git for uncommitted changes ({error}); nothing was written; "
                "--allow-dirty writes anyway"
            ) from None
        if dirty:
            more = f" and {len(dirty) - _SHOWN_DIRTY} more" if len(dirty) > _SHOWN_DIRTY else ""
            raise UsageError(
                f"uncommitted changes in {', '.join(dirty[:_SHOWN_DIRTY])}{more}; nothing was "
                "written; commit them, or write anyway with --allow-dirty"
            )


def _write(path: Path, old: bytes, new: bytes, folders: set[Path]) -> str | None:
    """Writes a file; the reason where it could not be."""
    if path.parent not in folders:
        folders.add(path.parent)
        writer.remove_leftovers(path.parent)
    try:
        writer.write(path, old, new)
    except writer.WriteError as error:
        return str(error)
    return None


def _changed(outcome: Outcome, new: bytes, *, moved: bool) -> Outcome:
    fixed = tuple(finding for finding in outcome.findings if finding.fix)
    left = tuple(finding for finding in outcome.findings if not finding.fix)
    if moved:
        left = tuple(editing.moved(finding, fixed) for finding in left)
    return Outcome(outcome.target, outcome.source, left, fixed, new)
