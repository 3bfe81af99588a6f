"""What has changed since a table was built: removed pairs as bits, added ones as a second, small table."""

from __future__ import annotations

import copy
import functools
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixnar import _native
from pixnar.base.errors import PixnarError
from pixnar.base.strings import damaged
from pixnar.corpus.records import Document
from pixnar.documents.columns import word_bytes
from pixnar.table.generation import Generation
from pixnar.table.journal import Change, Difference, Docids, Tokens

Bits = NDArray[np.uint64]


class Added(NamedTuple):
    """The additions as the decoder takes them."""

    table: _native.DocidTable
    documents: NDArray[np.uint32]  # the number of each document of the small table
    twins: NDArray[np.uint32]  # by row: the row of the large table with the same tokens, or NO_TWIN
    keys: NDArray[np.uint64]  # by new document: its place among the ids of the old ones


class Overlay:
    """The sum of all changes to one generation. A document, or docid, that was removed and comes back is a new one."""

    def __init__(self, base: Generation) -> None:
        self.base = base
        self.removed = 0  # pairs
        self.pairs: dict[Tokens, dict[int, None]] = {}
        self.records: dict[int, Document] = {}  # of new documents, and of old ones that were described anew
        self.new: list[str] = []  # ids of new documents; the first has the number behind the last old one
        self.gone: set[int] = set()
        self.numbers: dict[str, int | None] = {}  # of ids that changed; None: removed
        self.spellings: dict[Tokens, str] = {}  # of new docids, and of those that came back; "": none was given
        self._docids: dict[int, set[Tokens]] = {}  # by document, of the additions
        self._lost: dict[int, Docids] = {}  # by document that is still there, of the large table
        self._looked_up: dict[str, int] = {}  # numbers of old documents that the change under way is about, or -1
        self._places: dict[str, int] = {}  # by id of a new document: how many old ids come before it
        self._dead: Bits | None = None
        self._dead_shared = False

    def copy(self) -> Overlay:
        """The same, to be changed on its own."""
        made = copy.copy(self)
        made.pairs = {tokens: dict(named) for tokens, named in self.pairs.items()}
        made.records, made.new, made.gone = dict(self.records), list(self.new), set(self.gone)
        made.numbers, made.spellings, made._places = dict(self.numbers), dict(self.spellings), dict(self._places)
        made._docids = {number: set(docids) for number, docids in self._docids.items()}
        made._lost = {number: dict(docids) for number, docids in self._lost.items()}
        made._dead_shared = True
        return made

    def share_dead(self) -> Bits | None:
        """A bit for each removed pair of the large table; what is given away is not changed any more."""
        self._dead_shared = True
        return self._dead

    def number(self, doc_id: str) -> int | None:
        """The number of a document that is there."""
        if doc_id in self.numbers:
            return self.numbers[doc_id]
        if doc_id in self._looked_up:
            return None if self._looked_up[doc_id] < 0 else self._looked_up[doc_id]
        return self.base.documents.number(doc_id)

    def documents(self, doc_ids: Sequence[str]) -> list[Document | None]:
        """What is kept about documents; None for those that are not there."""
        numbers = self._numbers(doc_ids)
        old = [number for number in numbers if number is not None and number not in self.records]
        kept = dict(zip(old, self.base.documents.records(old), strict=True)) | self.records
        return [None if number is None else kept[number] for number in numbers]

    def titles(self, doc_ids: Sequence[str]) -> list[str]:
        """The titles of documents; empty for those that are not there."""
        numbers = self._numbers(doc_ids)
        old = [number for number in numbers if number is not None and number not in self.records]
        kept = dict(zip(old, self.base.documents.titles(old), strict=True))
        kept |= {number: document.title for number, document in self.records.items()}
        return ["" if number is None else kept[number] for number in numbers]

    def _numbers(self, doc_ids: Sequence[str]) -> list[int | None]:
        places = self.base.documents.numbers(doc_ids).tolist()
        return [
            self.numbers.get(doc_id, None if place < 0 else place)
            for doc_id, place in zip(doc_ids, places, strict=True)
        ]

    def named(self, tokens: Tokens) -> list[int]:
        """The numbers of the documents that a docid names; none if it is not there."""
        first, numbers = self._row_pairs(self._find(tokens))
        old = [number for at, number in enumerate(numbers.tolist()) if not self._is_dead(first + at)]
        return [*old, *self.pairs.get(tokens, ())]

    def spelling(self, tokens: Tokens) -> str | None:
        """A docid as it was written, if it is there and that was kept."""
        return self.written([tokens])[0]

    def written(self, docids: Sequence[Tokens]) -> list[str | None]:
        """`spelling` for some; faster for many."""
        texts: list[str | None] = [None] * len(docids)
        if self.base.spellings is None:
            return texts
        rows = {}
        for place, tokens in enumerate(docids):
            if not tokens or not self._is_there(tokens):
                continue
            if tokens in self.spellings:
                texts[place] = self.spellings[tokens] or None
            else:
                rows[place] = self._find(tokens)
        try:
            for place, text in zip(rows, self.base.spellings.many(list(rows.values())), strict=True):
                texts[place] = text.decode("utf-8", "surrogatepass") or None
        except UnicodeDecodeError as error:
            raise damaged(self.base.where, "a spelling is not UTF-8") from error
        return texts

    def respelled(self) -> dict[int, bytes]:
        """By row of the large table: the spellings that replace its own."""
        rows = {self._find(tokens): word_bytes(text) for tokens, text in self.spellings.items()}
        rows.pop(self.base.table.rows, None)
        return rows

    def check(self, change: Change) -> None:
        """Raise if a change cannot be made; one that passes can."""
        if self.base.table.indexed:
            return
        for doc_id in change.remove_documents:
            number = self.number(doc_id)
            if number is not None and number < len(self.base.documents):
                raise PixnarError(
                    f"{self.base.where} was built without its index, which finds the docids of a document to remove: "
                    "build it again with the index"
                )

    def apply(self, change: Change) -> None:
        """Take in a change."""
        if self._dead is not None and self._dead_shared:
            self._dead = self._dead.copy()
        self._dead_shared = False
        ids = [doc_id for doc_id, _ in (*change.add, *change.remove_pairs)]
        ids += (*change.remove_documents, *(document.doc_id for document in change.documents))
        old = list(set(ids) - self.numbers.keys())  # looked up at once, which is much faster than one by one
        self._looked_up = dict(zip(old, self.base.documents.numbers(old).tolist(), strict=True))
        for doc_id in change.remove_documents:
            self._remove_document(doc_id)
        for tokens in change.remove_docids:
            self._remove_docid(tokens)
        for doc_id, tokens in change.remove_pairs:
            if (number := self.number(doc_id)) is not None:
                self._remove_pair(number, tokens)
        for i, (doc_id, tokens) in enumerate(change.add):
            self._add(doc_id, tokens, change.spellings[i] if change.spellings else "")
        for document in change.documents:
            self.records[self._number_or_new(document.doc_id)] = document
        self._looked_up = {}

    def added(self, threads: int = 1) -> Added | None:
        """The additions as a table, or None without any."""
        if not self.pairs and not self.new:
            return None
        numbers = sorted({number for named in self.pairs.values() for number in named})
        local = {number: i for i, number in enumerate(numbers)}
        records = [(tokens, local[number]) for tokens, named in self.pairs.items() for number in named]
        table = _native.DocidTable(table_of(records, self.base.table.vocabulary, len(numbers), threads))
        twins = np.full(table.rows, _native.NO_TWIN, np.uint32)
        for row in range(table.rows):
            found = self.base.table.find(table.tokens(row))
            if found < self.base.table.rows:
                twins[row] = found
        return Added(table, np.array(numbers, np.uint32), twins, self._keys())

    def difference(self) -> Difference:
        """What has changed since the table was built, compactions in between included."""
        before = self.base.difference
        if not (self.pairs or self.gone or self._lost):
            return before
        gone = {self._doc_id(number) for number in self.gone}
        added, removed = (
            {doc_id: dict(docids) for doc_id, docids in kind.items() if doc_id not in gone}
            for kind in (before.added, before.removed)
        )
        for number, docids in self._lost.items():
            for tokens, text in docids.items():
                _put(removed, added, self._doc_id(number), tokens, text)
        for tokens, named in self.pairs.items():
            text = self.spelling(tokens) or ""
            for number in named:
                _put(added, removed, self._doc_id(number), tokens, text)
        return Difference(before.removed_documents | gone, added, removed)

    def _doc_id(self, number: int) -> str:
        old = len(self.base.documents)
        return self.base.documents.doc_id(number) if number < old else self.new[number - old]

    def _keys(self) -> NDArray[np.uint64]:
        for doc_id in self.new:
            if doc_id not in self._places:
                self._places[doc_id] = bisect_left(self._by_rank, word_bytes(doc_id), key=self._id_bytes)
        keys = {}
        for order, doc_id in enumerate(sorted(set(self.new), key=word_bytes)):
            keys[doc_id] = (self._places[doc_id] << 32) + order + 1
        return np.array([keys[doc_id] for doc_id in self.new], np.uint64)

    @functools.cached_property
    def _by_rank(self) -> NDArray[np.uint32]:
        documents = self.base.documents
        order = np.zeros(len(documents), np.uint32)
        try:
            order[documents.rank] = np.arange(len(order), dtype=np.uint32)
        except IndexError as error:
            raise damaged(self.base.where, "its order of ids names documents that are not there") from error
        return order

    def _id_bytes(self, number: int) -> bytes:
        return word_bytes(self.base.documents.doc_id(int(number)))

    def _number_or_new(self, doc_id: str) -> int:
        number = self.number(doc_id)
        if number is None:
            number = len(self.base.documents) + len(self.new)
            self.new.append(doc_id)
            self.numbers[doc_id] = number
            self.records[number] = Document(doc_id, "", "", {})
        return number

    def _add(self, doc_id: str, tokens: Tokens, spelling: str) -> None:
        if self.base.spellings is not None and not self._is_there(tokens):
            self.spellings[tokens] = spelling
        number = self._number_or_new(doc_id)
        if (pair := self._pair(number, tokens)) is not None:
            self._mark(pair, False)
            self._lost.get(number, {}).pop(tokens, None)
            return
        self.pairs.setdefault(tokens, {})[number] = None
        self._docids.setdefault(number, set()).add(tokens)

    def _remove_document(self, doc_id: str) -> None:
        number = self.number(doc_id)
        if number is None:
            return
        if number < len(self.base.documents):
            for row in self.base.table.rows_of(number).tolist():
                first, named = self._row_pairs(row)
                place = int(np.searchsorted(named, number))
                if place == len(named) or named[place] != number:
                    raise damaged(self.base.where, f"its index names a docid that does not name {doc_id!r}")
                self._mark(first + place, True)
        for tokens in self._docids.pop(number, ()):
            self._drop(number, tokens)
        self.numbers[doc_id] = None
        self._lost.pop(number, None)
        self.records.pop(number, None)
        self.gone.add(number)

    def _remove_docid(self, tokens: Tokens) -> None:
        first, named = self._row_pairs(self._find(tokens))
        text = self.spelling(tokens) or ""
        for pair, number in enumerate(named.tolist(), first):
            if not self._is_dead(pair):
                self._lose(pair, number, tokens, text)
        for number in list(self.pairs.get(tokens, ())):
            self._docids[number].discard(tokens)
            self._drop(number, tokens)

    def _remove_pair(self, number: int, tokens: Tokens) -> None:
        if (pair := self._pair(number, tokens)) is not None:
            if not self._is_dead(pair):
                self._lose(pair, number, tokens, self.spelling(tokens) or "")
        elif number in self.pairs.get(tokens, ()):
            self._docids[number].discard(tokens)
            self._drop(number, tokens)

    def _lose(self, pair: int, number: int, tokens: Tokens, text: str) -> None:
        self._mark(pair, True)
        self._lost.setdefault(number, {})[tokens] = text

    def _drop(self, number: int, tokens: Tokens) -> None:
        del self.pairs[tokens][number]
        if not self.pairs[tokens]:
            del self.pairs[tokens]

    def _find(self, tokens: Tokens) -> int:
        """The row of the large table with these tokens, or the number of its rows."""
        if not all(0 <= v < self.base.table.vocabulary for v in tokens):
            return self.base.table.rows
        return self.base.table.find(np.array(tokens, np.uint32))

    def _row_pairs(self, row: int) -> tuple[int, NDArray[np.uint32]]:
        """The first pair of a row, and the documents of its pairs, rising."""
        if row == self.base.table.rows:
            return 0, np.zeros(0, np.uint32)
        return self.base.table.pairs_of(row)

    def _pair(self, number: int, tokens: Tokens) -> int | None:
        """Which pair of the large table this is, if it is one."""
        if number >= len(self.base.documents):
            return None
        first, named = self._row_pairs(self._find(tokens))
        place = int(np.searchsorted(named, number))
        return first + place if place < len(named) and named[place] == number else None

    def _is_there(self, tokens: Tokens) -> bool:
        if tokens in self.pairs:
            return True
        first, named = self._row_pairs(self._find(tokens))
        return any(not self._is_dead(pair) for pair in range(first, first + len(named)))

    def _is_dead(self, pair: int) -> bool:
        return self._dead is not None and bool(int(self._dead[pair // 64]) >> pair % 64 & 1)

    def _mark(self, pair: int, dead: bool) -> None:
        if self._is_dead(pair) == dead:
            return
        if self._dead is None:
            self._dead = np.zeros((self.base.table.pairs + 63) // 64, np.uint64)
        self._dead[pair // 64] ^= np.uint64(1 << pair % 64)
        self.removed += 1 if dead else -1


def _put(here: dict[str, Docids], there: dict[str, Docids], doc_id: str, tokens: Tokens, text: str) -> None:
    """A docid was added (removed); if it had been removed (added) before, that is undone."""
    if tokens in there.get(doc_id, {}):
        del there[doc_id][tokens]
        if not there[doc_id]:
            del there[doc_id]
    else:
        here.setdefault(doc_id, {})[tokens] = text


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
