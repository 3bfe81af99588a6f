"""Corpus reader for any format: streams rows, checks ids, stops at bad rows or counts them; and the fingerprint."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import CorpusError, MissingPartError
from pixnar.base.progress import Progress
from pixnar.corpus.folder import BeirFolder, MarcoFolder, ParquetFolder, docid_rows, find_file, parquet_docids
from pixnar.corpus.irds import PREFIX, IrDataset
from pixnar.corpus.records import BadRow, BadRows, Batch, DocidRow, Document, IdSet, Qrel, Query, Row, Skipped, shown


class NoCorpusError(CorpusError):
    """A folder is there, and nothing of a corpus in it."""


class Source(Protocol):
    """A format: parses rows and knows nothing of the checks that span rows."""

    def documents(self, stage: str, progress: Progress | None) -> Iterator[Batch[Document]]: ...  # noqa: D102

    def docids(self, stage: str, progress: Progress | None) -> Iterator[Batch[DocidRow]]: ...  # noqa: D102

    def docid_files(self) -> list[Path]: ...  # noqa: D102

    def queries(self, stage: str, progress: Progress | None) -> Iterator[Batch[Query]]: ...  # noqa: D102

    def qrels(self, split: str, stage: str, progress: Progress | None) -> Iterator[Batch[Qrel]]: ...  # noqa: D102

    def splits(self) -> list[str]: ...  # noqa: D102


class Corpus:
    """What `open_corpus` returns. Every method streams and may be called again; `skipped` counts the bad rows so far.

    Document and query ids must be unique, and docids and judgements must be about ids that exist. For that, 8 bytes
    per id are kept, collected by a first pass where `documents()` has not been read to its end before.
    """

    def __init__(self, name: str, source: Source, *, skip_bad_rows: bool = False, check_ids: bool = True) -> None:
        self.name = name
        self.skipped = Skipped()
        self._source = source
        self.skip_bad_rows = skip_bad_rows
        self._check = check_ids
        self._doc_ids: IdSet | None = None
        self._query_ids: IdSet | None = None
        self.held_out: list[DocidRow] = []  # docids that are dev queries instead; see `held_out.hold_out`

    def __repr__(self) -> str:
        return f"Corpus({self.name!r})"

    def splits(self) -> list[str]:
        """The splits with judgements: train, dev, test, then others by name."""
        return self._source.splits()

    def has_docids(self) -> bool:
        """Whether there is any docid; looks at the first rows only, unless they are bad."""
        try:
            batches = self._source.docids("docids", None)
        except MissingPartError:
            return False
        return any(batch.rows or batch.bad for batch in batches)

    def with_docids(self, path: str | os.PathLike[str]) -> Corpus:
        """The same corpus with the docids of another file; bad rows of both are counted together."""
        other = Corpus(
            self.name, _WithDocids(self._source, Path(path)), skip_bad_rows=self.skip_bad_rows, check_ids=self._check
        )
        other.skipped, other._doc_ids, other._query_ids = self.skipped, self._doc_ids, self._query_ids
        return other

    def documents(self, progress: Progress | None = None) -> Iterator[Document]:
        """Stream the documents.

        ``titles = {row.doc_id: row.title for row in open_corpus("folder").documents()}``
        """
        return chain.from_iterable(self._documents(self._source.documents("documents", progress)))

    def docids(self, progress: Progress | None = None) -> Iterator[DocidRow]:
        """Stream the docids; one of an unknown document is a bad row.

        ``texts = (row.docid for row in open_corpus("folder").docids())``
        """
        return chain.from_iterable(self._docids(self._source.docids("docids", progress), progress))

    def queries(self, progress: Progress | None = None) -> Iterator[Query]:
        """Stream the queries of all splits.

        ``texts = {row.query_id: row.text for row in open_corpus("folder").queries()}``
        """
        return chain.from_iterable(self._queries(self._source.queries("queries", progress)))

    def qrels(self, split: str, progress: Progress | None = None) -> Iterator[Qrel]:
        """Stream the judgements of a split; one of an unknown query or document is a bad row.

        ``relevant = [row for row in open_corpus("folder").qrels("test") if row.score > 0]``
        """
        return chain.from_iterable(self._qrels(self._source.qrels(split, f"qrels {split}", progress), progress))

    def docid_files(self) -> list[Path]:
        """The files that `docids` reads, in order."""
        return self._source.docid_files()

    def known_documents(self, progress: Progress | None = None) -> IdSet | None:
        """The ids that docids are checked against; None where nothing is checked."""
        return self._known_documents(progress) if self._check else None

    def _documents(self, batches: Iterable[Batch[Document]]) -> Iterator[list[Document]]:
        ids = IdSet()
        yield from self._sound(batches, (0, ids.add, "duplicate document id"))
        self._doc_ids = ids

    def _queries(self, batches: Iterable[Batch[Query]]) -> Iterator[list[Query]]:
        ids = IdSet()
        yield from self._sound(batches, (0, ids.add, "duplicate query id"))
        self._query_ids = ids

    def _docids(self, batches: Iterable[Batch[DocidRow]], progress: Progress | None) -> Iterator[list[DocidRow]]:
        known = self._known_documents(progress)
        yield from self._sound(batches, (0, known.contains, "unknown document id"))

    def _qrels(self, batches: Iterable[Batch[Qrel]], progress: Progress | None) -> Iterator[list[Qrel]]:
        documents, queries = self._known_documents(progress), self._known_queries(progress)
        yield from self._sound(
            batches,
            (0, queries.contains, "unknown query id"),
            (1, documents.contains, "unknown document id"),
        )

    def _known_documents(self, progress: Progress | None) -> IdSet:
        if self._doc_ids is None and self._check:
            for _ in self._documents(self._source.documents("document ids", progress)):
                pass
        return self._doc_ids or IdSet()

    def _known_queries(self, progress: Progress | None) -> IdSet:
        if self._query_ids is None and self._check:
            for _ in self._queries(self._source.queries("query ids", progress)):
                pass
        return self._query_ids or IdSet()

    def _sound(self, batches: Iterable[Batch[Row]], *checks: Check) -> Iterator[list[Row]]:
        return sound_rows(batches, checks if self._check else (), BadRows(self.skip_bad_rows, self.skipped))


Check = tuple[int, Callable[[Sequence[str]], NDArray[np.bool_]], str]
"""The column of an id, which of many ids are right, and what is wrong with the others."""


def sound_rows(batches: Iterable[Batch[Row]], checks: Sequence[Check], judge: BadRows) -> Iterator[list[Row]]:
    """The rows that pass the checks; what becomes of the others is up to the judge."""
    for batch in batches:
        for column, are_right, reason in checks:
            ids = list(map(itemgetter(column), batch.rows))
            wrong = np.flatnonzero(~are_right(ids)).tolist()
            rows = [BadRow(batch.numbers[i], reason, f"{reason} {shown(ids[i])}") for i in wrong]
            batch = batch.without(list(zip(wrong, rows, strict=True)))
        judge.settle(batch.file, batch.bad)
        yield batch.rows


def open_corpus(
    source: str | os.PathLike[str],
    *,
    skip_bad_rows: bool = False,
    check_ids: bool = True,
    docids: str | os.PathLike[str] | None = None,
) -> Corpus:
    """Open a corpus: a BEIR folder, an MS MARCO folder, a Parquet folder, or `irds:ID`, told apart by what is there.

    A bad row stops the reading with its file and line, or with `skip_bad_rows` is left out and counted in
    ``Corpus.skipped``. `docids` names a docid file (.jsonl, .tsv, each plain or .gz, or .parquet), or a folder with
    one, to use instead of the corpus's own. `check_ids=False` trusts that ids are unique and known.

    >>> from pixnar.corpus import DocidRow, Document, write_corpus
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_corpus(folder, [Document("d1", "Tea", "", {})], [DocidRow("d1", "a hot drink")], [], {})
    ...     list(open_corpus(folder).docids())
    [DocidRow(doc_id='d1', docid='a hot drink')]
    """
    name = os.fspath(source)
    found: Source = IrDataset(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else _folder_source(Path(name))
    if docids is not None:
        found = _WithDocids(found, Path(docids))
    return Corpus(name, found, skip_bad_rows=skip_bad_rows, check_ids=check_ids)


class _WithDocids:
    """Another source, with docids from elsewhere."""

    def __init__(self, source: Source, path: Path) -> None:
        self.documents, self.queries = source.documents, source.queries
        self.qrels, self.splits = source.qrels, source.splits
        self._path = _docid_file(path)

    def docids(self, stage: str, progress: Progress | None) -> Iterator[Batch[DocidRow]]:
        if self._path.name.endswith(".parquet"):
            return parquet_docids([self._path], stage, progress)
        return docid_rows([self._path], stage, progress)

    def docid_files(self) -> list[Path]:
        return [self._path]


def _docid_file(path: Path) -> Path:
    if path.is_dir():
        names = ["docids.jsonl", "docids.tsv", "docids.parquet"]
        files = [file for name in names if (file := find_file(path, name))]
        if len(files) != 1:
            there = " and ".join(file.name for file in files) or "none"
            raise CorpusError(f"{path} should have one of {', '.join(names)} and has {there}; give the file itself")
        return files[0]
    if not path.is_file():
        raise CorpusError(f"no docid file {path}; give a .jsonl, .tsv or .parquet file")
    if not path.name.removesuffix(".gz").endswith((".jsonl", ".tsv", ".parquet")):
        raise CorpusError(f"{path}: unknown kind of docid file; give a .jsonl, .tsv or .parquet file")
    return path


def _folder_source(folder: Path) -> Source:
    kinds = "corpus.jsonl (BEIR), collection.tsv (MS MARCO) or corpus.parquet (each text file plain or .gz)"
    if not folder.exists():
        raise CorpusError(f"no corpus folder {folder}; give a folder with {kinds}, or irds:ID")
    if not folder.is_dir():
        raise CorpusError(f"{folder} is a file; give the folder of the corpus, with {kinds}")
    found: dict[str, Source] = {}
    if find_file(folder, "corpus.jsonl"):
        found["corpus.jsonl"] = BeirFolder(folder)
    if find_file(folder, "collection.tsv"):
        found["collection.tsv"] = MarcoFolder(folder)
    if (folder / "corpus.parquet").is_file() or any((folder / "corpus").glob("*.parquet")):
        found["corpus.parquet"] = ParquetFolder(folder)
    if not found:
        raise NoCorpusError(f"{folder} holds no corpus; looked for {kinds}")
    if len(found) > 1:
        raise CorpusError(f"{folder} holds several corpora ({', '.join(found)}); keep one of them in it")
    return next(iter(found.values()))


def state_of(corpus: Corpus, *, but: Collection[Path] = ()) -> list[Any]:
    """Where a corpus is, and size and time of each of its files, as JSON can hold it; `but` names paths to leave out.

    ``state_of(open_corpus("folder")) == state_of(open_corpus("folder"))`` until somebody changes a file
    """
    where = Path(corpus.name)
    return state_of_files(where, but=but) if where.exists() else [corpus.name]


def state_of_files(where: Path, *, but: Collection[Path] = ()) -> list[Any]:
    """The same for a file or a folder that is there."""
    out = {path.resolve() for path in but}
    files = sorted(path for path in where.rglob("*") if path.is_file()) if where.is_dir() else [where]
    files = [path for path in files if not path.relative_to(where).name.startswith(".")]  # what a kill left behind
    kept = [path for path in files if not out.intersection([path.resolve(), *path.resolve().parents])]
    facts = [[str(path.relative_to(where)), path.stat().st_size, path.stat().st_mtime_ns] for path in kept]
    return [str(where.resolve()), facts]
