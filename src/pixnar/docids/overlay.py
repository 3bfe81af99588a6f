"""What has changed since a table was built: removed pairs as bits, added ones as a second, small table."""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixnar import _native
from pixnar.corpus.records import Document
from pixnar.docids.documents import Documents
from pixnar.docids.journal import Change, Tokens

Bits = NDArray[np.uint64]


class Added(NamedTuple):
    """The additions as the decoder takes them."""

    table: _native.DocidTable
    documents: NDArray[np.uint32]  # the number of each document of the small table
    twins: NDArray[np.uint32]  # by row: the row of the large table with the same tokens, or NO_TWIN
    keys: NDArray[np.uint64]  # by new document: its place among the ids of the old ones


class Overlay:
    """The sum of all changes to one table. A document that was removed and comes back is a new one."""

    def __init__(self, table: _native.DocidTable, documents: Documents) -> None:
        self._table, self._documents = table, documents
        self.dead: Bits | None = None
        self.removed = 0  # pairs
        self.pairs: dict[Tokens, dict[int, None]] = {}
        self.spellings: dict[Tokens, str] = {}
        self.records: dict[int, Document] = {}  # of new documents, and of old ones that were described anew
        self.new: list[str] = []  # ids of new documents; the first has the number behind the last old one
        self.gone: set[int] = set()
        self.numbers: dict[str, int | None] = {}  # of ids that changed; None: removed
        self._docids: dict[int, set[Tokens]] = {}  # by document, of the additions

    def number(self, doc_id: str) -> int | None:
        """The number of a document that is there."""
        return self.numbers[doc_id] if doc_id in self.numbers else self._documents.number(doc_id)

    def apply(self, change: Change) -> None:
        """Take in a change."""
        if self.dead is not None:
            self.dead = self.dead.copy()  # searches that are under way keep the old one
        for doc_id in change.remove_documents:
            self._remove_document(doc_id)
        for tokens in change.remove_docids:
            self._remove_docid(tokens)
        for doc_id, tokens in change.remove_pairs:
            if (number := self.number(doc_id)) is not None:
                self._remove_pair(number, tokens)
        for i, (doc_id, tokens) in enumerate(change.add):
            self._add(doc_id, tokens, change.spellings[i] if change.spellings else None)
        for document in change.documents:
            self.records[self._number_or_new(document.doc_id)] = document

    def added(self, threads: int = 1) -> Added | None:
        """The additions as a table, or None without any."""
        if not self.pairs and not self.new:
            return None
        numbers = sorted({number for named in self.pairs.values() for number in named})
        local = {number: i for i, number in enumerate(numbers)}
        records = [(tokens, local[number]) for tokens, named in self.pairs.items() for number in named]
        table = _native.DocidTable(table_of(records, self._table.vocabulary, len(numbers), threads))
        twins = np.full(table.rows, _native.NO_TWIN, np.uint32)
        for row in range(table.rows):
            found = self._table.find(table.tokens(row))
            if found < self._table.rows:
                twins[row] = found
        return Added(table, np.array(numbers, np.uint32), twins, self._keys())

    def _keys(self) -> NDArray[np.uint64]:
        places: dict[str, tuple[int, bytes]] = {}
        for doc_id in self.new:
            data = doc_id.encode("utf-8", "surrogatepass")
            key: Callable[[int], bytes] = self._id_bytes
            places[doc_id] = (bisect_left(self._by_rank, data, key=key), data)
        keys = {}
        for order, doc_id in enumerate(sorted(places, key=places.__getitem__)):
            keys[doc_id] = (places[doc_id][0] << 32) + order + 1
        return np.array([keys[doc_id] for doc_id in self.new], np.uint64)

    @functools.cached_property
    def _by_rank(self) -> NDArray[np.uint32]:
        order = np.empty(len(self._documents), np.uint32)
        order[self._documents.rank] = np.arange(len(order), dtype=np.uint32)
        return order

    def _id_bytes(self, number: int) -> bytes:
        return self._documents.doc_id(int(number)).encode("utf-8", "surrogatepass")

    def _number_or_new(self, doc_id: str) -> int:
        number = self.number(doc_id)
        if number is None:
            number = len(self._documents) + len(self.new)
            self.new.append(doc_id)
            self.numbers[doc_id] = number
            self.records[number] = Document(doc_id, "", "", {})
        return number

    def _add(self, doc_id: str, tokens: Tokens, spelling: str | None) -> None:
        number = self._number_or_new(doc_id)
        if (pair := self._pair(number, tokens)) is not None:
            self._mark(pair, False)
            return
        self.pairs.setdefault(tokens, {})[number] = None
        self._docids.setdefault(number, set()).add(tokens)
        if spelling is not None:
            self.spellings.setdefault(tokens, spelling)

    def _remove_document(self, doc_id: str) -> None:
        number = self.number(doc_id)
        if number is None:
            return
        if number < len(self._documents):
            for row in self._table.rows_of(number).tolist():
                first, named = self._table.pairs_of(row)
                self._mark(first + int(np.searchsorted(named, number)), True)
        for tokens in self._docids.pop(number, ()):
            self._drop(number, tokens)
        self.numbers[doc_id] = None
        self.records.pop(number, None)
        self.gone.add(number)

    def _remove_docid(self, tokens: Tokens) -> None:
        row = self._table.find(np.array(tokens, np.uint32))
        if row < self._table.rows:
            first, named = self._table.pairs_of(row)
            for pair in range(first, first + len(named)):
                self._mark(pair, True)
        for number in list(self.pairs.get(tokens, ())):
            self._docids[number].discard(tokens)
            self._drop(number, tokens)

    def _remove_pair(self, number: int, tokens: Tokens) -> None:
        if (pair := self._pair(number, tokens)) is not None:
            self._mark(pair, True)
        elif number in self.pairs.get(tokens, ()):
            self._docids[number].discard(tokens)
            self._drop(number, tokens)

    def _drop(self, number: int, tokens: Tokens) -> None:
        del self.pairs[tokens][number]
        if not self.pairs[tokens]:
            del self.pairs[tokens]
            self.spellings.pop(tokens, None)

    def _pair(self, number: int, tokens: Tokens) -> int | None:
        """Which pair of the large table this is, if it is one."""
        row = self._table.find(np.array(tokens, np.uint32)) if number < len(self._documents) else self._table.rows
        if row == self._table.rows:
            return None
        first, named = self._table.pairs_of(row)
        place = int(np.searchsorted(named, number))
        return first + place if place < len(named) and named[place] == number else None

    def _mark(self, pair: int, dead: bool) -> None:
        if self.dead is None:
            if not dead:
                return
            self.dead = np.zeros((self._table.pairs + 63) // 64, np.uint64)
        word, bit = pair // 64, np.uint64(1 << pair % 64)
        was = bool(self.dead[word] & bit)
        if was != dead:
            self.dead[word] ^= bit
            self.removed += 1 if dead else -1


def table_of(
    records: Sequence[tuple[Tokens, int]], vocab_size: int, documents: int, threads: int = 1
) -> dict[str, NDArray[np.generic]]:
    """The arrays of a small table, from (tokens, number of the document) pairs."""
    builder = _native.DocidBuilder(vocab_size)
    offsets = np.zeros(len(records) + 1, np.int64)
    np.cumsum([len(tokens) for tokens, _ in records], out=offsets[1:])
    ids = np.fromiter(_flat(tokens for tokens, _ in records), np.uint32, int(offsets[-1]))
    numbers = np.array([number for _, number in records], np.uint32)
    builder.add(ids, offsets, numbers, b"", np.zeros(0, np.int64))
    return builder.finish(documents, True, threads, None)


def _flat(lists: Iterable[Tokens]) -> Iterable[int]:
    return (v for tokens in lists for v in tokens)
