"""The searcher: from the text of a query to hits, through the stages that every search goes through.

The stages: spelling, tokenise, encode, shortlist, score, decode, sources, fuse, map.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pixnar.base.errors import PixnarError
from pixnar.runtime import CachedEncoder, QueryEncoder, TextEncoder
from pixnar.search.query import SlotScores
from pixnar.search.ranker import PreparedQuery, Ranker, Stopwatch
from pixnar.search.spelling import LEXICON, Speller
from pixnar.search.types import ANYTHING, DocumentHit, Hit, SearchOptions
from pixnar.vocab import normalize


class Searcher:
    """An encoder and a ranker. `search` is what `Index`, explain, the HTTP server and shards are made of.

    A query that equals a docid finds that docid's documents first, whatever the model predicts.
    """

    def __init__(self, encoder: TextEncoder, ranker: Ranker, *, corrects: bool = False, where: Path | str = "") -> None:
        """`corrects`: spelling is corrected unless a search says otherwise. `where` names the index in errors."""
        self.encoder, self.ranker, self.corrects, self.where = encoder, ranker, corrects, where
        self.speller: Callable[[], Speller | None] = ranker.current_speller

    def search(self, texts: Sequence[str], options: SearchOptions = ANYTHING) -> list[list[Hit]]:
        """The best documents of each query."""
        queries = self.prepare(texts, options.spelling)
        ranked = self.ranker.search(queries, options)
        return [self.hits(query, rows, options) for query, rows in zip(queries, ranked, strict=True)]

    def prepare(
        self,
        texts: Sequence[str],
        spelling: bool | Sequence[bool | None] | None = None,
        lap: Stopwatch | None = None,
    ) -> list[PreparedQuery]:
        """Queries ready to be answered: normalised, corrected, encoded, with their shortlists.

        `spelling` says whether they, or each of them, are corrected.
        """
        lap = lap or Stopwatch()
        originals = [normalize(text) for text in texts]
        lap("tokenise")
        corrected = spelling if isinstance(spelling, Sequence) else [spelling] * len(texts)
        normal = [self.correct(text, flag) for text, flag in zip(originals, corrected, strict=True)]
        lap("spelling")
        if isinstance(self.encoder, QueryEncoder | CachedEncoder):
            x, pooled, spent = self.encoder.timed(normal)
            lap("encode")
            lap.spent["tokenise"] += spent.tokenise
            lap.spent["encode"] -= spent.tokenise
        else:
            x, pooled = self.encoder.query_vectors(normal)
            lap("encode")
        queries = [
            query if query.text == original else query._replace(original=original)
            for query, original in zip(self.ranker.queries(normal, x, pooled), originals, strict=True)
        ]
        lap("shortlist")
        return queries

    def answer(
        self, query: PreparedQuery, options: SearchOptions = ANYTHING, lap: Stopwatch | None = None
    ) -> tuple[SlotScores, list[Hit]]:
        """The hits of one prepared query, and the scores it was decoded by."""
        lap = lap or Stopwatch()
        scores = self.ranker.scored(query)
        lap("score")
        rows = self.ranker.ranked(query, scores, options, lap)
        hits = self.hits(query, rows, options)
        lap("map")
        return scores, hits

    def stage_times(self, text: str, k: int) -> dict[str, float]:
        """The microseconds of each stage of one search."""
        lap = Stopwatch()
        self.answer(self.prepare([text], lap=lap)[0], SearchOptions(k=k), lap)
        return lap.spent

    def correct(self, text: str, spelling: bool | None = None) -> str:
        """A normalised query with its spelling corrected, if that is asked for."""
        self.check_spelling(spelling)
        speller = self.speller() if (self.corrects if spelling is None else spelling) else None
        return text if speller is None else speller.correct(text)

    def check_spelling(self, spelling: bool | None) -> None:
        """Raise if spelling is to be corrected and there is no lexicon."""
        if spelling and self.ranker.speller is None:
            raise PixnarError(
                f"{self.where or 'the index'} has no {LEXICON}, so spelling cannot be corrected: search without it, "
                "or fit again with serve.spelling=auto"
            )

    def hits(self, query: PreparedQuery, rows: list[DocumentHit], options: SearchOptions) -> list[Hit]:
        """Ranked documents as hits: those that the query names first, those below the threshold left out."""
        table = self.ranker.table
        tokens, doc_ids = table.look_up(query.text)
        named = self.ranker.allowed(doc_ids, options) if doc_ids else set()
        if named and options.k:
            rows = named_first(rows, named, tokens, options.k)
        kept = [row for row in rows if options.threshold is None or row.score >= options.threshold]
        docids = [row.tokens for row in kept]
        if options.titles:
            spellings, titles = table.shown(docids, [row.doc_id for row in kept])
        else:
            spellings, titles = table.spellings(docids), [""] * len(kept)
        rest = zip(kept, spellings, titles, strict=True)
        return [Hit(row.doc_id, row.score, docid, title) for row, docid, title in rest]


def named_first(rows: list[DocumentHit], named: set[str], tokens: tuple[int, ...], k: int) -> list[DocumentHit]:
    """Documents that the docid with these tokens names come first; those that were not found get the best score."""
    inside = [row.doc_id for row in rows if row.doc_id in named]
    top = rows[0].score if rows else 0.0
    first = [DocumentHit(doc_id, top, tokens) for doc_id in inside + sorted(named - set(inside))]
    return (first + [row for row in rows if row.doc_id not in named])[:k]
