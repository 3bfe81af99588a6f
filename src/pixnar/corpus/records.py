"""Records of a corpus: documents, docids, queries and relevance judgements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from pixnar.corpus.errors import BadRow

Row = TypeVar("Row", bound=tuple[Any, ...])


class Document(NamedTuple):
    """One thing that can be found; `metadata` holds whatever else its row said."""

    doc_id: str
    title: str
    text: str
    metadata: dict[str, Any]


class DocidRow(NamedTuple):
    """One name of one document; a document has many, and a docid may name several documents."""

    doc_id: str
    docid: str


class Query(NamedTuple):
    """A search text."""

    query_id: str
    text: str


class Qrel(NamedTuple):
    """A judgement: how relevant a document is to a query; 0 and less mean not at all."""

    query_id: str
    doc_id: str
    score: int


class Batch(NamedTuple, Generic[Row]):
    """Some consecutive rows of one file with the line each came from, and the bad rows found among them."""

    file: str
    numbers: Sequence[int]
    rows: list[Row]
    bad: list[BadRow]

    def without(self, wrong: Sequence[tuple[int, BadRow]]) -> Batch[Row]:
        """The batch with the rows at some positions moved to the bad ones."""
        if not wrong:
            return self
        gone = {position for position, _ in wrong}
        keep = [position for position in range(len(self.rows)) if position not in gone]
        numbers, rows = [self.numbers[i] for i in keep], [self.rows[i] for i in keep]
        return Batch(self.file, numbers, rows, self.bad + [row for _, row in wrong])
