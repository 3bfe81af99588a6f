"""A small corpus, a table of it, and the same as plain dictionaries."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pixnar.corpus import DocidRow, Document, write_corpus
from pixnar.documents import Filter
from pixnar.table import DocidTable, build_table
from pixnar.table.journal import Tokens
from pixnar.vocab import Vocabulary

TEXTS = (
    "cheap flights to Rome",
    "flights to rome",
    "Flights to Paris",
    "cheap hotels",
    "hotels in Rome",
    "Rome",
    "city break",
    "café near the Colosseum",
    "night train",
    "night train to Rome",
    "a",
    "hôtel pas cher à Paris près de la gare du Nord",
)
DOCUMENTS = (
    Document("d1", "Flights", "", {"country": "it", "price": 40}),
    Document("d2", "Hotels", "", {"country": "it", "price": 80.5, "tags": ["bed", "bath"]}),
    Document("d3", "Trains", "", {"country": "fr", "open": True}),
    Document("é4", "", "", {}),
)
PAIRS = (
    ("d1", "cheap flights to Rome"),
    ("d1", "flights to rome"),
    ("d1", "FLIGHTS to Rome"),  # the same docid again: the first spelling stays
    ("d2", "cheap hotels"),
    ("d2", "hotels in Rome"),
    ("d2", "Rome"),
    ("d1", "rome"),
    ("d3", "night train"),
    ("é4", "night train"),
)


@functools.cache
def vocabulary() -> Vocabulary:
    return Vocabulary.build([*TEXTS, *TEXTS], 700, min_count=2, threads=1)


@functools.cache
def tokens_of(text: str) -> Tokens:
    return tuple(vocabulary().encode(text).tolist())


def write_small_corpus(
    folder: Path, pairs: Sequence[tuple[str, str]] = PAIRS, documents: Iterable[Document] = DOCUMENTS
) -> Path:
    write_corpus(folder, documents, [DocidRow(*pair) for pair in pairs], [], {}, overwrite=True)
    return folder


def small_table(folder: Path, *, index: bool = True, spellings: bool = True, overwrite: bool = False) -> DocidTable:
    corpus = folder / "corpus"
    if not corpus.exists():
        write_small_corpus(corpus)
    how = {"index": index, "spellings": spellings, "overwrite": overwrite}
    return build_table(corpus, vocabulary(), folder / "table", threads=1, progress=None, **how)


class Content(NamedTuple):
    """All that a table holds."""

    docids: list[tuple[Tokens, list[str]]]
    spellings: dict[Tokens, str]
    documents: dict[str, tuple[str, dict[str, Any]]]


class Model:
    """A table as plain dictionaries."""

    def __init__(
        self,
        pairs: Iterable[tuple[str, str]] = PAIRS,
        documents: Iterable[Document] = DOCUMENTS,
        *,
        spelled: bool = True,
    ) -> None:
        self.docids: dict[Tokens, set[str]] = {}
        self.spellings: dict[Tokens, str] = {}
        self.documents: dict[str, tuple[str, dict[str, Any]]] = {}
        self._spelled = spelled
        for document in documents:
            self.documents[document.doc_id] = document.title, document.metadata
        for doc_id, text in pairs:
            self._add(doc_id, tokens_of(text), text)

    def copy(self) -> Model:
        twin = Model((), (), spelled=self._spelled)
        twin.docids = {tokens: set(named) for tokens, named in self.docids.items()}
        twin.spellings, twin.documents = dict(self.spellings), dict(self.documents)
        return twin

    def change(
        self,
        *,
        add: Sequence[tuple[str, Tokens]] = (),
        remove_documents: Sequence[str] = (),
        remove_docids: Sequence[Tokens] = (),
        remove_pairs: Sequence[tuple[str, Tokens]] = (),
        spellings: Sequence[str] = (),
        documents: Sequence[Document] = (),
    ) -> None:
        for doc_id in remove_documents:
            self.documents.pop(doc_id, None)
            for named in self.docids.values():
                named.discard(doc_id)
        for tokens in remove_docids:
            self.docids.pop(tokens, None)
        for doc_id, tokens in remove_pairs:
            self.docids.get(tokens, set()).discard(doc_id)
        self.docids = {tokens: named for tokens, named in self.docids.items() if named}
        self.spellings = {tokens: text for tokens, text in self.spellings.items() if tokens in self.docids}
        for i, (doc_id, tokens) in enumerate(add):
            self._add(doc_id, tokens, spellings[i] if spellings else "")
        for document in documents:
            self.documents[document.doc_id] = document.title, document.metadata

    def _add(self, doc_id: str, tokens: Tokens, text: str) -> None:
        if tokens not in self.docids and text and self._spelled:
            self.spellings[tokens] = text
        self.docids.setdefault(tokens, set()).add(doc_id)
        self.documents.setdefault(doc_id, ("", {}))

    @property
    def content(self) -> Content:
        order = sorted(self.docids, key=lambda tokens: (len(tokens), tokens))
        docids = [(tokens, sorted(self.docids[tokens], key=str.encode)) for tokens in order]
        return Content(docids, dict(self.spellings), dict(self.documents))

    def passing(self, where: Filter) -> set[str]:
        return {doc_id for doc_id, (_, metadata) in self.documents.items() if where.matches(metadata)}


def content(table: DocidTable, ids: Iterable[str]) -> Content:
    """What a table holds, of documents only those with some ids."""
    docids = list(table)
    spellings = {tokens: text for tokens, _ in docids if (text := table.spelling(tokens)) is not None}
    snapshot = table.snapshot()
    documents = {}
    for doc_id in ids:
        bits = snapshot.allowed(allow=[doc_id])
        assert bits is not None
        if bits.any():
            document = table.document(doc_id)
            assert document.doc_id == doc_id
            documents[doc_id] = document.title, document.metadata
    for tokens, named in docids:
        assert table.named(tokens) == named
    assert table.pairs == sum(len(named) for _, named in docids)
    assert table.documents == len(documents)
    return Content(docids, spellings, documents)


def passing(table: DocidTable, where: str | Filter, ids: Iterable[str]) -> set[str]:
    """Which of some documents pass a filter."""
    snapshot = table.snapshot()
    return {doc_id for doc_id in ids if (bits := snapshot.allowed([doc_id], None, where)) is not None and bits.any()}
