"""A docid table built in shards by first token, then merged: the bytes that `build_table` writes.

    encode    every shard of the input    docids as tokens, documents as numbers; by first token, then as they came
    range     every range of tokens       its records from all shards, sorted and without duplicates: a small table
    merge     here                        the small tables one behind the other, length by length; then the index

Documents are numbered before, in the order they come, so that every shard gives the same document the same number. The
merge and the index need the whole table in one memory, packed, as searching it does; they are the driver's.
"""

from __future__ import annotations

import math
import os
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixnar import _native
from pixnar.base.progress import Progress
from pixnar.base.storage import read_container, write_container
from pixnar.base.workdir import scratch_folder
from pixnar.corpus import Corpus, Skipped, open_corpus
from pixnar.corpus.records import IdSet
from pixnar.corpus.texts import LEAST_BYTES, Shard, cut_files, shard_docids
from pixnar.distributed.cluster import Executor, load, remove, save
from pixnar.documents.documents import Documents, write_documents
from pixnar.table import DocidTable
from pixnar.table.build import Records, encode_rows, row_batches
from pixnar.table.folder import TableFolder
from pixnar.table.generation import write_generation
from pixnar.vocab import TargetVocabulary, load_vocabulary

_SHARD_BYTES = 64 << 20  # of the input
_RANGE_RECORDS = 20_000_000
_PARTS = ("firsts", "ids", "offsets", "documents", "texts", "borders")


def build_table(
    corpus: str | os.PathLike[str] | Corpus,
    vocabulary: TargetVocabulary,
    path: str | os.PathLike[str],
    executor: Executor,
    scratch: Path,
    *,
    index: bool = True,
    spellings: bool = True,
    overwrite: bool = False,
    shards: int | None = None,
    least: int = LEAST_BYTES,
    threads: int = 0,
    progress: Progress | None = None,
) -> DocidTable:
    """Write the table that `pixnar.table.build_table` writes, with the workers of an executor.

    Workers must see the corpus, the folder of the table and `scratch`, where files between the jobs go. Into how many
    `shards` input and tokens are cut (default: by workers and size) changes nothing but the time.
    """
    source = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
    files = [Path(os.path.abspath(file)) for file in source.docid_files()]
    folder = TableFolder(path)
    with folder.building(overwrite=overwrite) as generation, scratch_folder(scratch) as between:
        vocabulary_path = folder.new_file("vocabulary", generation)
        vocabulary.save(vocabulary_path)
        documents_path = folder.new_file("documents", generation)
        count = write_documents(documents_path, source.documents(progress), threads=threads, progress=progress)
        known = source.known_documents(progress)
        if known is not None:
            known.contains([])  # sorts them, once for all
        size = sum(file.stat().st_size for file in files)
        inputs = cut_files(files, shards or max(executor.workers * 2, math.ceil(size / _SHARD_BYTES)), least)
        shared = executor.share(known)
        jobs: list[tuple[Any, ...]] = [
            (
                between,
                number,
                shard,
                source.name,
                vocabulary_path,
                documents_path,
                spellings,
                source.skip_bad_rows,
                shared,
            )
            for number, shard in enumerate(inputs)
        ]
        firsts = np.zeros(len(vocabulary), np.int64)
        for tokens, counts, bad in executor.run("encoding docids", _encode, jobs, progress):
            firsts[tokens] += counts
            source.skipped.update(bad)
        borders = _even_borders(firsts, shards or max(executor.workers, math.ceil(int(firsts.sum()) / _RANGE_RECORDS)))
        jobs = [
            (between, number, begin, end, len(inputs), len(vocabulary), count, spellings)
            for number, (begin, end) in enumerate(pairwise(borders))
        ]
        for _ in executor.run("sorting docids", _range, jobs, progress):
            pass
        remove(between, "encoded-*")
        write_generation(
            folder,
            generation,
            _Ranges(between, len(jobs), spellings),
            count,
            index=index,
            spelled=spellings,
            vocabulary=folder.sealed("vocabulary", generation),
            meta={"corpus": source.name},
            threads=threads,
            progress=progress,
        )
    return DocidTable.open(path)


class _Ranges:
    """The small tables as one, in the way a native builder has its records."""

    def __init__(self, folder: Path, ranges: int, spelled: bool) -> None:
        self._tables = [
            _native.DocidTable(read_container(_range_file(folder, number), "range", 1, verify=False).arrays)
            for number in range(ranges)
        ]
        self._texts: list[tuple[NDArray[np.uint8], NDArray[np.int64]]] = []
        if spelled:
            texts, borders = (
                [load(folder / f"range-{name}.{number:05}", mapped=True) for number in range(ranges)]
                for name in ("texts", "borders")
            )
            self._texts = list(zip(texts, borders, strict=True))
        # Rows of the whole table: by length, then by range.
        stretches = []
        for number, table in enumerate(self._tables):
            row = 0
            for length, rows in table.lengths.reshape(-1, 2).tolist():
                stretches.append((length, number, row, rows))
                row += rows
        self._stretches = sorted(stretches)

    def finish(self, documents: int, index: bool, threads: int, progress: Progress | None) -> dict[str, NDArray[Any]]:
        return _native.merge_tables(self._tables, index, threads, progress)

    def spellings(self, first: int, last: int) -> tuple[bytes, NDArray[np.int64]]:
        data, lengths, at = [], [np.zeros(1, np.int64)], 0
        for _, number, row, rows in self._stretches:
            begin, end = max(first - at, 0), min(last - at, rows)
            at += rows
            if begin >= end:
                continue
            texts, borders = self._texts[number]
            edges = borders[row + begin : row + end + 1]
            data.append(texts[int(edges[0]) : int(edges[-1])].tobytes())
            lengths.append(np.diff(edges))
        return b"".join(data), np.cumsum(np.concatenate(lengths))


def _even_borders(counts: NDArray[np.int64], parts: int) -> list[int]:
    """Tokens cut into ranges with about equally many records; a token is never cut."""
    total = np.cumsum(counts)
    wanted = [int(total[-1]) * part // parts for part in range(1, parts)]
    inner = np.searchsorted(total, wanted, "left") + 1
    return sorted({0, *inner.tolist(), len(counts)})


def _range_file(folder: Path, number: int) -> Path:
    return folder / f"range.{number:05}"


def _encode(
    folder: Path,
    number: int,
    shard: Shard,
    corpus: str,
    vocabulary_path: Path,
    documents_path: Path,
    spellings: bool,
    skip: bool,
    known: IdSet | None,
) -> tuple[NDArray[np.uint32], NDArray[np.int64], Skipped]:
    """One shard of the input as records sorted by first token; those tokens and their counts, and bad rows."""
    skipped = Skipped()
    vocabulary, documents = load_vocabulary(vocabulary_path), Documents.open(documents_path)
    rows = chain.from_iterable(shard_docids(shard, known, skip_bad_rows=skip, skipped=skipped))
    batches = [
        encode_rows(corpus, batch, vocabulary, documents, spellings=spellings, threads=1) for batch in row_batches(rows)
    ]
    lengths = np.concatenate([np.zeros(0, np.int64), *(np.diff(batch.offsets) for batch in batches)])
    ids = np.concatenate([np.zeros(0, np.uint32), *(batch.ids for batch in batches)])
    starts = np.cumsum(lengths) - lengths
    firsts = ids[starts]
    order = np.argsort(firsts, kind="stable")
    numbers = np.concatenate([np.zeros(0, np.uint32), *(batch.documents for batch in batches)])
    sizes = np.concatenate([np.zeros(0, np.int64), *(np.diff(batch.borders) for batch in batches)])
    texts = np.frombuffer(b"".join(batch.texts for batch in batches), np.uint8)
    firsts = firsts[order]
    arrays = {
        "firsts": firsts,
        "ids": ids[_reordered(starts, lengths, order)],
        "offsets": _offsets(lengths[order]),
        "documents": numbers[order],
        "texts": texts[_reordered(np.cumsum(sizes) - sizes, sizes, order)] if spellings else texts,
        "borders": _offsets(sizes[order]) if spellings else sizes,
    }
    for name in _PARTS:
        save(folder / f"encoded-{name}.{number:05}", arrays[name])
    tokens, counts = np.unique(firsts, return_counts=True)
    return tokens, counts, skipped


def _reordered(starts: NDArray[np.int64], lengths: NDArray[np.int64], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the elements of some stretches are found, the stretches being put in another order."""
    taken = lengths[order]
    ends = np.cumsum(taken)
    moved: NDArray[np.int64] = np.repeat(starts[order] - (ends - taken), taken) + np.arange(int(taken.sum()))
    return moved


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    offsets = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _range(
    folder: Path, number: int, begin: int, end: int, inputs: int, vocabulary: int, documents: int, spellings: bool
) -> None:
    """The records of all shards whose first token is in a range, as a small table."""
    builder = _native.DocidBuilder(vocabulary)
    for shard in range(inputs):
        arrays = {name: load(folder / f"encoded-{name}.{shard:05}", mapped=True) for name in _PARTS}
        first, last = np.searchsorted(arrays["firsts"], np.array([begin, end], np.uint32), "left").tolist()
        if first < last:
            builder.add(*_cut(arrays, first, last, spellings))
    arrays = builder.finish(documents, False, 1, None)
    write_container(_range_file(folder, number), "range", 1, {}, arrays)
    if spellings:
        texts, borders = builder.spellings(0, _native.DocidTable(arrays).rows)
        save(folder / f"range-texts.{number:05}", np.frombuffer(texts, np.uint8))
        save(folder / f"range-borders.{number:05}", borders)


def _cut(arrays: dict[str, NDArray[Any]], first: int, last: int, spellings: bool) -> Records:
    offsets = np.asarray(arrays["offsets"][first : last + 1])
    ids = np.asarray(arrays["ids"][offsets[0] : offsets[-1]])
    documents = np.asarray(arrays["documents"][first:last])
    if not spellings:
        return Records(ids, offsets - offsets[0], documents, b"", np.zeros(0, np.int64))
    borders = np.asarray(arrays["borders"][first : last + 1])
    texts = arrays["texts"][borders[0] : borders[-1]].tobytes()
    return Records(ids, offsets - offsets[0], documents, texts, borders - borders[0])
