"""The docid table: every docid as tokens, whom it names, how it was spelled; changes while it is in use."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from pixnar.base.errors import PixnarError
from pixnar.base.progress import Progress
from pixnar.base.storage import link_or_copy
from pixnar.corpus.records import Document, shown
from pixnar.documents.columns import word_bytes
from pixnar.documents.documents import write_documents
from pixnar.table.compaction import (
    MEMORY,
    compacted_in_memory,
    document_ids,
    generation_in_memory,
    kept_docids,
    kept_documents,
    part_origin,
    still_there,
    write_compacted,
)
from pixnar.table.folder import TableFolder
from pixnar.table.generation import write_generation
from pixnar.table.journal import LONGEST_DOCID, START, Change, Position, Tokens
from pixnar.table.open import OnDisk, read_table, read_vocabulary, settled
from pixnar.table.overlay import Overlay, table_of
from pixnar.table.snapshot import Snapshot
from pixnar.vocab import TargetVocabulary


def part_of(doc_id: str, parts: int) -> int:
    """The part of a cut table that a document belongs to, known or new: by its id alone, on every machine.

    >>> [part_of(doc_id, 3) for doc_id in ("d1", "d2", "d3")]
    [0, 1, 0]
    """
    return xxhash.xxh3_64_intdigest(word_bytes(doc_id)) % parts


class LengthCount(NamedTuple):
    """How many docids have a number of tokens."""

    tokens: int
    docids: int


class DocidTable:
    """Docids, and the documents they name. Safe to search from many threads while others change it.

    >>> table = DocidTable.in_memory({(7, 2): ["d1"], (7,): ["d1", "d2"]}, vocab_size=10)
    >>> table.change(add=[("d3", (7, 2, 2))])
    >>> [(tokens, documents) for tokens, documents in table]
    [((7,), ['d1', 'd2']), ((7, 2), ['d1']), ((7, 2, 2), ['d3'])]
    """

    def __init__(self, overlay: Overlay, disk: OnDisk | None = None) -> None:
        """Use `open`, `in_memory` or `build_table`."""
        self._changing = threading.RLock()  # taken first, and for as long as a change takes
        self._lock = threading.Lock()  # for a moment only: searches wait for it
        self._disk = disk
        self._overlay = overlay  # what readers see
        self.vocab_size: int = overlay.base.table.vocabulary  # how many tokens there are
        self._staged: Overlay | None = None  # what they see when the change under way ends
        self._snapshot: Snapshot | None = None
        self.prepare: Callable[[Snapshot], object] | None = None
        """Called with every new state by the thread that changes the table, before any reader sees that state."""
        self._version = 1
        self._vocabulary: TargetVocabulary | None = None

    @classmethod
    def in_memory(cls, docids: Mapping[Tokens, Collection[str]], vocab_size: int) -> DocidTable:
        """A table that is never written; for small collections and tests. It keeps no spellings."""
        ids = sorted({doc_id for named in docids.values() for doc_id in named})
        number = {doc_id: i for i, doc_id in enumerate(ids)}
        records = [(tokens, number[doc_id]) for tokens, named in docids.items() for doc_id in named]
        arrays = table_of(records, vocab_size, len(ids))
        return cls(Overlay(generation_in_memory(arrays, (Document(doc_id, "", "", {}) for doc_id in ids))))

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> DocidTable:
        """Map a table; almost nothing is read until it is searched. Nothing is written."""
        return cls(*read_table(TableFolder(path), verify=False))

    @classmethod
    def check(cls, path: str | os.PathLike[str]) -> DocidTable:
        """Open a table and compare every byte of it with its checksum."""
        return cls(*read_table(TableFolder(path), verify=True))

    @property
    def path(self) -> Path | None:
        """Where it lies, if it is on disk."""
        return self._disk.folder.path if self._disk else None

    @property
    def vocabulary(self) -> TargetVocabulary:
        """What docids are encoded with."""
        if self._vocabulary is None:
            if self._disk is None:
                raise PixnarError("a table in memory has no vocabulary: give tokens instead of texts")
            self._vocabulary = read_vocabulary(self._disk.folder, self._disk.manifest)
        return self._vocabulary

    @property
    def meta(self) -> dict[str, Any]:
        """What was noted when the table was built."""
        return dict(self._disk.manifest.meta) if self._disk else {}

    @property
    def state(self) -> str:
        """A short name for what it holds: another one after every change."""
        if self._disk is None:
            raise PixnarError("a table in memory has no name for what it holds: build it on disk")
        return f"{self._disk.position.chain:016x}"

    @property
    def origin(self) -> str:
        """A checksum of the ids of the documents that it was built of; compaction does not change it."""
        return self._overlay.base.documents.origin.ids

    @property
    def indexed(self) -> bool:
        """Whether it was built with its index."""
        return self._overlay.base.table.indexed

    @property
    def spelled(self) -> bool:
        """Whether docids are kept as they were written."""
        return self._overlay.base.spellings is not None

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes on disk, as built: docids with whom they name, index, spellings, documents."""
        return dict(self._overlay.base.sizes)

    @property
    def changes(self) -> tuple[int, int]:
        """Pairs of docid and document that were added and removed since the table was built or compacted."""
        with self._lock:
            return sum(map(len, self._overlay.pairs.values())), self._overlay.removed

    @property
    def pairs(self) -> int:
        """How many pairs of a docid and a document that it names there are."""
        with self._lock:
            added = sum(map(len, self._overlay.pairs.values()))
            return self._overlay.base.table.pairs + added - self._overlay.removed

    @property
    def documents(self) -> int:
        """How many documents there are."""
        with self._lock:
            return len(self._overlay.base.documents) + len(self._overlay.new) - len(self._overlay.gone)

    @property
    def lengths(self) -> list[LengthCount]:
        """Docids by their number of tokens, as built."""
        found = self._overlay.base.table.lengths.tolist()
        return [LengthCount(n, rows) for n, rows in zip(found[::2], found[1::2], strict=True)]

    def __iter__(self) -> Iterator[tuple[Tokens, list[str]]]:
        """Every docid once, with the sorted ids of its documents: by length, then by tokens."""
        return iter(self.snapshot())

    def snapshot(self) -> Snapshot:
        """The table as it is now."""
        with self._lock:
            if self._snapshot is None:
                self._snapshot = _snapshot_of(self._overlay, self._version)
            return self._snapshot

    def document(self, doc_id: str) -> Document:
        """Title and metadata of a document; its text is not kept."""
        found = self.described([doc_id])[0]
        if found is None:
            raise PixnarError(f"no document {shown(doc_id)} in {self._name}: see which there are in its corpus")
        return found

    def described(self, doc_ids: Sequence[str]) -> list[Document | None]:
        """`document` for some, all at one moment; None for those that are not there."""
        with self._lock:
            return self._overlay.documents(doc_ids)

    def named(self, tokens: Tokens) -> list[str]:
        """The sorted ids of the documents that a docid names; none if it is not there."""
        with self._lock:
            overlay, old = self._overlay, self._overlay.base.documents.count
            numbers = overlay.named(tuple(tokens))
            new = [overlay.new[number - old] for number in numbers if number >= old]
        known = [number for number in numbers if number < old]
        return sorted([*(overlay.base.documents.doc_ids(known) if known else ()), *new], key=word_bytes)

    def look_up(self, text: str) -> tuple[Tokens, list[str]]:
        """The tokens of a text as a docid, and the documents that it names; nothing of an empty text."""
        tokens = self.encode(text) if text else ()
        return tokens, self.named(tokens) if tokens else []

    def spelling(self, tokens: Tokens) -> str | None:
        """A docid as it was written first, if that was kept."""
        with self._lock:
            return self._overlay.spelling(tuple(tokens))

    def spellings(self, docids: Sequence[Tokens]) -> list[str]:
        """Docids as they were written first, or else as their tokens read; empty for no tokens."""
        with self._lock:
            kept = self._overlay.written([tuple(tokens) for tokens in docids])
        return self._read(kept, docids)

    def shown(self, docids: Sequence[Tokens], doc_ids: Sequence[str]) -> tuple[list[str], list[str]]:
        """The `spellings` of docids, and the titles of documents ("" if there is none), all at one moment."""
        with self._lock:
            kept, titles = self._overlay.written([tuple(tokens) for tokens in docids]), self._overlay.titles(doc_ids)
        return self._read(kept, docids), titles

    def _read(self, kept: Sequence[str | None], docids: Sequence[Tokens]) -> list[str]:
        return [
            self.vocabulary.decode(tokens) if text is None and tokens else text or ""
            for text, tokens in zip(kept, docids, strict=True)
        ]

    def encode(self, docid: str) -> Tokens:
        """The tokens of a docid in the table's vocabulary."""
        tokens = tuple(self.vocabulary.encode(docid).tolist())
        if not tokens:
            raise PixnarError(f"the docid {shown(docid)} has no text: give it at least one visible character")
        if len(tokens) > LONGEST_DOCID:
            raise PixnarError(f"the docid {shown(docid)} has {len(tokens):,} tokens: shorten it to {LONGEST_DOCID:,}")
        return tokens

    def add(self, doc_id: str, docids: Sequence[str], document: Document | None = None) -> None:
        """Let docids name a document, new or known; on disk when this returns."""
        if document is not None and document.doc_id != doc_id:
            raise ValueError(f"document {document.doc_id!r} is to describe {doc_id!r}: give both the same id")
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
        add: Iterable[tuple[str, Iterable[int]]] = (),
        remove_documents: Iterable[str] = (),
        remove_docids: Iterable[Iterable[int]] = (),
        remove_pairs: Iterable[tuple[str, Iterable[int]]] = (),
        spellings: Sequence[str] = (),
        documents: Iterable[Document] = (),
    ) -> None:
        """Remove, then add, all or nothing; on disk when this returns. What is not there need not be removed.

        `documents` describes documents, new ones and known ones; one that is only added has no title and no metadata.
        """
        change = Change(
            add=[(doc_id, _tokens(tokens)) for doc_id, tokens in add],
            remove_documents=list(remove_documents),
            remove_docids=[_tokens(tokens) for tokens in remove_docids],
            remove_pairs=[(doc_id, _tokens(tokens)) for doc_id, tokens in remove_pairs],
            spellings=list(spellings),
            documents=list(documents),
        )
        change.check(self.vocab_size)
        self._check_part(change)
        # What is in memory is what a reader of the file will see: a tuple in metadata is a list from now on.
        change = Change.from_bytes(change.to_bytes())
        with self._change():
            if self._disk is None:
                self._latest.check(change)
                self._apply([change])
                return
            with self._disk.folder.locked():
                self._catch_up()
                self._latest.check(change)
                self._disk.folder.sweep(self._disk.manifest)
                position = self._disk.journal.append(change, self._disk.position)
                self._apply([change], position)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Inside this block no other thread changes the table: what is read of it is still so when it is changed."""
        with self._changing:
            yield

    def refresh(self) -> bool:
        """Take in what other processes changed; whether there was anything."""
        with self._change():
            return self._catch_up()

    def compact(self, *, threads: int = 0, progress: Progress | None = None) -> None:
        """Fold the changes in: a new generation, and searches as fast as on the first day.

        Searches go on meanwhile; changes wait or, from other processes, are refused.
        """
        with self._change():
            if self._disk is None:
                self._use(
                    Overlay(compacted_in_memory(self._latest, index=self.indexed, threads=threads, progress=progress)),
                    None,
                )
                return
            folder = self._disk.folder
            with folder.locked():
                self._catch_up()
                folder.sweep(self._disk.manifest)
                if self._disk.position.end > START:
                    write_compacted(
                        self._disk,
                        self._latest,
                        index=self.indexed,
                        spelled=self.spelled,
                        threads=threads,
                        progress=progress,
                    )
                    self._use(*read_table(folder, verify=False))

    def owners(self, parts: int) -> NDArray[np.int64]:
        """The part that each document belongs to, by their numbers, those that are gone included."""
        return np.fromiter((part_of(doc_id, parts) for doc_id in document_ids(self._overlay)), np.int64)

    def places(self, mine: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The numbers that some documents, chosen by their numbers now, had when the table was built; ascending."""
        return part_origin(self._overlay, still_there(self._overlay) & mine)[1]

    def write_part(
        self,
        path: str | os.PathLike[str],
        mine: NDArray[np.bool_],
        part: Mapping[str, Any],
        *,
        threads: int = 0,
        progress: Progress | None = None,
    ) -> DocidTable:
        """Write a table of some documents, chosen by their numbers, and of the docids that name them, as they are now.

        It has the vocabulary of this one, its spellings, and the keys that a filter may name here. It notes which
        `part` it is: its `number`, `of` how many, and of which `cut`.
        """
        with self._changing:
            if self._disk is None:
                raise PixnarError("a table in memory cannot be written in parts: build it on disk")
            disk, folder = self._disk, TableFolder(path)
            kept = still_there(self._overlay) & mine
            keys = {*self.snapshot().documents.columns.keys, *self.snapshot().new_keys}
            with folder.building(overwrite=False) as generation:
                link_or_copy(disk.folder.file(disk.manifest, "vocabulary"), folder.new_file("vocabulary", generation))
                count = write_documents(
                    folder.new_file("documents", generation),
                    kept_documents(self._overlay, kept),
                    keys=keys,
                    origin=part_origin(self._overlay, kept)[0],
                    threads=threads,
                    progress=progress,
                )
                write_generation(
                    folder,
                    generation,
                    kept_docids(self._overlay, kept, progress),
                    count,
                    index=self.indexed,
                    spelled=self.spelled,
                    vocabulary=folder.sealed("vocabulary", generation),
                    meta=disk.manifest.meta | {"part": dict(part)},
                    threads=threads,
                    progress=progress,
                    difference=self._overlay.difference().part(
                        lambda doc_id: part_of(doc_id, part["of"]) == part["number"]
                    ),
                )
        return DocidTable.open(path)

    @property
    def _name(self) -> str:
        return str(self.path or MEMORY)

    @property
    def _latest(self) -> Overlay:
        """What the thread that changes the table sees."""
        return self._staged or self._overlay

    @contextlib.contextmanager
    def _change(self) -> Iterator[None]:
        """Inside this block one thread changes the table; at its end, with files unlocked, the result is shown."""
        with self._changing:
            try:
                yield
            finally:
                self._show()

    def _show(self) -> None:
        """Prepare what is staged, then let readers see it; until then they see what they saw before."""
        if self._staged is None:
            return
        snapshot = None
        try:
            snapshot = _snapshot_of(self._staged, self._version + 1)
            if self.prepare is not None:
                self.prepare(snapshot)
        finally:
            with self._lock:
                self._overlay, self._staged = self._staged, None
                self._snapshot = snapshot
                self._version += 1

    def _use(self, overlay: Overlay, disk: OnDisk | None) -> None:
        with self._lock:
            self._disk = disk
            if self.prepare is not None:
                self._staged = overlay
                return
            self._overlay, self._snapshot = overlay, None
            self._version += 1

    def _apply(self, changes: Sequence[Change], position: Position | None = None) -> None:
        with self._lock:
            if self.prepare is not None and self._staged is None:
                self._staged = self._overlay.copy()
            for change in changes:
                self._latest.apply(change)
            if self._disk and position:
                self._disk = self._disk._replace(position=position)
            if self._staged is None:
                self._snapshot = None
                self._version += 1

    def _catch_up(self) -> bool:
        """Another process may have changed, compacted or rebuilt the table since it was read; whether one did."""
        if self._disk is None:
            return False
        folder, manifest, position = disk = self._disk
        found = settled(folder, lambda now: disk.journal.read(position) if now == manifest else None)
        if found is not None:
            changes, position = found
            if changes:
                self._apply(changes, position)
            return bool(changes)
        overlay, disk = read_table(folder, verify=False)
        if disk.manifest.files["vocabulary"].seal != manifest.files["vocabulary"].seal:
            raise PixnarError(
                f"{folder.path} has been built again with another vocabulary: open it again, with a model for it"
            )
        if disk.manifest.meta.get("part") != manifest.meta.get("part"):
            raise PixnarError(f"{folder.path} is of another cut now: open it again, with all parts of that cut")
        self._use(overlay, disk)
        return True

    def _check_part(self, change: Change) -> None:
        """Searches ask for a document in its own part only: it must not be in another."""
        part = self.meta.get("part")
        if part is None:
            return
        for doc_id in [*(doc_id for doc_id, _ in change.add), *(document.doc_id for document in change.documents)]:
            owner = part_of(doc_id, part["of"])
            if owner != part["number"]:
                raise PixnarError(
                    f"document {shown(doc_id)} belongs to part {owner} of {part['of']}, {self._name} is part "
                    f"{part['number']}: add it there"
                )


def _tokens(tokens: Iterable[int]) -> Tokens:
    return tuple(map(int, tokens))


def _snapshot_of(overlay: Overlay, version: int) -> Snapshot:
    difference = overlay.difference()
    return Snapshot(
        version=version,
        table=overlay.base.table,
        documents=overlay.base.documents,
        dead=overlay.share_dead(),
        added=overlay.added(),
        new=tuple(overlay.new),
        numbers=dict(overlay.numbers),
        gone=frozenset(overlay.gone),
        records=dict(overlay.records),
        difference=difference,
        changed=bool(difference),
    )
