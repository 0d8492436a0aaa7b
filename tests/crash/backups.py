"""Makes one backup after another, each when it is told to; for tests that kill it."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.record.kernels import kernel_cache
from penstock.storage.backup.backup import back_up


def main(root: Path, target: Path) -> None:
    kernel_cache.load_all()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        done = back_up(root, target)
        sys.stdout.write(f"{done.manifest.messages}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
