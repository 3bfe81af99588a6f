"""How an index came to its answer: clusters, shortlist, the tokens of every slot, docids, sources, and time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pixnar.evidence.ranking import best
from pixnar.index.engine import Query, Wanted
from pixnar.index.stages import answered, prepared
from pixnar.search import DocumentHit, SlotScores

if TYPE_CHECKING:
    from pixnar.index.index import Index

_TOKENS = 8  # of a slot, best first
_OF_LIST = 5  # of a cluster's list
_EXPECTED = 20
_DOCIDS = 3  # of a document, best first


def explain(index: Index, text: str, k: int, wanted: Wanted, threshold: float | None = None) -> dict[str, Any]:
    """All of it, ready for JSON."""
    engine, vocabulary = index.engine, index.table.vocabulary
    engine.warm_up()
    queries, lap = prepared(index, [text])
    query = queries[0]
    scores, hits = answered(index, query, k, wanted, threshold, lap)
    size = engine.scorer.head.count - 1
    tokens, gains = engine.scorer.expansion(query.x, _EXPECTED, query.tokens)
    order = best(gains, _EXPECTED)
    found = engine.candidates(query, scores, max(k, engine.depth), wanted)
    place = {doc_id: i for i, doc_id in enumerate(found.doc_ids)}
    worth = _worth(scores)

    def sources(doc_id: str) -> dict[str, float]:
        if doc_id not in place:
            return {}
        values = {name: float(column[place[doc_id]]) for name, column in found.columns.items()}
        return {name: value for name, value in values.items() if np.isfinite(value)}

    def docid(hit: DocumentHit | Any) -> dict[str, Any]:
        named = [[vocabulary.token(v), worth.get(v, 0.0)] for v in hit.tokens]
        return {"docid": index.spelling(hit.tokens), "score": hit.score, "tokens": named}

    return {
        "query": query.text,
        "own": [vocabulary.token(int(v)) for v in query.own],
        "clusters": _clusters(index, query),
        "shortlist": size if query.tokens is None else len(query.tokens),
        "vocabulary": size,
        "slots": _slots(index, query),
        "expected": [[vocabulary.token(int(tokens[i])), float(gains[i])] for i in order],
        "hits": [
            {
                "doc_id": hit.doc_id,
                "score": hit.score,
                "docid": hit.docid,
                "docids": [docid(one) for one in _docids_of(index, scores, hit.doc_id)],
                "sources": sources(hit.doc_id),
            }
            for hit in hits
        ],
        "weights": {} if engine.fusion is None else dict(engine.fusion.weights),
        "rule": engine.scorer.rule.to_dict(),
        "microseconds": {stage: round(time, 1) for stage, time in lap.spent.items()},
    }


def _clusters(index: Index, query: Query) -> list[dict[str, Any]]:
    """The clusters whose lists make the shortlist, nearest first, and what their lists begin with."""
    shortlist, vocabulary = index.engine.shortlist, index.table.vocabulary
    if shortlist is None:
        return []
    return [
        {
            "cluster": int(i),
            "inner_product": float(shortlist.c[i] @ query.x[0]),
            "tokens": [vocabulary.token(int(v)) for v in shortlist.lists[i][:_OF_LIST]],
        }
        for i in shortlist.nearest(query.x[0])
    ]


def _slots(index: Index, query: Query) -> list[list[list[Any]]]:
    """Of every slot, slot 0 first, the likeliest tokens with their probabilities; the end of a docid is ⏹."""
    scorer, vocabulary = index.engine.scorer, index.table.vocabulary
    end = scorer.head.count - 1
    ids = np.arange(end + 1) if query.tokens is None else np.append(query.tokens.astype(np.int64), end)
    logits = scorer.head.logits(query.x, ids)
    logits = logits - logits.max(1, keepdims=True)
    chances = np.exp(logits)
    chances /= chances.sum(1, keepdims=True)
    told = []
    for row in chances:
        top = best(row, _TOKENS)
        told.append([["⏹" if ids[i] == end else vocabulary.token(int(ids[i])), float(row[i])] for i in top])
    return told


def _worth(scores: SlotScores) -> dict[int, float]:
    """What a token scores at its best slot, of those that score above their floor."""
    if scores.is_dense:
        table = scores.scores.reshape(scores.slots, -1).max(0)
        return dict(enumerate(table.tolist()))
    worth: dict[int, float] = {}
    for v, score in zip(scores.tokens.tolist(), scores.scores.tolist(), strict=True):
        worth[v] = max(score, worth.get(v, score))
    return worth


def _docids_of(index: Index, scores: SlotScores, doc_id: str) -> list[Any]:
    """The docids that speak most for a document."""
    engine = index.engine
    rule, order = engine.scorer.rule, engine.scorer.order
    found = engine.decoder.docids(scores, _DOCIDS, order=order, length_norm=rule.length_norm, allow=[doc_id])
    return found.hits
