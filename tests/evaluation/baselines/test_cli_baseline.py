"""Baselines on the command line, as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("bm25s")
pytest.importorskip("faiss")

from pixnar.corpus import open_corpus
from pixnar.evaluation.baselines import open_retriever
from pixnar.evaluation.measures import mrr_at
from pixnar.evaluation.queries import read_queries
from pixnar.index import Index
from pixnar.recipe import CLOVER, Recipe, to_dict
from tests.helpers.fit_corpora import WORDS, write_small
from tests.helpers.tiny_model import save_encoder
from tests.test_cli import fails, pixnar


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("cli")
    write_small(where / "corpus", 20, 3)
    save_encoder(where / "encoder", texts=[" ".join(WORDS)])
    done = pixnar("baseline", "bm25", where / "corpus", "-o", where / "bm25", "--json", where / "bm25.json")
    assert done.returncode == 0, done.stderr
    assert "60 entries about 20 documents" in done.stdout
    return where


def test_bm25_is_searched_and_verified(home: Path) -> None:
    row = json.loads((home / "corpus/docids.jsonl").read_text().splitlines()[9])
    hits = json.loads(pixnar("search", home / "bm25", row["docid"], "-k", "3", "--json", "-").stdout)["hits"]
    assert (hits[0]["doc_id"], hits[0]["docid"]) == (row["_id"], row["docid"])
    assert row["_id"] in pixnar("search", home / "bm25", row["docid"]).stdout.splitlines()[0]
    assert pixnar("search", home / "bm25", "zebra").stdout == "nothing found\n"
    assert "is sound" in pixnar("verify", home / "bm25").stdout
    told = json.loads((home / "bm25.json").read_text())
    assert (told["facts"]["documents"], told["facts"]["entries"], told["facts"]["dev"]["queries"]) == (20, 60, 20)
    assert told["sources"].startswith("BM25 (docids, k1 ")


def test_bm25_asked_with_typos(home: Path, tmp_path: Path) -> None:
    done = pixnar("evaluate", home / "bm25", home / "corpus", "--typos", "2", "--json", tmp_path / "typos.json")
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "typos.json").read_text())
    assert told["perturbation"]["typos"] == 2
    assert told["changes"]["MRR@10"]["relative"] < 0
    done = pixnar("evaluate", home / "bm25", home / "corpus", "--shuffle-words", "--json", tmp_path / "shuffled.json")
    told = json.loads((tmp_path / "shuffled.json").read_text())
    assert told["perturbation"]["queries_changed"] > 0
    assert told["changes"]["MRR@10"]["relative"] == 0  # BM25 does not see the order of words
    fails("--beam is for an index", "evaluate", home / "bm25", home / "corpus", "--beam", "5")


def test_what_a_baseline_does_not_have(home: Path) -> None:
    for option in (["--explain"], ["--where", "price < 3"], ["--threshold", "0"], ["--full"], ["--device", "cpu"]):
        fails(f"{option[0]} is for an index: leave it out", "search", home / "bm25", "balin", *option)
    fails("holds a baseline: choose another output", "baseline", "bm25", home / "corpus", "-o", home / "bm25")
    fails("not empty and no baseline", "baseline", "bm25", home / "corpus", "-o", home / "corpus", "--overwrite")
    fails("k1 'x' is not possible", "baseline", "bm25", home / "corpus", "-o", home / "x", "--k1", "x")
    fails("b 2.0 are not possible", "baseline", "bm25", home / "corpus", "-o", home / "x", "--b", "2")
    fails("--over", "baseline", "bm25", home / "corpus", "-o", home / "x", "--over", "titles")
    fails("is no index", "search", home / "encoder", "balin")
    fails("batch 1 is not possible", "baseline", "dense", home / "corpus", "-o", home / "x", "--steps=1", "--batch=1")
    assert not (home / "x").exists()


def test_dense_fine_tuned(home: Path) -> None:
    arguments = ("--encoder", home / "encoder", "--steps", "2", "--batch", "8", "--cache", home / "cache")
    done = pixnar("baseline", "dense", home / "corpus", "-o", home / "dense", *arguments)
    assert done.returncode == 0, done.stderr
    assert "fine-tuning: step 2, dev MRR@10" in done.stdout
    assert len(open_retriever(home / "dense").search("balin", 7)) == 7
    assert len(json.loads(pixnar("search", home / "dense", "balin", "--json", "-").stdout)["hits"]) == 10


def test_hybrid_is_built_measured_and_searched(home: Path) -> None:
    shared = ("--encoder", home / "encoder", "--cache", home / "cache", "--over", "docids")
    done = pixnar("baseline", "hybrid", home / "corpus", "-o", home / "hybrid", *shared, "--json", home / "h.json")
    assert done.returncode == 0, done.stderr
    told = json.loads((home / "h.json").read_text())
    assert f"{home / 'hybrid'}: {told['sources']}" in done.stdout.splitlines()
    assert told["sources"].startswith("dense (docids, ")
    assert f"dev MRR@10 {told['facts']['dev']['MRR@10']:.4f} in sample, cross-validated" in done.stdout
    measured = pixnar("evaluate", home / "hybrid", home / "corpus", "--json", home / "e.json")
    assert measured.returncode == 0, measured.stderr
    figures = json.loads((home / "e.json").read_text())["figures"]
    assert figures["MRR@10"] == pytest.approx(told["facts"]["dev"]["MRR@10"])
    assert "is sound" in pixnar("verify", home / "hybrid").stdout
    sides = ("--bm25", home / "bm25", "--dense", home / "hybrid" / "dense")
    done = pixnar("baseline", "hybrid", home / "corpus", "-o", home / "rrf", "--fusion", "rrf", *sides)
    assert done.returncode == 0, done.stderr
    assert "reciprocal ranks (constant " in done.stdout
    assert len(json.loads(pixnar("search", home / "rrf", "balin", "--json", "-").stdout)["hits"]) == 10
    (home / "hybrid" / "sides.pixnar").write_bytes(b"x")
    fails("sides.pixnar has 1 bytes", "search", home / "hybrid", "balin")
    given = ("--dense", home / "dense", "--bm25", home / "bm25")
    for useless, reason in (
        (("--fusion", "rrf", "--weight", "0.3"), "weight is for the fusion weights"),
        (("--aggregate", "max", "--scale", "5"), "scale is for logsumexp"),
        (("--dense", home / "dense", "--encoder", home / "encoder"), "encoder is for a dense side that is built"),
        (("--dense", home / "dense", "--precision", "int8"), "precision is for a dense side that is built"),
        ((*given, "--over", "docids"), "over is for a side that is built"),
        (("--dense", home / "bm25"), "is a bm25 baseline"),
    ):
        fails(reason, "baseline", "hybrid", home / "corpus", "-o", home / "y", *useless)
    for change, reason in (
        (("--weight", "much"), "weight 'much' is not possible: give a number or auto"),
        (("--fusion", "sum"), "--fusion"),
    ):
        fails(reason, "baseline", "hybrid", home / "corpus", "-o", home / "y", *shared, *change)
    assert not (home / "y").exists()


def test_clover_differs_from_phrases_in_its_vocabulary(home: Path) -> None:
    """The composed score, solved rows and ranking: what pixnar fit takes, with word pieces."""
    changed = {
        (section, name)
        for section, values in to_dict(Recipe()).items()
        for name, value in values.items()
        if to_dict(CLOVER)[section][name] != value
    }
    fused = {("fuse", name) for name in ("dense", "text_vectors")}
    beside = {("lexical", "docids"), ("lexical", "text"), ("shortlist", "learn"), ("serve", "spelling"), *fused}
    assert changed == {("vocab", "kind"), ("model", "pieces"), ("scoring", "copy"), *beside}
    arguments = ("--steps", "4", "--encoder", home / "encoder", "--cache", home / "cache", "--set", "train.batch=16")
    done = pixnar("baseline", "clover", home / "corpus", "-o", home / "pieces", *arguments)
    assert done.returncode == 0, done.stderr
    index = Index.load(home / "pieces")
    assert index.ranker.scorer.rule.score == "composed"
    assert (index.manifest["facts"]["softmax"], index.manifest["facts"]["vocabulary_kind"]) == ("ranking", "wordpiece")
    assert index.ranker.scorer.rule.copy == 0.0
    dev = read_queries(open_corpus(home / "corpus"), "dev")
    found = [[hit.id for hit in row] for row in index.search_batch(dev.texts)]
    assert mrr_at(found, dev.relevant) > 0.3  # solved rows know the docids before any step; by chance 0.15


def test_clover_is_an_index_that_copies_nothing(home: Path) -> None:
    arguments = ("--losses", "l1", "--steps", "4", "--encoder", home / "encoder", "--cache", home / "cache")
    done = pixnar("baseline", "clover", home / "corpus", "-o", home / "clover", *arguments, "--set", "train.batch=16")
    assert done.returncode == 0, done.stderr
    index = Index.load(home / "clover")
    recipe = index.manifest["recipe"]
    assert (recipe["vocab"]["kind"], recipe["train"]["l2"], recipe["train"]["l3"]) == ("wordpiece", 0.0, 0.0)
    assert index.manifest["facts"]["vocabulary_kind"] != "phrase"
    assert (index.ranker.scorer.rule.copy, index.ranker.scorer.rule.order) == (0.0, "any")
    assert index.ranker.shortlist is None
    assert index.ranker.fusion is None
    assert isinstance(open_retriever(home / "clover"), Index)
    assert len(json.loads(pixnar("search", home / "clover", "balin", "--json", "-").stdout)["hits"]) == 10
