"""What is found, by the decoder and by its slow twin."""

from __future__ import annotations

from typing import Literal, NamedTuple

Tokens = tuple[int, ...]
Order = Literal["slots", "any", "assigned"]


class Hit(NamedTuple):
    """A document that was found, its score, and the docid that speaks best for it; empty where none does."""

    doc_id: str
    score: float
    docid: str


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
