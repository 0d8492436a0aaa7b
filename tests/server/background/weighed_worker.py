"""The worker, and what it weighs: in a file that is mapped before the right to open anything is given up.

The variable `WEIGHED` names the directory. The file holds two numbers of bytes: what the worker has when it begins, and
what the largest of its children had that have ended.
"""

from __future__ import annotations

import mmap
import os
import resource
from pathlib import Path
from struct import Struct
from typing import Final

from penstock.schema.worker import process

WEIGHTS: Final = Struct("qq")


def mapped() -> mmap.mmap:
    with Path(os.environ["WEIGHED"], str(os.getpid())).open("w+b") as file:
        file.truncate(WEIGHTS.size)
        return mmap.mmap(file.fileno(), WEIGHTS.size)


def main() -> None:
    weights, wait, limit = mapped(), os.wait4, process.limit_memory

    def weigh_the_beginning() -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        WEIGHTS.pack_into(weights, 0, pages * resource.getpagesize(), 0)
        limit()

    def weigh_a_child(child: int, options: int) -> tuple[int, int]:
        child, status, used = wait(child, options)
        begun, most = WEIGHTS.unpack_from(weights)
        WEIGHTS.pack_into(weights, 0, begun, max(most, used.ru_maxrss * 1024))
        return child, status

    process.limit_memory, os.waitpid = weigh_the_beginning, weigh_a_child
    process.main()


if __name__ == "__main__":
    main()
