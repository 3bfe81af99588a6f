"""Collections that the ir_datasets library knows, by their id: irds:msmarco-passage/dev/small."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from pixnar.base.errors import CorpusError, MissingExtraError, MissingPartError
from pixnar.base.progress import Progress
from pixnar.corpus import parse
from pixnar.corpus.folder import no_split
from pixnar.corpus.records import BadRow, BadValueError, Batch, DocidRow, Document, Qrel, Query, Row

PREFIX = "irds:"
_ROWS = 2048


class IrDataset:
    """Documents, queries and judgements of one ir_datasets id.

    Such an id has one set of judgements; its split is the last of train, dev and test in the id, else test.
    """

    def __init__(self, dataset_id: str) -> None:
        try:
            import ir_datasets
        except ImportError as error:
            raise MissingExtraError("reading an ir_datasets collection", "data") from error
        self._name = PREFIX + dataset_id
        try:
            self._dataset: Any = ir_datasets.load(dataset_id)
        except KeyError as error:
            raise CorpusError(
                f"ir_datasets knows no collection {dataset_id!r}; `ir_datasets list` prints those it knows"
            ) from error
        if not self._dataset.has_docs():
            raise CorpusError(f"{self._name} has no documents; give the id of a collection that has them")
        named = [part for part in dataset_id.split("/") if part in ("train", "dev", "test")]
        self._split = named[-1] if named else "test"

    def documents(self, stage: str, progress: Progress | None) -> Iterator[Batch[Document]]:
        """All documents; fields other than the id, title and text become metadata."""
        return self._read("docs", _document, stage, progress)

    def docids(self, stage: str, progress: Progress | None) -> Iterator[Batch[DocidRow]]:
        """Always an error: such a collection has no docids."""
        raise self._no_docids()

    def docid_files(self) -> list[Path]:
        """Always an error, too."""
        raise self._no_docids()

    def _no_docids(self) -> MissingPartError:
        return MissingPartError(
            f"{self._name} has no docids; add them with: pixnar corpus convert {self._name} --docids FILE -o FOLDER"
        )

    def queries(self, stage: str, progress: Progress | None) -> Iterator[Batch[Query]]:
        """All queries."""
        if not self._dataset.has_queries():
            raise MissingPartError(f"{self._name} has no queries; give the id of one of its subsets")
        return self._read("queries", lambda row: parse.query(row.query_id, _text(row)), stage, progress)

    def qrels(self, split: str, stage: str, progress: Progress | None) -> Iterator[Batch[Qrel]]:
        """The judgements."""
        if split not in self.splits():
            raise no_split(self._name, split, self.splits())
        return self._read("qrels", lambda row: parse.qrel(row.query_id, row.doc_id, row.relevance), stage, progress)

    def splits(self) -> list[str]:
        """The one split, if there are judgements."""
        return [self._split] if self._dataset.has_qrels() else []

    def _read(
        self, kind: str, parse_row: Callable[[Any], Row], stage: str, progress: Progress | None
    ) -> Iterator[Batch[Row]]:
        name, start = f"{self._name}/{kind}", 1
        for found in _chunks(name, lambda: getattr(self._dataset, f"{kind}_iter")()):
            numbers, rows, bad = [], [], []
            for number, row in enumerate(found, start):
                try:
                    rows.append(parse_row(row))
                    numbers.append(number)
                except BadValueError as error:
                    bad.append(BadRow(number, error.reason, error.detail))
            yield Batch(name, numbers, rows, bad)
            start += len(found)
            if progress:
                progress(stage, start - 1, 0)


def _chunks(name: str, start: Callable[[], Iterable[Any]]) -> Iterator[list[Any]]:
    try:
        rows = iter(start())
        while found := list(islice(rows, _ROWS)):
            yield found
    except Exception as error:  # the library reads, unpacks and downloads in its own ways, and fails in as many
        why = " ".join(str(error).split()) or type(error).__name__
        raise CorpusError(f"{name}: ir_datasets cannot read it ({why}); see its notes on this collection") from error


def _document(row: Any) -> Document:
    fields = dict(zip(row._fields, row, strict=True))
    doc_id, title, text = fields.pop("doc_id"), fields.pop("title", ""), _text(row)
    fields.pop("text", None)
    return parse.document(doc_id, title, text, {key: value for key, value in fields.items() if value is not None})


def _text(row: Any) -> Any:
    return row.text if hasattr(row, "text") else row.default_text()
