"""A table at one moment, which stays as it is while the table changes; and how its documents are numbered."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby, islice, pairwise

import numpy as np
from numpy.typing import NDArray

from pixnar import _native
from pixnar.corpus.records import Document
from pixnar.documents.columns import Scalar, elements, word_bytes
from pixnar.documents.documents import Documents
from pixnar.documents.filters import Filter, parse
from pixnar.table.generation import STEP
from pixnar.table.journal import Difference, Tokens
from pixnar.table.overlay import Added, Bits

Ints = NDArray[np.int64]


class Numbering:
    """The documents of one state of a table: from their numbers to their units, and back.

    A table numbers documents in the order they came, and they are these integers all the way through a search; ids are
    looked up for the hits alone. The lexical index and vectors are written once, by the numbers of the table as it was
    built: the *units*. Numbers and units differ only after a change. Compaction takes removed documents out, so that
    others move up; and documents that came later have units behind all others, in the order of their ids, however the
    table came to hold them. What is known of that are two small arrays here, made once for each state of a table, and
    one array in the file of a compacted table (`Origin`). Without such changes a unit is the number itself.

    >>> from pixnar.documents.documents import Documents, pack_documents
    >>> from pixnar.corpus.records import Document
    >>> documents = Documents(pack_documents([Document(name, "", "", {}) for name in "abc"], threads=1), "a test")
    >>> numbering = Numbering(documents, later=np.array([4, 3]), gone=[1])
    >>> numbering.units(np.array([0, 3, 4])).tolist(), numbering.numbers(np.array([2, 3])).tolist()
    ([0, 4, 3], [2, 4])
    """

    def __init__(self, documents: Documents, later: Ints, gone: Collection[int]) -> None:
        """`later` are the numbers of documents that the build did not have, `gone` those of removed ones."""
        self.built, self.later = documents.origin.size, later
        self._count, self._then, self._now = len(documents), documents.origin.numbers, documents.by_origin
        self._order = np.argsort(later)
        self._sorted = later[self._order]
        self.gone = self._units_gone(gone)

    def units(self, numbers: Ints) -> Ints:
        """The units of documents; -1 for one that has come since and has no docid."""
        units = np.full(len(numbers), -1, np.int64)
        old = (numbers >= 0) & (numbers < self._count)
        units[old] = numbers[old] if self._then is None else self._then[numbers[old]]
        if len(self.later):
            places = np.minimum(np.searchsorted(self._sorted, numbers), len(self.later) - 1)
            later = self._sorted[places] == numbers
            units[later] = self.built + self._order[places[later]]
        return units

    def numbers(self, units: Ints) -> Ints:
        """The numbers of documents; -1 for one that is gone since a compaction."""
        numbers, later = units.copy(), units >= self.built
        if self._now is not None:
            numbers[~later] = self._now[units[~later]]
        numbers[later] = self.later[units[later] - self.built]
        return numbers

    def _units_gone(self, gone: Collection[int]) -> Ints:
        """The units of documents that the build had and that are not there any more, ascending."""
        numbers = np.array(sorted(number for number in gone if number < self._count), np.int64)
        units = numbers if self._then is None else self._then[numbers]
        before = np.zeros(0, np.int64) if self._now is None else np.flatnonzero(self._now < 0)
        return np.union1d(units[units >= 0], before)


_AT_ONCE = 4096  # docids whose documents are looked up together


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What a decoder takes: the large table, what was removed from it, and the small table of additions.

    The numbers of documents mean something only together with the snapshot they come from.
    """

    version: int
    table: _native.DocidTable
    documents: Documents
    dead: Bits | None
    added: Added | None
    new: Sequence[str]  # ids of the documents that have numbers behind those of `documents`
    numbers: Mapping[str, int | None]  # of ids that changed; None: removed
    gone: frozenset[int]  # numbers of removed documents
    records: Mapping[int, Document]  # of documents that are new or were described anew
    difference: Difference  # from the table that was built
    changed: bool  # whether there is any

    def __iter__(self) -> Iterator[tuple[Tokens, list[str]]]:
        """Every docid with the sorted ids of its documents: by length, then by tokens."""
        docids = self._docids()
        while some := list(islice(docids, _AT_ONCE)):
            ids = iter(self.doc_ids([number for _, numbers in some for number in numbers]))
            for tokens, numbers in some:
                yield tokens, sorted(islice(ids, len(numbers)), key=word_bytes)

    @cached_property
    def numbering(self) -> Numbering:
        """How numbers of documents stand to those that the table was built with."""
        numbers = self.numbers_of(sorted(self.difference.added, key=word_bytes))
        numbers = numbers[numbers >= 0]
        then = self.documents.origin.numbers
        old = numbers < len(self.documents)
        if then is not None:
            old[old] = then[numbers[old]] >= 0
        return Numbering(self.documents, numbers[~old], self.gone)

    def doc_ids(self, numbers: Sequence[int] | Ints) -> list[str]:
        """The ids of documents by their numbers."""
        old = self.documents.count
        known = iter(self.documents.doc_ids([n for n in numbers if n < old]))
        return [next(known) if n < old else self.new[n - old] for n in numbers]

    def numbers_of(self, doc_ids: Sequence[str]) -> Ints:
        """The numbers of documents by their ids, -1 for those that are not there."""
        numbers = self.documents.numbers(doc_ids)
        for place, doc_id in enumerate(doc_ids if self.numbers else ()):
            if doc_id in self.numbers:
                number = self.numbers[doc_id]
                numbers[place] = -1 if number is None else number
        return numbers

    def id_keys(self, numbers: Ints) -> Bits:
        """What sorts documents by their ids, as the native core does."""
        old = numbers < self.documents.count
        keys = np.empty(len(numbers), np.uint64)
        keys[old] = (self.documents.rank[numbers[old]].astype(np.uint64) + np.uint64(1)) << np.uint64(32)
        if self.added is not None:
            keys[~old] = self.added.keys[numbers[~old] - self.documents.count]
        return keys

    def allowed(
        self,
        allow: Iterable[str] | None = None,
        forbid: Iterable[str] | None = None,
        where: str | Filter | None = None,
    ) -> Bits | None:
        """A bit for each document that passes; None if all do. Ids that are not in the table are left aside."""
        if allow is None and forbid is None and where is None:
            return None
        old, size = len(self.documents), len(self.documents) + len(self.new)
        mask = np.ones(size, np.bool_)
        if where is not None:
            condition = parse(where) if isinstance(where, str) else where
            mask[:old] = condition.mask(self.documents.columns, old, known=self.new_keys)
            for number, document in self.records.items():
                mask[number] = condition.matches(document.metadata)
        if allow is not None:
            named = np.zeros(size, np.bool_)
            named[self._known(allow)] = True
            mask &= named
        if forbid is not None:
            mask[self._known(forbid)] = False
        return _bits(mask)

    def only(self, numbers: Ints, allowed: Bits | None) -> Bits:
        """A bit for each of some documents, given by number, that is among those allowed."""
        mask = np.zeros(self.documents.count + len(self.new), np.bool_)
        mask[numbers[numbers >= 0]] = True
        bits = _bits(mask)
        return bits if allowed is None else bits & allowed

    def keys(self, most: int = 5) -> dict[str, list[Scalar]]:
        """The metadata keys that a filter may name, sorted, each with examples of its values."""
        columns = self.documents.columns
        found: dict[str, list[Scalar]] = {}
        for key in sorted({*columns.keys, *self.new_keys}):
            column = columns.column(key)
            added = (elements(document.metadata.get(key)) for document in self.records.values())
            values = column.examples(most) if column else list(islice(dict.fromkeys(chain.from_iterable(added)), most))
            if column or values:
                found[key] = values
        return found

    @cached_property
    def new_keys(self) -> set[str]:
        """Metadata keys that a filter may name although no column has them."""
        return {key for document in self.records.values() for key in document.metadata}

    def _known(self, doc_ids: Iterable[str]) -> Ints:
        numbers = self.numbers_of(list(doc_ids))
        return numbers[numbers >= 0]

    def _docids(self) -> Iterator[tuple[Tokens, list[int]]]:
        """Every docid with the numbers of its documents, in order."""
        old = self._pairs(self.table, self.dead, None)
        if not self.added:
            yield from old
            return
        new = self._pairs(self.added.table, None, self.added.documents.tolist())
        for (_, tokens), same in groupby(heapq.merge(old, new, key=_place), key=_place):
            yield tokens, [number for _, numbers in same for number in numbers]

    @staticmethod
    def _pairs(
        table: _native.DocidTable, dead: Bits | None, numbering: list[int] | None
    ) -> Iterator[tuple[Tokens, list[int]]]:
        """Every row with the numbers of its documents, but for removed ones."""
        for first in range(0, table.rows, STEP):
            found, offsets, numbers, rows = table.records(first, min(first + STEP, table.rows), dead)
            borders = [0, *(np.flatnonzero(np.diff(rows)) + 1).tolist(), len(rows)] if len(rows) else []
            ids, edges, named = found.tolist(), offsets.tolist(), numbers.tolist()
            if numbering is not None:
                named = [numbering[n] for n in named]
            for begin, end in pairwise(borders):
                yield tuple(ids[edges[begin] : edges[begin + 1]]), named[begin:end]


def _bits(mask: NDArray[np.bool_]) -> Bits:
    """A mask of documents as the native core takes it."""
    bits = np.zeros((len(mask) + 63) // 64 * 8, np.uint8)
    packed = np.packbits(mask, bitorder="little")
    bits[: len(packed)] = packed
    return bits.view(np.uint64)


def _place(row: tuple[Tokens, list[int]]) -> tuple[int, Tokens]:
    return len(row[0]), row[0]
