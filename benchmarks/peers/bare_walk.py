"""The floor for any tool that looks at Python files: walk a folder, read each file, search for one word."""

from __future__ import annotations

import os
import sys


def main(folder: str) -> int:
    """Print how many Python files under a folder were read and how many hold the old name's word."""
    files = hits = 0
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.endswith((".py", ".pyi")):
                with open(os.path.join(where, name), "rb") as stream:  # noqa: PTH118, PTH123
                    hits += b"trainer" in stream.read()
                files += 1
    print(files, hits)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
