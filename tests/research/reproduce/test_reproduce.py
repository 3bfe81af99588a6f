"""The paper's tables on a small corpus: real models, real baselines, every file looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pixnar.base.errors import PixnarError
from pixnar.corpus import Corpus, DocidRow, Document, Qrel, open_corpus, write_corpus
from pixnar.corpus import Query as CorpusQuery
from pixnar.evaluation.measures import mrr_at
from pixnar.evaluation.queries import read_queries
from pixnar.index import Index
from pixnar.research.reproduce import TABLES, StudyPlan, reproduce, study
from pixnar.research.reproduce.study import Judged, Study
from pixnar.research.reproduce.systems import FUSED, UNFUSED, as_keywords
from pixnar.research.reproduce.tokens import ByMethod
from pixnar.research.reproduce.vocabularies import COMPOSED, PHRASES, PIECES, SHARED, SLOTS
from pixnar.research.softmax import Full
from pixnar.search.ranker import PreparedQuery
from tests.helpers.fit_corpora import WORDS, write_small
from tests.helpers.tiny_model import save_encoder
from tests.helpers.watching import watched
from tests.test_cli import fails, pixnar

SETTINGS = (
    "model.hidden=32", "vocab.min_count=2", "train.batch=32", "train.warmup=2", "shortlist.minutes=0.01",
    "scoring.tune_queries=10", "train.dev_queries=10",
)  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    write_small(folder / "small", 40, 4, splits=("train", "dev", "test"))
    save_encoder(folder / "encoder", texts=WORDS)
    return folder


def plan(home: Path, **changes: object) -> StudyPlan:
    made = {"steps": 4, "queries": 30, "timed": 4, "size": 1024, "threads": 1}
    return StudyPlan(
        corpus=str(home / "small"), out=home / "out", encoder=str(home / "encoder"), cache=home / "cache",
        settings=SETTINGS, **(made | changes),  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.fixture(scope="module")
def asked(home: Path) -> list[tuple[str, bool]]:
    """All tables, made once; which splits were read, and whether `evaluate` did it."""
    seen: list[tuple[str, bool]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Corpus, "qrels", watched(Corpus.qrels, seen))
        reproduce(list(TABLES), plan(home, split="test"), say=lambda _: None)
    return seen


def test_every_table_is_written(home: Path, asked: list[tuple[str, bool]]) -> None:
    for name in TABLES:
        text = (home / "out" / f"{name}.md").read_text()
        told = json.loads((home / "out" / f"{name}.json").read_text())
        assert text.startswith("# ")
        assert "split test" in text
        assert "every model of ours trained for 4 steps" in text
        assert told["study"]["steps"] == 4
        assert told["environment"]["commit"]
        assert told["grids"][0]["rows"], name
        assert (home / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_test_is_read_by_evaluate_alone(asked: list[tuple[str, bool]]) -> None:
    assert {split for split, _ in asked} == {"train", "dev", "test"}
    assert all(inside for split, inside in asked if split == "test")
    assert not any(inside for split, inside in asked if split == "dev")  # dev is for choosing


def test_rows_say_what_an_index_says(home: Path, asked: list[tuple[str, bool]]) -> None:
    grid = json.loads((home / "out" / "table1.json").read_text())
    rows = {row[0]: row for row in grid["grids"][0]["rows"]}
    assert {"BM25, docids joined", "dense, fine-tuned", "CLOVERv2", "CLOVERv2, l1 only"} <= set(rows)
    assert {"hybrid", "hybrid, rank fusion", "hybrid, fine-tuned dense", "dense, text and docids"} <= set(rows)
    ranks_by = {label: row[-1] for label, row in rows.items()}
    assert all(label.startswith(("CLOVER", "PIXNAR")) or "(" in ranks_by[label] for label in rows)
    assert ranks_by["hybrid"].startswith("dense (text and docids, ")
    assert "reciprocal ranks (constant " in ranks_by["hybrid, rank fusion"]
    assert any(word in ranks_by["hybrid, fine-tuned dense"] for word in ("fine-tuned, step", "untrained: the best"))
    assert grid["data"]["hybrid"]["ranks by"] == ranks_by["hybrid"]
    made = sorted((home / "out" / "work" / "indexes").glob("pixnar-*"))
    by_score = {Index.load(folder).ranker.scorer.rule.score: folder for folder in made}
    pieces = [Index.load(path) for path in (home / "out" / "work" / "indexes").glob("cloverv2-*")]
    assert {index.ranker.scorer.rule.score for index in pieces} == {"composed", "probability"}
    assert len(made) == len(by_score) == 1  # our recipe
    whole = by_score["composed"]
    corpus = open_corpus(home / "small")
    queries = read_queries(corpus, "test", 30)
    for label, sources in ((FUSED, "all"), (UNFUSED, "lexical")):
        index = Index.load(whole, sources=sources)
        found = [[hit.id for hit in hits] for hits in index.search_batch(queries.texts, 10)]
        mrr = mrr_at(found, queries.relevant, 10)
        assert grid["data"][label]["figures"]["MRR@10"] == pytest.approx(mrr, abs=1e-9)
    kinds = json.loads((home / "out" / "table2.json").read_text())["data"]
    assert list(kinds) == ["word-pieces (CLOVERv2)", "BPE", "Unigram", "phrases"]
    assert {row["facts"]["steps"] for row in kinds.values()} == {4}
    sizes = json.loads((home / "out" / "table3.json").read_text())["data"]
    smallest, largest, _ = (sizes[name]["facts"] for name in sizes)
    assert smallest["vocabulary"] < largest["vocabulary"]
    assert smallest["tokens_per_docid"] > largest["tokens_per_docid"]


def test_phrases_and_word_pieces_differ_in_the_vocabulary_alone(home: Path, asked: list[tuple[str, bool]]) -> None:
    told = json.loads((home / "out" / "phrases.json").read_text())["data"]
    assert [(label, row["p"] is None) for label, row in told.items()] == [
        (f"{PIECES}, {SLOTS}", True), (f"{PHRASES}, {SLOTS}", False),
        (f"{PIECES}, {COMPOSED}", True), (f"{PHRASES}, {COMPOSED}", False), (f"{SHARED}, {COMPOSED}", False),
    ]  # fmt: skip
    queries = read_queries(open_corpus(home / "small"), "test", 30)
    reached = {}
    recipes = {}
    for folder in (home / "out" / "work" / "indexes").glob("*"):
        index = Index.load(folder)
        recipe, rule = index.manifest["recipe"], index.manifest["rule"]
        if index.manifest["corpus"].endswith("keywords") or recipe["shortlist"]["learn"]:
            continue
        if recipe["scoring"]["order"] == "slots":
            assert rule["order"] == "slots"
            assert (recipe["model"]["head"], recipe["train"]["ranking"]) == ("solved", 0.0)
            found = [[hit.id for hit in hits] for hits in index.search_batch(queries.texts, 10)]
            reached[recipe["vocab"]["kind"]] = mrr_at(found, queries.relevant, 10)
            recipes[recipe["vocab"]["kind"]] = recipe
    for vocabulary, kind in ((PIECES, "wordpiece"), (PHRASES, "phrase")):
        assert told[f"{vocabulary}, {SLOTS}"]["figures"]["MRR@10"] == pytest.approx(reached[kind], abs=1e-9)
    assert {name for name in recipes["phrase"] if recipes["phrase"][name] != recipes["wordpiece"][name]} == {"vocab"}
    judged = [path.stem.rpartition("-")[2] for path in (home / "out" / "work" / "judged").glob("*.json")]
    assert len(set(judged)) == len(judged)  # asked once, whatever tables call it
    pieces, phrases = (told[f"{name}, {COMPOSED}"]["cost"] for name in (PIECES, PHRASES))
    assert pieces["tokens_per_docid"] > phrases["tokens_per_docid"]
    assert pieces["postings"] > phrases["postings"] > 0
    assert all(row["cost"]["decode_ms"] > 0 and row["cost"]["row_bytes"] > 0 for row in told.values())


def test_methods_get_no_ngrams_unless_asked_for(home: Path, asked: list[tuple[str, bool]]) -> None:
    """Table 4 has no safety net by default: what a method does not find is not scored."""
    told = json.loads((home / "out" / "table4.json").read_text())["data"]
    assert not told["own_ngrams"]
    assert told["rule"]["copy"] == 0.0
    assert [method["p"]["MRR@10"] is None for method in told["methods"].values()] == [True] + [False] * 6
    (folder,) = [
        one for one in (home / "out" / "work" / "indexes").glob("phrases-1024-*")
        if Index.load(one).manifest["recipe"]["shortlist"]["learn"]
    ]  # fmt: skip
    index = Index.load(folder, sources="docids")
    query = next(one for one in index.queries(list(WORDS)) if len(one.own))
    found = {own: _named(ByMethod(index, _Nothing(), own_ngrams=own), query) for own in (False, True)}
    assert found[False] == set()
    assert found[True]
    assert found[True] <= set(query.own.tolist())
    every = ByMethod(index, Full(index.rows), best=index.rows.count, own_ngrams=False)
    expected = index.ranker.with_scorer(
        index.ranker.scorer.with_rule(index.ranker.scorer.rule.with_(copy=0.0, order="any", normalize=False))
    ).without_shortlist()
    texts = read_queries(open_corpus(home / "small"), "dev", 10).texts
    for text, hits in zip(texts, every.search_batch(texts, 5), strict=True):
        (one,) = index.queries([text])
        best = expected.decode(expected.scored(one._replace(tokens=None)), 5)
        assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in best], rel=1e-4)


class _Nothing:
    """A method that finds no token."""

    name = "nothing"

    def top(self, x: Any, n: int, threads: int = 1) -> Any:
        return [(np.zeros(0, np.uint32), np.zeros(0, np.float32)) for _ in range(x.shape[1] - 1)]

    def nbytes(self) -> int:
        return 0

    def scored(self, x: Any) -> float:
        return 0.0


def _named(method: ByMethod, query: PreparedQuery) -> set[int]:
    return set(method._slot_scores(query).tokens.tolist())


def test_nothing_is_made_twice(home: Path, asked: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("this was there")

    before = json.loads((home / "out" / "table3.json").read_text())
    monkeypatch.setattr(study, "fit", never)
    monkeypatch.setattr(study, "evaluate", never)
    reproduce(["table2", "table3", "examples", "sponsored"], plan(home, split="test"), say=lambda _: None)
    after = json.loads((home / "out" / "table3.json").read_text())
    assert after["data"] == before["data"]
    with pytest.raises(AssertionError, match="was there"):
        reproduce(["table3"], plan(home, split="dev"), say=lambda _: None)  # other queries are other figures


def test_minutes_give_steps_to_all(home: Path, tmp_path: Path) -> None:
    wish = StudyPlan(**{**plan(home).__dict__, "out": tmp_path, "steps": 0, "minutes": 0.02})
    said: list[str] = []
    one = Study(wish, say=said.append)
    pieces, phrases = one.word_pieces(), one.phrases(600)
    steps = [Index.load(path).manifest["facts"]["steps"] for path in (pieces, phrases)]
    assert steps[0] == steps[1] == one.steps > 0
    assert said[0] == "small: CLOVERv2 (model 1 of 1)"


def test_what_is_kept_belongs_to_the_files_as_they_are(tmp_path: Path) -> None:
    write_small(tmp_path / "small", 10, 2)
    wish = StudyPlan(corpus=str(tmp_path / "small"), out=tmp_path / "out")
    first, again = (Study(wish).key("a model", ["settings"]) for _ in range(2))
    assert first == again
    assert first.startswith("a-model-")
    with open(tmp_path / "small" / "docids.jsonl", "a") as file:
        file.write('{"_id": "d00", "docid": "one more"}\n')
    assert Study(wish).key("a model", ["settings"]) != first
    assert Study(wish).key("a model", ["other settings"]) != Study(wish).key("a model", ["settings"])


def test_keywords(home: Path) -> None:
    corpus = open_corpus(home / "small")
    view = as_keywords(corpus)
    texts = {row.doc_id: row.docid for row in view.docids()}
    assert len(texts) == len(set(texts.values())) == len(list(view.documents()))
    named: dict[str, set[str]] = {}
    for row in corpus.docids():
        named.setdefault(row.doc_id, set()).add(row.docid.lower())
    wanted: dict[str, set[str]] = {}
    for judged in view.qrels("dev"):
        wanted.setdefault(judged.query_id.removeprefix("query-"), set()).add(texts[judged.doc_id])
    assert wanted == {row.query_id: named[row.doc_id] for row in corpus.qrels("dev")}
    asked = {row.query_id: row.text for row in view.queries()}
    for judged in view.qrels("train"):
        if judged.query_id.startswith("keyword-"):
            one, other = asked[judged.query_id], texts[judged.doc_id]
            assert one != other
            assert any({one, other} <= texts for texts in named.values())


def test_figures_know_how_sure_they_are() -> None:
    good = Judged("good", {"MRR@10": 1.0}, {"MRR@10": [1.0] * 30})
    bad = Judged("bad", {"MRR@10": 0.5}, {"MRR@10": [0.5] * 30})
    assert good.p_value(bad, "MRR@10") < 0.001
    assert good.interval("MRR@10") == (1.0, 1.0)
    with pytest.raises(PixnarError, match="other queries"):
        good.p_value(Judged("other", {}, {"MRR@10": [0.5] * 30}, ["q1"]), "MRR@10")


@pytest.mark.parametrize("setting", ["train.steps=3", "vocab.size=600", "scoring.score=composed", "model.encoder=x"])
def test_what_tables_are_about_is_not_set(home: Path, tmp_path: Path, setting: str) -> None:
    with pytest.raises(PixnarError, match="is what tables are about"):
        Study(StudyPlan(corpus=str(home / "small"), out=tmp_path / "x", settings=(setting,)))
    assert not (tmp_path / "x").exists()


def test_without_text_or_pairs(home: Path, tmp_path: Path) -> None:
    """No text, no train queries, one docid a document: the rows that cannot be are left out, the others are there."""
    documents = [Document(f"d{i}", "", "", {}) for i in range(30)]
    docids = [DocidRow(f"d{i}", f"{WORDS[i]} costs $5 \\frac{{ {WORDS[i + 30]}") for i in range(30)]
    queries = [CorpusQuery(f"q{i}", f"{WORDS[i]} $x$") for i in range(30)]
    write_corpus(tmp_path / "bare", documents, docids, queries, {"dev": [Qrel(f"q{i}", f"d{i}", 1) for i in range(30)]})
    said: list[str] = []
    wish = StudyPlan(**{**plan(home).__dict__, "corpus": str(tmp_path / "bare"), "out": tmp_path / "out"})
    reproduce(["table1", "examples"], wish, say=said.append)
    text = (tmp_path / "out" / "table1.md").read_text()
    assert "| BM25, docids, best |" in text
    assert "BM25, text |" not in text
    assert "Reported on dev" in text
    assert any("nothing to index" in line for line in said)
    assert any("no dense, fine-tuned" in line for line in said)
    assert "- No BM25, text: " in text
    assert "- No dense, fine-tuned: " in text
    assert (tmp_path / "out" / "examples.png").exists()


def test_without_fine_tuning(home: Path, asked: list[tuple[str, bool]]) -> None:
    """The other rows stay as they were, and the table says what is left out."""
    before = json.loads((home / "out" / "table1.json").read_text())["data"]
    try:
        reproduce(["table1"], plan(home, split="test", tuned=False), say=lambda _: None)
        after = json.loads((home / "out" / "table1.json").read_text())
    finally:
        reproduce(["table1"], plan(home, split="test"), say=lambda _: None)
    assert {*before} - {*after["data"]} == {"dense, fine-tuned", "hybrid, fine-tuned dense"}
    assert all(row["figures"] == before[label]["figures"] for label, row in after["data"].items())
    assert "No dense, fine-tuned: --no-tuned." in after["notes"]


def test_the_command(home: Path, asked: list[tuple[str, bool]], tmp_path: Path) -> None:
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    common = [home / "small", "-o", home / "out", "--steps", "4", "--queries", "30", "--timed", "4", "--size", "1024"]
    common += ["--encoder", home / "encoder", "--cache", home / "cache", "--threads", "1", "--split", "test", *settings]
    done = pixnar("reproduce", "table2,examples", *map(str, common))
    assert done.returncode == 0, done.stderr
    assert "| phrases |" in done.stdout
    fails("no table is named", "reproduce", ",", home / "small", "-o", tmp_path / "x")
    fails("is no table", "reproduce", "table9", home / "small", "-o", tmp_path / "x")
    assert not (tmp_path / "x").exists()
    fails("no split 'other'", "reproduce", "table2", home / "small", "-o", tmp_path / "x", "--split", "other")
    write_small(tmp_path / "bare", 10, 2, splits=("train",))
    fails("has no dev split", "reproduce", "table2", tmp_path / "bare", "-o", tmp_path / "x", "--split", "train")
