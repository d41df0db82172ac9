"""`actor-wg bench`: what a sync costs next to the raw primitive under it, in one and the same run.

Everything is measured in turns in the same processes, with the parameter shapes of a real model. Look
at the ratios: the machine may be noisy, but both sides of a ratio saw the same noise.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from actor_wg_engine.bench_rig import Figure, Rig, middle
from actor_wg_engine.bench_shapes import MODELS, many_small, one_large
from actor_wg_engine.conformance.factory import EngineFactory

MIB = 1 << 20
_TRANSPORTS = "actor_wg_engine.transports"
NOISY = 1.5


@dataclass(frozen=True)
class Subject:
    """One engine that can be measured.

    Args:
        name: What the user calls it.
        target: Its class.
        raw: The raw primitive that it is compared with.
        package: What must be installed.
        engine_kwargs: Further constructor arguments.
    """

    name: str
    target: str
    raw: str
    package: str = "torch"
    engine_kwargs: tuple[tuple[str, Any], ...] = ()

    def factory(self, bucket: int, **more: Any) -> EngineFactory:
        """The factory for buckets of this size."""
        kwargs = {**dict(self.engine_kwargs), "staging_bytes": bucket, **more}
        return EngineFactory(self.target, engine_kwargs=kwargs)


SUBJECTS = {
    subject.name: subject
    for subject in (
        Subject("naive", f"{_TRANSPORTS}.colocated:ColocatedCheckpointEngine", "copy"),
        Subject(
            "nccl",
            f"{_TRANSPORTS}.torch_distributed:TorchDistributedCheckpointEngine",
            "copy",
        ),
        Subject(
            "nccl-chain",
            f"{_TRANSPORTS}.torch_distributed:TorchDistributedCheckpointEngine",
            "gloo broadcast",
            engine_kwargs=(("shared_memory", False),),
        ),
        Subject(
            "nixl",
            f"{_TRANSPORTS}.nixl:NIXLCheckpointEngine",
            "socket",
            "nixl_cu12",
        ),
        Subject(
            "mooncake",
            f"{_TRANSPORTS}.mooncake:MooncakeCheckpointEngine",
            "socket",
            "mooncake",
        ),
    )
}


@dataclass(frozen=True)
class Row:
    """One backend with one bucket size, next to its raw primitive."""

    backend: str
    bucket_mib: float
    seconds: float
    gb_per_s: float
    raw: str
    raw_seconds: float
    ratio: float
    cpu_s_per_gb_hop: float
    raw_cpu_s_per_gb_hop: float


@dataclass(frozen=True)
class Goal:
    """One goal and what was measured."""

    what: str
    measured: float
    must: float
    aim: float
    unit: str = "x"

    @property
    def verdict(self) -> str:
        """How it stands."""
        if self.measured <= self.aim:
            return "aim reached"
        return "held" if self.measured <= self.must else "MISSED"


@dataclass
class Report:
    """Everything that a run found."""

    model: str
    payload_bytes: int
    receivers: int
    repeats: int
    rows: list[Row] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> str:
        """The report as JSON, each goal with its verdict."""
        data = asdict(self)
        data["goals"] = [{**asdict(goal), "verdict": goal.verdict} for goal in self.goals]
        return json.dumps(data, indent=2)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `actor-wg bench`."""
    parser.add_argument(
        "--backend",
        default="naive,nccl-chain",
        help=f"one or more of {', '.join(SUBJECTS)}, or all (default: %(default)s)",
    )
    parser.add_argument("--receivers", type=int, default=4, help="rollout workers (default: 4)")
    parser.add_argument(
        "--model", default="qwen2.5-0.5b", choices=sorted(MODELS), help="whose shapes to move"
    )
    parser.add_argument("--layers", type=int, help="only so many layers of it")
    parser.add_argument(
        "--bucket-mb", default="1,4,16,64", help="bucket sizes in MiB (default: %(default)s)"
    )
    parser.add_argument("--repeats", type=int, default=3, help="turns per figure (default: 3)")
    parser.add_argument(
        "--out", type=Path, default=Path("bench-out"), help="folder for bench.json and bench.png"
    )
    parser.add_argument("--no-plot", action="store_true", help="draw no bench.png")


def run_bench(args: argparse.Namespace) -> int:
    """Measure, print a table, and write bench.json and bench.png.

    Returns:
        0, or 2 when an option is wrong or something that was asked for is missing.
    """
    problem = _problem(args)
    if problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    subjects = [SUBJECTS[name] for name in _names(args.backend)]
    buckets = [int(float(size) * MIB) for size in args.bucket_mb.split(",")]
    report = measure(subjects, args.model, args.layers, buckets, args.receivers, args.repeats)
    print(table(report))
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "bench.json").write_text(report.as_json() + "\n")
    written = [str(args.out / "bench.json")]
    if not args.no_plot:
        from actor_wg_engine.bench_plot import draw

        draw(report.rows, report.model, args.out / "bench.png")
        written.append(str(args.out / "bench.png"))
    print(f"written: {', '.join(written)}", file=sys.stderr)
    return 0


def _names(text: str) -> list[str]:
    if text == "all":
        return [
            name for name, subject in SUBJECTS.items() if importlib.util.find_spec(subject.package)
        ]
    return [name.strip() for name in text.split(",") if name.strip()]


def _problem(args: argparse.Namespace) -> str:
    for name in _names(args.backend):
        if name not in SUBJECTS:
            return f"--backend: {name!r} is not one of {', '.join(SUBJECTS)}, all"
        package = SUBJECTS[name].package
        if importlib.util.find_spec(package) is None:
            return f"--backend {name} needs the package {package}, which is not installed"
    if not _names(args.backend):
        return "--backend names nothing"
    try:
        sizes = [float(size) for size in args.bucket_mb.split(",")]
    except ValueError:
        return f"--bucket-mb: {args.bucket_mb!r} is not a list of numbers, such as 1,4,16"
    if min(sizes) <= 0 or args.receivers < 1 or args.repeats < 1:
        return "--bucket-mb, --receivers and --repeats must be positive"
    if args.layers is not None and args.layers < 1:
        return "--layers must be positive"
    if not args.no_plot and importlib.util.find_spec("matplotlib") is None:
        return "the plot needs matplotlib: pip install matplotlib, or pass --no-plot"
    return ""


def measure(
    subjects: Sequence[Subject],
    model: str,
    layers: int | None,
    buckets: Sequence[int],
    receivers: int,
    repeats: int,
) -> Report:
    """Run everything; each engine takes turns with its raw primitive."""
    preload = [subject.target.partition(":")[0] for subject in subjects]
    with Rig(receivers, preload) as rig:
        nbytes = rig.load(MODELS[model].parameters(layers))
        report = Report(model, nbytes, receivers, repeats)
        rig.join_gloo()
        copies = [rig.copy() for _ in range(repeats + 1)][1:]
        for subject in subjects:
            for bucket in buckets:
                report.rows.append(_row(rig, subject, bucket, repeats, report))
        copies += [rig.copy() for _ in range(repeats)]
        spread = max(c.seconds for c in copies) / min(c.seconds for c in copies)
        if spread > NOISY:
            report.notes.append(
                f"a noisy machine: one copy of the payload took from {min(c.seconds for c in copies):.3f}"
                f" to {max(c.seconds for c in copies):.3f} s; trust ratios only"
            )
        rig.each("drop_copy")
        report.goals += _goals(rig, subjects, report, repeats)
    return report


def _row(rig: Rig, subject: Subject, bucket: int, repeats: int, report: Report) -> Row:
    raw_of: dict[str, Callable[[], Figure]] = {
        "copy": rig.copy,
        "gloo broadcast": lambda: rig.raw_broadcast(bucket),
        "socket": lambda: rig.raw_socket(bucket),
    }
    rig.use(subject.factory(bucket), bucket)
    rig.sync()
    rig.require_equal()
    syncs, raws = [], []
    for _ in range(repeats):
        raws.append(raw_of[subject.raw]())
        syncs.append(rig.sync())
    rig.close_group()
    raw, sync = middle(raws), middle(syncs)
    # A copy is one of the n + 1 that shared memory cannot do without.
    times = report.receivers + 1 if subject.raw == "copy" else 1
    hops = report.receivers
    raw_hops = {"copy": 1, "gloo broadcast": report.receivers, "socket": 1}[subject.raw]
    gigabytes = rig.nbytes / 1e9
    return Row(
        subject.name,
        bucket / MIB,
        round(sync.seconds, 4),
        round(gigabytes / sync.seconds, 3),
        f"{times} x {subject.raw}" if times > 1 else subject.raw,
        round(times * raw.seconds, 4),
        round(
            statistics.median(
                s.seconds / (times * r.seconds) for s, r in zip(syncs, raws, strict=True)
            ),
            3,
        ),
        round(sync.cpu / gigabytes / hops, 3),
        round(raw.cpu / gigabytes / raw_hops, 3),
    )


def _goals(rig: Rig, subjects: Sequence[Subject], report: Report, repeats: int) -> list[Goal]:
    goals = []
    for subject in subjects:
        rows = [row for row in report.rows if row.backend == subject.name]
        best = min(rows, key=lambda row: row.ratio)
        bucket = int(best.bucket_mib * MIB)
        if subject.raw == "copy":
            goals.append(
                Goal(f"{subject.name}: time / ((n+1) copies), checksums on", best.ratio, 1.8, 1.4)
            )
            plain = _turns(rig, subject.factory(bucket, checksum=False), bucket, repeats, rig.copy)
            goals.append(
                Goal(
                    f"{subject.name}: time / ((n+1) copies), checksums off",
                    round(plain / (report.receivers + 1), 3), 1.3, 1.0,
                )
            )  # fmt: skip
        elif subject.raw == "gloo broadcast":
            goals.append(Goal(f"{subject.name}: time / raw gloo broadcast", best.ratio, 1.2, 1.0))
            socket = _turns(
                rig, subject.factory(bucket), bucket, repeats, lambda: rig.raw_socket(MIB), cpu=True
            )
            goals.append(
                Goal(
                    f"{subject.name}: CPU seconds per GB and hop / raw socket",
                    round(socket / report.receivers, 3), 1.6, 1.25,
                )
            )  # fmt: skip
            if _has_verl():
                verl = _turns(
                    rig, subject.factory(bucket), bucket, repeats, lambda: rig.verl_path(4 * MIB)
                )
                goals.append(
                    Goal(f"{subject.name}: time / verl's split and merge", round(verl, 3), 1.0, 0.9)
                )
            else:
                report.notes.append("verl is not installed: its split and merge were not measured")
        else:
            goals.append(Goal(f"{subject.name}: time / one raw socket hop", best.ratio, 99.0, 1.3))
    for subject in subjects:
        goals += _small(rig, subject, repeats)
    return goals


def _has_verl() -> bool:
    try:
        return importlib.util.find_spec("verl.single_controller") is not None
    except ModuleNotFoundError:
        return False


def _turns(
    rig: Rig,
    factory: EngineFactory,
    bucket: int,
    repeats: int,
    raw: Callable[[], Figure],
    *,
    cpu: bool = False,
) -> float:
    """The median of sync / raw over interleaved turns."""
    rig.use(factory, bucket)
    rig.sync()
    raw()
    ratios = []
    for _ in range(repeats):
        other, sync = raw(), rig.sync()
        ratios.append(sync.cpu / other.cpu if cpu else sync.seconds / other.seconds)
    rig.close_group()
    return statistics.median(ratios)


def _small(rig: Rig, subject: Subject, repeats: int) -> list[Goal]:
    """What many small tensors cost, and a sync of nothing."""
    seconds: dict[str, float] = {}
    for name, shapes in (("many", many_small()), ("one", one_large()), ("empty", [])):
        rig.load(shapes)
        rig.use(subject.factory(4 * MIB), 4 * MIB)
        rig.sync()
        seconds[name] = statistics.median(rig.sync().seconds for _ in range(max(9, repeats)))
        rig.close_group()
    return [
        Goal(
            f"{subject.name}: 1000 tensors of 4 KiB / one of the same bytes",
            round(seconds["many"] / seconds["one"], 3), 3.0, 2.0,
        ),
        Goal(f"{subject.name}: an empty sync", round(1000 * seconds["empty"], 2), 50.0, 10.0, "ms"),
    ]  # fmt: skip


_TITLE = "{0.model}: {1:.0f} MB to {0.receivers} receivers, median of {0.repeats} turns"
_COLUMNS = (
    f"{'backend':<12}{'bucket':>9}{'sync':>10}{'GB/s':>8}  {'against':<18}{'raw':>9}{'ratio':>8}"
    f"{'CPU s/GB/hop':>14}"
)


def table(report: Report) -> str:
    """The report for people."""
    lines = [
        _TITLE.format(report, report.payload_bytes / 1e6),
        "",
        _COLUMNS,
    ]
    lines += [
        f"{row.backend:<12}{row.bucket_mib:>5g} MiB{row.seconds:>8.3f} s{row.gb_per_s:>8.2f}  {row.raw:<18}"
        f"{row.raw_seconds:>7.3f} s{row.ratio:>8.2f}{row.cpu_s_per_gb_hop:>14.2f}"
        for row in report.rows
    ]
    lines += ["", f"{'goal':<62}{'measured':>10}{'must':>8}{'aim':>7}"]
    lines += [
        f"{goal.what:<62}{goal.measured:>8g} {goal.unit:<2}{goal.must:>7g}{goal.aim:>7g}  {goal.verdict}"
        for goal in report.goals
    ]
    lines += ["", *report.notes] if report.notes else []
    return "\n".join(lines)
