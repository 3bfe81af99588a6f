"""The docid table: every docid as tokens, whom it names, how it was spelled; changes while it is in use."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixnar import _native
from pixnar.corpus.records import Document
from pixnar.docids.blocks import TextBlocks
from pixnar.docids.documents import Documents, pack_documents, write_documents
from pixnar.docids.filters import Filter, parse
from pixnar.docids.folder import TableFolder
from pixnar.docids.journal import Change, Journal, Tokens
from pixnar.docids.overlay import Added, Bits, Overlay, table_of
from pixnar.errors import FileFormatError, PixnarError
from pixnar.progress import Progress
from pixnar.storage import read_container, write_container
from pixnar.vocab import TargetVocabulary, load_vocabulary

_STEP = 1 << 16  # rows that are handled at a time when all are gone through


class _Base(NamedTuple):
    """One generation, which never changes."""

    table: _native.DocidTable
    documents: Documents
    spellings: TextBlocks | None


class Snapshot(NamedTuple):
    """A table at one moment, as a decoder takes it. Changes make a new one and leave this as it is."""

    version: int
    table: _native.DocidTable
    documents: Documents
    dead: Bits | None
    added: Added | None


class LengthCount(NamedTuple):
    """How many docids have a number of tokens."""

    tokens: int
    docids: int


class DocidTable:
    """Docids, and the documents they name. Safe to search from many threads while one of them changes it.

    >>> table = DocidTable.in_memory({(7, 2): ["d1"], (7,): ["d1", "d2"]}, vocab_size=10)
    >>> table.change(add=[("d3", (7, 2, 2))])
    >>> [(tokens, documents) for tokens, documents in table]
    [((7,), ['d1', 'd2']), ((7, 2), ['d1']), ((7, 2, 2), ['d3'])]
    """

    def __init__(self, base: _Base, folder: TableFolder | None = None) -> None:
        """Use `open`, `in_memory` or `build_table`."""
        self._lock = threading.RLock()
        self._folder = folder
        self._version = 0
        self._journal_end = 0
        self._vocabulary: TargetVocabulary | None = None
        self._use(base)

    def _use(self, base: _Base) -> None:
        self._base = base
        self._overlay = Overlay(base.table, base.documents)
        self._added: Added | None = None
        self._stale = False
        self._version += 1

    @classmethod
    def in_memory(cls, docids: Mapping[Tokens, Collection[str]], vocab_size: int) -> DocidTable:
        """A table that is never written; for small collections and tests."""
        ids = sorted({doc_id for named in docids.values() for doc_id in named})
        number = {doc_id: i for i, doc_id in enumerate(ids)}
        records = [(tokens, number[doc_id]) for tokens, named in docids.items() for doc_id in named]
        table = _native.DocidTable(table_of(records, vocab_size, len(ids)))
        container = pack_documents(Document(doc_id, "", "", {}) for doc_id in ids)
        return cls(_Base(table, Documents(container, "a table in memory"), None))

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> DocidTable:
        """Map a table; almost nothing is read until it is searched."""
        folder = TableFolder.open(path)
        table = cls(_opened(folder, verify=False), folder)
        table._replay()
        return table

    @classmethod
    def check(cls, path: str | os.PathLike[str]) -> DocidTable:
        """Open a table and compare every byte of it with its checksum."""
        folder = TableFolder.open(path)
        Documents.check(folder.file("documents"))
        table = cls(_opened(folder, verify=True), folder)
        table._replay()
        load_vocabulary(folder.vocabulary)
        return table

    @property
    def path(self) -> Path | None:
        """Where it lies, if it is on disk."""
        return self._folder.path if self._folder else None

    @property
    def vocabulary(self) -> TargetVocabulary:
        """What docids are encoded with."""
        if self._vocabulary is None:
            if self._folder is None:
                raise PixnarError("a table in memory has no vocabulary: give tokens instead of texts")
            self._vocabulary = load_vocabulary(self._folder.vocabulary)
        return self._vocabulary

    @property
    def vocab_size(self) -> int:
        """How many tokens there are."""
        return self._base.table.vocabulary

    @property
    def meta(self) -> dict[str, Any]:
        """What was noted when the table was built."""
        return dict(self._folder.meta) if self._folder else {}

    @property
    def changes(self) -> tuple[int, int]:
        """Pairs of docid and document that were added and removed since the table was built or compacted."""
        return sum(map(len, self._overlay.pairs.values())), self._overlay.removed

    @property
    def pairs(self) -> int:
        """How many pairs of a docid and a document that it names there are."""
        added, removed = self.changes
        return self._base.table.pairs + added - removed

    @property
    def documents(self) -> int:
        """How many documents there are."""
        return len(self._base.documents) + len(self._overlay.new) - len(self._overlay.gone)

    @property
    def lengths(self) -> list[LengthCount]:
        """Docids by their number of tokens, as built."""
        found = self._base.table.lengths.tolist()
        return [LengthCount(n, rows) for n, rows in zip(found[::2], found[1::2], strict=True)]

    def __iter__(self) -> Iterator[tuple[Tokens, list[str]]]:
        """Every docid with the ids of its documents: by length, then by tokens; what was added comes last."""
        snapshot = self.snapshot()
        for tokens, numbers in _pairs(snapshot.table, snapshot.dead):
            yield tokens, sorted(self.doc_ids(numbers), key=_id_bytes)
        if snapshot.added:
            for tokens, local in _pairs(snapshot.added.table, None):
                yield tokens, sorted(self.doc_ids(snapshot.added.documents[local].tolist()), key=_id_bytes)

    def snapshot(self) -> Snapshot:
        """The table as it is now."""
        with self._lock:
            if self._stale:
                self._added = self._overlay.added()
                self._stale = False
            return Snapshot(self._version, self._base.table, self._base.documents, self._overlay.dead, self._added)

    def doc_ids(self, numbers: Sequence[int]) -> list[str]:
        """The ids of documents by their numbers."""
        old = len(self._base.documents)
        known = iter(self._base.documents.doc_ids([n for n in numbers if n < old]))
        return [next(known) if n < old else self._overlay.new[n - old] for n in numbers]

    def document(self, doc_id: str) -> Document:
        """Title and metadata of a document; its text is not kept."""
        number = self._overlay.number(doc_id)
        if number is None:
            raise PixnarError(f"no document {doc_id!r} in the table")
        return self._overlay.records.get(number) or self._base.documents.record(number)

    def spelling(self, tokens: Tokens) -> str | None:
        """A docid as it was written, if that was kept."""
        row = self._base.table.find(np.array(tokens, np.uint32))
        if row < self._base.table.rows and self._base.spellings is not None:
            return self._base.spellings[row].decode("utf-8", "surrogatepass")
        return self._overlay.spellings.get(tokens)

    def allowed(
        self,
        allow: Iterable[str] | None = None,
        forbid: Iterable[str] | None = None,
        where: str | Filter | None = None,
    ) -> Bits | None:
        """A bit for each document that passes; None if all do. Ids that are not in the table are left aside."""
        if allow is None and forbid is None and where is None:
            return None
        old, size = len(self._base.documents), len(self._base.documents) + len(self._overlay.new)
        mask = np.ones(size, np.bool_)
        if where is not None:
            condition = parse(where) if isinstance(where, str) else where
            mask[:old] = condition.mask(self._base.documents.columns, old, strict=not self._overlay.records)
            for number, document in self._overlay.records.items():
                mask[number] = condition.matches(document.metadata)
        if allow is not None:
            named = np.zeros(size, np.bool_)
            named[self._numbers(allow)] = True
            mask &= named
        if forbid is not None:
            mask[self._numbers(forbid)] = False
        bits = np.zeros((size + 63) // 64 * 8, np.uint8)
        packed = np.packbits(mask, bitorder="little")
        bits[: len(packed)] = packed
        return bits.view(np.uint64)

    def _numbers(self, doc_ids: Iterable[str]) -> list[int]:
        changed, others, found = self._overlay, [], []
        for doc_id in doc_ids:
            if doc_id in changed.numbers:
                if (number := changed.numbers[doc_id]) is not None:
                    found.append(number)
            else:
                others.append(doc_id)
        return found + [n for n in self._base.documents.numbers(others).tolist() if n >= 0]

    def encode(self, docid: str) -> Tokens:
        """The tokens of a docid in the table's vocabulary."""
        tokens = tuple(self.vocabulary.encode(docid).tolist())
        if not tokens:
            raise PixnarError(f"the docid {docid!r} has no text: give it at least one visible character")
        return tokens

    def add(self, doc_id: str, docids: Sequence[str], document: Document | None = None) -> None:
        """Let docids name a document, new or known; on disk when this returns."""
        self.change(
            add=[(doc_id, self.encode(docid)) for docid in docids],
            spellings=list(docids),
            documents=[document] if document else [],
        )

    def remove(self, doc_id: str) -> None:
        """Remove a document, and the docids that name nothing else."""
        self.change(remove_documents=[doc_id])

    def change(
        self,
        *,
        add: Sequence[tuple[str, Tokens]] = (),
        remove_documents: Sequence[str] = (),
        remove_docids: Sequence[Tokens] = (),
        remove_pairs: Sequence[tuple[str, Tokens]] = (),
        spellings: Sequence[str] = (),
        documents: Sequence[Document] = (),
    ) -> None:
        """Remove, then add, all or nothing; on disk when this returns. What is not there need not be removed."""
        if spellings and len(spellings) != len(add):
            raise ValueError(f"{len(spellings)} spellings for {len(add)} docids: give one for each, or none")
        for _, tokens in add:
            if not tokens or not all(0 <= v < self.vocab_size for v in tokens):
                raise ValueError(f"docid {tokens} should have one token or more, each below {self.vocab_size}")
        change = Change(add, remove_documents, remove_docids, remove_pairs, spellings, documents)
        with self._lock:
            if self._folder:
                with self._folder.locked():
                    self._catch_up()
                    self._journal_end = Journal(self._folder.file("changes")).append(change, self._journal_end)
            self._overlay.apply(change)
            self._stale = True
            self._version += 1

    def refresh(self) -> bool:
        """Take in what other processes changed; whether there was anything."""
        with self._lock:
            before = self._version
            if self._folder:
                self._catch_up()
            return self._version != before

    def compact(self, *, threads: int = 0, progress: Progress | None = None) -> None:
        """Fold the changes in: a new generation, and searches as fast as on the first day."""
        with self._lock:
            if self._folder is None:
                self._use(self._compacted(None, threads, progress))
                return
            with self._folder.locked():
                self._catch_up()
                self._folder.sweep()
                generation = self._folder.generation + 1
                self._compacted(generation, threads, progress)
                Journal(self._folder.file("changes", generation)).create()
                self._folder.commit(generation, self._folder.meta)
                self._folder.sweep()
                self._use(_opened(self._folder, verify=False))
                self._replay()

    def _replay(self) -> None:
        assert self._folder is not None
        changes, self._journal_end = Journal(self._folder.file("changes")).read()
        for change in changes:
            self._overlay.apply(change)
        self._stale = bool(changes)

    def _catch_up(self) -> None:
        """Another process may have changed or compacted the table since it was opened."""
        assert self._folder is not None
        generation = self._folder.generation
        self._folder.reload()
        journal = self._folder.file("changes")
        if self._folder.generation == generation and journal.stat().st_size == self._journal_end:
            return
        before = self._journal_end if self._folder.generation == generation else -1
        if Journal(journal).read()[1] == before:
            return
        self._use(_opened(self._folder, verify=False))
        self._replay()

    def _compacted(self, generation: int | None, threads: int, progress: Progress | None) -> _Base:
        base, overlay = self._base, self._overlay
        old = len(base.documents)
        kept = np.ones(old + len(overlay.new), np.bool_)
        kept[list(overlay.gone)] = False
        renumbered = (np.cumsum(kept) - 1).astype(np.uint32)
        spelled = base.spellings is not None
        builder = _native.DocidBuilder(base.table.vocabulary)
        for first in range(0, base.table.rows, _STEP):
            last = min(first + _STEP, base.table.rows)
            ids, offsets, numbers, rows = base.table.records(first, last, overlay.dead)
            texts: list[bytes] = base.spellings.many(rows) if base.spellings is not None else []
            builder.add(ids, offsets, renumbered[numbers], b"".join(texts), _borders(texts, spelled))
            if progress:
                progress("reading docids", last, base.table.rows)
        for tokens, named in overlay.pairs.items():
            text = overlay.spellings.get(tokens, "").encode("utf-8", "surrogatepass")
            texts = [text] * len(named) if spelled else []
            builder.add(
                np.array(tokens * len(named), np.uint32),
                np.arange(len(named) + 1, dtype=np.int64) * len(tokens),
                renumbered[list(named)],
                b"".join(texts),
                _borders(texts, spelled),
            )

        def documents() -> Iterator[Document]:
            for number, document in enumerate(base.documents):
                if kept[number]:
                    yield overlay.records.get(number, document)
            for i, doc_id in enumerate(overlay.new):
                if kept[old + i]:
                    yield overlay.records.get(old + i, Document(doc_id, "", "", {}))

        count = int(kept.sum())
        if generation is None:
            arrays = builder.finish(count, base.table.indexed, threads, progress)
            store = Documents(pack_documents(documents()), "a table in memory")
            return _Base(_native.DocidTable(arrays), store, None)
        assert self._folder is not None
        write_documents(self._folder.file("documents", generation), documents(), threads=threads, progress=progress)
        write_generation(self._folder, generation, builder, count, base.table.indexed, spelled, threads, progress)
        return base


def write_generation(
    folder: TableFolder,
    generation: int,
    builder: _native.DocidBuilder,
    documents: int,
    index: bool,
    spelled: bool,
    threads: int,
    progress: Progress | None,
) -> _native.DocidTable:
    """Write the docids of a builder and their spellings."""
    arrays = builder.finish(documents, index, threads, progress)
    write_container(folder.file("docids", generation), "docids", 1, {}, arrays)
    table = _native.DocidTable(arrays)

    def texts() -> Iterator[bytes]:
        for first in range(0, table.rows, _STEP):
            data, borders = builder.spellings(first, min(first + _STEP, table.rows))
            for begin, end in pairwise(borders.tolist()):
                yield data[begin:end]

    if spelled:
        packed = TextBlocks.pack(texts(), threads=threads, folder=folder.path, progress=progress)
        write_container(folder.file("spellings", generation), "spell", 1, {}, packed)
    return table


def _opened(folder: TableFolder, *, verify: bool) -> _Base:
    docids = folder.file("docids")
    try:
        table = _native.DocidTable(read_container(docids, "docids", 1, verify=verify).arrays)
    except (ValueError, TypeError) as error:
        raise FileFormatError(f"{docids} is damaged or incomplete ({error}): build the table again") from error
    documents = Documents.open(folder.file("documents"))
    if len(documents) != table.documents:
        raise FileFormatError(
            f"{folder.path} mixes files of two tables ({len(documents):,} and {table.documents:,} documents): "
            "build it again"
        )
    spellings = None
    if folder.meta.get("spellings"):
        path = folder.file("spellings")
        spellings = TextBlocks(read_container(path, "spell", 1, verify=verify).arrays, os.fspath(path))
        if len(spellings) != table.rows:
            raise FileFormatError(
                f"{folder.path} mixes files of two tables ({len(spellings):,} spellings, {table.rows:,} docids): "
                "build it again"
            )
    return _Base(table, documents, spellings)


def _pairs(table: _native.DocidTable, dead: Bits | None) -> Iterator[tuple[Tokens, list[int]]]:
    """Every row with the numbers of its documents, but for removed ones."""
    for first in range(0, table.rows, _STEP):
        ids, offsets, numbers, rows = table.records(first, min(first + _STEP, table.rows), dead)
        begin = 0
        while begin < len(rows):
            end = int(np.searchsorted(rows, rows[begin], side="right"))
            yield tuple(ids[offsets[begin] : offsets[begin + 1]].tolist()), numbers[begin:end].tolist()
            begin = end


def _borders(texts: Sequence[bytes], spelled: bool) -> NDArray[np.int64]:
    if not spelled:
        return np.zeros(0, np.int64)
    return np.concatenate([[0], np.cumsum([len(text) for text in texts], dtype=np.int64)]).astype(np.int64)


def _id_bytes(doc_id: str) -> bytes:
    return doc_id.encode("utf-8", "surrogatepass")
