"""The composed score: the native pass against numpy, a docid's score by hand, and what rounding of factors costs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as trying
from hypothesis import strategies as st
from numpy.typing import NDArray

from pixnar import _native
from pixnar.fusion.terms import Ngrams
from pixnar.runtime import DocidFactors, HeadRows
from pixnar.runtime.formats import Format
from pixnar.scoring import COMPOSED_RULE, Priors, ScoreRule, floors, own_bonus
from pixnar.search import Decoder, SlotScores
from pixnar.search.query import ArrayHead, QueryScorer
from pixnar.search.ranker import Ranker, factors_of
from pixnar.table import DocidTable
from pixnar.table.overlay import table_of
from pixnar.vocab import Vocabulary

Floats = NDArray[np.float32]
S, D = 4, 24


class Made(NamedTuple):
    """The same rows twice: as arrays and as the native core keeps them."""

    slow: QueryScorer
    fast: QueryScorer
    x: Floats


def made(rule: ScoreRule, seed: int, size: int, *, bias: bool = True) -> Made:
    random = np.random.default_rng(seed)
    rows = (random.normal(size=(size + 1, D)) / np.sqrt(D)).astype(np.float32)
    biases = random.normal(size=size + 1).astype(np.float32) if bias else None
    priors = Priors.count(random.integers(0, 20, size), random.integers(1, 6, 30), S)
    log_z = random.normal(size=S + 1).astype(np.float32)  # must not count
    heads = ArrayHead(rows, biases), HeadRows.build(rows, biases, "float32")
    slow, fast = (QueryScorer(head, log_z, priors, rule) for head in heads)
    return Made(slow, fast, random.normal(size=(S + 1, D)).astype(np.float32))


def by_hand(scorer: QueryScorer, x: Floats, own: Any, listed: Any = None) -> NDArray[np.float64]:
    """Scores [slots, V] of tokens as decoding sees them: nothing below 0, and 0 outside a shortlist."""
    rule = scorer.rule
    assert isinstance(scorer.head, ArrayHead)
    products = x.astype(np.float64) @ scorer.head.rows[:-1].T.astype(np.float64)
    used = products[:1] if rule.order == "bag" else products[1:]
    if rule.order != "slots":
        used = used.max(0, keepdims=True)
    used = used.copy()
    for token in own:
        used[:, token] -= rule.copy * scorer.priors.tokens[token]
    used = np.maximum(used * rule.scale, 0)
    if listed is not None:
        used[:, np.setdiff1d(np.arange(used.shape[1]), listed)] = 0
    return np.broadcast_to(used, (S, used.shape[1])) if rule.order != "slots" else used


def seen(scores: SlotScores, size: int, order: str) -> NDArray[np.float64]:
    """Scores [slots, V] that the decoder takes; matched in any place it takes the best slot of every token."""
    assert not scores.is_dense
    assert not scores.ends.any()
    out = np.zeros((S, size))
    for t in range(S):
        part = slice(scores.offsets[t], scores.offsets[t + 1])
        assert (scores.scores[part] > 0).all()  # the others would get their floor, 0, anyway
        assert scores.tokens[part].tolist() == sorted(set(scores.tokens[part].tolist()))
        out[t, scores.tokens[part]] = scores.scores[part]
    return out if order == "slots" else np.broadcast_to(out.max(0), out.shape)


@trying(max_examples=150)
@given(
    order=st.sampled_from(["bag", "any", "slots"]),
    copy=st.sampled_from([0.0, 0.2, 0.9]),
    scale=st.sampled_from([1.0, 0.6, 1.4]),
    size=st.integers(1, 300),
    share=st.sampled_from([None, 0.0, 0.05, 0.5, 1.0]),
    own_size=st.integers(0, 5),
    bias=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_native_and_numpy_equal_the_formula(
    order: Any, copy: float, scale: float, size: int, share: float | None, own_size: int, bias: bool, seed: int
) -> None:
    # settings that must not count are set to something
    rule = ScoreRule(
        "composed", prior_weight=0.7, copy=copy, floor="strict", order=order, ends=True, scale=scale, normalize=True
    )
    case = made(rule, seed, size, bias=bias)
    random = np.random.default_rng(seed + 1)
    own = np.sort(random.choice(size, min(size, own_size), replace=False)).astype(np.uint32)
    listed = None if share is None else np.flatnonzero(random.random(size) < share).astype(np.uint32)
    wanted = by_hand(case.slow, case.x, own, listed)
    for scorer in (case.slow, case.fast):
        lists = None if listed is None else [listed]
        (batch,) = scorer.batch(case.x[None], [own], lists)
        for found in (batch, scorer.one(case.x, own, listed)):
            np.testing.assert_allclose(seen(found, size, order), wanted, atol=2e-5)


def test_floors_are_zero() -> None:
    priors = Priors.count([3, 1, 9], [1, 2], S)
    for kind in ("zero", "prior", "strict"):
        found = floors(priors, COMPOSED_RULE.with_(floor=kind))
        assert found is not None
        assert found.tolist() == [0, 0, 0]


def test_what_own_n_grams_add() -> None:
    priors = Priors.count([8, 1, 3], [1, 2], S)
    own = np.array([0, 1], np.uint32)
    bonus = own_bonus(own, priors, COMPOSED_RULE.with_(copy=0.5))
    assert bonus is not None
    np.testing.assert_allclose(bonus, -0.5 * priors.tokens[:2])
    assert bonus[1] > bonus[0] > 0  # the rarer, the more
    assert own_bonus(own, priors, COMPOSED_RULE) is None


@pytest.mark.parametrize("bias", [True, False])
def test_expansion(bias: bool) -> None:
    """Gains are over the bias, the only prior that the composed score knows."""
    case = made(COMPOSED_RULE, 3, 200, bias=bias)
    for listed in (None, np.arange(0, 200, 3, dtype=np.uint32)):
        (tokens, gains), (others, same) = (s.expansion(case.x, 9, listed) for s in (case.slow, case.fast))
        assert tokens.tolist() == others.tolist()
        np.testing.assert_allclose(gains, same, atol=1e-5)


# Docids


def docid_lists(seed: int, size: int, count: int) -> list[tuple[int, ...]]:
    random = np.random.default_rng(seed)
    return sorted({tuple(random.integers(0, size, random.integers(1, 7)).tolist()) for _ in range(count)})


def decoder_of(scorer: QueryScorer, docids: list[tuple[int, ...]], size: int) -> tuple[Decoder, DocidFactors]:
    table = DocidTable.in_memory({docid: [f"d{i:04}"] for i, docid in enumerate(docids)}, size)
    factors = factors_of(scorer, table)
    return Decoder(table, slots=S, floor=scorer.floors, factors=factors, threads=1), factors


def norm_of(rows: Floats, docid: tuple[int, ...]) -> float:
    return float(np.linalg.norm(rows[list(docid[:S])].astype(np.float64).sum(0)))


@pytest.mark.parametrize("order", ["bag", "any", "slots"])
@pytest.mark.parametrize("native", [True, False])
def test_a_docid_by_hand(order: Any, native: bool) -> None:
    """g_d · Σ over its first s tokens; g_d is 1 / ‖Σ w‖ but for its rounding to a class."""
    size, docids = 30, docid_lists(1, 30, 150)
    case = made(COMPOSED_RULE.with_(order=order, copy=0.1), 2, size)
    scorer, own = case.fast if native else case.slow, np.array([4, 7], np.uint32)
    decoder, factors = decoder_of(scorer, docids, size)
    tokens = by_hand(case.slow, case.x, own)
    found = decoder.documents(scorer.one(case.x, own), len(docids), aggregate="max", order=scorer.order, length_norm=0)
    got = {hit.tokens: hit.score for hit in found.hits}
    assert isinstance(case.slow.head, ArrayHead)
    for docid in docids:
        total = sum(float(tokens[t, v]) for t, v in enumerate(docid[:S]))
        norm = norm_of(case.slow.head.rows, docid)
        g = float(factors.values[np.abs(np.log(factors.values.astype(np.float64) * norm)).argmin()])
        assert got.pop(docid, 0.0) == pytest.approx(g * total, rel=1e-5, abs=1e-5), docid
        assert g * total == pytest.approx(total / norm, rel=0.005)
    assert not got


@pytest.mark.parametrize("seed", range(3))
def test_rounding_factors_to_classes_costs_little(seed: int) -> None:
    """No score changes by more than 0.5 %; and rows of whole numbers have nearly the same factors."""
    random, size = np.random.default_rng(seed), 80
    rows = (random.normal(size=(size + 1, D)) * np.exp(0.2 * random.normal(size=(size + 1, 1)))).astype(np.float32)
    docids = sorted(docid_lists(seed, size, 800), key=lambda docid: (len(docid), docid))  # as a table has them
    inner = _native.DocidTable(table_of([(docid, i) for i, docid in enumerate(docids)], size, len(docids)))
    exact = np.array([1 / norm_of(rows, docid) for docid in docids])
    found: dict[str, Floats] = {}
    formats: tuple[Format, ...] = ("float32", "int8")
    for format in formats:
        factors = DocidFactors.build(HeadRows.build(rows, format=format), inner, S)
        found[format] = factors.values[factors.classes(inner)]
    assert np.abs(found["float32"] / exact - 1).max() < 0.005
    assert np.abs(found["int8"] / found["float32"] - 1).max() < 0.02
    assert np.abs(found["int8"] / found["float32"] - 1).mean() < 0.004


def test_an_engine_makes_its_factors_from_the_scorers_rows() -> None:
    """And keeps them while only settings change; with other rows, or another score, they are made again or dropped."""
    size, docids = 30, docid_lists(1, 30, 50)
    first, second = made(COMPOSED_RULE, 2, size), made(COMPOSED_RULE, 3, size)
    table = DocidTable.in_memory({docid: [f"d{i:02}"] for i, docid in enumerate(docids)}, size)
    ngrams = Ngrams(Vocabulary.build(["a b", "b c"], 600, min_count=1, threads=1))
    ranker = Ranker(table, first.slow, ngrams)
    assert ranker.factors is not None
    tuned = ranker.with_scorer(first.slow.with_rule(COMPOSED_RULE.with_(copy=0.2, scale=0.5)))
    assert tuned.factors is ranker.factors
    assert tuned.decoder is ranker.decoder
    other = ranker.with_scorer(second.slow)
    assert other.factors is not None
    assert other.decoder is not ranker.decoder
    inner = table.snapshot().table
    assert not np.allclose(
        other.factors.values[other.factors.classes(inner)], ranker.factors.values[ranker.factors.classes(inner)]
    )
    plain = ranker.with_scorer(first.slow.with_rule(ScoreRule()))
    assert plain.factors is None
    back = plain.with_scorer(first.slow)
    assert back.factors is not None
    hits = [
        [(hit.doc_id, round(hit.score, 4)) for hit in one.decode(one.scorer.one(first.x, np.zeros(0, np.uint32)), 9)]
        for one in (ranker, back, other)
    ]
    assert hits[0] == hits[1] != hits[2]
