"""A monitoring system: asks for every URL once a second, and prints a dot for each round.

`python -P scraper.py URL...`. A program without any import of Penstock, so that it starts at once.
"""

from __future__ import annotations

import sys
import time
from urllib.request import urlopen

EVERY_SECONDS = 1.0
"""Seconds between rounds: fifteen times as often as Prometheus asks by default."""
TIMEOUT_SECONDS = 30


def get(url: str) -> None:
    with urlopen(url, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 - the URLs of our own broker
        answer.read()


def main(urls: list[str]) -> None:
    while True:
        for url in urls:
            get(url)
        sys.stdout.write(".\n")
        sys.stdout.flush()
        time.sleep(EVERY_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1:])
