"""A stand-in for a monitoring system: it requests every URL once a second, and prints a dot after each round.

`python -P scraper.py URL...`. It imports nothing of Penstock, so that it starts fast.
"""

from __future__ import annotations

import sys
import time
from urllib.request import urlopen

EVERY_SECONDS = 1.0
"""The pause in seconds between rounds. Prometheus scrapes every 60 seconds by default."""
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
