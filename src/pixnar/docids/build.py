"""From a corpus and a vocabulary to a docid table on disk, streaming."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

from pixnar import _native
from pixnar.corpus import Corpus, open_corpus
from pixnar.corpus.records import DocidRow
from pixnar.docids.documents import Documents, write_documents
from pixnar.docids.folder import TableFolder, new_folder
from pixnar.docids.journal import Journal
from pixnar.docids.table import DocidTable, write_generation
from pixnar.errors import CorpusError
from pixnar.progress import Progress
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
    cannot be changed. Without `spellings` hits show docids in their normal form.
    """
    source = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
    with new_folder(path, overwrite=overwrite) as aside:
        folder = TableFolder(aside)
        vocabulary.save(folder.vocabulary)
        write_documents(folder.file("documents"), source.documents(progress), threads=threads, progress=progress)
        documents = Documents.open(folder.file("documents"))
        builder = _native.DocidBuilder(len(vocabulary))
        for rows in _batches(source.docids(progress)):
            texts = [row.docid for row in rows]
            ids, offsets = vocabulary.encode_batch(texts, threads=threads)
            if not (np.diff(offsets) > 0).all():
                empty = texts[int(np.flatnonzero(np.diff(offsets) <= 0)[0])]
                raise CorpusError(f"{source.name}: the docid {empty!r} has no text: give it a visible character")
            numbers = documents.numbers([row.doc_id for row in rows])
            if (numbers < 0).any():
                unknown = rows[int(np.flatnonzero(numbers < 0)[0])].doc_id
                raise CorpusError(f"{source.name}: a docid names the document {unknown!r}, which is not in the corpus")
            spelled = [text.encode("utf-8", "surrogatepass") for text in texts] if spellings else []
            borders = np.zeros(len(rows) + 1 if spellings else 0, np.int64)
            np.cumsum([len(text) for text in spelled], out=borders[1:])
            builder.add(ids, offsets, numbers.astype(np.uint32), b"".join(spelled), borders)
        table = write_generation(folder, 1, builder, len(documents), index, spellings, threads, progress)
        Journal(folder.file("changes")).create()
        folder.commit(1, {"corpus": source.name, "spellings": spellings, "docids": table.rows, "pairs": table.pairs})
    return DocidTable.open(path)


def _batches(rows: Iterator[DocidRow]) -> Iterator[list[DocidRow]]:
    batch: list[DocidRow] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
