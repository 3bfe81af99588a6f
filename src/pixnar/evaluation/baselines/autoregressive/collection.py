"""Collection: the documents of a corpus as token sequences, which n-grams, titles and docids are generated from."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from pixnar.base.errors import PixnarError
from pixnar.base.progress import Progress
from pixnar.corpus import Corpus
from pixnar.evaluation.baselines.autoregressive.ids import PieceTokens
from pixnar.evaluation.baselines.entries import BOTH, DOCIDS, TEXT
from pixnar.vocab import normalize

if TYPE_CHECKING:
    from pixnar.train.data import TrainingInputs

Tokens = tuple[int, ...]
Pieces = Callable[[Sequence[str]], list[list[int]]]
"""From texts to their word pieces, without an encoder's begin and end."""

TITLE, DOCID, AFTER = range(3)
"""Markers: what stands before a title, before a docid, and after either."""
MARKERS = 3


@dataclass(frozen=True, kw_only=True)
class Collection:
    """Documents with their normalised texts, and the inputs that name them.

    Which of title, text and docids a document consists of is said by `over`; docids are inputs in any case.
    """

    over: str
    doc_ids: list[str]  # sorted
    titles: list[str]  # of each document; nothing if it has none
    bodies: list[str]
    docids: list[str]  # distinct, sorted
    named: list[list[int]]  # the docids of each document
    queries: list[tuple[str, int]]  # train queries, each with a relevant document

    @classmethod
    def read(
        cls, corpus: Corpus, names: TrainingInputs, over: str = BOTH, progress: Progress | None = None
    ) -> Collection:
        """From a corpus and its docids and train queries; documents with neither docid nor text are left out."""
        if over not in (DOCIDS, TEXT, BOTH):
            raise PixnarError(f"over {over!r} is not possible: give {DOCIDS}, {TEXT} or {BOTH}")
        texts: dict[str, tuple[str, str]] = {}
        if over != DOCIDS:
            for document in corpus.documents(progress):
                parts = normalize(document.title), normalize(document.text)
                if any(parts):
                    texts[document.doc_id] = parts
        doc_ids = sorted({*texts, *names.doc_ids})
        number = {doc_id: i for i, doc_id in enumerate(doc_ids)}
        place = [number[doc_id] for doc_id in names.doc_ids]
        named: list[list[int]] = [[] for _ in doc_ids]
        for docid, document_number in zip(names.pair_docid.tolist(), names.pair_document.tolist(), strict=True):
            named[place[document_number]].append(docid)
        queries = zip(names.query_index.tolist(), names.query_document.tolist(), strict=True)
        return cls(
            over=over,
            doc_ids=doc_ids,
            titles=[texts.get(doc_id, ("", ""))[0] for doc_id in doc_ids],
            bodies=[texts.get(doc_id, ("", ""))[1] for doc_id in doc_ids],
            docids=list(names.docids),
            named=named,
            queries=[(names.queries[query], place[document_number]) for query, document_number in queries],
        )

    def inputs(self) -> list[tuple[str, int, int]]:
        """Texts that name a document, the document, and which docid the text is; of train query i it is -1 - i."""
        docids = [(self.docids[i], document, i) for document, named in enumerate(self.named) for i in named]
        return docids + [(text, document, -1 - i) for i, (text, document) in enumerate(self.queries)]

    def fingerprint(self) -> str:
        """Changes with the texts: what tells whether a model was trained on them."""
        return xxhash.xxh3_128_hexdigest(json.dumps(vars(self)).encode())

    def first_pieces(self, pieces: Pieces, most: int) -> list[str]:
        """The beginning of each document's title and text: whole words of at most so many word pieces."""
        texts = [f"{title} {body}".split()[:most] for title, body in zip(self.titles, self.bodies, strict=True)]
        words = sorted({word for text in texts for word in text})
        sizes = {word: len(found) for word, found in zip(words, pieces(words) if words else [], strict=True)}
        kept = [int(np.searchsorted(np.cumsum([sizes[word] for word in text]), most, "right")) for text in texts]
        return [" ".join(text[:count]) for text, count in zip(texts, kept, strict=True)]


@dataclass(frozen=True, kw_only=True)
class TokenTexts:
    """The texts of a collection as tokens of the word pieces that occur in them."""

    pieces: PieceTokens
    titles: list[Tokens]
    bodies: list[Tokens]
    docids: list[Tokens]
    queries: list[Tokens]  # train queries without the word pieces that occur in no document

    @classmethod
    def of(cls, collection: Collection, pieces: Pieces) -> TokenTexts:
        """Tokenise a collection."""
        parts = [pieces(texts) for texts in (collection.titles, collection.bodies, collection.docids)]
        distinct = {piece for texts in parts for piece in set(chain.from_iterable(texts))}
        known = PieceTokens(sorted(distinct), markers=MARKERS)
        titles, bodies, docids = ([known.encode(text) for text in texts] for texts in parts)
        asked = pieces([text for text, _ in collection.queries]) if collection.queries else []
        queries = [known.encode([piece for piece in text if piece in distinct]) for text in asked]
        return cls(pieces=known, titles=titles, bodies=bodies, docids=docids, queries=queries)

    def title(self, document: int) -> Tokens:
        """The title of a document between its markers."""
        return (self.pieces.marker(TITLE), *self.titles[document], self.pieces.marker(AFTER))

    def docid(self, number: int) -> Tokens:
        """A docid between its markers."""
        return (self.pieces.marker(DOCID), *self.docids[number], self.pieces.marker(AFTER))

    def documents(self, collection: Collection) -> list[Tokens]:
        """What is indexed of each document: title, text, and its docids, as `over` says."""
        found = []
        for document, body in enumerate(self.bodies):
            tokens = [*(self.title(document) if self.titles[document] else ()), *body]
            if collection.over != TEXT:
                for number in collection.named[document]:
                    tokens += self.docid(number)
            found.append(tuple(tokens))
        return found
