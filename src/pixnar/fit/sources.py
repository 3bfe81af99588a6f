"""What an index adds to docid scores: evidence, BM25 and dense vectors, each built once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pixnar.corpus import Corpus
from pixnar.evidence.bm25 import Bm25
from pixnar.evidence.documents import Docids, DocumentEvidence
from pixnar.evidence.vectors import DocidVectors, name_of
from pixnar.index.files import BM25_FILE, EVIDENCE, VECTORS
from pixnar.progress import Progress
from pixnar.recipe import Recipe
from pixnar.train.data import TrainingData


@dataclass(frozen=True)
class Sources:
    """Builds what the recipe wants into the folder of an index; what is there already is opened."""

    corpus: Corpus
    data: TrainingData
    folder: Path
    recipe: Recipe
    progress: Progress | None
    echoes: bool = False  # the docids only repeat what the text says: counted as well, they would weigh its words anew

    def _texts(self, *, docids: bool, text: bool) -> list[tuple[int, str]]:
        data = self.data
        unit = {doc_id: i for i, doc_id in enumerate(data.doc_ids)}
        out: list[tuple[int, str]] = []
        if docids:
            out += [(int(d), data.docids[i]) for i, d in zip(data.pair_docid, data.pair_document, strict=True)]
        if text:
            for document in self.corpus.documents(self.progress):
                if document.doc_id in unit:
                    out.append((unit[document.doc_id], f"{document.title} {document.text}"))
        return out

    def evidence(self) -> DocumentEvidence | None:
        """What documents say beside their docids; None where the recipe wants none."""
        data = self.data
        wish, path = self.recipe.evidence, self.folder / EVIDENCE
        if not (wish.docids or wish.text):
            return None
        if not path.exists():
            echoes = self.echoes and wish.text
            texts = self._texts(docids=wish.docids and not echoes, text=wish.text)
            counted: Docids = "none" if not wish.docids else "added" if echoes else "all"
            DocumentEvidence.build(data.vocabulary, texts, len(data.doc_ids), docids=counted).save(path)
        return DocumentEvidence.load(path, data.vocabulary)

    def bm25(self) -> Bm25 | None:
        """BM25 over docids and text."""
        data = self.data
        path = self.folder / BM25_FILE
        if not self.recipe.fuse.bm25:
            return None
        if not path.exists():
            texts = self._texts(docids=not self.echoes, text=True)
            groups = [unit for unit, _ in texts]
            how: dict[str, Any] = {"join": True, "n_documents": len(data.doc_ids), "docids": not self.echoes}
            Bm25.build([text for _, text in texts], groups, **how).save(path)
        return Bm25.load(path)

    def vectors(self) -> DocidVectors | None:
        """The encoder's own vectors of the docids."""
        data = self.data
        path = self.folder / VECTORS
        if not self.recipe.fuse.dense or data.vectors is None:
            return None
        if not path.exists():
            vectors = data.vectors[: len(data.docids)]
            names = map(name_of, data.tokens.rows())
            DocidVectors.build(vectors, data.pair_docid, data.pair_document, len(data.doc_ids), names).save(path)
        return DocidVectors.load(path)
