"""The screen of the demo: a bar for everything in progress, and a line for each finished step.

On a terminal the bars move; elsewhere there are plain lines, one when a step begins and one when it is done. Everything
goes to standard error: standard output is for the result.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn


class Bar(Protocol):
    """A progress bar. Any thread may move it."""

    def set(self, done: int, total: int | None = None) -> None: ...


class Step:
    """A step of the story. The code that carries it out sets its outcome."""

    def __init__(self, screen: Screen, title: str) -> None:
        self._screen = screen
        self.title = title
        self.outcome = ""
        self.notes: list[str] = []

    def bar(self, what: str, total: int | None = None) -> Bar:
        return self._screen.bar(what, total)

    def note(self, text: str) -> None:
        """Add a line to be shown below the step when it is done."""
        self.notes.append(text)


class Screen:
    """The screen, to be used with `with`."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._live = self._console.is_terminal
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._live,
        )
        self._bars: list[_Task] = []
        self._number = 0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._progress.stop()

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Show a step. Its bars are removed at the end; a failed step leaves a line that says so."""
        self._number += 1
        step, began = Step(self, title), time.monotonic()
        whole = self.bar(title)
        if not self._live:
            self.say(f"{self._number:>2}  {title} ...")
        try:
            yield step
        except BaseException as error:
            self._done(step, "failed" if isinstance(error, Exception) else "interrupted", time.monotonic() - began)
            raise
        else:
            self._done(step, step.outcome, time.monotonic() - began)
        finally:
            self._clear(whole)

    def bar(self, what: str, total: int | None = None) -> _Task:
        made = _Task(self._progress, self._progress.add_task(what, total=total, count=""))
        self._bars.append(made)
        return made

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def _done(self, step: Step, outcome: str, seconds: float) -> None:
        self.say(f"{self._number:>2}  {step.title}: {outcome} ({seconds:.1f} s)")
        for note in step.notes:
            self.say(f"      {note}")

    def _clear(self, first: _Task) -> None:
        """Remove the bars of a step, from its first on."""
        at = self._bars.index(first)
        for each in self._bars[at:]:
            each.remove()
        del self._bars[at:]


class _Task:
    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def set(self, done: int, total: int | None = None) -> None:
        with suppress(KeyError):  # its step is over, and a thread still reports
            if total is not None:
                self._progress.update(self._task, total=total)
            self._progress.update(self._task, completed=done, count=f"{done:,}")

    def remove(self) -> None:
        self._progress.remove_task(self._task)
