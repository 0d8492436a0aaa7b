"""Tables that fit the terminal. Text may be folded or cut, numbers never are.

There are four layouts, and the first that fits is used. With a frame, if every cell fits. Without a frame, with folded
text. With the longest text of each row below the row, if a row would otherwise have too many lines. As a list of names
and values for each row.
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
"""The width of a frame: characters for each column, and characters for the table."""
_GAPS: Final = (2, -2)
"""The width of the gaps in a table without a frame: characters for each column, and characters for the table."""
_SHORT_CHARS: Final = 12
"""The length in characters up to which text is not folded."""
_FOLDED_CHARS_MIN: Final = 12
_FOLDED_LINES_MAX: Final = 3
"""The most lines of a row with folded text. Rows with more lines are hard to read across the columns."""
_ELIDED_CHARS_MIN: Final = 8
_INDENTED: Final = 4
"""The number of blanks before text that is below a row."""
_FIGURE: Final = re.compile(r"-|[-+]?[0-9].*")
"""A pattern for numbers, also with units, offsets and times; and for the dash that stands for no value."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, and its cells as text."""

    heading: str
    cells: Sequence[str]
    numeric: bool

    @property
    def has_figures(self) -> bool:
        """True if every cell is a number, a size, a time, or the dash for no value."""
        return self.numeric or all(map(_FIGURE.fullmatch, self.cells))

    @property
    def keeps_width(self) -> bool:
        """True if the column is never folded, because it has figures or only short text."""
        return self.has_figures or self._longest <= _SHORT_CHARS

    @property
    def natural_width(self) -> int:
        return max(_width(self.heading), self._longest)

    @property
    def least_width(self) -> int:
        """The smallest width that the column may have. A heading may be folded between its words."""
        words = max(map(_width, self.heading.split()), default=0)
        return max(words, self._longest) if self.keeps_width else words

    @property
    def _longest(self) -> int:
        return max(map(_width, self.cells), default=0)


def _width(text: str) -> int:
    """Return the number of cells that a text takes on the terminal."""
    from rich.cells import cell_len

    return cell_len(text)


def columns_of(headings: Sequence[str], rows: Iterable[Sequence[Any]], cell: Any) -> list[Column]:
    """Build columns from headings and rows of values. `cell` converts a value to text."""
    body = [list(row) for row in rows]
    columns = []
    for index, heading in enumerate(headings):
        values = [row[index] for row in body]
        numeric = bool(values) and all(isinstance(value, int | float | None) for value in values)
        columns.append(Column(heading, [cell(value) for value in values], numeric))
    return columns


def draw_table(title: str, columns: Sequence[Column], width: int) -> RenderableType:
    """Draw a table in the first of the four layouts that fits into `width`."""
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
    """Draw a table with one line for each row. To fit into `width`, text is cut first, then columns are left out: text
    columns to the right of figures first. Numbers are never cut."""
    natural_widths = [column.natural_width for column in columns]
    if _total_width(natural_widths, _FRAME) <= width:
        return _table(title, columns, natural_widths, framed=True, cut=True)
    kept = list(columns)
    while (widths := fit_widths(kept, width, least_width=_ELIDED_CHARS_MIN)) is None and len(kept) > 1:
        kept.pop(_column_to_drop(kept))
    return _table(title, kept, widths or [column.natural_width for column in kept], framed=False, cut=True)


def _column_to_drop(columns: Sequence[Column]) -> int:
    """Return the index of the column to leave out next: the last text column to the right of a figure, else the last
    column."""
    first = next((index for index, column in enumerate(columns) if column.has_figures), len(columns))
    words = [index for index, column in enumerate(columns) if index > first and not column.has_figures]
    return words[-1] if words else len(columns) - 1


def fit_widths(columns: Sequence[Column], width: int, *, least_width: int) -> list[int] | None:
    """Return a width for each column with which the table fits without a frame; None if it cannot fit. The widest text
    columns are narrowed most, but not below `least_width`."""
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
    """Return the number of lines that the row with the most lines takes with these widths."""
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
    """Draw each row on one line, and the text of its column `longest` below it."""
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
    """Draw each row as a list of names and values. Long values are folded."""
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
