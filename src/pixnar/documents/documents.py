"""What is kept about documents: id, title and metadata, in the order they came; and the way from an id to its number.

One container file. Ids are a store of their own, since results need them and seldom anything else; title and metadata
are JSON in another. An id is found through its 64-bit hash in a sorted list, and then compared, so that two ids with
one hash are two ids all the same.

A file also says what its table was first built of (`Origin`), which stays when the table is compacted or cut.
"""

from __future__ import annotations

import functools
import json
import os
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.progress import Progress
from pixnar.base.storage import Container, check_writable, read_container, write_container
from pixnar.base.strings import TextBlocks, damaged
from pixnar.corpus.records import Document, shown
from pixnar.documents.columns import Columns, ColumnWriter, as_text, word_bytes

_KIND = "docs"
_VERSION = 2  # says what its table was built of
_MOST = 2**32 - 1
_hash = xxhash.xxh3_64_intdigest
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=as_text).encode


class Origin(NamedTuple):
    """What a table was first built of: a checksum of the ids of its documents in their order, and how many there were.

    `numbers` is by document the number it had then, -1 if it came later; None: the same number as now.
    """

    ids: str
    size: int
    numbers: NDArray[np.int64] | None = None


def write_documents(
    path: str | os.PathLike[str],
    documents: Iterable[Document],
    *,
    keys: Collection[str] | None = None,
    origin: Origin | None = None,
    threads: int = 0,
    progress: Progress | None = None,
) -> int:
    """Write documents, without their texts, to one file, atomically; the answer is how many there were.

    The documents are read once and not held: in memory are their ids and, for the columns, their numbers and the
    distinct texts of their metadata. The same documents give the same bytes. `keys` are those that filters may name,
    if they are not to be the most used. Without an `origin` these documents are one.
    """
    check_writable(path)
    folder = Path(os.path.realpath(path)).parent
    packed = pack_documents(documents, keys=keys, origin=origin, threads=threads, folder=folder, progress=progress)
    write_container(path, _KIND, _VERSION, packed.meta, packed.arrays)
    return int(packed.meta["documents"])


def pack_documents(
    documents: Iterable[Document],
    *,
    keys: Collection[str] | None = None,
    origin: Origin | None = None,
    threads: int = 0,
    folder: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Container:
    """What `write_documents` writes, in memory, but for the records, which wait in `folder` if one is given."""
    ids, ends = bytearray(), array("Q", [0])
    columns = ColumnWriter(keys)

    def rows() -> Iterator[bytes]:
        for number, document in enumerate(documents):
            if number == _MOST:
                raise PixnarError(f"more than {_MOST:,} documents do not fit in one table: split the corpus")
            ids.extend(word_bytes(document.doc_id))
            ends.append(len(ids))
            columns.add(number, document.metadata)
            yield _row(document)

    records = TextBlocks.pack(rows(), threads=threads, folder=folder, progress=progress)
    count = len(ends) - 1
    if progress:
        progress("sorting ids", 0, count)
    borders = np.array(ends, np.uint64)
    arrays = {**_index(bytes(ids), borders)}
    stores = {
        "ids": TextBlocks.pack(_cut(ids, borders), threads=threads),
        "records": records,
        "columns": columns.arrays(count, threads=threads),
    }
    for store, parts in stores.items():
        arrays |= {f"{store}.{name}": part for name, part in parts.items()}
    if progress:
        progress("sorting ids", count, count)
    if origin is None:
        origin = Origin(xxhash.xxh3_128_hexdigest(bytes(ids) + borders.tobytes()), count)
    elif origin.numbers is not None:
        arrays["origin"] = origin.numbers
    return Container({"documents": count, "origin": {"ids": origin.ids, "size": origin.size}}, arrays)


def byte_order(data: bytes, borders: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """The numbers of some byte strings, sorted by what they are; string k is ``data[borders[k]:borders[k + 1]]``.

    >>> byte_order(b"teacoffee", np.array([0, 3, 9], np.uint64)).tolist()
    [1, 0]
    """
    strings = list(_cut(data, borders))
    return np.array(sorted(range(len(strings)), key=strings.__getitem__), np.uint32)


class Documents:
    """The documents of a file that `write_documents` wrote; a document's number is its place in the order they came.

    `rank` is by document the place of its id among all ids in the order of their UTF-8 bytes.
    """

    def __init__(self, container: Container, where: str) -> None:
        """Use `Documents.open`; `where` names the file in errors."""
        self._where = where
        self._arrays = container.arrays
        self._ids = TextBlocks(self._under("ids"), where)
        self._records = TextBlocks(self._under("records"), where)
        self.count = len(self._ids)  # how many documents there are
        try:
            self._hashes, self._order, self.rank = (self._arrays[name] for name in ("hashes", "order", "rank"))
        except KeyError as error:
            raise damaged(where, f"array {error.args[0]} is not there") from error
        try:
            about = container.meta["origin"]
        except KeyError as error:
            raise FileFormatError(
                f"{where} is of an earlier release: run pixnar fit or pixnar table build again with --overwrite"
            ) from error
        self.origin = Origin(about["ids"], about["size"], self._arrays.get("origin"))
        sizes = {len(self._records), self._hashes.size, self._order.size, self.rank.size}
        kept = self.origin.numbers
        if sizes != {len(self._ids)} or len(self) != (self.origin.size if kept is None else len(kept)):
            raise damaged(where, "its parts are about different numbers of documents")

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Documents:
        """Map a file; nothing is read but its directory, so damage may show only when a document is asked for."""
        return cls(read_container(path, _KIND, _VERSION, verify=False), os.fspath(path))

    @classmethod
    def check(cls, path: str | os.PathLike[str]) -> None:
        """Read a whole file against its checksums; raise if a bit of it is wrong."""
        cls(read_container(path, _KIND, _VERSION), os.fspath(path))

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Document]:
        """All documents, in order, without holding them."""
        for number, (doc_id, row) in enumerate(zip(self._ids, self._records, strict=True)):
            yield Document(self._text(doc_id), *self._content(number, row))

    @functools.cached_property
    def by_origin(self) -> NDArray[np.int64] | None:
        """The number now of each document that the table was built of, -1 if it is gone; None: the same as then."""
        if self.origin.numbers is None:
            return None
        now = np.full(self.origin.size, -1, np.int64)
        kept = np.flatnonzero(self.origin.numbers >= 0)
        try:
            now[self.origin.numbers[kept]] = kept
        except IndexError as error:
            raise damaged(self._where, "its origin has fewer documents than it names") from error
        return now

    @functools.cached_property
    def columns(self) -> Columns:
        """The metadata by key, for filters."""
        return Columns(self._under("columns"), self._where)

    def doc_id(self, number: int) -> str:
        """The id of a document."""
        return self._text(self._ids[number])

    def doc_ids(self, numbers: Sequence[int] | NDArray[Any]) -> list[str]:
        """The ids of some documents."""
        return [self._text(each) for each in self._ids.many(numbers)]

    def record(self, number: int) -> Document:
        """All that is kept about a document; its text is empty."""
        return self.records([number])[0]

    def records(self, numbers: Sequence[int] | NDArray[Any]) -> list[Document]:
        """`record` for some documents; faster for many."""
        rows = zip(numbers, self.doc_ids(numbers), self._records.many(numbers), strict=True)
        return [Document(doc_id, *self._content(number, row)) for number, doc_id, row in rows]

    def titles(self, numbers: Sequence[int] | NDArray[Any]) -> list[str]:
        """The titles of some documents."""
        return [self._content(number, row)[0] for number, row in zip(numbers, self._records.many(numbers), strict=True)]

    def number(self, doc_id: str) -> int | None:
        """The number of the document with this id, if there is one."""
        found = int(self.numbers([doc_id])[0])
        return None if found < 0 else found

    def numbers(self, doc_ids: Sequence[str]) -> NDArray[np.int64]:
        """The numbers of the documents with these ids, -1 where there is none."""
        wanted = [word_bytes(doc_id) for doc_id in doc_ids]
        hashes = np.fromiter(map(_hash, wanted), np.uint64, len(wanted))
        places = self._hashes.searchsorted(hashes)
        numbers = np.full(len(wanted), -1, np.int64)
        open_ = np.arange(len(wanted))
        while True:  # one round, and one more for each further id that shares a hash
            open_ = open_[places[open_] < len(self)]
            open_ = open_[self._hashes[places[open_]] == hashes[open_]]
            if not open_.size:
                return numbers
            candidates = self._order[places[open_]].astype(np.int64)
            if int(candidates.max()) >= len(self):
                raise damaged(self._where, "its index names documents that are not there")
            ids = self._ids.many(candidates)
            same = np.fromiter((wanted[at] == found for at, found in zip(open_, ids, strict=True)), np.bool_, len(ids))
            numbers[open_[same]] = candidates[same]
            open_ = open_[~same]
            places[open_] += 1

    def _under(self, store: str) -> dict[str, NDArray[Any]]:
        prefix = f"{store}."
        return {name.removeprefix(prefix): each for name, each in self._arrays.items() if name.startswith(prefix)}

    def _text(self, data: bytes) -> str:
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise damaged(self._where, "a text is not UTF-8") from error

    def _content(self, number: int, row: bytes) -> tuple[str, str, dict[str, Any]]:
        """Title, text, which is not kept, and metadata."""
        try:
            title, metadata = json.loads(self._text(row))
        except (ValueError, TypeError, RecursionError) as error:
            raise damaged(self._where, f"the record of {shown(self.doc_id(number))} cannot be read") from error
        return title, "", metadata


def _row(document: Document) -> bytes:
    try:
        return word_bytes(_to_json((document.title, document.metadata)))
    except (TypeError, ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise PixnarError(
            f"the metadata of document {shown(document.doc_id)} is no JSON: {reason}; change its values"
        ) from error


def _cut(data: bytes | bytearray, borders: NDArray[np.uint64]) -> Iterator[bytes]:
    return (bytes(data[begin:end]) for begin, end in pairwise(borders.tolist()))


def _index(ids: bytes, borders: NDArray[np.uint64]) -> dict[str, NDArray[Any]]:
    """What finds a document by its id, and what sorts documents by it."""
    count = borders.size - 1
    hashes = np.fromiter(map(_hash, _cut(ids, borders)), np.uint64, count)
    by_id = byte_order(ids, borders)
    _refuse_twins(ids, borders, by_id, hashes)
    rank = np.zeros(count, np.uint32)
    rank[by_id] = np.arange(count, dtype=np.uint32)
    by_hash = np.argsort(hashes, kind="stable").astype(np.uint32)
    return {"hashes": hashes[by_hash], "order": by_hash, "rank": rank}


def _refuse_twins(
    ids: bytes, borders: NDArray[np.uint64], by_id: NDArray[np.uint32], hashes: NDArray[np.uint64]
) -> None:
    ordered = hashes[by_id]
    for at in np.flatnonzero(ordered[1:] == ordered[:-1]).tolist():
        pair = sorted(by_id[at : at + 2].tolist())
        one, other = (ids[int(borders[number]) : int(borders[number + 1])] for number in pair)
        if one == other:
            doc_id = shown(one.decode("utf-8", "surrogatepass"))
            places = f"numbers {pair[0] + 1:,} and {pair[1] + 1:,}"
            raise PixnarError(f"two documents ({places}) have the id {doc_id}: give each an id of its own")
