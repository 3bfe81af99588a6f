"""Compaction: rewrite a docid table without its removed rows, whole or as parts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixnar import _native
from pixnar.base.errors import PixnarError
from pixnar.base.progress import Progress
from pixnar.corpus.records import Document
from pixnar.documents.columns import word_bytes
from pixnar.documents.documents import Documents, Origin, pack_documents, write_documents
from pixnar.table.generation import STEP, Generation, write_generation
from pixnar.table.open import OnDisk
from pixnar.table.overlay import Overlay

MEMORY = "a table in memory"


def document_ids(overlay: Overlay) -> Iterator[str]:
    """The ids of all documents by their numbers, those that are gone included."""
    documents = overlay.base.documents
    for first in range(0, len(documents), STEP):
        yield from documents.doc_ids(range(first, min(first + STEP, len(documents))))
    yield from overlay.new


def still_there(overlay: Overlay) -> NDArray[np.bool_]:
    """Which documents are there, by their numbers."""
    kept = np.ones(len(overlay.base.documents) + len(overlay.new), np.bool_)
    kept[list(overlay.gone)] = False
    return kept


def kept_origin(overlay: Overlay, kept: NDArray[np.bool_]) -> Origin:
    """What the table was built of, and which of the documents to keep these were."""
    origin = overlay.base.documents.origin
    then = np.arange(len(overlay.base.documents)) if origin.numbers is None else origin.numbers
    numbers = np.concatenate([then, np.full(len(overlay.new), -1, np.int64)])[kept]
    return _shortened(origin._replace(numbers=numbers))


def part_origin(overlay: Overlay, kept: NDArray[np.bool_]) -> tuple[Origin, NDArray[np.int64]]:
    """The same of a part: as if it had been built of those documents alone; and their numbers in the whole then."""
    origin = kept_origin(overlay, kept)
    then = np.arange(origin.size) if origin.numbers is None else origin.numbers
    places = np.sort(then[then >= 0])
    numbers = np.where(then < 0, -1, np.searchsorted(places, then))
    return _shortened(Origin(origin.ids, len(places), numbers)), places


def _shortened(origin: Origin) -> Origin:
    """Without numbers that say nothing."""
    same = origin.numbers is not None and np.array_equal(origin.numbers, np.arange(origin.size))
    return origin._replace(numbers=None) if same else origin


def kept_documents(overlay: Overlay, kept: NDArray[np.bool_]) -> Iterator[Document]:
    """The documents to keep, as they are described now."""
    old = len(overlay.base.documents)
    for number, document in enumerate(overlay.base.documents):
        if kept[number]:
            yield overlay.records.get(number, document)
    for number in range(old, old + len(overlay.new)):
        if kept[number]:
            yield overlay.records[number]


def kept_docids(overlay: Overlay, kept: NDArray[np.bool_], progress: Progress | None) -> _native.DocidBuilder:
    """All docids of the documents to keep, under new numbers for these."""
    base = overlay.base
    spelled = base.spellings is not None
    renumbered = (np.cumsum(kept) - 1).astype(np.uint32)
    respelled = overlay.respelled()
    dead = overlay.share_dead()
    builder = _native.DocidBuilder(base.table.vocabulary)
    for first in range(0, base.table.rows, STEP):
        last = min(first + STEP, base.table.rows)
        ids, offsets, numbers, rows = base.table.records(first, last, dead)
        mine = kept[numbers]
        if not mine.all():
            lengths = np.diff(offsets)
            ids, numbers, rows = ids[np.repeat(mine, lengths)], numbers[mine], rows[mine]
            offsets = np.concatenate([[0], np.cumsum(lengths[mine])]).astype(np.int64)
        texts: list[bytes] = []
        if base.spellings is not None:
            texts = base.spellings.many(rows)
            if respelled:
                texts = [respelled.get(row, text) for row, text in zip(rows.tolist(), texts, strict=True)]
        builder.add(ids, offsets, renumbered[numbers], b"".join(texts), _borders(texts, spelled))
        if progress:
            progress("reading docids", last, base.table.rows)
    for tokens, all_named in overlay.pairs.items():
        named = [number for number in all_named if kept[number]]
        if not named:
            continue
        texts = [word_bytes(overlay.spelling(tokens) or "")] * len(named) if spelled else []
        builder.add(
            np.array(tokens * len(named), np.uint32),
            np.arange(len(named) + 1, dtype=np.int64) * len(tokens),
            renumbered[named],
            b"".join(texts),
            _borders(texts, spelled),
        )
    return builder


def _borders(texts: Sequence[bytes], spelled: bool) -> NDArray[np.int64]:
    if not spelled:
        return np.zeros(0, np.int64)
    return np.concatenate([[0], np.cumsum([len(text) for text in texts], dtype=np.int64)]).astype(np.int64)


def compacted_in_memory(
    overlay: Overlay, *, index: bool, threads: int = 0, progress: Progress | None = None
) -> Generation:
    """The next generation of a table that has no folder."""
    kept = still_there(overlay)
    arrays = kept_docids(overlay, kept, progress).finish(int(kept.sum()), index, threads, progress)
    made = generation_in_memory(arrays, kept_documents(overlay, kept), kept_origin(overlay, kept))
    return made._replace(difference=overlay.difference())


def write_compacted(
    disk: OnDisk, overlay: Overlay, *, index: bool, spelled: bool, threads: int = 0, progress: Progress | None = None
) -> None:
    """Write the next generation into the folder of a table; nothing stays of one that fails."""
    generation = disk.manifest.generation + 1
    try:
        kept = still_there(overlay)
        builder = kept_docids(overlay, kept, progress)
        path = disk.folder.new_file("documents", generation)
        origin = kept_origin(overlay, kept)
        count = write_documents(path, kept_documents(overlay, kept), origin=origin, threads=threads, progress=progress)
        write_generation(
            disk.folder,
            generation,
            builder,
            count,
            index=index,
            spelled=spelled,
            vocabulary=disk.manifest.files["vocabulary"],
            meta=disk.manifest.meta,
            threads=threads,
            progress=progress,
            difference=overlay.difference(),
        )
    except BaseException:
        with contextlib.suppress(PixnarError):
            if disk.folder.manifest() == disk.manifest:
                disk.folder.discard(generation)
        raise


def generation_in_memory(
    arrays: dict[str, NDArray[Any]], documents: Iterable[Document], origin: Origin | None = None
) -> Generation:
    """A generation that no file holds."""
    packed = pack_documents(documents, origin=origin, threads=1)
    return Generation(_native.DocidTable(arrays), Documents(packed, MEMORY), None, MEMORY, {})
