"""Runs the sync tests without pytest: `python tests/gpu/gpu_run.py [--device cpu] [NAME ...]`.

A name selects the scenarios that begin with it. Exit status: 0 nothing failed, 1 something did.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

import torch
from gpu_scenarios import SCENARIOS, Skipped


def main(arguments: list[str]) -> int:
    """Run the selected scenarios and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("names", nargs="*", help="beginnings of the names of scenarios")
    options = parser.parse_args(arguments)
    chosen = [s for s in SCENARIOS if not options.names or s.name.startswith(tuple(options.names))]
    if not chosen:
        print(f"no scenario begins so; there are: {' '.join(s.name for s in SCENARIOS)}")
        return 1
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    print(f"torch {torch.__version__}, {', '.join(gpus) or 'no GPU'}", flush=True)
    failed = 0
    for scenario in chosen:
        began = time.monotonic()
        note = ""
        try:
            scenario(options.device)
            outcome = "passed"
        except Skipped as reason:
            outcome, note = "skipped", str(reason)
        except Exception:  # noqa: BLE001 - the others still run
            outcome, note = "FAILED", traceback.format_exc()
            failed += 1
        seconds = time.monotonic() - began
        print(f"{outcome:8} {seconds:6.1f} s  {scenario.name}  {note}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
