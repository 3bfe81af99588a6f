"""Changes to a table that is in use, one behind the other in a file that only grows.

A change is on disk, whole, when `append` returns. If the machine stops in the middle of one, its half is at the very
end of the file, and is left out when the file is read. Anything else that does not fit its checksums is damage, and an
error. Every checksum takes in the one before it, and the first the seal of the table: a change counts only where it
was made.

The journal is forgotten by compaction, which folds it into the table. `Difference`, the sum of all changes since the
table was built, outlives it, so that whatever was built together with the table can count the changes.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.storage import read_container, sync_folder, write_container
from pixnar.corpus.records import Document, shown
from pixnar.documents.columns import as_text

Tokens = tuple[int, ...]
LONGEST_DOCID = 1 << 16  # tokens

_MAGIC = b"\x89PIXCHG1"
_START = struct.Struct("<8sQ")  # magic, seal of the table
_HEAD = struct.Struct("<QQQ")  # size of the change, its checksum, checksum of these two, the place and the one before
_BEGIN = b'{"add":['
_PAGE = 4096
_READS = 50  # as long as somebody else is at the end of the file, what is there may look like damage
_PAUSE = 0.01


@dataclass(frozen=True)
class Change:
    """What one change does: removals first, then additions. What is not there need not be removed."""

    add: Sequence[tuple[str, Tokens]] = ()
    remove_documents: Sequence[str] = ()
    remove_docids: Sequence[Tokens] = ()
    remove_pairs: Sequence[tuple[str, Tokens]] = ()
    spellings: Sequence[str] = ()  # one for each addition, or none at all
    documents: Sequence[Document] = ()  # titles and metadata to keep; for new documents and known ones

    def to_bytes(self) -> bytes:
        """As JSON; lone surrogates, which metadata may hold, survive."""
        content = {
            "add": [[doc_id, list(tokens)] for doc_id, tokens in self.add],
            "remove_documents": list(self.remove_documents),
            "remove_docids": [list(tokens) for tokens in self.remove_docids],
            "remove_pairs": [[doc_id, list(tokens)] for doc_id, tokens in self.remove_pairs],
            "spellings": list(self.spellings),
            "documents": [[doc_id, title, metadata] for doc_id, title, _, metadata in self.documents],
        }
        try:
            return json.dumps(content, separators=(",", ":"), default=as_text).encode()  # begins with _BEGIN
        except (TypeError, ValueError, RecursionError) as error:
            named = ", ".join(shown(document.doc_id) for document in self.documents[:3]) or "none"
            reason = str(error).splitlines()[0]
            raise PixnarError(
                f"a change is no JSON: {reason}; look at the metadata of its documents ({named})"
            ) from error

    @classmethod
    def from_bytes(cls, data: bytes) -> Change:
        """What `to_bytes` wrote."""
        found: dict[str, Any] = json.loads(data)
        return cls(
            add=[(doc_id, tuple(tokens)) for doc_id, tokens in found["add"]],
            remove_documents=found["remove_documents"],
            remove_docids=[tuple(tokens) for tokens in found["remove_docids"]],
            remove_pairs=[(doc_id, tuple(tokens)) for doc_id, tokens in found["remove_pairs"]],
            spellings=found["spellings"],
            documents=[Document(doc_id, title, "", metadata) for doc_id, title, metadata in found["documents"]],
        )

    def check(self, vocab_size: int) -> None:
        """Raise if anything about it is wrong, whatever the table holds."""
        if self.spellings and len(self.spellings) != len(self.add):
            raise ValueError(
                f"{len(self.spellings)} spellings for {len(self.add)} docids: give one for each, or none at all"
            )
        for _, tokens in self.add:
            if not 0 < len(tokens) <= LONGEST_DOCID or not all(0 <= v < vocab_size for v in tokens):
                raise ValueError(
                    f"docid {shown(tokens)} should have 1 to {LONGEST_DOCID:,} tokens, each from 0 to "
                    f"{vocab_size - 1:,}"
                )
        for document in self.documents:
            if not isinstance(document.title, str) or not isinstance(document.metadata, dict):
                raise ValueError(
                    f"document {shown(document.doc_id)} should have a text as title and a dict as metadata"
                )
        ids = [doc_id for doc_id, _ in [*self.add, *self.remove_pairs]]
        for doc_id in [*ids, *self.remove_documents, *(document.doc_id for document in self.documents)]:
            if not isinstance(doc_id, str):
                raise ValueError(f"the id of a document is text, not {shown(doc_id)}")
            if not doc_id:
                raise PixnarError("the id of a document is empty: give it at least one character")


class Position(NamedTuple):
    """Up to where a file of changes is known."""

    end: int  # of the last whole change
    mark: int  # where its checksum stands
    chain: int  # that checksum


START = _START.size


class Journal:
    """The file of changes of one generation of a table, whose seal it bears."""

    def __init__(self, path: Path, seal: int) -> None:
        self._path, self._seal = path, seal

    def create(self) -> None:
        """Start an empty file, on disk when this returns."""
        try:
            with open(self._path, "wb") as file:
                file.write(_START.pack(_MAGIC, self._seal))
                file.flush()
                os.fsync(file.fileno())
            sync_folder(self._path.parent)
        except OSError as error:
            raise self._unwritable(error) from error

    def read(self, after: Position | None = None) -> tuple[list[Change], Position] | None:
        """All whole changes, or those `after` a place, and up to where; None if what was read there has changed."""
        before = b""
        for _ in range(_READS):
            found = self._bytes(after)
            if found is None:
                return None
            try:
                return self._changes(found, after)
            except FileFormatError:
                if found == before:  # nobody is writing
                    raise
            before = found
            time.sleep(_PAUSE)
        raise self._damaged("it never comes to rest")

    def append(self, change: Change, after: Position) -> Position:
        """Write a change behind what is known; the answer is where it ends. If it fails, nothing has changed."""
        payload = change.to_bytes()
        digest = xxhash.xxh3_64_intdigest(payload)
        chain = _link(len(payload), digest, after.end, after.chain)
        data = _HEAD.pack(len(payload), digest, chain) + payload
        try:
            with open(self._path, "r+b", buffering=0) as file:
                try:
                    if os.fstat(file.fileno()).st_size > after.end:  # half a change that a crash left
                        file.truncate(after.end)
                        os.fsync(file.fileno())
                    file.seek(after.end)
                    rest = memoryview(data)
                    while rest:
                        rest = rest[file.write(rest) :]
                    os.fsync(file.fileno())
                except OSError:
                    with contextlib.suppress(OSError):  # it was not done, so it must not be there later
                        file.truncate(after.end)
                    raise
        except OSError as error:
            raise self._unwritable(error) from error
        return Position(after.end + len(data), after.end + _HEAD.size - 8, chain)

    def _bytes(self, after: Position | None) -> bytes | None:
        """All bytes of the file, or those after a place; None if it does not fit what was read up to there."""
        try:
            with open(self._path, "rb", buffering=0) as file:
                if after is not None:
                    file.seek(after.mark)
                    mark = file.read(8)
                    if mark != struct.pack("<Q", after.chain) or os.fstat(file.fileno()).st_size < after.end:
                        return None
                    file.seek(after.end)
                return file.readall()
        except OSError as error:
            raise FileFormatError(f"cannot open {self._path}: {error.strerror}; copy the whole table again") from error

    def _changes(self, data: bytes, after: Position | None) -> tuple[list[Change], Position]:
        at = after or Position(START, START - 8, self._seal)
        first = after.end if after else 0  # where in the file the data begin
        if after is None:
            if data[:8] != _MAGIC or len(data) < START:
                raise self._damaged("its first bytes are not those of a file of changes")
            if _START.unpack_from(data)[1] != self._seal:
                raise self._damaged("it holds changes to another table")
        whole = list(self._whole(data, first, at))
        try:
            changes = [Change.from_bytes(payload) for payload, _ in whole]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._damaged("a change cannot be read") from error
        return changes, whole[-1][1] if whole else at

    def _whole(self, data: bytes, first: int, at: Position) -> Iterator[tuple[bytes, Position]]:
        """Each whole change with its place; `data` begins at byte `first` of the file."""
        while at.end - first < len(data):
            begin = at.end - first
            head = data[begin : begin + _HEAD.size]
            if len(head) < _HEAD.size:
                return
            size, digest, chain = _HEAD.unpack(head)
            payload = data[begin + _HEAD.size : begin + _HEAD.size + size]
            sound = _link(size, digest, at.end, at.chain) == chain
            if sound and len(payload) < size:
                return
            if not sound or xxhash.xxh3_64_intdigest(payload) != digest:
                if _never_written(data[begin:], at.end) and not _has_whole(data[begin:]):
                    return
                raise self._damaged(f"the change at byte {at.end:,} does not match its checksum")
            at = Position(at.end + _HEAD.size + size, at.end + _HEAD.size - 8, chain)
            yield payload, at

    def _unwritable(self, error: OSError) -> PixnarError:
        return PixnarError(
            f"cannot write {self._path}: {error.strerror or error}; make room there or see who may write there"
        )

    def _damaged(self, why: str) -> FileFormatError:
        return FileFormatError(f"{self._path} is damaged ({why}): copy the table again, or build it again")


def _link(size: int, digest: int, at: int, before: int) -> int:
    return xxhash.xxh3_64_intdigest(struct.pack("<QQQQ", size, digest, at, before))


def _never_written(tail: bytes, at: int) -> bool:
    """Whether a page of the tail, which begins at byte `at` of the file, is all zeros, as no change is.

    A file may have grown before all of its pages reached the disk.
    """
    cuts = [0, *range(_PAGE - at % _PAGE, len(tail), _PAGE), len(tail)]
    return any(not any(tail[begin:end]) for begin, end in pairwise(cuts))


def _has_whole(tail: bytes) -> bool:
    """Whether a whole change is in the tail: what stands before it was finished earlier, and so is damage."""
    at = tail.find(_BEGIN)
    while at >= 0:
        if at >= _HEAD.size:
            size, digest, _ = _HEAD.unpack_from(tail, at - _HEAD.size)
            if size <= len(tail) - at and xxhash.xxh3_64_intdigest(tail[at : at + size]) == digest:
                return True
        at = tail.find(_BEGIN, at + 1)
    return False


Docids = dict[Tokens, str]
"""Docids as they were written, by their tokens; "" where the table keeps no spellings."""

_KIND, _VERSION = "diff", 1


@dataclass(frozen=True)
class Difference:
    """The sum of all changes since a table was built. Removals come first: a removed document may have come back."""

    removed_documents: frozenset[str] = frozenset()
    added: Mapping[str, Docids] = field(default_factory=dict)
    removed: Mapping[str, Docids] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.removed_documents or self.added or self.removed)

    def part(self, mine: Callable[[str], bool]) -> Difference:
        """The same of some documents."""
        return Difference(
            frozenset(filter(mine, self.removed_documents)),
            {doc_id: docids for doc_id, docids in self.added.items() if mine(doc_id)},
            {doc_id: docids for doc_id, docids in self.removed.items() if mine(doc_id)},
        )

    def save(self, path: Path) -> None:
        """Write to one file, atomically."""
        content = {
            "removed_documents": sorted(self.removed_documents),
            "added": _rows(self.added),
            "removed": _rows(self.removed),
        }
        data = json.dumps(content, separators=(",", ":")).encode()  # lone surrogates survive as escapes
        write_container(path, _KIND, _VERSION, {}, {"json": np.frombuffer(data, np.uint8)})

    @classmethod
    def load(cls, path: Path) -> Difference:
        """Read a file that `save` wrote; every byte is compared with its checksum."""
        try:
            content: dict[str, Any] = json.loads(read_container(path, _KIND, _VERSION).arrays["json"].tobytes())
            added, removed = (
                {doc_id: {tuple(tokens): text for tokens, text in docids} for doc_id, docids in content[name]}
                for name in ("added", "removed")
            )
            return cls(frozenset(content["removed_documents"]), added, removed)
        except (KeyError, ValueError, TypeError) as error:
            raise FileFormatError(f"{path} is damaged ({error}): copy the table again, or build it again") from error


def _rows(docids: Mapping[str, Docids]) -> list[tuple[str, list[tuple[Tokens, str]]]]:
    return [(doc_id, sorted(docids[doc_id].items())) for doc_id in sorted(docids)]
