"""Passages: hits as other libraries want them, a text and the metadata of its document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from pixnar.index import Hit, Index

Texts = Mapping[str, str] | Callable[[str], str | None]
"""Texts by document id, which an index does not keep: a dict, anything like one, or a function."""


class Passage(NamedTuple):
    """A document that was found, a text that stands for it, its title and its metadata."""

    hit: Hit
    text: str
    title: str
    metadata: dict[str, Any]

    def facts(self) -> dict[str, Any]:
        """The document's metadata, and over it `doc_id`, `score`, `docid` and, if there is one, `title`."""
        found = {**self.metadata, "doc_id": self.hit.id, "score": self.hit.score, "docid": self.hit.docid}
        return found | {"title": self.title} if self.title else found


def passages(index: Index, hits: Iterable[Hit], texts: Texts | None = None) -> list[Passage]:
    """Hits with their texts: the one that `texts` has, else the title, else the docid, else the id."""
    some = list(hits)
    found = []
    for hit, document in zip(some, index.table.described([hit.id for hit in some]), strict=True):
        if document is not None:  # it may have been removed since it was found
            text = _text(texts, hit.id) or document.title or hit.docid or hit.id
            found.append(Passage(hit, text, document.title, document.metadata))
    return found


def _text(texts: Texts | None, doc_id: str) -> str | None:
    if texts is None:
        return None
    return texts(doc_id) if callable(texts) else texts.get(doc_id)
