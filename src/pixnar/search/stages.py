"""A search stage by stage, and how long each took.

The stages: spelling, tokenise, encode, shortlist, score, decode, evidence, fuse, map.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pixnar.runtime import CachedEncoder, QueryEncoder
from pixnar.search import Hit, SlotScores
from pixnar.search.searcher import EVERYTHING, Laps, Query, Wanted
from pixnar.vocab import normalize

if TYPE_CHECKING:
    from pixnar.index.index import Index


def prepared(
    index: Index, texts: Sequence[str], spelling: bool | Sequence[bool | None] | None = None
) -> tuple[list[Query], Laps]:
    """Queries ready to be answered, and what that took for all of them together.

    Every query of an index comes through here. `spelling` says whether they, or each of them, are corrected; None: as
    the index has it.
    """
    lap, engine = Laps(), index.engine
    originals = [normalize(text) for text in texts]
    lap("tokenise")
    wanted = spelling if isinstance(spelling, Sequence) else [spelling] * len(texts)
    normal = [index.asked(text, one) for text, one in zip(originals, wanted, strict=True)]
    lap("spelling")
    if isinstance(index.encoder, QueryEncoder | CachedEncoder):
        x, pooled, spent = index.encoder.timed(normal)
        lap("encode")
        lap.spent["tokenise"] += spent.tokenise
        lap.spent["encode"] -= spent.tokenise
    else:
        x, pooled = index.encoder.query_vectors(normal)
        lap("encode")
    queries = [
        query if query.text == original else query._replace(original=original)
        for query, original in zip(engine.queries(normal, x, pooled), originals, strict=True)
    ]
    lap("shortlist")
    return queries, lap


def answered(
    index: Index, query: Query, k: int, wanted: Wanted, threshold: float | None = None, lap: Laps | None = None
) -> tuple[SlotScores, list[Hit]]:
    """What a query finds, and the scores it was found by."""
    lap, engine = lap or Laps(), index.engine
    scores = engine.scored(query)
    lap("score")
    rows = engine.ranked(query, scores, k, wanted, lap)
    hits = index.hits(query, rows, k, wanted, threshold)
    lap("map")
    return scores, hits


def stage_times(index: Index, text: str, k: int) -> dict[str, float]:
    """The microseconds of each stage of one search."""
    queries, lap = prepared(index, [text])
    answered(index, queries[0], k, EVERYTHING, None, lap)
    return lap.spent
