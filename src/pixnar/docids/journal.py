"""Changes to a table that is in use, one behind the other in a file that only grows.

A change is on disk, whole, when `append` returns. If the machine stops in the middle of one, its half is at the very
end of the file, and is left out when the file is read. Anything else that does not fit its checksums is damage, and an
error.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import xxhash

from pixnar.corpus.records import Document
from pixnar.errors import FileFormatError, PixnarError
from pixnar.storage import sync_folder

Tokens = tuple[int, ...]

_MAGIC = b"\x89PIXCHG1"
_HEAD = struct.Struct("<QQQ")  # size of the change, its checksum, checksum of these two and of the place in the file


@dataclass(frozen=True)
class Change:
    """What one change does: removals first, then additions. What is not there need not be removed."""

    add: Sequence[tuple[str, Tokens]] = ()
    remove_documents: Sequence[str] = ()
    remove_docids: Sequence[Tokens] = ()
    remove_pairs: Sequence[tuple[str, Tokens]] = ()
    spellings: Sequence[str] = field(default=())  # one for each addition, or none at all
    documents: Sequence[Document] = field(default=())  # titles and metadata to keep; for new documents and known ones

    def to_bytes(self) -> bytes:
        """As JSON; lone surrogates, which metadata may hold, survive."""
        return json.dumps(asdict(self) | {"documents": [list(each) for each in self.documents]}).encode()

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
            documents=[Document(*each) for each in found["documents"]],
        )


class Journal:
    """The file of changes of one generation of a table."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def create(self) -> None:
        """Start an empty file, on disk when this returns."""
        with open(self._path, "wb") as file:
            file.write(_MAGIC)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self._path.parent)

    def read(self) -> tuple[list[Change], int]:
        """All whole changes, and where in the file they end."""
        try:
            data = self._path.read_bytes()
        except OSError as error:
            raise FileFormatError(f"cannot open {self._path}: {error.strerror}; copy the whole table again") from error
        if data[: len(_MAGIC)] != _MAGIC:
            raise self._damaged("its first bytes are not those of a file of changes")
        changes, end = [], len(_MAGIC)
        for whole_end, payload in self._whole(data):
            end = whole_end
            try:
                changes.append(Change.from_bytes(payload))
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise self._damaged("a change cannot be read") from error
        return changes, end

    def append(self, change: Change, end: int) -> int:
        """Write a change behind those that end at `end`; the answer is the new end."""
        payload = change.to_bytes()
        digest = xxhash.xxh3_64_intdigest(payload)
        head = _HEAD.pack(len(payload), digest, _head_hash(len(payload), digest, end))
        try:
            with open(self._path, "r+b") as file:
                file.truncate(end)  # half a change that a crash left
                file.seek(end)
                file.write(head + payload)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise PixnarError(f"cannot write {self._path}: {error.strerror}; make room there and try again") from error
        return end + len(head) + len(payload)

    def _whole(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Each whole change with its end."""
        at = len(_MAGIC)
        while at < len(data):
            head = data[at : at + _HEAD.size]
            if len(head) < _HEAD.size or not any(data[at:]):  # cut short, or room that was never written
                return
            size, digest, head_digest = _HEAD.unpack(head)
            payload = data[at + _HEAD.size : at + _HEAD.size + size]
            if _head_hash(size, digest, at) != head_digest:
                raise self._damaged(f"the change at byte {at:,} does not match its checksum")
            if len(payload) < size:
                return
            if xxhash.xxh3_64_intdigest(payload) != digest:
                # JSON has no zero bytes: where they are, the end of the file was never written.
                if 0 in payload and at + _HEAD.size + size == len(data):
                    return
                raise self._damaged(f"the change at byte {at:,} does not match its checksum")
            at += _HEAD.size + size
            yield at, payload

    def _damaged(self, why: str) -> FileFormatError:
        return FileFormatError(f"{self._path} is damaged ({why}): copy the table again, or build it again")


def _head_hash(size: int, digest: int, at: int) -> int:
    return xxhash.xxh3_64_intdigest(struct.pack("<QQQ", size, digest, at))
