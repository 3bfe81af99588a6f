"""Rows of files added to a table that is in use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pixnar.base.errors import CorpusError
from pixnar.base.progress import Progress
from pixnar.corpus import parse
from pixnar.corpus.folder import json_docids
from pixnar.corpus.lines import Meter, read_lines
from pixnar.corpus.records import BadRows, DocidRow, Document, Skipped
from pixnar.table.journal import LONGEST_DOCID
from pixnar.table.table import DocidTable


class Count(NamedTuple):
    """How many rows were added."""

    docids: int
    documents: int


def add_files(
    table: DocidTable,
    *,
    docids: str | os.PathLike[str] | None = None,
    documents: str | os.PathLike[str] | None = None,
    batch: int = 10_000,
    skip_bad_rows: bool = False,
    skipped: Skipped | None = None,
    progress: Progress | None = None,
) -> Count:
    """Add the rows of a file like docids.jsonl and describe the documents of one like corpus.jsonl, plain or .gz.

    Both files are checked first: a bad row changes nothing. Then come the documents, then the docids; every `batch` of
    rows is one change, which is there whole or not at all. Rows that are there already change nothing, so the same
    files may be given again after a crash.
    """
    counted = Skipped() if skipped is None else skipped
    sources: list[Iterator[object]] = []
    if documents is not None:
        sources.append(_documents(documents, BadRows(skip_bad_rows, counted), progress, "checking documents"))
    if docids is not None:
        sources.append(_docids(docids, BadRows(skip_bad_rows, counted), progress, "checking docids"))
    for source in sources:
        for _ in source:
            pass
    described = added = 0
    if documents is not None:
        rows = _documents(documents, BadRows(skip_bad_rows, counted), progress, "documents")
        while some := list(islice(rows, batch)):
            table.change(documents=some)
            described += len(some)
    if docids is not None:
        names = _docids(docids, BadRows(skip_bad_rows, counted), progress, "docids")
        while pairs := list(islice(names, batch)):
            texts = [row.docid for row in pairs]
            encoded = table.vocabulary.encode_batch(texts)
            strange = np.flatnonzero((encoded.lengths < 1) | (encoded.lengths > LONGEST_DOCID))
            if strange.size:
                table.encode(texts[int(strange[0])])  # raises
            add = [(row.doc_id, tokens.tolist()) for row, tokens in zip(pairs, encoded.rows(), strict=True)]
            table.change(add=add, spellings=texts)
            added += len(pairs)
    return Count(added, described)


def _documents(
    file: str | os.PathLike[str], judge: BadRows, progress: Progress | None, stage: str
) -> Iterator[Document]:
    path = _existing(file)
    lines = read_lines(path, Meter.for_files(stage, [path], progress))
    for batch in parse.read_rows(str(path), lines, parse.document_from_json):
        judge.settle(batch.file, batch.bad)
        yield from batch.rows


def _docids(file: str | os.PathLike[str], judge: BadRows, progress: Progress | None, stage: str) -> Iterator[DocidRow]:
    for batch in json_docids(_existing(file), stage, progress):
        judge.settle(batch.file, batch.bad)
        yield from batch.rows


def _existing(file: str | os.PathLike[str]) -> Path:
    path = Path(file)
    if not path.is_file():
        raise CorpusError(f"no file {path}: give one with a JSON object on each line")
    return path
