"""The index: the folder a user ships, opened for searching."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pixnar.docids import DocidTable, Filter
from pixnar.errors import FileFormatError, MissingExtraError
from pixnar.evidence.bm25 import Bm25
from pixnar.evidence.documents import DocumentEvidence
from pixnar.evidence.fuse import Fusion
from pixnar.evidence.ngrams import Ngrams
from pixnar.evidence.vectors import DocidVectors
from pixnar.index import manifest
from pixnar.index.files import (
    BM25_FILE,
    DOCIDS,
    EVIDENCE,
    MODEL,
    PRIORS,
    SHORTLIST,
    UNITS,
    VECTORS,
    read_priors,
    read_units,
)
from pixnar.index.retriever import BM25, DENSE, EVERYTHING, EXPANSION, OWN, Query, Retriever, Wanted, scorer_of
from pixnar.scoring import ScoreRule
from pixnar.search import DocumentHit
from pixnar.shortlist.lists import Shortlist
from pixnar.vocab import normalize

if TYPE_CHECKING:
    from pixnar.model.nar import Nar


class Hit(NamedTuple):
    """A document that was found, its score, and the docid that speaks best for it."""

    doc_id: str
    score: float
    docid: str


class Index:
    """An index in memory. `Index.load(folder).search(text)` is all most users need.

    A query that equals a docid finds that docid's documents first, whatever the model thinks.
    """

    def __init__(self, folder: Path, content: dict[str, Any], retriever: Retriever, model: Nar) -> None:
        self.folder, self.manifest, self.retriever, self.model = folder, content, retriever, model

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, threads: int = 2, shortlist: bool = True) -> Index:
        """Open an index; without `shortlist` every token of the vocabulary is scored."""
        where = Path(folder)
        content = manifest.read_manifest(where)
        try:
            from pixnar.model.nar import Nar
        except ImportError as error:
            raise MissingExtraError("searching an index", "train") from error
        model = Nar.from_pretrained(where / MODEL)
        table = DocidTable.open(where / DOCIDS)
        rule = ScoreRule.from_dict(content["rule"])
        if model.head.eos != table.vocab_size:
            raise FileFormatError(f"{where}: the model has {model.head.eos} tokens, the docid table {table.vocab_size}")
        retriever = Retriever(
            table,
            scorer_of(model, read_priors(where / PRIORS), rule),
            Ngrams(table.vocabulary),
            read_units(where / UNITS),
            Shortlist.load(where / SHORTLIST) if shortlist and (where / SHORTLIST).exists() else None,
            fusion=Fusion.from_dict(content["fusion"]) if content["fusion"] else None,
            depth=content["depth"],
            expansion=content["expansion"],
            threads=threads,
        )
        weights = retriever.fusion.weights if retriever.fusion else {}
        if weights.keys() & {OWN, EXPANSION}:
            retriever.evidence = DocumentEvidence.load(where / EVIDENCE, table.vocabulary)
        if BM25 in weights:
            retriever.bm25 = Bm25.load(where / BM25_FILE)
        if DENSE in weights:
            retriever.vectors = DocidVectors.load(where / VECTORS)
        return cls(where, content, retriever, model)

    def verify(self) -> int:
        """Check every checksum of the folder; how many files were read."""
        DocidTable.check(self.folder / DOCIDS)
        return manifest.verify(self.folder)

    @cached_property
    def table(self) -> DocidTable:
        """The docid table."""
        return self.retriever.table

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        threshold: float | None = None,
        allow: Iterable[str] | None = None,
        forbid: Iterable[str] | None = None,
        where: str | Filter | None = None,
    ) -> list[Hit]:
        """The k best documents; `allow`, `forbid` and `where` restrict what may be found."""
        return self.search_batch([query], k, threshold=threshold, allow=allow, forbid=forbid, where=where)[0]

    def search_batch(
        self,
        queries: Sequence[str],
        k: int = 10,
        *,
        threshold: float | None = None,
        allow: Iterable[str] | None = None,
        forbid: Iterable[str] | None = None,
        where: str | Filter | None = None,
    ) -> list[list[Hit]]:
        """The k best documents of each query."""
        if isinstance(queries, str):
            raise TypeError("search_batch takes a list of queries; for one query use search")
        wanted = Wanted(None if allow is None else list(allow), None if forbid is None else list(forbid), where)
        made = self.queries(queries)
        found = self.retriever.search(made, k, wanted)
        return [self._hits(query, rows, k, wanted, threshold) for query, rows in zip(made, found, strict=True)]

    def queries(self, texts: Sequence[str]) -> list[Query]:
        """Queries ready to be asked: normalised, encoded, with their shortlists."""
        normal = [normalize(text) for text in texts]
        return self.retriever.queries(normal, *self.model.query_vectors(normal))

    def explain(
        self, query: str, k: int = 10, *, threshold: float | None = None, where: str | Filter | None = None
    ) -> dict[str, Any]:
        """What the model thought of a query: its best tokens, its shortlist, and the scores of the best documents."""
        made = self.queries([query])[0]
        scores = next(iter(self.retriever.slot_scores([made])))
        tokens, gains = self.retriever.scorer.expansion(made.x, 20, made.tokens)
        order = np.argsort(-gains)
        vocabulary = self.table.vocabulary
        wanted = Wanted(where=where)
        found = self.retriever.candidates(made, scores, max(k, self.retriever.depth), wanted)
        hits = self._hits(made, self.retriever.search([made], k, wanted)[0], k, wanted, threshold)
        place = {doc_id: i for i, doc_id in enumerate(found.doc_ids)}
        return {
            "query": made.text,
            "own": [vocabulary.token(int(v)) for v in made.own],
            "shortlist": len(scores.tokens) if made.tokens is None else len(made.tokens),
            "expected": [[vocabulary.token(int(tokens[i])), float(gains[i])] for i in order],
            "hits": [
                {
                    "doc_id": hit.doc_id,
                    "score": hit.score,
                    "docid": hit.docid,
                    "sources": {name: float(column[place[hit.doc_id]]) for name, column in found.columns.items()}
                    if hit.doc_id in place
                    else {},
                }
                for hit in hits
            ],
        }

    def _hits(
        self,
        query: Query,
        rows: list[DocumentHit],
        k: int,
        wanted: Wanted,
        threshold: float | None,
    ) -> list[Hit]:
        rows = self._equal_first(query, rows, k, wanted)
        return [
            Hit(row.doc_id, row.score, self._spelling(row.tokens))
            for row in rows
            if threshold is None or row.score >= threshold
        ]

    def _equal_first(self, query: Query, rows: list[DocumentHit], k: int, wanted: Wanted) -> list[DocumentHit]:
        """Documents that the query names word by word come first; those it did not find get the best score."""
        tokens = self.table.encode(query.text) if query.text else ()
        named = self._allowed(self.table.named(tokens), wanted) if tokens else set()
        if not named or not k:
            return rows
        inside = [row.doc_id for row in rows if row.doc_id in named]
        top = rows[0].score if rows else 0.0
        first = [DocumentHit(doc_id, top, tokens) for doc_id in inside + sorted(named - set(inside))]
        return (first + [row for row in rows if row.doc_id not in named])[:k]

    def _allowed(self, doc_ids: Iterable[str], wanted: Wanted) -> set[str]:
        """Those that may be found."""
        if wanted == EVERYTHING:
            return set(doc_ids)
        some = set(doc_ids) if wanted.allow is None else set(doc_ids) & set(wanted.allow)
        snapshot = self.table.snapshot()
        bits = {doc_id: snapshot.allowed([doc_id], wanted.forbid, wanted.where) for doc_id in some}
        return {doc_id for doc_id, one in bits.items() if one is None or one.any()}

    def _spelling(self, tokens: tuple[int, ...]) -> str:
        if not tokens:
            return ""
        return self.table.spelling(tokens) or self.table.vocabulary.decode(tokens)
