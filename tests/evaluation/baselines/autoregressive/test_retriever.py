"""The rows end to end on a small corpus: each docid finds its document, and a folder is the same when opened again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.corpus import DocidRow, Document, Qrel, Query, open_corpus, write_corpus
from pixnar.evaluation.baselines import describe, open_retriever, verify
from pixnar.evaluation.baselines.autoregressive.beam import sequence_log_p
from pixnar.evaluation.baselines.autoregressive.build import build_autoregressive
from pixnar.evaluation.baselines.autoregressive.gather import Key
from pixnar.evaluation.baselines.autoregressive.ids import FIRST
from pixnar.evaluation.baselines.autoregressive.pairs import BODY
from pixnar.evaluation.baselines.autoregressive.retriever import (
    BOOSTS,
    LENGTHS,
    NGRAM_ROWS,
    IdRetriever,
    NgramRetriever,
    RowSettings,
    load_autoregressive,
)
from pixnar.evaluation.baselines.autoregressive.training import Learning
from pixnar.evaluation.queries import read_queries
from tests.helpers.fit_corpora import WORDS
from tests.helpers.tiny_model import save_encoder

DOCUMENTS, DOCIDS = 20, 3
LEARNING = Learning(pairs=32 * 250, batch=32, warmup=10, learning_rate=4e-3, encoder_learning_rate=1e-3, checks=1)
SHORT = replace(LEARNING, pairs=64)
ROWS = (*NGRAM_ROWS, "dsi")


def write_topics(folder: Path) -> None:
    """Documents of three words of their own, which every docid has in another order; titles and text are of these."""
    documents, rows, queries, qrels = [], [], [], []
    for i in range(DOCUMENTS):
        a, b, c = WORDS[3 * i : 3 * i + 3]
        rows += [DocidRow(f"d{i:02}", text) for text in (f"{a} {b} {c}", f"{b} {c} {a}", f"{c} {a} {b} {a}")]
        documents.append(Document(f"d{i:02}", f"{c} {b} {a}", f"{b} {a} {b} {a} {c} {b} {c}", {}))
        queries.append(Query(f"q{i}", f"{b} {a}"))
        qrels.append(Qrel(f"q{i}", f"d{i:02}", 1))
    write_corpus(folder, documents, rows, queries, {"dev": qrels})


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for every row: minder is trained, the others take its model; dsi is trained on its own."""
    where = tmp_path_factory.mktemp("rows")
    write_topics(where / "corpus")
    save_encoder(where / "encoder", texts=[" ".join(WORDS)])
    build(where, "minder")
    for row in NGRAM_ROWS:
        if row != "minder":
            build(where, row, learning=None, model=where / "minder")
    build(where, "dsi")
    return where


def build(home: Path, row: str, name: str = "", **changes: Any) -> dict[str, Any]:
    settings = changes.pop("settings", RowSettings(row=row, beam=6))
    options = {"learning": LEARNING, "encoder": home / "encoder", **changes}
    return build_autoregressive(home / "corpus", home / (name or row), settings, **options)


def docids(home: Path) -> list[tuple[str, str]]:
    rows = [json.loads(line) for line in (home / "corpus" / "docids.jsonl").read_text().splitlines()]
    return [(row["docid"], row["_id"]) for row in rows]


@pytest.mark.parametrize("row", ROWS)
def test_each_docid_finds_its_own_document_first(home: Path, row: str) -> None:
    retriever = open_retriever(home / row, threads=1)
    texts, wanted = zip(*docids(home), strict=True)
    assert len(texts) == DOCUMENTS * DOCIDS
    assert [hits[0].id for hits in retriever.search_batch(texts, 3)] == list(wanted)


@pytest.mark.parametrize("row", ROWS)
def test_hits_are_ordered_and_none_comes_twice(home: Path, row: str) -> None:
    retriever = open_retriever(home / row, threads=1)
    texts = [f"{WORDS[0]} {WORDS[3]}", "Ελληνικά 中文", "x" * 500, docids(home)[7][0].upper()]
    batch = retriever.search_batch(texts, 5)
    assert batch == [retriever.search(text, 5) for text in texts]
    for hits in batch:
        assert len(hits) <= 5
        assert len({hit.id for hit in hits}) == len(hits)
        assert all(one.score >= other.score for one, other in pairwise(hits))
    assert batch[3][0].id == docids(home)[7][1]  # case is of no matter
    for text in texts[:1]:
        assert retriever.search(text, 2) == retriever.search(text, 5)[:2]
    assert retriever.search("", 5) == retriever.search(" \t", 5) == retriever.search(texts[0], 0) == []
    with pytest.raises(TypeError, match="takes a list of queries"):
        retriever.search_batch("one query")


def test_an_ngram_row_says_what_led_to_a_document(home: Path) -> None:
    for row in NGRAM_ROWS:
        hit = open_retriever(home / row, threads=1).search(docids(home)[4][0])[0]
        own = set(" ".join(text for text, doc_id in docids(home) if doc_id == hit.id).split())
        assert hit.docid
        assert set(hit.docid.split()) <= own


def test_settings_are_those_of_dev_and_the_description_names_them(home: Path) -> None:
    dev = read_queries(open_corpus(home / "corpus"), "dev")
    for row in ROWS:
        content = json.loads((home / row / "manifest.json").read_text())
        figures, settings = content["facts"]["dev"], content["options"]["settings"]
        retriever = open_retriever(home / row, threads=1)
        found = [[hit.id for hit in hits] for hits in retriever.search_batch(dev.texts)]
        ranks = [
            1 / (1 + hits.index(next(iter(wanted)))) if wanted & set(hits) else 0.0
            for hits, wanted in zip(found, dev.relevant, strict=True)
        ]
        assert figures["MRR@10"] == pytest.approx(np.mean(ranks))
        assert figures["queries"] == DOCUMENTS
        assert ("MRR@10 cross-validated" in figures) == (row in ("seal-lm", "minder"))
        said = describe(home / row)
        assert "no generative pre-training" in said
        assert f"beam {settings['beam']}" in said
        if row == "seal-lm":
            assert settings["length"] in LENGTHS
            assert f"n-grams of {settings['length']}" in said
        if row == "minder":
            assert settings["boost"] in BOOSTS
        assert f"best of {LEARNING.pairs:,} training pairs" in said
        assert json.loads((home / row / "curve.json").read_text())[-1]["pairs"] == LEARNING.pairs
        assert (home / row / "curve.png").stat().st_size > 1000


def test_a_choice_on_dev_is_the_best_of_its_options(home: Path) -> None:
    dev = read_queries(open_corpus(home / "corpus"), "dev")
    retriever = open_retriever(home / "minder", threads=1)
    assert isinstance(retriever, NgramRetriever)
    figures = retriever.choose(dev)
    values = []
    for value in BOOSTS:
        retriever.settings = replace(retriever.settings, boost=value)
        alone = [retriever._ranks(*pair, [retriever.settings])[0] for pair in zip(dev.texts, dev.relevant, strict=True)]
        values.append(float(np.mean(alone)))
    assert figures["MRR@10"] == pytest.approx(max(values))


def test_minder_without_docids_is_seal(home: Path) -> None:
    minder, seal = (open_retriever(home / row, threads=1) for row in ("minder", "seal"))
    assert isinstance(minder, NgramRetriever)
    assert isinstance(seal, NgramRetriever)
    text = docids(home)[10][0]
    generated = minder.generate(text)
    assert generated.query
    alone = minder.scored(generated._replace(query=[]), minder.settings)[1]
    wanted = seal.scored(seal.generate(text), seal.settings)[1]
    assert alone.documents.tolist() == wanted.documents.tolist()
    assert alone.scores.tolist() == wanted.scores.tolist()
    boosted = minder.scored(generated, replace(minder.settings, boost=14.0))[1]
    assert boosted.scores.tolist() != minder.scored(generated, replace(minder.settings, boost=0.0))[1].scores.tolist()


def test_all_keys_occur_and_are_scored_by_teacher_forcing(home: Path) -> None:
    seal = open_retriever(home / "seal", threads=1)
    assert isinstance(seal, NgramRetriever)
    text = docids(home)[3][0]
    generated, decoder = seal.generate(text), seal.model.decoders(text, [BODY])[0]
    assert all(seal.index.count(key.tokens) for key in (*generated.body, *generated.title))
    assert all(min(key.tokens) >= seal.pieces.first for key in generated.body)
    forced = sequence_log_p(decoder, [key.tokens for key in generated.body])
    assert [key.log_p for key in generated.body] == pytest.approx(forced, abs=1e-3)
    keys = {seal.spelled(key.tokens) for key in generated.body}
    words = text.split()
    assert {*words, " ".join(words[:2]), text} <= keys  # the query's own n-grams, whatever the beam kept
    zebra = {seal.spelled(key.tokens) for key in seal.generate(f"{words[0]} zebra").body}
    assert words[0] in zebra
    assert not any("zebra" in key for key in zebra)
    assert all(isinstance(key, Key) for key in generated.title)


def test_ids_that_do_not_exist_are_dropped(home: Path) -> None:
    dsi = open_retriever(home / "dsi", threads=1)
    assert isinstance(dsi, IdRetriever)
    hits = dsi.search(docids(home)[0][0], 100)
    assert 1 <= len(hits) <= dsi.settings.beam
    few = IdRetriever(dsi.model, dsi.doc_ids, type(dsi.ids).of([[FIRST, FIRST]], end=1), dsi.settings)
    assert len(few.search(docids(home)[0][0], 100)) <= 1


@pytest.mark.parametrize("row", ["minder", "dsi"])
def test_the_same_seed_and_pairs_give_the_same_ranking(home: Path, row: str, tmp_path: Path) -> None:
    texts = [text for text, _ in docids(home)[:5]]
    hits = []
    for name in ("one", "two"):
        build(home, row, f"{row}-{name}", learning=SHORT)
        hits.append(open_retriever(home / f"{row}-{name}", threads=1).search_batch(texts))
    assert hits[0] == hits[1]
    build(home, row, f"{row}-three", learning=replace(SHORT, seed=1))
    assert open_retriever(home / f"{row}-three", threads=1).search_batch(texts) != hits[0]
    assert not list(home.glob(".*"))


@pytest.mark.parametrize("row", ["minder", "dsi"])
def test_another_process_finds_the_same(home: Path, row: str) -> None:
    text = docids(home)[5][0]
    code = (
        "import json; from pixnar.evaluation.baselines import open_retriever\n"
        f"found = open_retriever({str(home / row)!r}, threads=1).search({text!r})\n"
        "print(json.dumps([(hit.id, hit.docid) for hit in found]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    hits = open_retriever(home / row, threads=1).search(text)
    assert json.loads(done.stdout) == [[hit.id, hit.docid] for hit in hits]


def test_semantic_ids(home: Path) -> None:
    facts = build(home, "dsi", "semantic", ids="semantic", learning=SHORT)
    assert facts["documents"] == DOCUMENTS
    assert "semantic ids" in describe(home / "semantic")
    retriever = open_retriever(home / "semantic", threads=1)
    assert isinstance(retriever, IdRetriever)
    assert len(retriever.model.embeddings) == FIRST + 100
    with pytest.raises(PixnarError, match="ids 'atomic' are not possible"):
        build(home, "dsi", "x", ids="atomic")


def test_damage_is_found(home: Path, tmp_path: Path) -> None:
    assert verify(home / "seal") > 5
    build(home, "seal", "damaged", learning=None, model=home / "minder")
    weights = home / "damaged" / "model" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.write_bytes(content)
    with pytest.raises(FileFormatError, match="does not match its checksum"):
        open_retriever(home / "damaged")
    with pytest.raises(FileFormatError, match="checksum"):
        verify(home / "damaged")
    (home / "damaged" / "ngrams.pixnar").unlink()
    with pytest.raises(FileFormatError, match=r"ngrams\.pixnar"):
        open_retriever(home / "damaged")
    seal = open_retriever(home / "seal")
    assert isinstance(seal, NgramRetriever)
    with pytest.raises(FileFormatError, match="do not fit together"):
        NgramRetriever(seal.model, ["d00"], seal.index, seal.settings)
    with pytest.raises(PixnarError, match="row 'ance' is not possible"):
        load_autoregressive(home / "seal", {"row": "ance"})


def test_what_is_wrong_leaves_nothing(home: Path, tmp_path: Path) -> None:
    write_topics(tmp_path / "other")
    (tmp_path / "other" / "docids.jsonl").write_text('{"_id": "d00", "docid": "balin"}\n')
    given: dict[str, Any] = {"encoder": home / "encoder"}
    for corpus, row, options, reason in (
        ("corpus", "seal", {}, "give minutes or pairs to train for"),
        ("corpus", "seal", {"learning": SHORT, "model": home / "minder"}, "and not both"),
        ("corpus", "dsi", {"model": home / "minder"}, "model is for seal-lm"),
        ("corpus", "seal", {"model": home / "dsi"}, "is a dsi baseline: give one of seal-lm"),
        ("corpus", "seal", {"model": home / "minder", "over": "docids"}, "is over both: give --over both"),
        ("corpus", "seal", {"model": home / "encoder"}, "manifest"),
        ("corpus", "minder", {"learning": SHORT, "over": "text"}, "over text is not possible for minder"),
        ("corpus", "seal", {"learning": SHORT, "over": "titles"}, "over 'titles' is not possible"),
        ("corpus", "seal", {"learning": replace(SHORT, batch=0)}, "batch 0 is not possible"),
        (tmp_path / "other", "seal", {"model": home / "minder"}, "was trained on another corpus"),
    ):
        with pytest.raises(PixnarError, match=reason):
            build_autoregressive(home / corpus, tmp_path / "x", RowSettings(row=row), **{**given, **options})
    with pytest.raises(PixnarError, match="beam 0"):
        build(home, "seal", settings=RowSettings(row="seal", beam=0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other"]
