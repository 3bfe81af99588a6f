"""Decoding by the native decoder and by its slow twin, and what their results must have in common."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from pixnar import _native
from pixnar.runtime import DocidFactors
from pixnar.search import Decoder, SlotScores
from pixnar.search.decoder import Engine
from pixnar.search.reference import SlowQuery
from pixnar.search.types import Order, Tokens
from pixnar.table import DocidTable
from pixnar.table.overlay import table_of
from tests.helpers.search_strategies import (
    DOCUMENTS,
    VOCAB_SIZE,
    Settings,
)

ENGINES: tuple[Engine, ...] = ("auto", "brute", "best-first", "inverted")
AGGREGATES: dict[int | None, Any] = {1: "max", 2: 2, 3: 3, None: "logsumexp"}  # the reference's name -> the decoder's
ORDERS: tuple[Order, ...] = ("slots", "any", "assigned")
EVERY = 10**6
Row = tuple[Hashable, float, Any]  # what was found, its score, and the rest of the hit


def sparse(query: SlowQuery) -> SlotScores:
    return SlotScores.sparse(
        [(np.array(list(slot), np.int64), np.array(list(slot.values()), np.float32)) for slot in query.slots],
        np.array(query.ends, np.float32),
    )


def dense(query: SlowQuery) -> SlotScores:
    scores = np.full((len(query.slots), VOCAB_SIZE), -np.inf, np.float32)
    for row, slot in zip(scores, query.slots, strict=True):
        for v, score in slot.items():
            row[v] = score
    return SlotScores.dense(scores, np.array(query.ends, np.float32))


def decoder_for(table: DocidTable, query: SlowQuery, scaling: DocidFactors | None = None) -> Decoder:
    strict = all(floor == -math.inf for floor in query.floor)
    floor = None if strict else np.array(query.floor, np.float32)
    return Decoder(table, slots=len(query.slots), floor=floor, factors=scaling)


def factor_of(scaling: DocidFactors | None) -> Callable[[Tokens], float] | None:
    """The factors as the reference takes them: each docid in a table of its own."""
    if scaling is None:
        return None

    @functools.cache
    def factor(tokens: Tokens) -> float:
        alone = _native.DocidTable(table_of([(tokens, 0)], VOCAB_SIZE, 1, 1))
        return float(scaling.values[scaling.classes(alone)[0]])

    return factor


def ways(how: Settings) -> list[dict[str, Any]]:
    """The same decoding as keyword arguments: an allowed set can be said in two ways."""
    common = {"order": how.order, "length_norm": how.length_norm}
    if how.allowed is None:
        return [common]
    return [common | {"allow": sorted(how.allowed)}, common | {"forbid": set(DOCUMENTS) - how.allowed}]


def expected(how: Settings, scaling: DocidFactors | None = None) -> dict[str, Any]:
    """The same decoding as keyword arguments of the reference."""
    allowed = None if how.allowed is None else how.allowed.__contains__
    return {"order": how.order, "length_norm": how.length_norm, "allowed": allowed, "factor": factor_of(scaling)}


def docid_rows(hits: Iterable[Any]) -> list[Row]:
    return [(tuple(hit.tokens), hit.score, tuple(hit.documents)) for hit in hits]


def document_rows(hits: Iterable[Any]) -> list[Row]:
    return [(hit.doc_id, hit.score, tuple(hit.tokens)) for hit in hits]


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)


def assert_true_scores(rows: Sequence[Row], every: Sequence[Row], *, exactly: bool) -> None:
    """All rows differ, and each is in `every`, the full and true ranking."""
    truth = {name: (score, rest) for name, score, rest in every}
    assert len({name for name, _, _ in rows}) == len(rows)
    for name, score, rest in rows:
        true_score, true_rest = truth[name]
        assert rest == true_rest
        assert score == true_score if exactly else close(score, true_score)


def assert_best(rows: Sequence[Row], every: Sequence[Row], k: int, *, exactly: bool) -> None:
    """The rows are the k best of `every`; if not exactly, rows with almost equal scores may change places."""
    if exactly:
        assert list(rows) == list(every[:k])
        return
    assert_true_scores(rows, every, exactly=False)
    assert len(rows) == min(k, len(every))
    for (_, score, _), (_, true_score, _) in zip(rows, every, strict=False):
        assert close(score, true_score)


def assert_exact(found: Any) -> None:
    assert found.exact is True
    assert found.gap == 0
    assert found.engine in (*ENGINES[1:], "enumerate", "accumulate")
