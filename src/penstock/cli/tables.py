"""Tables that fit the terminal: words are folded or cut, numbers never.

If everything fits, the table has a frame. If not, the frame goes and words are folded; if a row would become a
paragraph then, its longest text goes below it; and if that is not enough, every row is written as a list of names and
values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_FRAME: Final = (3, 1)
"""The width of a frame: for each column, and at the end."""
_GAPS: Final = (2, -2)
"""The width of gaps between columns without a frame: for each column, and at the end."""
_SHORT_CHARS: Final = 12
"""The length up to which words are not folded."""
_FOLDED_CHARS_MIN: Final = 12
_FOLDED_LINES_MAX: Final = 3
"""The most lines of a folded row: a longer one is hard to follow from column to column."""
_ELIDED_CHARS_MIN: Final = 8
_INDENTED: Final = 4
"""The indentation of text below a row."""
_FIGURE: Final = re.compile(r"-|[-+]?[0-9].*")
"""Numbers with units, offsets, times; and the dash for none."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, its formatted cells, and whether they are numbers."""

    heading: str
    cells: Sequence[str]
    numeric: bool

    @property
    def has_figures(self) -> bool:
        """True if every cell is a number, size or time, or the dash for none."""
        return self.numeric or all(map(_FIGURE.fullmatch, self.cells))

    @property
    def keeps_width(self) -> bool:
        """True if the column is never folded: it has figures, or short words."""
        return self.has_figures or self._longest <= _SHORT_CHARS

    @property
    def natural_width(self) -> int:
        return max(_width(self.heading), self._longest)

    @property
    def least_width(self) -> int:
        """The smallest width: a heading may be folded between its words."""
        words = max(map(_width, self.heading.split()), default=0)
        return max(words, self._longest) if self.keeps_width else words

    @property
    def _longest(self) -> int:
        return max(map(_width, self.cells), default=0)


def _width(text: str) -> int:
    """Return the width in cells of the terminal."""
    from rich.cells import cell_len

    return cell_len(text)


def columns_of(headings: Sequence[str], rows: Iterable[Sequence[Any]], cell: Any) -> list[Column]:
    """Build columns from rows of values, each formatted by `cell`."""
    body = [list(row) for row in rows]
    columns = []
    for index, heading in enumerate(headings):
        values = [row[index] for row in body]
        numeric = bool(values) and all(isinstance(value, int | float | None) for value in values)
        columns.append(Column(heading, [cell(value) for value in values], numeric))
    return columns


def draw_table(title: str, columns: Sequence[Column], width: int) -> RenderableType:
    """Draw the table, in the first of the four ways that fits the width."""
    if _total_width([column.natural_width for column in columns], _FRAME) <= width:
        return _table(title, columns, [column.natural_width for column in columns], framed=True)
    folded = fit_widths(columns, width, least_width=_FOLDED_CHARS_MIN)
    if folded is not None and _lines_of_longest_row(columns, folded) <= _FOLDED_LINES_MAX:
        return _table(title, columns, folded, framed=False)
    longest = max(columns, key=lambda column: 0 if column.keeps_width else column.natural_width)
    others = [column for column in columns if column is not longest]
    beside = fit_widths(others, width, least_width=_FOLDED_CHARS_MIN)
    if beside is not None and _lines_of_longest_row(others, beside) < _FOLDED_LINES_MAX and longest is not columns[0]:
        return _table_with_text_below(title, others, beside, longest)
    return _name_value_lists(title, columns, width)


def draw_cut_table(title: str, columns: Sequence[Column], width: int) -> Table:
    """Draw one line a row, whatever the width: words are cut, then columns left out, words behind figures first;
    numbers are never cut."""
    natural_widths = [column.natural_width for column in columns]
    if _total_width(natural_widths, _FRAME) <= width:
        return _table(title, columns, natural_widths, framed=True, cut=True)
    kept = list(columns)
    while (widths := fit_widths(kept, width, least_width=_ELIDED_CHARS_MIN)) is None and len(kept) > 1:
        kept.pop(_column_to_drop(kept))
    return _table(title, kept, widths or [column.natural_width for column in kept], framed=False, cut=True)


def _column_to_drop(columns: Sequence[Column]) -> int:
    """Return the index of the column to leave out next: the last of words behind a figure, or else the last."""
    first = next((index for index, column in enumerate(columns) if column.has_figures), len(columns))
    words = [index for index, column in enumerate(columns) if index > first and not column.has_figures]
    return words[-1] if words else len(columns) - 1


def fit_widths(columns: Sequence[Column], width: int, *, least_width: int) -> list[int] | None:
    """Return widths that fit without a frame: of columns of words the widest is narrowed first. None if
    nothing fits."""
    smallest = [
        column.least_width if column.keeps_width else min(column.natural_width, max(least_width, column.least_width))
        for column in columns
    ]
    room = width - _total_width(smallest, _GAPS)
    if room < 0:
        return None
    widths = smallest
    while room > 0:
        wanting = [index for index, column in enumerate(columns) if widths[index] < column.natural_width]
        if not wanting:
            break
        widths[min(wanting, key=lambda index: (columns[index].keeps_width, widths[index]))] += 1
        room -= 1
    return widths


def _total_width(widths: Sequence[int], border: tuple[int, int]) -> int:
    of_each, at_end = border
    return sum(widths) + of_each * len(widths) + at_end


def _lines_of_longest_row(columns: Sequence[Column], widths: Sequence[int]) -> int:
    """Return the number of lines of the longest row."""
    return max(
        (-(-_width(cell) // width) for column, width in zip(columns, widths, strict=True) for cell in column.cells),
        default=1,
    )


def _table(
    title: str | None, columns: Sequence[Column], widths: Sequence[int], *, framed: bool, cut: bool = False
) -> Table:
    from rich.box import HEAVY_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        title=None if title is None else escape(title),
        title_justify="left",
        header_style="bold",
        box=HEAVY_HEAD if framed else None,
        pad_edge=framed,
        padding=(0, 1) if framed else (0, 2, 0, 0),
    )
    for column, width in zip(columns, widths, strict=True):
        justify: Any = "right" if column.numeric else "left"
        table.add_column(escape(column.heading), justify=justify, width=width, overflow="ellipsis" if cut else "fold")
        table.columns[-1].no_wrap = cut and not column.keeps_width
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*map(escape, row))
    return table


def _table_with_text_below(
    title: str, columns: Sequence[Column], widths: Sequence[int], longest: Column
) -> RenderableType:
    """Draw each row with its longest text below it."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    headings = [Column(column.heading, [], column.numeric) for column in columns]
    shown: list[RenderableType] = [_table(title, headings, widths, framed=False)]
    for index, text in enumerate(longest.cells):
        row = [Column(column.heading, [column.cells[index]], column.numeric) for column in columns]
        line = _table(None, row, widths, framed=False)
        line.show_header = False
        shown += [
            line,
            Padding(Text(f"{longest.heading}: {text}", no_wrap=False, overflow="fold"), (0, 0, 0, _INDENTED)),
        ]
    return Group(*shown)


def _name_value_lists(title: str, columns: Sequence[Column], width: int) -> RenderableType:
    """Draw each row as a list of names and values; long values are folded."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    shown: list[RenderableType] = [Text(title, style="italic")]
    names = max(_width(column.heading) for column in columns)
    for row in zip(*(column.cells for column in columns), strict=True):
        grid = Table.grid(padding=(0, 2))
        grid.add_column(width=names, style="bold")
        grid.add_column(width=max(_FOLDED_CHARS_MIN, width - names - 2), overflow="fold")
        for column, text in zip(columns, row, strict=True):
            grid.add_row(Text(column.heading), Text(text))
        shown += [grid, Text("")]
    return Group(*shown[:-1] if len(shown) > 1 else shown)
