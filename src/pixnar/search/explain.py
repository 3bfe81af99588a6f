"""The explanation of a search: clusters, shortlist, tokens of every slot, paths, docids, sources, and time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixnar.fusion.fuse import DOCIDS
from pixnar.fusion.postings import best
from pixnar.search import Hit
from pixnar.search.ranker import Candidates, PreparedQuery, Ranker, Stopwatch
from pixnar.search.score_breakdown import ScoreBreakdown, alone, contributions
from pixnar.search.searcher import Searcher
from pixnar.search.types import SearchOptions

_TOKENS = 8  # of a slot, best first
_OF_LIST = 5  # of a cluster's list
_EXPECTED = 20


def explain(searcher: Searcher, text: str, options: SearchOptions) -> dict[str, Any]:
    """An explanation of one search, ready for JSON."""
    ranker, vocabulary = searcher.ranker, searcher.ranker.table.vocabulary
    ranker.warm_up()
    lap = Stopwatch()
    query = searcher.prepare([text], options.spelling, lap)[0]
    scores, hits = searcher.answer(query, options, lap)
    size = ranker.scorer.head.count - 1
    tokens, gains = ranker.scorer.expansion(query.x, _EXPECTED, query.tokens)
    order = best(gains, _EXPECTED)
    found = None if options.beam else ranker.candidates(query, scores, max(options.k, ranker.depth), options)
    ids = np.append(np.arange(size) if query.tokens is None else query.tokens.astype(np.int64), size)
    logits = ranker.scorer.head.logits(query.x, ids)
    sums = ScoreBreakdown(ranker, query, scores, options, ids, logits)
    return {
        "query": query.text,
        "corrected_from": query.original or None,
        "tokens": [vocabulary.token(int(v)) for v in vocabulary.encode(query.text)],
        "own": [vocabulary.token(int(v)) for v in query.own],
        "clusters": _clusters(ranker, query),
        "shortlist": len(ids) - 1,
        "vocabulary": size,
        "slots": _slots(ranker, ids, logits),
        "expected": [[vocabulary.token(int(tokens[i])), float(gains[i])] for i in order],
        "paths": sums.paths(),
        "hits": _hits(searcher, query, hits, found, sums),
        "weights": {} if ranker.fusion is None or options.beam else dict(ranker.fusion.weights),
        "beam": options.beam,
        "rule": ranker.scorer.rule.to_dict(),
        "microseconds": {stage: round(time, 1) for stage, time in lap.spent.items()},
    }


def _hits(
    searcher: Searcher, query: PreparedQuery, hits: list[Hit], found: Candidates | None, sums: ScoreBreakdown
) -> list[dict[str, Any]]:
    """Each hit with its docids and what its score is made of; after a beam, which finds no candidates, docids alone.

    `placed` says that a score is not the sum of its parts: "equal", the query is a docid of the document, which puts it
    first.
    """
    place = {} if found is None else {doc_id: i for i, doc_id in enumerate(found.doc_ids)}
    added = [] if found is None else contributions(searcher.ranker, found)
    equal = set(searcher.ranker.table.look_up(query.text)[1])
    told = []
    for hit in hits:
        docids, document = sums.document(hit.id)
        parts, values = [], {}
        if found is None and document is not None:
            parts, values = alone(document["score"]), {DOCIDS: document["score"]}
        elif found is not None and (i := place.get(hit.id)) is not None:
            parts = added[i]
            values = {name: float(column[i]) for name, column in found.columns.items()}
        told.append(
            {
                "doc_id": hit.id,
                "score": hit.score,
                "docid": hit.docid,
                "placed": "equal" if hit.id in equal else None,
                "parts": parts,
                "document": document,
                "docids": docids,
                "sources": {name: value for name, value in values.items() if np.isfinite(value)},
            }
        )
    return told


def _clusters(ranker: Ranker, query: PreparedQuery) -> list[dict[str, Any]]:
    """The clusters whose lists make the shortlist, nearest first, and what their lists begin with."""
    shortlist, vocabulary = ranker.shortlist, ranker.table.vocabulary
    if shortlist is None:
        return []
    return [
        {
            "cluster": int(i),
            "inner_product": float(shortlist.c[i] @ query.x[0]),
            "tokens": [vocabulary.token(int(v)) for v in shortlist.list_of(int(i))[:_OF_LIST]],
        }
        for i in shortlist.nearest(query.x[0])
    ]


def _slots(ranker: Ranker, ids: NDArray[np.int64], logits: NDArray[np.float32]) -> list[list[list[Any]]]:
    """Of every slot, slot 0 first, the likeliest tokens with their probabilities; the end of a docid is ⏹."""
    vocabulary, end = ranker.table.vocabulary, int(ids[-1])
    chances = np.exp(logits - logits.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    told = []
    for row in chances:
        top = best(row, _TOKENS)
        told.append([["⏹" if ids[i] == end else vocabulary.token(int(ids[i])), float(row[i])] for i in top])
    return told
