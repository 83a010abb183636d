"""Tables as they come, read with pyarrow: separators, letters and types are found, what is mended is said."""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.tables.suffixes import SEPARATED
from secure_fedgraph.graph.tables.table import Table
from secure_fedgraph.loading import postponed

pa, pc = postponed("pyarrow"), postponed("pyarrow.compute")

LONGEST_NAME = 300
MOST_COLUMNS, LONGEST_HEAD = 20_000, 2**22
"""Of a table: parsers take a time for each column, and a first line may be the whole file."""
MOST = 2**33
"""Bytes of a file that is read, and of what it unpacks to."""
_BLOCK = 2**23
"""Bytes that are parsed at once; no row may be longer."""
_SEPARATORS = (",", ";", "\t", "|")
_TAIL = 64
"""Bytes at the end of a file, among which a quote closes the last cell."""
_SAMPLE = 20
"""Rows that show what separates cells."""
_INDEX = re.compile(r"Unnamed: \d+|__index_level_\d+__|")
"""What pandas calls a column without a name."""


def read_table(path: Path, where: str) -> Table:
    """A table from a file.

    Guarantees:
        - the file's size is checked before it is opened, and what it unpacks to while it is unpacked;
        - nothing in it runs, and what cannot be read raises
          :class:`~secure_fedgraph.core.errors.BadInput` alone;
        - ids and other words are as they stand, but for spaces around them.

    Args:
        path: a file whose name ends in one of :data:`~secure_fedgraph.graph.tables.suffixes.SUFFIXES`.
        where: what messages call it.

    Raises:
        BadInput: for a file that is too large or damaged, or can be read only by a guess.
    """
    with readable(where):
        if path.stat().st_size > MOST:
            raise ValueError(f"it has more than {MOST >> 30} GiB")
        name = path.name.lower()
        read = _separated if name.endswith(SEPARATED) else _parquet if name.endswith(".parquet") else _arrow
        return _without_index(read(path, where))


@contextmanager
def readable(where: str) -> Iterator[None]:
    """What parsers raise becomes one sentence."""
    try:
        yield
    except BadInput:
        raise
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyarrow":
            raise
        raise BadInput(
            "pyarrow, which reads tables, is not installed: pip install 'secure-fedgraph[data]'"
        ) from None
    except Exception as error:  # parsers raise what they like
        why = (str(error).splitlines() or [""])[0][:160]
        kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
        mend = "; save it as UTF-8" if isinstance(error, UnicodeError) else ""
        raise BadInput(f"{where} cannot be read: {kind}{why}{mend}") from None


# --- text ---------------------------------------------------------------------------------------------------


class _Limited(io.RawIOBase):
    """A stream that ends with an error where it gives more than a file may hold, and knows how it ended."""

    def __init__(self, inner: Any) -> None:
        self._inner, self._left, self.tail = inner, MOST, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._inner.read(len(buffer))
        self._left -= len(piece)
        if self._left < 0:
            raise ValueError(f"it unpacks to more than {MOST >> 30} GiB")
        buffer[: len(piece)] = piece
        self.tail = (self.tail + piece[-_TAIL:])[-_TAIL:]
        return len(piece)

    def close(self) -> None:
        self._inner.close()
        super().close()


def _opened(path: Path) -> Any:
    return _Limited(gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb"))


def _separated(path: Path, where: str) -> Table:
    with _opened(path) as file:
        head = file.read(LONGEST_HEAD)
    if not head.strip(b"\xef\xbb\xbf \t\r\n"):
        raise ValueError("it is empty")
    if len(head) == LONGEST_HEAD and not re.search(rb"[\r\n]", head):
        raise ValueError(
            f"its first line names {MOST_COLUMNS:,} columns or more; save features in a .pt file"
        )
    letters = _letters(head)
    try:
        return _parsed(path, where, head, letters)
    except postponed("pyarrow.lib").ArrowInvalid as error:
        if letters != "utf-8" or "invalid UTF8" not in str(error):
            raise
        return _parsed(path, where, head, "cp1252")


def _letters(head: bytes) -> str:
    """How letters are written: by a mark at the start, else UTF-8 where it can be, else Windows' western."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if b"\0" in head:
        raise ValueError("it holds zero bytes, so it is no text; save it as CSV in UTF-8")
    try:
        head[: max(len(head) - 3, 0) if len(head) == LONGEST_HEAD else None].decode()
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _parsed(path: Path, where: str, head: bytes, letters: str) -> Table:
    cut = len(head) == LONGEST_HEAD
    text = head.decode("utf-8-sig" if letters == "utf-8" else letters, errors="ignore" if cut else "strict")
    notes = [] if letters == "utf-8" else [f"its letters are read as {_CALLED[letters]}"]
    said = re.match(r'"?sep=(.)"?\r?\n', text)  # a first line that Excel reads and writes
    text = text[said.end() :] if said else text
    if (most := max(map(text.partition("\n")[0].count, _SEPARATORS))) >= MOST_COLUMNS:
        raise ValueError(f"its first line names {most + 1:,} columns, and at most {MOST_COLUMNS:,} are read")
    separator = said[1] if said else _separator(text, cut)
    names = next(csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True))
    spaced = re.search(rf'(^|{re.escape(separator)})[ ]+"', text, re.MULTILINE) is not None
    source = opened = _opened(path)
    with opened:
        if spaced:  # a quote after a space is one to its writer and none to a parser
            source, letters, said = _closed_up(source, letters, separator, said is not None), "utf-8", None
        columns, rows = _cells(where, source, letters, separator, len(names), 1 if said else 0)
    if "\n" in (columns[-1][-1].as_py() or "") and not opened.tail.rstrip(b"\0 \t\r\n").endswith(b'"'):
        raise _unclosed(where, int(rows[-1]))
    head_row = [column[0].as_py() or "" for column in columns]
    return _table(where, head_row, [column.slice(1) for column in columns], rows[1:], separator, notes)


_CALLED = {"cp1252": "Windows-1252, since they are no UTF-8", "utf-16": "UTF-16"}


def _separator(text: str, cut: bool) -> str:
    """What stands between cells: it makes as many of every row.

    Raises:
        ValueError: where two may.
    """
    counts = {}
    for one in _SEPARATORS:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=one, skipinitialspace=True)
        try:
            fields = [len(row) for _, row in zip(range(_SAMPLE), reader, strict=False) if row]
        except csv.Error:
            continue
        counts[one] = fields[:-1] if cut and len(fields) < _SAMPLE else fields
    several = {one: fields for one, fields in counts.items() if fields and fields[0] > 1}
    even = {one: fields[0] for one, fields in several.items() if len(set(fields)) == 1}
    if not even:  # a damaged row is refused by its number below
        even = {one: fields[0] for one, fields in several.items()} or {",": 1}
    best = [one for one, count in even.items() if count == max(even.values())]
    if len(best) > 1:
        raise ValueError(f"its cells may be separated by {best[0]!r} or by {best[1]!r}; save it with commas")
    return best[0]


def _closed_up(source: Any, letters: str, separator: str, skip: bool) -> io.BytesIO:
    """The same rows without spaces before quotes."""
    text = io.TextIOWrapper(source, "utf-8-sig" if letters == "utf-8" else letters, newline="")
    made = io.StringIO(newline="")
    if skip:
        text.readline()
    csv.writer(made, delimiter=separator, lineterminator="\n").writerows(
        csv.reader(text, delimiter=separator, skipinitialspace=True)
    )
    text.detach()  # whoever opened it closes it
    return io.BytesIO(made.getvalue().encode())


def _cells(
    where: str, source: Any, letters: str, separator: str, wide: int, skip: int
) -> tuple[list[Any], np.ndarray]:
    """Every cell as words, and the rows' numbers."""
    parser = postponed("pyarrow.csv")
    odd: list[tuple[int, int, str]] = []

    def refuse(row: Any) -> str:
        odd.append((int(row.number or 0) + skip, int(row.actual_columns), row.text))
        return "error"

    names = [str(number) for number in range(wide)]
    try:
        table = parser.read_csv(
            source,
            read_options=parser.ReadOptions(
                use_threads=False, block_size=_BLOCK, column_names=names, encoding=letters, skip_rows=skip
            ),
            parse_options=parser.ParseOptions(
                delimiter=separator,
                newlines_in_values=True,
                ignore_empty_lines=False,  # they count as rows
                invalid_row_handler=refuse,
            ),
            convert_options=parser.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
            ),
        )
    except Exception as error:
        if "straddling" in str(error):
            raise ValueError(
                f"a row is longer than {_BLOCK >> 20} MiB: shorten its cells, or close its quote"
            ) from None
        if not odd:
            raise
        row, fields, text = odd[0]
        if _is_open(text, separator):
            raise _unclosed(where, row) from None
        lines = text.strip().count("\n") + 1
        over, mend = "", f"a cell that holds {separator!r} needs quotes around it"
        if lines > 1:
            over, mend = f" over {lines:,} lines", "look for a stray quote"
        raise BadInput(
            f"{where}, row {row} has {fields} cells{over}, and the first line has {wide}: {mend}"
        ) from None
    return [column.combine_chunks() for column in table.columns], np.arange(table.num_rows) + 1 + skip


def _is_open(row: str, separator: str) -> bool:
    """Whether a row ends inside quotes."""
    try:
        list(csv.reader(io.StringIO(row, newline=""), delimiter=separator, strict=True))
    except csv.Error as error:  # of the row's end, or of a cell that is too long by then
        return " after " not in str(error)
    return False


def _unclosed(where: str, row: int) -> BadInput:
    return BadInput(f"{where}, row {row}: a quote is opened and never closed: close it, or leave it out")


# --- files with types ---------------------------------------------------------------------------------------


def _parquet(path: Path, where: str) -> Table:
    parser = postponed("pyarrow.parquet")
    facts = parser.read_metadata(path)
    _check_size(facts.num_rows, facts.num_columns)
    if sum(facts.row_group(number).total_byte_size for number in range(facts.num_row_groups)) > MOST:
        raise ValueError(f"it unpacks to more than {MOST >> 30} GiB")
    leaves = [(number, facts.schema.column(number)) for number in range(facts.num_columns)]
    words = [
        number for number, one in leaves if one.logical_type.type == "STRING" and not one.max_repetition_level
    ]
    file = parser.ParquetFile(path, pre_buffer=False, read_dictionary=words)
    return _of_types(file.read(use_threads=False), where)


def _arrow(path: Path, where: str) -> Table:
    with pa.OSFile(str(path)) as file:
        start = file.read(8)
        file.seek(0)
        if start.startswith(b"FEA1"):
            raise ValueError("it is Feather of version 1; save it as version 2, or as parquet")
        open_ = pa.ipc.open_file if start.startswith(b"ARROW1") else pa.ipc.open_stream
        reader = open_(file, options=pa.ipc.IpcReadOptions(use_threads=False))
        _check_size(0, len(reader.schema))
        return _of_types(reader.read_all(), where)


def _check_size(rows: int, columns: int) -> None:
    if columns > MOST_COLUMNS:
        raise ValueError(f"it has {columns:,} columns, and at most {MOST_COLUMNS:,} are read")
    if rows * columns * 4 > MOST:  # a row of a few bits can be a gigabyte of floats
        raise ValueError(f"its {rows} rows take more than {MOST >> 30} GiB")


def _of_types(table: Any, where: str) -> Table:
    _check_size(table.num_rows, table.num_columns)
    table.validate(full=True)  # offsets of a damaged file point anywhere
    columns = [_stored(column.combine_chunks()) for column in table.columns]
    if sum(map(_unpacked, columns)) > MOST:
        raise ValueError(f"its words take more than {MOST >> 30} GiB")
    rows = np.arange(table.num_rows) + 1
    return _table(where, list(table.column_names), columns, rows, "", [])


def _stored(column: Any) -> Any:
    while isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    return column


def _unpacked(column: Any) -> int:
    """Bytes of a dictionary's words, each as often as it stands: a word in a small file can be terabytes."""
    kinds = pa.types
    if not kinds.is_dictionary(column.type):
        return 0
    words = column.dictionary
    if not (kinds.is_string(words.type) or kinds.is_large_string(words.type)):
        return 0
    return int(pc.sum(pc.cast(pc.binary_length(words), pa.int64()).take(column.indices)).as_py() or 0)


def _plain(column: Any) -> Any:
    """The same cells as words, whole or real numbers, booleans or dates; None for another type."""
    kinds = pa.types
    if kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if kinds.is_null(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind):
        return column.cast(pa.string())
    if kinds.is_string(kind) or kinds.is_boolean(kind):
        return column
    if kinds.is_integer(kind):
        return column if kinds.is_uint64(kind) else column.cast(pa.int64())
    if kinds.is_floating(kind) or kinds.is_decimal(kind):
        return pc.cast(column, pa.float64(), safe=False)
    if kinds.is_date(kind) or kinds.is_timestamp(kind):
        return pc.cast(column, pa.date32(), safe=False)
    return None


# --- both ---------------------------------------------------------------------------------------------------


def _table(
    where: str, names: list[str], given: list[Any], rows: np.ndarray, separator: str, notes: list[str]
) -> Table:
    """Names and words trimmed, columns and rows without anything left out."""
    trimmed = [name.strip() for name in names]
    if odd := [name for name, bare in zip(names, trimmed, strict=True) if name != bare]:
        notes.append(f"{_counted(len(odd), 'name')} of columns had spaces around")
    columns: dict[str, Any] = {}
    unread: dict[str, str] = {}
    spaces = breaks = 0
    for number, (name, values) in enumerate(zip(trimmed, given, strict=True)):
        column = _plain(values)
        if column is not None and pa.types.is_string(column.type):
            bare = pc.utf8_trim_whitespace(column)
            spaces += pc.sum(pc.not_equal(bare, column)).as_py() or 0
            breaks += (pc.sum(pc.match_substring(bare, "\n")).as_py() or 0) if separator else 0
            column = pc.if_else(pc.equal(bare, ""), pa.scalar(None, pa.string()), bare)
        if not name and number:
            if column is not None and column.null_count < len(column):
                raise BadInput(f"{where}: column {number + 1} has no name: name it, or leave it out")
            notes.append(f"column {number + 1} has neither a name nor a value and is left out")
            continue
        if len(name) > LONGEST_NAME:
            raise BadInput(
                f"{where}: the name of column {number + 1} ({name[:30]!r}…) has {len(name)} characters, and "
                f"{LONGEST_NAME} are the most: shorten it"
            )
        if name in columns or name in unread:
            raise BadInput(f"{where} has column {name[:60]!r} twice; rename one")
        if column is None:
            unread[name] = str(values.type)
        else:
            columns[name] = column
    if spaces:
        notes.append(f"{_counted(spaces, 'value')} had spaces around")
    if breaks:
        notes.append(
            f"{_counted(breaks, 'value')} with line breaks: if there should be none, look for a stray quote"
        )
    table = Table(where, columns, rows, separator, unread, tuple(notes))
    if separator and len(table):
        nothing = np.logical_and.reduce(
            [pc.is_null(column).to_numpy(zero_copy_only=False) for column in columns.values()]
        )
        if inner := int(nothing[: len(nothing) - int(np.argmin(nothing[::-1]))].sum()):
            notes = [f"{_counted(inner, 'empty row')} {'is' if inner == 1 else 'are'} left out"]
            table = table.kept(~nothing, *notes)
        elif nothing.any():  # at the end, where programs leave them
            table = table.kept(~nothing)
    if not len(table):
        raise BadInput(f"{where} has no rows")
    return table


def _without_index(table: Table) -> Table:
    """An index that pandas wrote names the rows where nothing else does, and is left out otherwise."""
    unnamed = [name for name in table.columns if _INDEX.fullmatch(name)]
    for name in unnamed:
        columns = dict(table.columns)
        values = columns.pop(name)
        called = f"column {name!r}" if name else "column 1, which has no name,"
        names_rows = (
            table.find("id") is None
            and name == unnamed[0]
            and not values.null_count
            and pc.count_distinct(values).as_py() == len(values)
        )
        note = f"{called} is an index and is left out"
        if names_rows:
            columns, note = {"id": values, **columns}, f"{called} is an index and is taken for 'id'"
        table = Table(table.where, columns, table.rows, table.separator, table.unread, (*table.notes, note))
    return table


def _counted(number: int, what: str) -> str:
    """
    >>> _counted(1, "row"), _counted(2, "row")
    ('1 row', '2 rows')
    """
    return f"{number:,} {what}" + ("" if number == 1 else "s")
