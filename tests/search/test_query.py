"""Scores of queries against plain formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pixnar.fusion.terms import Ngrams
from pixnar.runtime import HeadRows
from pixnar.scoring import COMPOSED_RULE, PAPER_RULE, Priors, ScoreRule
from pixnar.search import Decoder, SlotScores
from pixnar.search import query as module
from pixnar.search.query import ArrayHead, QueryScorer
from pixnar.search.ranker import Ranker
from pixnar.table import DocidTable
from pixnar.vocab import Vocabulary

V, S, D, Q = 13, 4, 6, 3
Floats = NDArray[np.float32]
VOCABULARY = Vocabulary.build(["a b c", "a b d"], 600, min_count=1)
OWN = [np.array([2, 5], np.uint32), np.array([0, 7, 12], np.uint32), np.array([], np.uint32)]


def scorer(rule: ScoreRule, *, bias: bool = True) -> QueryScorer:
    random = np.random.default_rng(0)
    rows = random.normal(size=(V + 1, D)).astype(np.float32)
    biases = random.normal(size=V + 1).astype(np.float32) if bias else None
    log_z = random.normal(size=S + 1).astype(np.float32)
    priors = Priors.count(random.integers(0, 20, V), random.integers(1, 6, 30), S)
    return QueryScorer(ArrayHead(rows, biases), log_z, priors, rule)


def head(scorer: QueryScorer) -> ArrayHead:
    assert isinstance(scorer.head, ArrayHead)
    return scorer.head


@pytest.fixture
def x() -> Floats:
    return np.random.default_rng(1).normal(size=(Q, S + 1, D)).astype(np.float32)


def dense(scores: SlotScores, floor: Floats | None) -> NDArray[np.float64]:
    """Scores [s, V] that a decoder sees."""
    if scores.is_dense:
        return scores.scores.reshape(scores.slots, -1).astype(np.float64)
    out = np.full((scores.slots, V), -np.inf)
    for t in range(scores.slots):
        part = slice(scores.offsets[t], scores.offsets[t + 1])
        out[t, scores.tokens[part]] = scores.scores[part]
    return out if floor is None else np.maximum(out, floor)


def by_hand(
    s: QueryScorer, x: Floats, own: NDArray[np.uint32], listed: NDArray[np.uint32] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Token scores [slots used, V] and scores of the end, straight from the formulas; -inf outside a shortlist."""
    rule = s.rule
    scored = np.ones(V + 1, bool) if listed is None else np.isin(np.arange(V + 1), [*listed, V])
    used = [0] if rule.order == "bag" else list(range(1, S + 1))
    if rule.score == "composed":
        products = np.stack([head(s).rows[:V].astype(np.float64) @ x[t] for t in used])
        products = products if rule.order == "slots" else products.max(0, keepdims=True)
        products[:, own] += rule.copy * -s.priors.tokens[own].astype(np.float64)
        return np.where(scored[:V], rule.scale * products, -np.inf), np.zeros(S)
    log_p = np.zeros((len(used), V + 1))
    for i, t in enumerate(used):
        logits = head(s).rows.astype(np.float64) @ x[t] + (0 if head(s).bias is None else head(s).bias)
        log_p[i] = logits - (np.log(np.exp(logits[scored]).sum()) if rule.normalize else s.log_z[t])
    ends = (log_p[:, V] - rule.prior_weight * s.priors.ends) * rule.scale if rule.order == "slots" else np.zeros(S)
    if rule.order != "slots":
        log_p = log_p.max(0, keepdims=True)
    p = np.exp(log_p[:, :V])
    if rule.copy and len(own):
        copied = np.zeros(V)
        copied[own] = 1 / len(own)
        p = (1 - rule.copy) * p + rule.copy * copied
    scores = np.where(scored[:V], rule.scale * (np.log(p) - rule.prior_weight * s.priors.tokens), -np.inf)
    return scores, ends if rule.ends else np.zeros(S)


RULES: dict[str, ScoreRule] = {
    "default": ScoreRule(),
    "any": ScoreRule(order="any", prior_weight=0.9, scale=0.7),
    "any strict": ScoreRule(order="any", floor="strict", copy=0.0),
    "slots": ScoreRule(order="slots", floor="prior", ends=True, prior_weight=0.5),
    "slots strict": ScoreRule(order="slots", floor="strict", ends=True),
    "slots raw": ScoreRule(order="slots", normalize=False, copy=0.2),
    "bag raw": ScoreRule(order="bag", normalize=False, copy=0.0),
    "bag prior": ScoreRule(order="bag", floor="prior", ends=True),
    "paper": PAPER_RULE,
    "composed": COMPOSED_RULE.with_(copy=0.2, scale=1.4),
    "composed any": ScoreRule(score="composed", order="any", floor="strict"),
    "composed slots": ScoreRule(score="composed", order="slots", floor="prior", ends=True, copy=0.0),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", RULES)
def test_against_the_formulas(name: str, bias: bool, x: Floats) -> None:
    s = scorer(RULES[name], bias=bias)
    found = list(s.batch(x, OWN))
    assert len(found) == Q
    for one, vectors, own in zip(found, x, OWN, strict=True):
        tokens, ends = by_hand(s, vectors, own)
        if s.floors is not None:
            tokens = np.maximum(tokens, s.floors)
        got = dense(one, s.floors)
        assert one.slots == S
        if s.rule.order == "slots":
            assert np.allclose(got, tokens, atol=1e-4)
        else:
            assert np.allclose(got.max(0), tokens[0], atol=1e-4)  # decoding takes the best slot of every token
        assert np.allclose(one.ends, ends, atol=1e-4)


def test_how_the_decoder_is_to_match() -> None:
    orders = {order: scorer(ScoreRule(order=order)).order for order in ("bag", "any", "slots")}
    assert orders == {"bag": "any", "any": "any", "slots": "slots"}


@pytest.mark.parametrize("name", RULES)
def test_a_shortlist_of_all_tokens_changes_nothing(name: str, x: Floats) -> None:
    s = scorer(RULES[name])
    everything = [np.arange(V, dtype=np.uint32)] * Q
    for whole, listed in zip(s.batch(x, OWN), s.batch(x, OWN, everything), strict=True):
        assert np.allclose(dense(whole, s.floors), dense(listed, s.floors), atol=1e-5)
        assert np.allclose(whole.ends, listed.ends, atol=1e-5)
    for vectors in x:
        ids, gains = s.expansion(vectors, 4)
        listed_ids, listed_gains = s.expansion(vectors, 4, everything[0])
        assert np.array_equal(ids, listed_ids)
        assert np.allclose(gains, listed_gains, atol=1e-6)


@pytest.mark.parametrize("name", RULES)
def test_a_shortlist(name: str, x: Floats) -> None:
    """Probabilities are over the shortlist and the end; the tokens outside get their floor."""
    s = scorer(RULES[name])
    lists = [np.array(ids, np.uint32) for ids in ([0, 2, 5, 7, 11], [0, 1, 12], [4])]
    for one, vectors, own, listed in zip(s.batch(x, OWN, lists), x, OWN, lists, strict=True):
        tokens, ends = by_hand(s, vectors, own, listed)
        if s.floors is not None:
            tokens = np.maximum(tokens, s.floors)
        got = dense(one, s.floors)
        assert np.allclose(got if s.rule.order == "slots" else got.max(0), tokens, atol=1e-4)
        assert np.allclose(one.ends, ends, atol=1e-4)


def test_an_empty_shortlist(x: Floats) -> None:
    s = scorer(ScoreRule())
    (one,) = s.batch(x[:1], OWN[:1], [np.zeros(0, np.uint32)])
    assert np.array_equal(dense(one, s.floors), np.zeros((S, V)))


def test_blocks_do_not_matter(x: Floats, monkeypatch: pytest.MonkeyPatch) -> None:
    s = scorer(ScoreRule())
    whole = list(s.batch(x, OWN))
    monkeypatch.setattr(module, "_LOGITS_AT_ONCE", 1)
    for one, other in zip(whole, s.batch(x, OWN), strict=True):
        assert np.array_equal(one.tokens, other.tokens)
        assert np.allclose(one.scores, other.scores, atol=1e-5)
    assert list(s.batch(x[:0], [])) == []


@pytest.mark.parametrize("bias", [True, False])
def test_expansion(bias: bool, x: Floats) -> None:
    s = scorer(ScoreRule(), bias=bias)
    for vectors in x:
        rows, biases = head(s).rows, head(s).bias
        logits = rows[:V].astype(np.float64) @ vectors[0] + (0 if biases is None else biases[:V])
        gains = logits - np.log(np.exp(logits).sum()) - s.priors.tokens
        better = np.argsort(-gains)[: int((gains > 0).sum())]
        for most in (0, 1, 3, V, 100):
            ids, values = s.expansion(vectors, most)
            assert ids.tolist() == sorted(better[:most].tolist())
            assert np.allclose(values, gains[ids], atol=1e-4)
            assert values.dtype == np.float32


def test_expansion_of_the_composed_score(x: Floats) -> None:
    """What x_0 gains over the bias, which stands for how usual a token is."""
    for bias in (True, False):
        s, biases = scorer(COMPOSED_RULE, bias=bias), head(scorer(COMPOSED_RULE, bias=bias)).bias
        usual = 0 if biases is None else biases[:V]
        logits = head(s).rows[:V].astype(np.float64) @ x[0, 0] + usual
        gains = logits - np.log(np.exp(logits).sum()) - usual
        ids, values = s.expansion(x[0], 3)
        best = np.argsort(-gains)[:3]
        assert ids.tolist() == sorted(best[gains[best] > 0].tolist())
        assert np.allclose(values, gains[ids], atol=1e-4)


def test_expansion_of_a_shortlist(x: Floats) -> None:
    s = scorer(ScoreRule(), bias=False)
    listed = np.array([1, 4, 6, 9, 10], np.uint32)
    logits = head(s).rows[listed].astype(np.float64) @ x[0, 0]
    gains = logits - np.log(np.exp(logits).sum()) - s.priors.tokens[listed]
    ids, values = s.expansion(x[0], 2, listed)
    best = np.argsort(-gains)[:2]
    best = np.sort(best[gains[best] > 0])
    assert ids.tolist() == listed[best].tolist()
    assert np.allclose(values, gains[best], atol=1e-4)


@pytest.mark.parametrize("name", ["default", "any", "slots"])
def test_decoding_many(name: str, x: Floats) -> None:
    """From vectors to documents: as the sums of the scores by hand."""
    s = scorer(RULES[name].with_(aggregate="max", length_norm=0.5))
    docids: dict[tuple[int, ...], list[str]] = {(0, 1): ["a"], (5, 2, 7): ["b"], (12,): ["c"], (3, 3, 3, 3, 3): ["d"]}
    decoder = Decoder(DocidTable.in_memory(docids, V), slots=S, floor=s.floors, threads=1)
    for scores, vectors, own in zip(s.batch(x, OWN), x, OWN, strict=True):
        found = decoder.documents(scores, 10, aggregate="max", order=s.order, length_norm=0.5)
        hits = [(hit.doc_id, hit.score) for hit in found.hits]
        tokens, ends = by_hand(s, vectors, own)
        assert s.floors is not None
        tokens = np.maximum(np.broadcast_to(tokens, (S, V)), s.floors)
        wanted: dict[str, Any] = {}
        for docid, (name_of,) in docids.items():
            total = sum(tokens[t, v] for t, v in enumerate(docid[:S])) + (ends[len(docid)] if len(docid) < S else 0)
            wanted[name_of] = total / min(len(docid) + 1, S) ** 0.5
        assert dict(hits) == pytest.approx(wanted, abs=1e-4)
        assert [score for _, score in hits] == sorted((score for _, score in hits), reverse=True)


@pytest.mark.parametrize("order", ["bag", "any", "slots"])
@pytest.mark.parametrize("rows", ["as trained", "as served"])
def test_the_composed_score_of_docids(order: Any, rows: str, x: Floats) -> None:
    """From vectors to documents: sums of products over the length of the sum of the rows; nothing by their number."""
    s = scorer(ScoreRule(score="composed", order=order, copy=0.1, aggregate="max", length_norm=0.7, ends=True))
    docids: dict[tuple[int, ...], list[str]] = {(0, 1): ["a"], (5, 2, 7): ["b"], (12,): ["c"], (3, 3, 3, 3, 8): ["d"]}
    table = DocidTable.in_memory(docids, V)
    served = HeadRows.build(head(s).rows, head(s).bias, format="float32")
    used = s if rows == "as trained" else QueryScorer(served, s.log_z, s.priors, s.rule)
    ranker = Ranker(table, used, Ngrams(VOCABULARY))
    for vectors, own in zip(x, OWN, strict=True):
        tokens = np.maximum(np.broadcast_to(by_hand(s, vectors, own)[0], (S, V)), 0)
        wanted: dict[str, Any] = {}
        for docid, (name,) in docids.items():
            length = np.linalg.norm(head(s).rows[list(docid[:S])].sum(0))
            wanted[name] = sum(tokens[t, v] for t, v in enumerate(docid[:S])) / length
        found = {hit.doc_id: hit.score for hit in ranker.decode(used.one(vectors, own), 10)}
        assert found == pytest.approx(wanted, rel=0.01, abs=1e-4)  # a factor is one of 256


def test_an_engine_changes_its_score(x: Floats) -> None:
    """Factors come and go with the composed score, whichever it starts with."""
    s = scorer(ScoreRule(score="composed", aggregate="max"))
    table = DocidTable.in_memory({(0, 1): ["a"], (5, 2, 7): ["b"], (12,): ["c"]}, V)
    composed = Ranker(table, s, Ngrams(VOCABULARY))
    plain = composed.with_scorer(s.with_rule(ScoreRule(aggregate="max")))
    assert composed.factors is not None
    assert plain.factors is None
    assert plain.with_scorer(s).factors is not None
    scaled = composed.with_scorer(s.with_rule(s.rule.with_(scale=2.0)))
    assert scaled.decoder is composed.decoder
    for vectors, own in zip(x, OWN, strict=True):
        for ranker in (composed, plain.with_scorer(s)):
            hits = [(hit.doc_id, hit.score) for hit in ranker.decode(ranker.scorer.one(vectors, own), 3)]
            assert hits == [(hit.doc_id, hit.score) for hit in composed.decode(s.one(vectors, own), 3)]
        twice = {hit.doc_id: hit.score for hit in scaled.decode(scaled.scorer.one(vectors, own), 3)}
        assert twice == pytest.approx({name: 2 * score for name, score in hits}, rel=1e-5)
