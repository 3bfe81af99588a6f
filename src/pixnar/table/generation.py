"""One generation of a table: what was built or compacted, and never changes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pixnar import _native
from pixnar.base.errors import FileFormatError
from pixnar.base.progress import Progress
from pixnar.base.storage import read_container, write_container
from pixnar.base.strings import TextBlocks, damaged
from pixnar.documents.documents import Documents
from pixnar.table.folder import File, Manifest, TableFolder
from pixnar.table.journal import Difference, Journal

STEP = 1 << 16  # rows that are handled at a time when all are gone through
_INDEX = ("doc_rows", "doc_row_heads", "doc_row_bits", "postings", "posting_heads", "posting_bits")


UNCHANGED = Difference()


class Generation(NamedTuple):
    """Docids, documents and spellings as they are mapped, and the bytes that each takes."""

    table: _native.DocidTable
    documents: Documents
    spellings: TextBlocks | None
    where: str
    sizes: dict[str, int]
    difference: Difference = UNCHANGED  # from what was built


class Gathered(Protocol):
    """Docids that wait to become a table: a native builder, or parts that were built apart."""

    def finish(self, documents: int, index: bool, threads: int, progress: Progress | None) -> dict[str, NDArray[Any]]:
        """The arrays of the table."""
        ...

    def spellings(self, first: int, last: int) -> tuple[bytes, NDArray[np.int64]]:
        """The spellings of some rows of it, one behind the other, and where each begins."""
        ...


def open_generation(folder: TableFolder, manifest: Manifest, *, verify: bool) -> Generation:
    """Map the files in force; `verify` compares every byte with its checksum."""
    folder.file(manifest, "vocabulary")  # is read when it is needed, but should be there
    path = folder.file(manifest, "docids")
    container = read_container(path, "docids", 1, verify=verify)
    arrays = container.arrays
    try:
        table = _native.DocidTable(arrays)
    except (ValueError, TypeError, IndexError) as error:
        raise FileFormatError(f"{path} is damaged or incomplete ({error}): build the table again") from error
    if container.meta != _shape(table):
        raise damaged(str(path), "its shape is not the one it was written with")
    index = sum(arrays[name].nbytes for name in _INDEX)
    sizes = {"docids": path.stat().st_size - index, "index": index}
    path = folder.file(manifest, "documents")
    if verify:
        Documents.check(path)
    documents = Documents.open(path)
    sizes["documents"] = path.stat().st_size
    if len(documents) != table.documents:
        raise damaged(str(path), f"{len(documents):,} documents, where the docids name {table.documents:,}")
    spellings = None
    if "spellings" in manifest.files:
        path = folder.file(manifest, "spellings")
        spellings = TextBlocks(read_container(path, "spell", 1, verify=verify).arrays, str(path))
        sizes["spellings"] = path.stat().st_size
        if len(spellings) != table.rows:
            raise damaged(str(path), f"{len(spellings):,} spellings for {table.rows:,} docids")
    difference = UNCHANGED
    if "difference" in manifest.files:
        difference = Difference.load(folder.file(manifest, "difference"))
    return Generation(table, documents, spellings, str(folder.path), sizes, difference)


def write_generation(
    folder: TableFolder,
    generation: int,
    builder: Gathered,
    documents: int,
    *,
    index: bool,
    spelled: bool,
    vocabulary: File,
    meta: dict[str, str],
    threads: int,
    progress: Progress | None,
    difference: Difference = UNCHANGED,
) -> Manifest:
    """Write what a builder gathered, beside the documents that are there already, and put it in force."""
    arrays = builder.finish(documents, index, threads, progress)
    table = _native.DocidTable(arrays)
    write_container(folder.new_file("docids", generation), "docids", 1, _shape(table), arrays)

    def texts() -> Iterator[bytes]:
        for first in range(0, table.rows, STEP):
            data, borders = builder.spellings(first, min(first + STEP, table.rows))
            for begin, end in pairwise(borders.tolist()):
                yield data[begin:end]

    parts = ["docids", "documents"]
    if spelled:
        packed = TextBlocks.pack(texts(), threads=threads, folder=folder.path, progress=progress)
        write_container(folder.new_file("spellings", generation), "spell", 1, {}, packed)
        parts.append("spellings")
    if difference:
        difference.save(folder.new_file("difference", generation))
        parts.append("difference")
    files = {part: folder.sealed(part, generation) for part in parts}
    manifest = Manifest(generation, files | {"vocabulary": vocabulary}, meta)
    Journal(folder.path / manifest.changes, manifest.seal).create()
    folder.commit(manifest)
    folder.sweep(manifest)
    return manifest


def _shape(table: _native.DocidTable) -> dict[str, int]:
    """What a damaged table would first be wrong about; kept where every byte is checked at once."""
    return {
        "vocabulary": table.vocabulary,
        "docids": table.rows,
        "documents": table.documents,
        "pairs": table.pairs,
        "indexed": int(table.indexed),
    }
