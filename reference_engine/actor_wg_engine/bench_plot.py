"""Draws GB/s over bucket size, each backend against its raw primitive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actor_wg_engine.bench import Row


def draw(rows: Sequence[Row], model: str, path: Path) -> None:
    """Write the plot as a PNG.

    Args:
        rows: What was measured.
        model: Whose shapes, for the title.
        path: The file to write.

    Raises:
        ImportError: matplotlib is not installed.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    for backend in dict.fromkeys(row.backend for row in rows):
        own = sorted(
            (row for row in rows if row.backend == backend), key=lambda row: row.bucket_mib
        )
        sizes = [row.bucket_mib for row in own]
        (line,) = axes.plot(sizes, [row.gb_per_s for row in own], marker="o", label=backend)
        raw = [row.gb_per_s * row.seconds / row.raw_seconds for row in own]
        axes.plot(sizes, raw, linestyle="--", color=line.get_color(), label=f"raw: {own[0].raw}")
    axes.set_xscale("log", base=2)
    axes.set_xlabel("bucket size (MiB)")
    axes.set_ylabel("payload GB/s to all receivers")
    axes.set_ylim(bottom=0)
    axes.set_title(f"Weight sync, {model} shapes")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
