"""From a corpus and a vocabulary to a docid table on disk, streaming."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixnar import _native
from pixnar.base.errors import CorpusError
from pixnar.base.progress import Progress
from pixnar.corpus import Corpus, open_corpus
from pixnar.corpus.records import DocidRow, shown
from pixnar.documents.documents import Documents, write_documents
from pixnar.table.folder import TableFolder
from pixnar.table.generation import write_generation
from pixnar.table.journal import LONGEST_DOCID
from pixnar.table.table import DocidTable
from pixnar.vocab import TargetVocabulary

_BATCH = 1 << 15


def build_table(
    corpus: str | os.PathLike[str] | Corpus,
    vocabulary: TargetVocabulary,
    path: str | os.PathLike[str],
    *,
    index: bool = True,
    spellings: bool = True,
    overwrite: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
) -> DocidTable:
    """Encode every docid of a corpus and write the table to a folder, whole or not at all.

    Without the `index` the table is half the size, but slower to search where a floor or any order is asked for, and
    documents cannot be removed from it. Without `spellings` hits show docids in their normal form. With `overwrite` a
    table that is there is replaced in one step, at the end; whoever has it open keeps the old one until `refresh`.
    """
    source = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
    folder = TableFolder(path)
    with folder.building(overwrite=overwrite) as generation:
        vocabulary.save(folder.new_file("vocabulary", generation))
        path_of_documents = folder.new_file("documents", generation)
        write_documents(path_of_documents, source.documents(progress), threads=threads, progress=progress)
        documents = Documents.open(path_of_documents)
        builder = _native.DocidBuilder(len(vocabulary))
        for rows in row_batches(source.docids(progress)):
            builder.add(*encode_rows(source.name, rows, vocabulary, documents, spellings=spellings, threads=threads))
        write_generation(
            folder,
            generation,
            builder,
            len(documents),
            index=index,
            spelled=spellings,
            vocabulary=folder.sealed("vocabulary", generation),
            meta={"corpus": source.name},
            threads=threads,
            progress=progress,
        )
    return DocidTable.open(path)


class Records(NamedTuple):
    """Rows as the native builder takes them: tokens, where docids begin, documents, spellings, where those begin."""

    ids: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    documents: NDArray[np.uint32]
    texts: bytes
    borders: NDArray[np.int64]


def encode_rows(
    corpus: str,
    rows: Sequence[DocidRow],
    vocabulary: TargetVocabulary,
    documents: Documents,
    *,
    spellings: bool,
    threads: int,
) -> Records:
    """Encode docids and look up whom they name; what cannot be in a table is an error about the `corpus`."""
    texts = [row.docid for row in rows]
    ids, offsets = vocabulary.encode_batch(texts, threads=threads)
    lengths = np.diff(offsets)
    for at in np.flatnonzero((lengths < 1) | (lengths > LONGEST_DOCID)).tolist():
        what = "has no text" if lengths[at] < 1 else f"has more than {LONGEST_DOCID:,} tokens"
        raise CorpusError(f"{corpus}: the docid {shown(texts[at])} {what}: correct it, or leave it out")
    numbers = documents.numbers([row.doc_id for row in rows])
    if (numbers < 0).any():
        unknown = rows[int(np.flatnonzero(numbers < 0)[0])].doc_id
        raise CorpusError(
            f"{corpus}: a docid names the document {shown(unknown)}, which is not in the corpus: "
            "leave the docid out, or add the document"
        )
    spelled = [text.encode("utf-8", "surrogatepass") for text in texts] if spellings else []
    borders = np.zeros(len(rows) + 1 if spellings else 0, np.int64)
    np.cumsum([len(text) for text in spelled], out=borders[1:])
    return Records(ids, offsets, numbers.astype(np.uint32), b"".join(spelled), borders)


def row_batches(rows: Iterable[DocidRow]) -> Iterator[list[DocidRow]]:
    """Rows, some ten thousand at a time."""
    batch: list[DocidRow] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
