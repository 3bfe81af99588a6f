"""A factor for every docid, by the length of its vector: one byte each."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from pixnar import _native
from pixnar.base.errors import FileFormatError
from pixnar.base.storage import read_container, write_container
from pixnar.runtime.formats import Floats
from pixnar.runtime.rows import HeadRows

Classes = NDArray[np.uint8]

KIND = "factors"
VERSION = 1
_KINDS = 256  # values a byte can name
_OUTLIERS = 1e-4  # of the docids at either end may have factors beyond the ends
_WIDER = 1.01
_MOST = 1e30  # far from where floats end


class _Known(NamedTuple):
    """The classes of one table, and which table it is."""

    identity: str
    classes: Classes


class DocidFactors:
    """The factor of a docid: 1 / norm of the sum of the phrase rows of its first `slots` tokens, rounded to a class.

    Classes are numbered by rising factor, and the ratio of neighbours is constant. A docid gets the class that is
    nearest on a logarithmic scale; beyond the ends it gets the class at the end, and a norm of 0 the smallest factor.
    The factor depends on the tokens alone, so a docid has the same one in every table.

    >>> rows = HeadRows.build(np.diag([1, 2, 4]).astype(np.float32), format="float32")
    >>> factors = DocidFactors(rows, slots=2, low=0.25, high=1.0)
    >>> [round(float(factors.values[c]), 2) for c in (0, 128, 255)]
    [0.25, 0.5, 1.0]
    """

    def __init__(self, rows: HeadRows, slots: int, low: float, high: float, *, threads: int = 0) -> None:
        if not 1 <= slots <= _native.MOST_SLOTS:
            raise ValueError(f"{slots} slots: give 1 to {_native.MOST_SLOTS}")
        if not 1 / _MOST <= low <= high <= _MOST:
            raise ValueError(f"factors from {low} to {high}: give {1 / _MOST:g} to {_MOST:g}, the smaller one first")
        self._rows, self._slots, self._threads = rows, slots, threads
        self._low, self._high = low, high
        step = (math.log(high) - math.log(low)) / (_KINDS - 1)
        inner = [min(max(low * math.exp(i * step), low), high) for i in range(1, _KINDS - 1)]
        self._set_values(np.array([low, *inner, high], np.float32))
        self._known: _Known | None = None

    @classmethod
    def build(cls, rows: HeadRows, table: _native.DocidTable, slots: int, threads: int = 0) -> DocidFactors:
        """With the range that the docids of a table need, but for a few outliers."""
        norms = rows.docid_norms(table, slots, threads=threads)
        positive = norms[(norms > 0) & np.isfinite(norms)]
        ends = [1.0, 1.0]
        if len(positive):
            first = int(_OUTLIERS * len(positive))
            last = len(positive) - 1 - first
            positive.partition([first, last])
            ends = [1 / float(positive[last]), 1 / float(positive[first])]
        low, high = (min(max(end, 1 / _MOST), _MOST) for end in (ends[0] / _WIDER, ends[1] * _WIDER))
        factors = cls(rows, slots, low, high, threads=threads)
        factors._known = _Known(_identity(table), factors._classes_of(norms))
        return factors

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one file, with the classes of the table that the factors were built or loaded for."""
        if self._known is None:
            raise ValueError("these factors belong to no table: build them for one")
        meta = {"low": self._low, "high": self._high, "slots": self._slots, "table": self._known.identity}
        arrays: dict[str, NDArray[Any]] = {"values": self.values, "classes": self._known.classes}
        write_container(path, KIND, VERSION, meta | _rows_meta(self._rows), arrays)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], rows: HeadRows, slots: int, *, threads: int = 0, verify: bool = False
    ) -> DocidFactors:
        """Map a file that `save` wrote; `rows` and `slots` are those it was built with. `verify` checks every byte."""
        found = read_container(path, KIND, VERSION, verify=verify)
        try:
            meta, values, classes = found.meta, found.arrays["values"], found.arrays["classes"]
            if meta["slots"] != slots or any(meta[name] != value for name, value in _rows_meta(rows).items()):
                raise ValueError("they belong to other phrase rows or another number of slots")
            if classes.dtype != np.uint8 or values.dtype != np.float32 or len(values) != _KINDS:
                raise ValueError("its arrays have the wrong type or size")
            if not (values[0] > 0 and np.isfinite(values).all() and (np.diff(values) >= 0).all()):
                raise ValueError("its values are not rising positive numbers")
            factors = cls(rows, slots, float(meta["low"]), float(meta["high"]), threads=threads)
            identity = meta["table"]
            if not isinstance(identity, str):
                raise ValueError("it names no table")
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise FileFormatError(f"{Path(path)} has no usable factors ({error}): build them again") from error
        # As they were computed there: another machine's logarithms may differ in the last bit.
        factors._set_values(values)
        factors._known = _Known(identity, classes)
        return factors

    def of_table(self, table: _native.DocidTable) -> DocidFactors:
        """The same factors, with the classes of another table at hand: to be saved for a part of an index."""
        made = DocidFactors(self._rows, self._slots, self._low, self._high, threads=self._threads)
        made._set_values(self.values)
        made._known = _Known(_identity(table), self.classes(table))
        return made

    @property
    def slots(self) -> int:
        """How many tokens of a docid count."""
        return self._slots

    @property
    def low(self) -> float:
        """The smallest factor."""
        return self._low

    @property
    def high(self) -> float:
        """The greatest factor."""
        return self._high

    def classes(self, table: _native.DocidTable) -> Classes:
        """The class of every docid of a table, by row; `values` has their factors.

        Those of the table that the factors were built for are there already. To tell that it is this table, its tokens
        are read once.
        """
        known = self._known
        if known is not None and len(known.classes) == table.rows and known.identity == _identity(table):
            return known.classes
        return self._classes_of(self._rows.docid_norms(table, self._slots, threads=self._threads))

    def of(self, tokens: Sequence[int]) -> float:
        """The factor of one docid."""
        builder = _native.DocidBuilder(self._rows.count)
        ids, numbers = np.array(tokens, np.uint32), np.zeros(1, np.uint32)
        builder.add(ids, np.array([0, len(ids)], np.int64), numbers, b"", np.zeros(0, np.int64))
        table = _native.DocidTable(builder.finish(1, True, 1, None))
        return float(self.values[self.classes(table)[0]])

    def _classes_of(self, norms: Floats) -> Classes:
        classes = np.zeros(len(norms), np.uint8)
        for start in range(0, len(norms), 1 << 20):
            some = norms[start : start + (1 << 20)].astype(np.float64)
            inverse = np.divide(1.0, some, out=np.zeros_like(some), where=some > 0)
            classes[start : start + len(some)] = np.searchsorted(self._borders, inverse)
        return classes

    def _set_values(self, values: Floats) -> None:
        self.values = values
        wide = values.astype(np.float64)
        self._borders = np.sqrt(wide[1:] * wide[:-1])  # half-way between neighbours, by ratio


def _identity(table: _native.DocidTable) -> str:
    """Stands for all docids of a table and their order: two tables with the same one have the same classes."""
    whole = xxhash.xxh3_128(table.packed_tokens.data)
    whole.update(np.array([table.vocabulary, *table.lengths.tolist()], np.uint64).data)
    return whole.hexdigest()


def _rows_meta(rows: HeadRows) -> dict[str, Any]:
    return {"format": rows.format, "rows": rows.count, "d": rows.dim}
