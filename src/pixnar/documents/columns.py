"""Metadata turned on its side: per key the values of all documents, so that a filter reads arrays, not records.

A key may hold numbers in one document and text in another, so a column has up to three parts: numbers as float64, text
as codes into a sorted dictionary, and true/false. A part is *dense* (one value per document, with a mark for "none") or
*sparse* (document numbers and values, a document as often as it has values), whichever is smaller. All parts of one
type lie in one array; what belongs where is told by a JSON record behind the dictionaries' words.
"""

from __future__ import annotations

import datetime
import functools
import json
import operator
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixnar.base.strings import TextBlocks, damaged

Scalar = str | float | bool
Mask = NDArray[np.bool_]
Order = Literal["<", "<=", ">", ">="]

MOST_KEYS = 1_000
LONGEST_TEXT = 256
ORDERS: dict[Order, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NO_FLAG = 2
_EXACT = 2**53
_STORED = {"u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "f64": np.float64}


def elements(value: object) -> list[Scalar]:
    """What a filter sees of a metadata value: nothing, one value, or the values in a list.

    Null, objects, and lists inside lists are nothing. Text counts up to its 256th character: a column is no place for
    essays. Numbers are floats, dates their ISO text (as they are in JSON).

    >>> elements("de"), elements(7), elements(["a", None, True, {"b": 1}]), elements({})
    (['de'], [7.0], ['a', True], [])
    """
    if isinstance(value, list | tuple):
        return [found for each in value if (found := _scalar(each)) is not None]
    found = _scalar(value)
    return [] if found is None else [found]


def as_text(value: object) -> str:
    """The text of a date or time, which Parquet has and JSON has not; a TypeError for anything else."""
    if isinstance(value, datetime.date | datetime.time):  # a datetime is a date, too
        return value.isoformat()
    raise TypeError(f"a {type(value).__name__} is no JSON value")


def word_bytes(text: str) -> bytes:
    """Text as bytes whose order is that of code points; half a surrogate pair, which JSON can spell, is allowed."""
    return text.encode("utf-8", "surrogatepass")


class ColumnWriter:
    """Gathers the values of all documents, in order, and packs them into arrays for a container.

    With `keys` these have columns and no others, however often they are used.
    """

    def __init__(self, keys: Collection[str] | None = None) -> None:
        self._gathered: dict[str, _KeyValues] = {}
        self._keys = keys

    def add(self, number: int, metadata: Mapping[str, Any]) -> None:
        """Take the metadata of the document of this number; numbers must not go down."""
        for key, value in metadata.items():
            column = self._gathered.get(key)
            if column is None:
                column = self._gathered[key] = _KeyValues()
            kind = type(value)
            if kind is str:
                column.text(number, value[:LONGEST_TEXT])
                column.documents += 1
            elif kind is float or (kind is int and -_EXACT < value < _EXACT):
                column.number(number, value)
                column.documents += 1
            else:
                column.other(number, value)

    def arrays(self, documents: int, *, threads: int = 0) -> dict[str, NDArray[Any]]:
        """The arrays that `Columns` reads; empties the writer."""
        parts: dict[str, list[NDArray[Any]]] = {name: [] for name in _STORED}
        words = TextBlocks.pack(self._packed(documents, parts), threads=threads)
        found: dict[str, NDArray[Any]] = {f"words.{name}": each for name, each in words.items()}
        for name, stored in _STORED.items():
            found[name] = np.concatenate([np.zeros(0, stored), *parts.pop(name)])
        return found

    def _packed(self, documents: int, parts: dict[str, list[NDArray[Any]]]) -> Iterator[bytes]:
        """Fill `parts`; give the words of all dictionaries and, behind them, the two records of names."""
        nested = sorted(key for key, each in self._gathered.items() if each.nested and not each.documents)
        uses = {key: each.documents for key, each in self._gathered.items() if each.documents or not each.nested}
        ranked = sorted(uses, key=lambda key: (-uses[key], key))
        if self._keys is None:
            kept, rare = sorted(ranked[:MOST_KEYS]), sorted(ranked[MOST_KEYS:])
        else:
            kept, rare = sorted(uses.keys() & set(self._keys)), sorted(uses.keys() - set(self._keys))
        ends = dict.fromkeys(_STORED, 0)

        def put(values: NDArray[Any]) -> list[Any]:
            name = next(name for name, stored in _STORED.items() if values.dtype == stored)
            parts[name].append(values)
            begin, ends[name] = ends[name], ends[name] + values.size
            return [name, begin, ends[name]]

        directory: dict[str, list[Any]] = {}
        first = 0
        for key in kept:
            column = self._gathered.pop(key)  # taken out: what is packed need not be held twice
            directory[key] = entries = []
            words = sorted(column.words)
            for kind, docs, values, none in column.parts(words):
                dense = _dense(docs, values, none, documents)
                stored = [put(dense)] if dense is not None else [put(values), put(docs)]
                entries.append([kind, first, len(words) if kind == "text" else 0, *stored])
            first += len(words)
            yield from map(word_bytes, words)
        self._gathered.clear()
        yield json.dumps(directory).encode()
        yield json.dumps({"nested": nested, "rare": rare}).encode()


class Columns:
    """The columns of a container, opened as they are asked for."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], where: str = "a table of columns") -> None:
        """`where` names the file in errors; nothing is read yet."""
        self._arrays = arrays
        self._where = where

    @property
    def keys(self) -> list[str]:
        """The keys that a filter may name, sorted."""
        return list(self._directory)

    def column(self, key: str) -> Column | None:
        """The column of a key, or None if no filter may name it."""
        entries = self._directory.get(key)
        if entries is None:
            return None
        try:
            return Column([self._part(*entry) for entry in entries], self._words, self._where)
        except (TypeError, ValueError, KeyError) as error:
            raise damaged(self._where, f"column {key!r} cannot be read") from error

    def why_not(self, key: str) -> Literal["nested", "rare", "unknown"]:
        """Why a key has no column: it holds objects only, too many keys are more frequent, or no document has it."""
        others = self.others
        return "nested" if key in others["nested"] else "rare" if key in others["rare"] else "unknown"

    @property
    def others(self) -> dict[str, list[str]]:
        """The keys that have no column, because they hold objects only, or because too many are more frequent."""
        found = self._names(1)
        return {why: list(found.get(why, ())) for why in ("nested", "rare")}

    @functools.cached_property
    def _words(self) -> TextBlocks:
        names = ("blocks", "starts", "firsts")
        arrays = {name: self._arrays[f"words.{name}"] for name in names if f"words.{name}" in self._arrays}
        return TextBlocks(arrays, self._where)

    @functools.cached_property
    def _directory(self) -> dict[str, Any]:
        return self._names(0)

    def _names(self, which: int) -> dict[str, Any]:
        if len(self._words) < 2:
            raise damaged(self._where, "its list of columns is not there")
        try:
            found = json.loads(self._words[len(self._words) - 2 + which])
        except (ValueError, RecursionError) as error:
            raise damaged(self._where, "its list of columns cannot be read") from error
        if not isinstance(found, dict):
            raise damaged(self._where, "its list of columns cannot be read")
        return found

    def _part(
        self, kind: str, first: int, words: int, values: tuple[str, int, int], docs: tuple[str, int, int] | None = None
    ) -> _ColumnPart:
        if not 0 <= first <= first + words <= len(self._words):
            raise ValueError("words outside the dictionary")
        return _ColumnPart(
            kind, range(first, first + words), self._slice(*values), None if docs is None else self._slice(*docs)
        )

    def _slice(self, name: str, begin: int, end: int) -> NDArray[Any]:
        if not 0 <= begin <= end <= self._arrays[name].size:
            raise ValueError("a slice outside its array")
        return self._arrays[name][begin:end]


class _ColumnPart(NamedTuple):
    kind: str  # "number", "text" or "flag"
    words: range  # where in the store of words the dictionary of a text part is
    values: NDArray[Any]
    docs: NDArray[np.uint32] | None  # None: dense


class Column:
    """All values of one key. Every answer is a fresh mask over n documents."""

    def __init__(self, parts: list[_ColumnPart], words: TextBlocks, where: str) -> None:
        self._parts = parts
        self._words = words
        self._where = where

    def has(self, n: int) -> Mask:
        """Documents with any value."""
        return self._union(n, (self._spread(part, _present(part), n) for part in self._parts))

    def any_of(self, wanted: Collection[Scalar], n: int) -> Mask:
        """Documents with a value among `wanted`; a value only equals one of its own type."""
        return self._union(n, (self._spread(part, self._equal(part, wanted), n) for part in self._parts))

    def ordered(self, order: Order, border: str | float, n: int) -> Mask:
        """Documents with a value on one side of `border`, and of its type."""
        kind = "text" if isinstance(border, str) else "number"
        hits = ((part, self._beyond(part, order, border)) for part in self._parts if part.kind == kind)
        return self._union(n, (self._spread(part, hit, n) for part, hit in hits))

    def examples(self, most: int = 5) -> list[Scalar]:
        """What its values look like: words from all over the dictionary, least and greatest number, true or false."""
        found: list[Scalar] = []
        for part in self._parts:
            if part.kind == "text":
                places = np.unique(np.linspace(0, len(part.words) - 1, min(most, len(part.words))).round().astype(int))
                words = [self._words[part.words[at]] for at in places.tolist()]
                found += [word.decode("utf-8", "surrogatepass") for word in words]
                continue
            values = part.values[_present(part) & np.isfinite(part.values)]
            ends = {values.min().item(), values.max().item()} if values.size else set()
            found += [bool(value) if part.kind == "flag" else float(value) for value in sorted(ends)]
        return found

    def _equal(self, part: _ColumnPart, wanted: Collection[Scalar]) -> Mask:
        if part.kind == "text":
            places = ((self._place(part, word), word) for word in wanted if isinstance(word, str))
            codes = [
                at for at, word in places if at < len(part.words) and self._words[part.words[at]] == word_bytes(word)
            ]
            if len(codes) < 2:
                return _same(part.values, codes)
            table = np.zeros(len(part.words) + 1, np.bool_)
            table[codes] = True
            try:
                found: Mask = table[part.values]
                return found
            except IndexError as error:
                raise damaged(self._where, "a column has codes outside its dictionary") from error
        if part.kind == "flag":
            return _same(part.values, [int(flag) for flag in wanted if isinstance(flag, bool)])
        return _same(part.values, [number for number in wanted if isinstance(number, float)])

    def _beyond(self, part: _ColumnPart, order: Order, border: str | float) -> Mask:
        if not isinstance(border, str):
            hit: Mask = ORDERS[order](part.values, border)
            return hit
        place = self._place(part, border)
        if order in ("<=", ">") and place < len(part.words):
            place += self._words[part.words[place]] == word_bytes(border)
        if order in ("<", "<="):
            below: Mask = part.values < place
            return below
        above: Mask = (part.values >= place) & (part.values < len(part.words))  # the code behind the last means none
        return above

    def _place(self, part: _ColumnPart, word: str) -> int:
        """How many words of the dictionary come before this one."""
        return bisect_left(part.words, word_bytes(word), key=self._words.__getitem__)

    def _spread(self, part: _ColumnPart, hit: Mask, n: int) -> Mask:
        if part.docs is None:
            if hit.size != n:
                raise damaged(self._where, f"a column has {hit.size} values for {n} documents")
            return hit
        mask = np.zeros(n, np.bool_)
        try:
            mask[part.docs[hit]] = True
        except IndexError as error:
            raise damaged(self._where, "a column names documents that are not there") from error
        return mask

    @staticmethod
    def _union(n: int, masks: Iterator[Mask]) -> Mask:
        first = next(masks, None)
        if first is None:
            return np.zeros(n, np.bool_)
        for mask in masks:
            first |= mask
        return first


class _KeyValues:
    """The values of one key so far: per type the numbers of documents and the values, side by side."""

    __slots__ = ("_flags", "_numbers", "_texts", "documents", "nested", "words")

    def __init__(self) -> None:
        self.documents = 0
        self.nested = False
        self.words: dict[str, int] = {}
        self._numbers: tuple[array[int], array[float]] | None = None
        self._texts: tuple[array[int], array[int]] | None = None
        self._flags: tuple[array[int], array[int]] | None = None

    def number(self, doc: int, value: float) -> None:
        if self._numbers is None:
            self._numbers = array("I"), array("d")
        self._numbers[0].append(doc)
        self._numbers[1].append(value)

    def text(self, doc: int, value: str) -> None:
        if self._texts is None:
            self._texts = array("I"), array("I")
        self._texts[0].append(doc)
        self._texts[1].append(self.words.setdefault(value, len(self.words)))

    def other(self, doc: int, value: object) -> None:
        found = elements(value)
        for each in found:
            if isinstance(each, str):
                self.text(doc, each)
            elif isinstance(each, bool):
                self._flags = self._flags or (array("I"), array("B"))
                self._flags[0].append(doc)
                self._flags[1].append(each)
            else:
                self.number(doc, each)
        self.documents += bool(found)
        self.nested = self.nested or (not found and bool(value))

    def parts(self, words: list[str]) -> Iterator[tuple[str, NDArray[Any], NDArray[Any], float]]:
        """Kind, documents, values (codes are places in `words`, the sorted dictionary), and what stands for none."""
        if self._numbers is not None:
            yield "number", np.array(self._numbers[0], np.uint32), np.array(self._numbers[1], np.float64), np.nan
        if self._texts is not None:
            code = np.uint8 if len(words) < 2**8 else np.uint16 if len(words) < 2**16 else np.uint32
            places = np.zeros(len(words), code)
            places[[self.words[word] for word in words]] = np.arange(len(words), dtype=code)
            yield "text", np.array(self._texts[0], np.uint32), places[np.array(self._texts[1])], len(words)
        if self._flags is not None:
            yield "flag", np.array(self._flags[0], np.uint32), np.array(self._flags[1], np.uint8), _NO_FLAG


def _dense(docs: NDArray[Any], values: NDArray[Any], none: float, documents: int) -> NDArray[Any] | None:
    """One value per document, if that is possible and takes less room than document numbers with values."""
    several = bool((docs[1:] == docs[:-1]).any())
    if several or docs.nbytes + values.nbytes < documents * values.itemsize or _has_nan(values):
        return None  # a NaN among the values could not be told from none
    dense = np.full(documents, none, values.dtype)
    dense[docs] = values
    return dense


def _has_nan(values: NDArray[Any]) -> bool:
    return values.dtype.kind == "f" and bool(np.isnan(values).any())


def _present(part: _ColumnPart) -> Mask:
    if part.docs is not None:
        return np.ones(part.docs.size, np.bool_)
    if part.kind == "number":
        real: Mask = ~np.isnan(part.values)
        return real
    present: Mask = part.values != (len(part.words) if part.kind == "text" else _NO_FLAG)
    return present


def _same(values: NDArray[Any], wanted: list[Any]) -> Mask:
    if not wanted:
        return np.zeros(values.size, np.bool_)
    if len(wanted) == 1:
        same: Mask = values == wanted[0]
        return same
    return np.isin(values, np.array(wanted, values.dtype))


def _scalar(value: object) -> Scalar | None:
    if isinstance(value, str):
        return value[:LONGEST_TEXT]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    if isinstance(value, datetime.date | datetime.time):
        return as_text(value)
    return None
