"""What explain says of scores adds up to them."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pixnar.fusion.fuse import DENSE, DOCIDS, EXPANSION, LEXICAL, Fusion
from pixnar.index import Index
from pixnar.pipeline import fit
from pixnar.recipe import Recipe, override
from pixnar.runtime import HeadRows
from pixnar.scoring.rule import PAPER_RULE, ScoreRule
from tests.helpers.fit_corpora import WORDS, settings, write_small
from tests.helpers.tiny_model import save_encoder

WEIGHTS = {DOCIDS: 1.0, LEXICAL: 0.5, EXPANSION: 0.25, DENSE: 2.0}
SCALES = {DOCIDS: 3.0, LEXICAL: 1.5, DENSE: 0.2}
QUERIES = ["balin demor", "rovek fista lamor", "nothing of this is known"]
RULES = {
    "bag": ScoreRule(),
    "bag, prior as floor, the two best docids": ScoreRule(floor="prior", aggregate=2, prior_weight=0.5),
    "any": ScoreRule(order="any", copy=0.0),
    "any, strict": ScoreRule(order="any", floor="strict", length_norm=0.0, aggregate="max"),
    "slots": ScoreRule(order="slots", floor="prior", ends=True),
    "the paper's": PAPER_RULE,
    "composed": ScoreRule(score="composed", copy=0.2, scale=2.0),
    "composed, any, the two best docids": ScoreRule(score="composed", order="any", copy=0.0, aggregate=2),
    "composed, slots": ScoreRule(score="composed", order="slots", ends=True),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sums")
    write_small(folder / "corpus", 20, 3)
    encoder = save_encoder(folder / "encoder", texts=WORDS)
    trained = {"train__steps": 2, "train__learning_rate": 0.05, "train__dev_queries": 0}  # whatever dev says of it
    trained["train__passages"] = 0  # the slots differ enough to tell apart
    wish = settings(encoder, model__slots=3, scoring__tune=False, **trained)
    fit(folder / "corpus", folder / "index", override(Recipe(), wish), cache=folder / "cache", threads=1)
    return folder / "index"


def opened(home: Path, folder: Path, rule: ScoreRule, fused: bool, shortlist: bool = True) -> Index:
    """The same index with another rule and other weights."""
    shutil.copytree(home, folder / "index")
    path = folder / "index" / "manifest.json"
    content = json.loads(path.read_text())
    content |= {"rule": rule.to_dict(), "fusion": Fusion(WEIGHTS, SCALES).to_dict() if fused else None}
    path.write_text(json.dumps(content))
    return Index.load(folder / "index", shortlist=shortlist)


@pytest.fixture(params=RULES)
def rule(request: pytest.FixtureRequest) -> ScoreRule:
    return RULES[request.param]


@pytest.fixture(params=["docids alone", "fused", "fused, every token"])
def index(home: Path, tmp_path: Path, rule: ScoreRule, request: pytest.FixtureRequest) -> Index:
    return opened(home, tmp_path, rule, "fused" in request.param, "every" not in request.param)


def added_up(parts: dict[str, Any]) -> float:
    """The score of a docid from what is told of it."""
    total = 0.0
    for token in parts["tokens"]:
        total += token["score"]
    total += parts["end"] or 0.0
    assert total == parts["sum"]
    return total * float(parts["factor"]) / float(parts["divisor"])


def test_tokens_add_up_to_docids(index: Index, rule: ScoreRule) -> None:
    slots = index.ranker.scorer.slots
    lengths = set()
    for query in QUERIES:
        told = index.explain(query, k=6)
        assert json.loads(json.dumps(told, allow_nan=False)) == told
        docids = told["paths"] + [one for hit in told["hits"] for one in hit["docids"]]
        assert docids
        for one in docids:
            parts = one["parts"]
            assert added_up(parts) == one["score"]  # to the last bit
            assert parts["divisor"] == 1 or parts["factor"] == 1
            lengths.add(len(parts["tokens"]))
            assert (parts["end"] is None) == (len(parts["tokens"]) >= slots)
            for place, token in enumerate(parts["tokens"]):
                assert token["counts"] == (place < slots)
                if token["slot"] is None:
                    assert token["score"] == (token["floor"] if token["counts"] else 0.0)
                else:
                    assert token["floor"] is None or token["score"] > token["floor"]
                    wanted = {"bag": {0}, "any": set(range(1, slots + 1)), "slots": {place + 1}}
                    assert token["slot"] in wanted[rule.order]
                assert token["own"] == (token["token"] in told["own"])
    if rule.score == "composed":
        assert len({one["parts"]["factor"] for one in docids}) > 1
        assert all(token["score"] >= 0 for one in docids for token in one["parts"]["tokens"])
    if rule.floor != "strict":
        assert max(lengths) > slots  # docids that are matched on their beginning


def test_composed_tokens_are_products_with_the_served_rows(home: Path, tmp_path: Path) -> None:
    rule = ScoreRule(score="composed", copy=0.5, scale=2.0)
    index = opened(home, tmp_path, rule, False, False)
    head, priors = index.ranker.scorer.head, index.ranker.scorer.priors
    assert isinstance(head, HeadRows)
    above = copied = 0
    for query in QUERIES:
        made = index.queries([query])[0]
        own = set(made.own.tolist())
        for path in index.explain(query, k=1)["paths"]:
            tokens = index.table.encode(path["docid"])[: index.ranker.scorer.slots]
            rows = head.decoded(list(tokens)).astype(np.float64)
            norm = np.linalg.norm(rows.sum(0))
            assert path["parts"]["factor"] == pytest.approx(1 / norm, rel=0.01)  # of 256 steps
            for v, row, part in zip(tokens, rows, path["parts"]["tokens"], strict=False):
                bonus = -rule.copy * float(priors.tokens[v]) if v in own else 0.0
                assert part["score"] == pytest.approx(max(0.0, 2 * (made.x[0] @ row + bonus)), rel=0.03, abs=0.1)
                above, copied = above + (part["score"] > 0), copied + (v in own)
    assert above
    assert copied


def test_docids_add_up_to_documents(index: Index, rule: ScoreRule) -> None:
    for query in QUERIES:
        for hit in index.explain(query, k=6)["hits"]:
            document = hit["document"]
            assert document["best"] == hit["docids"][0]["score"]
            assert document["best"] + document["others"] == pytest.approx(document["score"], abs=1e-9)
            assert document["score"] == pytest.approx(hit["sources"][DOCIDS], abs=1e-4)
            most = {"max": 1, "logsumexp": document["of"]}.get(str(rule.aggregate), 2)
            assert document["docids"] == min(most, document["of"])
            assert (document["others"] > 0) == (document["docids"] > 1)
            if document["docids"] == len(hit["docids"]):
                total = math.fsum(math.exp(one["score"]) for one in hit["docids"])
                assert math.log(total) == pytest.approx(document["score"], abs=1e-6)


def test_sources_add_up_to_hits(index: Index) -> None:
    fusion = index.ranker.fusion
    for query in QUERIES:
        told = index.explain(query, k=6)
        assert told["hits"]
        for hit in told["hits"]:
            assert hit["placed"] is None
            assert sum(part["score"] for part in hit["parts"]) == pytest.approx(hit["score"], abs=1e-4)
            assert [part["source"] for part in hit["parts"]] == ([DOCIDS] if fusion is None else list(WEIGHTS))
            for part in hit["parts"]:
                if part["known"]:
                    assert part["value"] == pytest.approx(hit["sources"][part["source"]], abs=1e-6)
                worth = part["weight"] * part["value"] / part["scale"]
                assert part["score"] == pytest.approx(worth, abs=1e-4)


def test_paths_are_the_docids_that_are_generated(index: Index) -> None:
    for query in QUERIES:
        made, told = index.generate(query, 20), index.explain(query, k=2)["paths"]
        assert [(one["docid"], one["score"]) for one in told] == [(one.docid, one.score) for one in made]
        for one, path in zip(made, told, strict=True):
            assert [token["token"] for token in path["parts"]["tokens"]] == one.tokens
            assert (path["documents"], path["doc_ids"]) == (len(one.documents), list(one.documents[:3]))
        some = index.explain(query, k=2, where='country = "de"')["paths"]
        german = {f"d{i:02}" for i in range(0, 20, 3)}
        assert some
        assert all(set(path["doc_ids"]) <= german for path in some)


@pytest.mark.parametrize("score", ["composed", "probability"])
def test_the_slot_told_is_the_one_that_expects_a_token_most(home: Path, tmp_path: Path, score: Any) -> None:
    index = opened(home, tmp_path, ScoreRule(score=score, order="any", copy=0.0, floor="strict"), False, False)
    seen = set()
    for query in QUERIES:
        made = index.queries([query])[0]
        alone = {}
        for t in range(1, index.ranker.scorer.slots + 1):  # the same query with the vector of slot t in all slots
            x = made.x.copy()
            x[1:] = made.x[t]
            scores = index.ranker.scored(made._replace(x=x))
            first = slice(0, int(scores.offsets[1]))
            alone[t] = dict(zip(scores.tokens[first].tolist(), scores.scores[first].tolist(), strict=True))
        for path in index.explain(query, k=1)["paths"]:
            for v, token in zip(index.table.encode(path["docid"]), path["parts"]["tokens"], strict=True):
                if token["counts"] and token["slot"] is None:
                    assert not any(v in scores for scores in alone.values())
                elif token["counts"]:
                    by_slot = [alone[t].get(v, 0.0) for t in alone]
                    assert token["score"] == pytest.approx(max(by_slot), abs=1e-5)
                    assert alone[token["slot"]][v] == pytest.approx(max(by_slot), abs=1e-5)
                    seen.add(token["slot"])
    assert len(seen) > 1


@pytest.mark.parametrize("fused", [False, True])
def test_scores_that_are_no_sums_say_so(home: Path, tmp_path: Path, fused: bool) -> None:
    index = opened(home, tmp_path, ScoreRule(), fused)
    docid = index.generate("balin demor", 1)[0]
    told = index.explain(docid.docid, k=4)
    named = {hit["doc_id"] for hit in told["hits"] if hit["placed"] == "equal"}
    assert named == set(docid.documents)
    assert told["hits"][0]["doc_id"] in named
    index.table.add("new", ["balin stapol unheard of"])
    hit = next(hit for hit in index.explain("stapol balin", k=21)["hits"] if hit["doc_id"] == "new")
    assert hit["placed"] is None
    assert sum(part["score"] for part in hit["parts"]) == pytest.approx(hit["score"], abs=1e-5)
    assert added_up(hit["docids"][0]["parts"]) == pytest.approx(hit["docids"][0]["score"], abs=1e-6)


@pytest.mark.parametrize("order", ["bag", "any", "slots"])
def test_after_a_beam_docids_alone_add_up(home: Path, tmp_path: Path, order: Any) -> None:
    index = opened(home, tmp_path, ScoreRule(order=order), True)
    for query in QUERIES:
        told = index.explain(query, k=6, beam=4)
        assert json.loads(json.dumps(told, allow_nan=False)) == told
        hits = index.search(query, k=6, beam=4)
        assert [(hit["doc_id"], hit["score"], hit["docid"]) for hit in told["hits"]] == [tuple(hit)[:3] for hit in hits]
        assert (told["beam"], told["weights"]) == (4, {})
        assert 0 < len(told["paths"]) <= 4
        for hit in told["hits"]:
            best = hit["docids"][0]
            assert best["docid"] == hit["docid"]
            assert added_up(best["parts"]) == pytest.approx(hit["score"], abs=1e-6)
            assert [(part["source"], part["score"]) for part in hit["parts"]] == [(DOCIDS, hit["score"])]
            assert (hit["document"]["docids"], hit["document"]["score"]) == (1, hit["score"])
            assert best["docid"] in {path["docid"] for path in told["paths"]}
