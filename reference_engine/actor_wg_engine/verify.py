"""One engine or manager of the user's in a process of its own: JSON lines of results on standard output.

`python -m actor_wg_engine.verify TARGET` is what `actor-wg verify` starts for each class, under a
deadline. What the user's code prints goes to standard error. The lines, in order:

    {"event": "usage", "reason": "..."}            --checks names none; nothing follows
    {"event": "imported", "against": "..."}        the class is there
    {"event": "absent", "reason": "..."}           what it needs is not installed; nothing follows
    {"event": "broken", "reason": "..."}           importing it raised; nothing follows
    {"event": "result", "id", "title", "status", "reason", "seconds"}     one for each check; what
                                                   cannot be constructed (I1) is asked nothing more
    {"event": "end"}                               all checks have run
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actor_wg_engine.conformance.factory import EngineFactory
    from actor_wg_engine.conformance.runner import Runner

STANDIN = Path(__file__).parent / "conformance" / "standin"
_ACCELERATOR = re.compile(
    r"\b(CUDA|NVIDIA|libcuda|nvrtc|cupy|nccl\w*Error|torch_npu|npu|ibverbs|RDMA)\b", re.IGNORECASE
)
Emit = Callable[..., None]
CONSTRUCTION = "I1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this half of `verify`."""
    parser.add_argument("target", metavar="MODULE:CLASS")
    parser.add_argument("--kind", choices=("engine", "manager"), default="engine")
    parser.add_argument("--root", action="append", default=[], metavar="DIR", help="import from it")
    parser.add_argument("--device", choices=("cpu", "cuda", "npu", "auto"), default="auto")
    parser.add_argument("--checks", metavar="IDS", help="letters or ids, such as B,C18")
    parser.add_argument("--engine-kwargs", metavar="JSON", default="{}", help="its settings")
    parser.add_argument("--against", choices=("auto", "engine", "verl"), default="auto")


def run_verify(arguments: argparse.Namespace) -> int:
    """Import the class, run the checks, and tell about each.

    Returns:
        0 when everything that was asked could be tried, whatever came of it.
    """
    settings = json.loads(arguments.engine_kwargs)
    emit = _take_standard_output()
    problem = _unknown_checks(arguments.checks)
    if problem:
        emit(event="usage", reason=f"--checks: {problem}")
        return 0
    if arguments.device != "auto" and not _has(arguments.device):
        emit(event="absent", reason=f"there is no {arguments.device} device here")
        return 0
    against = _prepare_imports(arguments.root, arguments.against)
    if not against:
        emit(event="absent", reason="verl is not installed, and --against verl asks for it")
        return 0
    reason, absent = _import(arguments.target, arguments.root)
    if reason:
        emit(event="absent" if absent else "broken", reason=reason)
        return 0
    device = arguments.device
    if device == "auto":
        device = "cuda" if _has("cuda") else "cpu"
    emit(event="imported", against=against, device=device)
    _run_checks(arguments, device, settings, emit)
    emit(event="end")
    return 0


def _unknown_checks(only: str | None) -> str:
    from actor_wg_engine.conformance.catalog import load

    try:
        load(only)
    except ValueError as error:
        return str(error)
    return ""


def _has(device: str) -> bool:
    import torch

    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    if device == "npu":
        return importlib.util.find_spec("torch_npu") is not None
    return device == "cpu" or torch.cuda.is_available()


def _take_standard_output() -> Emit:
    """Keep standard output for our lines; what anybody else prints goes to standard error."""
    sys.stdout.flush()
    ours = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def emit(**fields: Any) -> None:
        ours.write(json.dumps(fields) + "\n")
        ours.flush()

    return emit


def _prepare_imports(roots: Sequence[str], against: str) -> str:
    """Put the project on the path, and the stand-in for verl where it is to answer; what answers, or ''."""
    front = [str(STANDIN)] if against == "engine" else []
    sys.path[:0] = [*front, *roots]
    if against == "engine":
        return "the reference engine"
    found = importlib.util.find_spec("verl")
    if found is not None and found.origin:
        inside = any(found.origin.startswith(os.path.join(root, "")) for root in roots)  # noqa: PTH118
        return "the copy of verl in the tree" if inside else f"verl {_version()}".rstrip()
    if against == "verl":
        return ""
    sys.path.append(str(STANDIN))
    return "the reference engine (verl is not installed)"


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("verl")
    except PackageNotFoundError:
        return ""


def _import(target: str, roots: Sequence[str]) -> tuple[str, bool]:
    """(why the class cannot be had, whether only because something is not installed here)."""
    from actor_wg_engine.conformance.factory import resolve

    try:
        found = resolve(target)
    except ModuleNotFoundError as error:
        name = error.name or ""
        if _add_parent_of(name, roots):
            return _import(target, roots)
        own = any((Path(root) / name.partition(".")[0]).exists() for root in roots)
        if name.partition(".")[0] == "verl":
            more = "which is verl itself and more than the reference engine has"
            return f"it imports {name}, {more}: install verl>=0.9 and run it again", True
        if own or not name:
            return f"ModuleNotFoundError: {error}", False
        return f"it imports {name}, which is not installed here: {error}", True
    except Exception as error:  # noqa: BLE001 - importing foreign code raises anything
        text = f"{type(error).__name__}: {error}"
        return text, bool(_ACCELERATOR.search(text))
    if found is None:
        return f"{target} is None here: its module could not set it up and says nothing", True
    return ("", False) if isinstance(found, type) else (f"{target} is not a class", False)


def _add_parent_of(name: str, roots: Sequence[str]) -> bool:
    """Where the project's folder is itself the package that it imports from, its parent goes on the path."""
    for root in map(Path, roots):
        if root.name == name.partition(".")[0] and str(root.parent) not in sys.path:
            sys.path.append(str(root.parent))
            importlib.invalidate_caches()
            return True
    return False


def check_construction(factory: EngineFactory) -> None:
    """It can be constructed with bucket_size= and its settings."""
    factory(bucket_size=1 << 20)


def _run_checks(
    arguments: argparse.Namespace, device: str, settings: dict[str, Any], emit: Emit
) -> None:
    from actor_wg_engine import verify_managers
    from actor_wg_engine.conformance.catalog import Check, load
    from actor_wg_engine.conformance.factory import EngineFactory
    from actor_wg_engine.conformance.results import Status
    from actor_wg_engine.conformance.runner import EngineNotFoundError

    target = arguments.target
    if arguments.kind == "manager":
        factory: EngineFactory = verify_managers.ManagerFactory(
            verify_managers.ENGINE, manager=target
        )
        checks = verify_managers.checks()
    else:
        factory = EngineFactory(target, device, settings)
        title = str(check_construction.__doc__).rstrip(".")
        checks = [Check(CONSTRUCTION, title, _importable(check_construction), False, 60.0)]
        checks += load(arguments.checks)
    try:
        runner = _runner(factory)
    except EngineNotFoundError as error:
        emit(event="broken", reason=str(error))
        return
    with runner:
        for one in checks:
            result = runner.run(one)
            status, reason = result.status, result.reason
            lacking = _lacking(reason, device) if status in (Status.FAILED, Status.ADVISORY) else ""
            if lacking:
                status, reason = Status.SKIPPED, lacking
            elif one.id == CONSTRUCTION and status is Status.FAILED and not settings:
                if "unexpected keyword" not in reason:
                    status = Status.SKIPPED
                    reason = f"{reason.splitlines()[0]} (--engine-kwargs JSON gives it settings)"
            emit(
                event="result",
                id=result.id,
                title=result.title,
                status=status.value,
                reason=reason,
                seconds=round(result.seconds, 2),
            )
            if one.id == CONSTRUCTION and status is not Status.PASSED:
                return


def _runner(factory: EngineFactory) -> Runner:
    """The processes behind the checks; a module that disturbs the one they are forked from is left to them.

    Raises:
        EngineNotFoundError: The class cannot be imported there.
    """
    from actor_wg_engine.conformance import nursery
    from actor_wg_engine.conformance.runner import EngineNotFoundError, Runner

    class Careful(Runner):
        def __init__(self, factory: EngineFactory) -> None:
            self.factory = factory
            self._nursery = nursery.Nursery(["torch", "actor_wg_engine.conformance.session"])
            reason = self.find(factory)
            if reason:
                self.close()
                raise EngineNotFoundError(reason)

    try:
        return Runner(factory)
    except RuntimeError:  # it prints on import, or ends the process
        return Careful(factory)


def _importable(function: Callable[..., None]) -> Any:
    """A function of this module as other processes find it, also where this module is `__main__`."""
    from importlib import import_module

    return getattr(import_module("actor_wg_engine.verify"), function.__name__)


def _lacking(reason: str, device: str) -> str:
    """What this machine lacks, where that is why a check did not pass; else empty."""
    first = reason.partition("\n")[0]
    telling = next((line for line in reason.splitlines() if _ACCELERATOR.search(line)), "")
    missing = re.search(r"No module named '([\w.]+)'", first)
    if missing and missing[1].partition(".")[0] not in sys.modules:
        return f"it imports {missing[1]} on the way, which is not installed here"
    if device == "cpu" and telling:
        return f"needs an accelerator that is not here: {telling.strip()}"
    return ""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry of the process."""
    parser = argparse.ArgumentParser(prog="python -m actor_wg_engine.verify")
    add_arguments(parser)
    return run_verify(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
