"""The sources that an index adds to docid scores: lexical index, vectors of docids and of text, each built once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixnar.base.progress import Progress
from pixnar.corpus import Corpus, Document
from pixnar.fusion.fuse import DENSE, LEXICAL, TEXT, Fusion, needed_by
from pixnar.fusion.lexical import Docids, LexicalIndex
from pixnar.fusion.vectors import DocidVectors, name_of
from pixnar.index.files import LEXICAL_FILE, TEXT_FILE, VECTORS
from pixnar.model.features import FeatureCache
from pixnar.recipe import Recipe
from pixnar.table import DocidTable
from pixnar.train.data import TrainingData
from pixnar.vocab import normalize

_TEXT_WORDS, _TEXT_PIECES = 80, 128  # of a vector: the sentence encoders at hand were trained on 128 word pieces


@dataclass(frozen=True)
class Sources:
    """Builds what the recipe wants into the folder of an index; what is there already is opened.

    All of them count documents by their numbers in the docid table. Documents without docids cannot be found: they have
    nothing there, and statistics leave them out.
    """

    corpus: Corpus
    data: TrainingData
    table: DocidTable
    folder: Path
    recipe: Recipe
    progress: Progress | None
    features: FeatureCache
    echoes: bool = False  # the docids only repeat what the text says: counted as well, they would weigh its words anew

    @cached_property
    def _numbers(self) -> NDArray[np.int64]:
        """The numbers in the table of the documents that have docids."""
        return self.table.snapshot().numbers_of(self.data.doc_ids)

    @cached_property
    def _number_of(self) -> dict[str, int]:
        return dict(zip(self.data.doc_ids, self._numbers.tolist(), strict=True))

    def _texts(self, *, docids: bool, text: bool) -> list[tuple[int, str]]:
        data = self.data
        out: list[tuple[int, str]] = []
        if docids:
            owners = self._numbers[data.pair_document].tolist()
            out += [(owner, data.docids[i]) for i, owner in zip(data.pair_docid, owners, strict=True)]
        if text:
            for document in self.corpus.documents(self.progress):
                if document.doc_id in self._number_of:
                    out.append((self._number_of[document.doc_id], f"{document.title} {document.text}"))
        return out

    def lexical(self) -> LexicalIndex | None:
        """The lexical index of docids and text; None where the recipe wants none."""
        data = self.data
        settings, path = self.recipe.lexical, self.folder / LEXICAL_FILE
        if not (settings.docids or settings.text):
            return None
        if not path.exists():
            echoes = self.echoes and settings.text
            texts = self._texts(docids=settings.docids and not echoes, text=settings.text)
            counted: Docids = "none" if not settings.docids else "added" if echoes else "all"
            size, some = self.table.documents, len(data.doc_ids)
            LexicalIndex.build(data.vocabulary, texts, size, docids=counted, n_counted=some).save(path)
        return LexicalIndex.load(path, data.vocabulary)

    def vectors(self) -> DocidVectors | None:
        """The encoder's own vectors of the docids."""
        data = self.data
        path = self.folder / VECTORS
        if not self.recipe.fuse.dense or data.vectors is None:
            return None
        if not path.exists():
            vectors = data.vectors[: len(data.docids)]
            names = map(name_of, data.tokens.rows())
            owners = self._numbers[data.pair_document]
            DocidVectors.build(vectors, data.pair_docid, owners, self.table.documents, names).save(path)
        return DocidVectors.load(path)

    def text(self) -> DocidVectors | None:
        """The encoder's own vectors of the first words of each document; None where documents have no text."""
        most, path = self.recipe.fuse.text_vectors, self.folder / TEXT_FILE
        if not most:
            return None
        if not path.exists():
            rows = [
                (self._number_of[document.doc_id], piece)
                for document in self.corpus.documents(self.progress)
                if document.doc_id in self._number_of
                for piece in pieces_of(document, most)
            ]
            if not rows:
                return None
            features = self.features.reading(_TEXT_PIECES)
            vectors = features.vectors([piece for _, piece in rows], self.progress, "encoding texts")
            owners = [owner for owner, _ in rows]
            DocidVectors.build(vectors, range(len(rows)), owners, self.table.documents).save(path)
        return DocidVectors.load(path)


def pieces_of(document: Document, most: int) -> list[str]:
    """The first words of a document's text in pieces, each behind the title; none where there is no text.

    >>> pieces_of(Document("d", "Tea", "A hot " + "drink " * 100, {}), 2)[1][:16]
    'tea drink drink '
    """
    words = normalize(document.text).split()
    title = normalize(document.title)
    starts = range(0, min(len(words), most * _TEXT_WORDS), _TEXT_WORDS)
    return [" ".join([title, *words[i : i + _TEXT_WORDS]]).strip() for i in starts]


def unused(fusions: Mapping[str, Mapping[str, Any] | None]) -> list[str]:
    """The files of sources that no fusion of an index gives a weight."""
    needed = {name for fusion in fusions.values() if fusion for name in needed_by(Fusion.from_dict(fusion))}
    files = {LEXICAL: LEXICAL_FILE, DENSE: VECTORS, TEXT: TEXT_FILE}
    return [file for name, file in files.items() if name not in needed]
