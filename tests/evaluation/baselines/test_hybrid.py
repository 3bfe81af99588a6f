"""Hybrids of dense retrieval and BM25, against both sides asked for everything and added up slowly."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("bm25s")
pytest.importorskip("faiss")

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.corpus import open_corpus
from pixnar.evaluation import evaluate
from pixnar.evaluation.baselines import (
    HybridRetriever,
    build_bm25,
    build_dense,
    build_hybrid,
    describe,
    open_retriever,
    verify,
)
from pixnar.evaluation.baselines.hybrid import ReciprocalRanks, WeightedSum, fusions
from pixnar.evaluation.measures import mrr_at
from pixnar.evaluation.queries import read_queries
from pixnar.search import Hit
from tests.helpers.fit_corpora import WORDS, write_small
from tests.helpers.tiny_model import save_encoder

QUERIES = [f"{one} {other}" for one, other in zip(WORDS[:12], WORDS[7:], strict=False)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("hybrid")
    write_small(where / "corpus")
    rows = [json.loads(line) for line in (where / "corpus" / "corpus.jsonl").read_text().splitlines()]
    rows[-1]["title"] = rows[-1]["text"] = ""  # a document that text does not find
    rows.append({"_id": "d99", "title": "balin", "text": "and no docid"})
    (where / "corpus" / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    chance = np.random.default_rng(0)
    queries = [json.loads(line) for line in (where / "corpus" / "queries.jsonl").read_text().splitlines()]
    for row in queries:  # hard ones: one word of the topic, and others
        row["text"] = " ".join([row["text"].split()[0], *chance.choice(WORDS, 3).tolist()])
    (where / "corpus" / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    save_encoder(where / "encoder", texts=[" ".join([*WORDS, "title some text"])])
    build_dense(where / "corpus", where / "dense", encoder=where / "encoder", cache=where / "cache")
    build_bm25(where / "corpus", where / "bm25", over="both")
    for fusion in ("weights", "rrf"):
        sides: dict[str, Any] = {"dense": where / "dense", "bm25": where / "bm25"}
        build_hybrid(where / "corpus", where / fusion, fusion=fusion, **sides)
    return where


def opened(folder: Path) -> HybridRetriever:
    found = open_retriever(folder)
    assert isinstance(found, HybridRetriever)
    return found


def everything(hybrid: HybridRetriever, query: str) -> tuple[dict[str, float], dict[str, float]]:
    """What both sides say of all documents they find."""
    sides = ({hit.id: hit.score for hit in side.search(query, 1000)} for side in (hybrid.dense, hybrid.bm25))
    dense, bm25 = sides
    lowest = min(dense.values())
    return {doc_id: dense.get(doc_id, lowest) for doc_id in {*dense, *bm25}}, bm25


def ranks(scores: dict[str, float]) -> dict[str, int]:
    return {
        doc_id: i for i, doc_id in enumerate(sorted(scores, key=lambda doc_id: (-round(scores[doc_id], 6), doc_id)), 1)
    }


@pytest.mark.parametrize("fusion", ["weights", "rrf"])
def test_scores_are_those_of_both_sides(home: Path, fusion: str) -> None:
    hybrid = opened(home / fusion)
    how = hybrid.fusion
    for query in [*QUERIES, "balin", "zebra"]:
        dense, bm25 = everything(hybrid, query)
        if isinstance(how, WeightedSum):
            wanted = {doc_id: how.dense * near + how.bm25 * bm25.get(doc_id, 0.0) for doc_id, near in dense.items()}
        else:
            first, second = ranks(dense), ranks(bm25)
            by_words = {doc_id: 1 / (how.constant + second[doc_id]) if doc_id in second else 0.0 for doc_id in dense}
            wanted = {doc_id: 1 / (how.constant + first[doc_id]) + by_words[doc_id] for doc_id in dense}
        hits = hybrid.search(query, 100)
        assert {hit.id: hit.score for hit in hits} == pytest.approx(wanted, abs=1e-4)
        assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.id))
        assert hybrid.search(query, 3) == hits[:3]
    assert hybrid.search_batch(QUERIES, 5) == [hybrid.search(query, 5) for query in QUERIES]
    assert (hybrid.search("balin", 0), hybrid.search_batch([])) == ([], [])
    with pytest.raises(TypeError, match="list of queries"):
        hybrid.search_batch("tea")


def test_each_side_scores_what_the_other_proposes(home: Path) -> None:
    """With a depth of one, both proposals have the exact scores of both sides, not only of who proposed them."""
    both = opened(home / "weights")
    how = WeightedSum(1.0, 0.3)
    hybrid = HybridRetriever(both.dense, both.bm25, how, depth=1)
    seen = 0
    for query in QUERIES:
        dense, bm25 = everything(both, query)
        proposed = {both.dense.search(query, 1)[0].id, both.bm25.search(query, 1)[0].id}
        found = {hit.id: hit.score for hit in hybrid.search(query, 1)}
        scores = {doc_id: dense[doc_id] + 0.3 * bm25.get(doc_id, 0.0) for doc_id in proposed}
        assert found == pytest.approx({max(scores, key=scores.__getitem__): max(scores.values())}, abs=1e-4)
        seen += len(proposed) == 2
    assert seen > 2


def test_a_document_of_one_side_is_found(home: Path) -> None:
    hybrid = opened(home / "weights")
    assert "d99" not in hybrid.dense.entries.doc_ids
    hybrid.fusion = WeightedSum(1.0, 1.0)
    (hit,) = [hit for hit in hybrid.search("no docid", 60) if hit.id == "d99"]
    assert hit.docid == ""
    assert hybrid.search("and no docid", 1)[0] == Hit("d99", hybrid.search("and no docid", 1)[0].score, "")


@pytest.mark.parametrize("fusion", ["weights", "rrf"])
def test_dev_selects_fusion_and_aggregate(home: Path, fusion: str) -> None:
    """Whatever else is set and asked through the front door is not better on dev."""
    hybrid, dev = opened(home / fusion), read_queries(open_corpus(home / "corpus"), "dev")
    facts = json.loads((home / fusion / "manifest.json").read_text())["facts"]["dev"]

    def figure() -> float:
        return mrr_at([[hit.id for hit in row] for row in hybrid.search_batch(dev.texts)], dev.relevant)

    chosen = figure()
    assert chosen == pytest.approx(facts["MRR@10"])
    assert facts["queries"] == 50
    aggregate, figures = hybrid.dense.aggregate, []
    for hybrid.fusion in fusions(fusion):
        figures.append(figure())
    assert max(figures) == pytest.approx(chosen)
    assert len(set(figures)) > 2
    if fusion == "weights":  # dense alone and BM25 alone are among the options
        alone = [
            mrr_at([[hit.id for hit in row] for row in side.search_batch(dev.texts)], dev.relevant)
            for side in (hybrid.dense, hybrid.bm25)
        ]
        assert chosen >= max(alone) - 1e-9
    assert str(aggregate) in describe(home / fusion)


def test_rows_say_what_they_are_made_of(home: Path, tmp_path: Path) -> None:
    hybrid, words = opened(home / "weights"), opened(home / "weights").bm25
    assert isinstance(hybrid.fusion, WeightedSum)
    bm25 = f"BM25 (text and docids, k1 {words.k1:g}, b {words.b:g})"
    dense = f"dense (docids, {hybrid.dense.aggregate}, zero-shot)"
    assert describe(home / "weights") == f"{dense} + {hybrid.fusion.bm25:g} · {bm25}"
    ranked = opened(home / "rrf")
    assert isinstance(ranked.fusion, ReciprocalRanks)
    dense = f"dense (docids, {ranked.dense.aggregate}, zero-shot)"
    assert describe(home / "rrf") == f"reciprocal ranks (constant {ranked.fusion.constant:g}) of {dense} and {bm25}"
    shared: dict[str, Any] = {"encoder": home / "encoder", "cache": home / "cache", "aggregate": "mean"}
    build_hybrid(home / "corpus", tmp_path / "b", weight=0.5, **shared)
    assert describe(tmp_path / "b").startswith(
        "dense (text and docids, mean, zero-shot) + 0.5 · BM25 (docids joined, k1 "  # the text says nothing here
    )
    build_hybrid(home / "corpus", tmp_path / "c", over="docids", **shared)
    assert describe(tmp_path / "c").split("BM25 (")[1].split(",")[0] in ("docids", "docids joined")


def test_without_dev(home: Path, tmp_path: Path) -> None:
    write_small(tmp_path / "corpus", splits=("train",))
    for fusion, wanted in (("weights", WeightedSum(1.0, 0.04)), ("rrf", ReciprocalRanks(60.0))):
        facts = build_hybrid(
            tmp_path / "corpus", tmp_path / fusion, over="docids", fusion=fusion, encoder=home / "encoder"
        )
        assert facts["dev"] == {}
        assert opened(tmp_path / fusion).fusion == wanted
        assert "dense (docids, max, zero-shot)" in describe(tmp_path / fusion)
        assert "BM25 (docids joined, k1 1.5, b 0.75)" in describe(tmp_path / fusion)
    sides: dict[str, Any] = {"dense": tmp_path / "rrf" / "dense", "bm25": tmp_path / "rrf" / "bm25"}
    build_hybrid(tmp_path / "corpus", tmp_path / "mean", aggregate="mean", **sides)
    assert "dense (docids, mean, zero-shot)" in describe(tmp_path / "mean")
    build_dense(tmp_path / "corpus", tmp_path / "dense", encoder=home / "encoder", aggregate="logsumexp", scale=8)
    build_hybrid(tmp_path / "corpus", tmp_path / "kept", **(sides | {"dense": tmp_path / "dense"}))
    assert "dense (docids, log-sum-exp, scale 8, zero-shot)" in describe(tmp_path / "kept")


def test_saved_measured_and_verified(home: Path, tmp_path: Path) -> None:
    for fusion in ("weights", "rrf"):
        names = [path for path in (home / fusion).rglob("*") if path.is_file()]
        assert verify(home / fusion) == len(names) - 1
        found = evaluate(opened(home / fusion), open_corpus(home / "corpus"), "dev", measures=("MRR@10",))
        facts = json.loads((home / fusion / "manifest.json").read_text())["facts"]
        assert found.figures["MRR@10"] == pytest.approx(facts["dev"]["MRR@10"])
    with pytest.raises(PixnarError, match="holds a baseline"):
        build_hybrid(home / "corpus", home / "rrf", dense=home / "dense", bm25=home / "bm25")
    code = (
        "import sys; from pixnar.evaluation.baselines import open_retriever\n"
        f"print(open_retriever({str(home / 'rrf')!r}).search('balin')[0].id, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[1] == "False"


def test_damage_is_one_line(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(home / "weights", folder)
    names = [path for path in folder.rglob("*") if path.is_file() and path != folder / "manifest.json"]
    assert len(names) > 12
    for path in names:
        whole = path.read_bytes()
        path.unlink()
        with pytest.raises(FileFormatError, match="is missing"):
            open_retriever(folder)
        damaged = bytearray(whole)
        damaged[len(whole) // 2] ^= 0x55
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError) as caught:
            verify(folder)
        assert "\n" not in str(caught.value)
        path.write_bytes(whole)
    content = json.loads((folder / "manifest.json").read_text())
    for change, reason in (
        ({"fusion": {"kind": "weights"}}, "is not a fusion"),
        ({"aggregate": {"kind": "sum", "scale": 1}}, "is not an aggregate"),
        ({"depth": None}, "does not say 'depth'"),
    ):
        options = {name: value for name, value in (content["options"] | change).items() if value is not None}
        (folder / "manifest.json").write_text(json.dumps(content | {"options": options}))
        with pytest.raises(FileFormatError, match=reason):
            open_retriever(folder)
    (folder / "manifest.json").write_text(json.dumps(content | {"version": 1}))
    with pytest.raises(FileFormatError, match="of an earlier release: run pixnar baseline again"):
        open_retriever(folder)


def test_sides_must_fit(home: Path, tmp_path: Path) -> None:
    corpus, sides = home / "corpus", {"dense": home / "dense", "bm25": home / "bm25"}
    for change, reason in (
        ({"fusion": "sum"}, "fusion 'sum' is not possible"),
        ({"weight": -1.0}, "weight -1.0 is not possible"),
        ({"depth": 0}, "depth 0 is not possible"),
        ({"over": "titles"}, "over 'titles' is not possible"),
        ({"aggregate": "sum"}, "aggregate 'sum' is not possible"),
        ({"dense": home / "bm25"}, "is a bm25 baseline: give one that pixnar baseline dense wrote"),
        ({"bm25": home / "encoder"}, "is no baseline"),
    ):
        with pytest.raises(PixnarError, match=reason):
            build_hybrid(corpus, tmp_path / "x", **(sides | change))
    assert not list(tmp_path.iterdir())
    other = tmp_path / "other"
    other.mkdir()
    (other / "corpus.jsonl").write_text('{"_id": "elsewhere", "title": "tea", "text": ""}\n')
    (other / "docids.jsonl").write_text('{"_id": "elsewhere", "docid": "tea"}\n')
    build_bm25(other, tmp_path / "bm25")
    with pytest.raises(PixnarError, match="no document in common"):
        build_hybrid(corpus, tmp_path / "x", dense=home / "dense", bm25=tmp_path / "bm25")


def test_reciprocal_ranks_by_hand() -> None:
    dense, bm25 = np.array([0.9, 0.5, 0.7], np.float32), np.array([0.0, 3.0, 3.0], np.float32)
    found = ReciprocalRanks(1.0).scores(dense, bm25)
    assert found.tolist() == pytest.approx([1 / 2, 1 / 4 + 1 / 2, 1 / 3 + 1 / 3])
