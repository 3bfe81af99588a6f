"""Hits: what a search finds, what the decoder and its slow twin find, and who may be asked for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

Tokens = tuple[int, ...]
Order = Literal["slots", "any", "assigned"]


class Hit(NamedTuple):
    """A document that was found: its id, its score, the docid that speaks best for it, and its title.

    The docid is empty where none speaks for it, and the title where there is none or it was not asked for.
    """

    id: str
    score: float
    docid: str
    title: str = ""

    def facts(self) -> dict[str, str | float]:
        """Id, score and docid by the names that JSON answers give them."""
        return {"doc_id": self.id, "score": self.score, "docid": self.docid}


class Generated(NamedTuple):
    """A docid that a query generates: its text, its tokens as people read them, and the documents it names."""

    docid: str
    score: float
    tokens: list[str]
    documents: tuple[str, ...]


class DocidHit(NamedTuple):
    """A docid that was found, and the allowed documents it names, in the order of their ids."""

    tokens: Tokens
    score: float
    documents: tuple[str, ...]


class DocumentHit(NamedTuple):
    """A document that was found, and its best docid."""

    doc_id: str
    score: float
    tokens: Tokens


class Retriever(Protocol):
    """Texts come in; for each the best documents come out, best first, none twice."""

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The k best documents, or as many as there are."""

    def search_batch(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """The same for many queries, whose answers do not depend on each other."""
