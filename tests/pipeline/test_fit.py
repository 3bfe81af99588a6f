from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pixnar.base.errors import PixnarError
from pixnar.base.storage import read_container
from pixnar.corpus import DocidRow, Document, write_corpus
from pixnar.fusion.vectors import DocidVectors
from pixnar.index import Index
from pixnar.model.nar import Nar
from pixnar.pipeline import FitReport, fit
from pixnar.pipeline.context import start_rule
from pixnar.pipeline.run import default_cache
from pixnar.pipeline.tune import docid_mrr, with_rule
from pixnar.recipe import PAPER, Recipe, override
from pixnar.scoring import PAPER_RULE, ScoreRule
from pixnar.search.types import SearchOptions
from pixnar.vocab import normalize
from tests.helpers.fit_corpora import WORDS, settings, write_small
from tests.helpers.tiny_model import save_encoder

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_encoder(tmp_path_factory.mktemp("encoder"), texts=WORDS)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve documents with three docids each."""
    folder = tmp_path_factory.mktemp("small") / "corpus"
    write_small(folder, 12, 3)
    return folder


def made(corpus: Path, output: Path, wish: list[str], **how: Any) -> FitReport:
    return fit(corpus, output, override(Recipe(), wish), cache=output.parent / "cache", threads=1, **how)


def own_docids(names: dict[str, set[str]]) -> tuple[list[str], list[set[str]]]:
    """Docids as queries, and the documents they name."""
    wanted: dict[str, set[str]] = {}
    for text, documents in names.items():
        wanted.setdefault(normalize(text), set()).update(documents)
    return list(wanted), list(wanted.values())


@pytest.mark.parametrize("score", ["composed", "probability"])
def test_the_model_memorises(tmp_path: Path, encoder: Path, score: str) -> None:
    """From nothing: a random encoder, random phrase vectors. Every docid finds its document, with no other help."""
    names = write_small(tmp_path / "corpus", 50, 4)
    wish = settings(
        encoder,
        model__head="random",
        model__hidden=256,
        train__batch=100,
        train__learning_rate=0.005,
        train__head_learning_rate=0.02,
        train__self_share=1.0,
        train__passages=0,
        train__dev_queries=0,
        train__evaluate_every=1000,
        scoring__score=score,
        scoring__tune=False,
        scoring__copy=0.0,
        lexical__docids=False,
        lexical__text=False,
        fuse__dense=False,
        fuse__text_vectors=0,
        shortlist__learn=False,
    )
    texts, relevant = own_docids(names)
    assert len(texts) == 200
    figures = {}
    for steps in (1, 200):
        folder = tmp_path / f"index{steps}"
        still = ["train.learning_rate=1e-9", "train.head_learning_rate=1e-9"] if steps == 1 else []
        made(tmp_path / "corpus", folder, [*wish, f"train.steps={steps}", *still])
        index = Index.load(folder)
        assert index.ranker.scorer.rule.copy == 0
        assert index.ranker.fusion is None
        assert index.ranker.shortlist is None
        queries = index.queries(texts)
        figures[steps] = docid_mrr(index.ranker, queries, relevant)
    assert figures[1] < 0.5
    assert figures[200] == 1.0
    rule = index.ranker.scorer.rule
    for order in ("any", "slots"):  # what the other slots have learned
        other = with_rule(index.ranker, rule.with_(order=order))
        assert docid_mrr(other, queries, relevant) > 0.95
    found = index.ranker.search(queries, SearchOptions(k=1))
    assert all(rows[0][0] in wanted for rows, wanted in zip(found, relevant, strict=True))


def test_a_whole_fit(tmp_path: Path, corpus: Path, encoder: Path) -> None:
    said: list[str] = []
    seen: list[tuple[str, int, int | None]] = []
    report = made(
        corpus,
        tmp_path / "index",
        settings(encoder),
        say=said.append,
        progress=lambda stage, done, total: seen.append((stage, done, total)),
    )
    assert report.facts.items() >= {"documents": 12, "docids": 36, "steps": 6, "softmax": "ranking"}.items()
    assert report.dev.keys() == {"docids", "with lexical", "with fusion"}
    assert all(0 <= value <= 1 for figures in report.dev.values() for value in figures.values())
    assert not any("\n" in line for line in said)
    assert {stage.split(":")[0] for stage, _, _ in seen} >= {"encoding docids", "training (frozen encoder)"}
    assert not (tmp_path / "index" / "work").exists()
    assert (tmp_path / "index" / "training" / "log.jsonl").exists()
    index = Index.load(tmp_path / "index")
    assert index.verify() > 5
    assert index.manifest["dev"] == report.dev
    assert index.manifest["facts"] == json.loads(json.dumps(report.facts))
    assert len(index.search("balin", k=5)) == 5
    again = made(corpus, tmp_path / "again", settings(encoder), keep_work=True)
    assert again.dev == report.dev
    assert (tmp_path / "again" / "work").is_dir()
    assert ScoreRule.from_dict(Index.load(tmp_path / "again").manifest["rule"]) == index.ranker.scorer.rule
    same = ("model/model.safetensors", "priors", "vectors", "lexical", "head", "factors")
    for name in (name if "/" in name else f"{name}.pixnar" for name in same):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "index" / name).read_bytes(), name


@pytest.mark.parametrize(
    "changes",
    [
        {"model__slot_design": "mask", "model__head": "random", "train__steps": 2},
        {"train__fine_tune": 0.5, "train__steps": 4},
        {"vocab__kind": "bpe"},
        {"vocab__kind": "unigram"},
        {"vocab__kind": "wordpiece"},
        {"shortlist__learn": False, "train__dev_queries": 0, "scoring__tune": False},
        {"lexical__docids": False, "lexical__text": False, "lexical__expansion": 0, "scoring__order": "slots"},
        {
            "model__slots": 2,
            "scoring__score": "probability",
            "scoring__order": "slots",
            "scoring__floor": "strict",
            "scoring__ends": True,
        },
    ],
)
def test_recipes(tmp_path: Path, corpus: Path, encoder: Path, changes: dict[str, Any]) -> None:
    report = made(corpus, tmp_path / "index", settings(encoder, **changes))
    index = Index.load(tmp_path / "index")
    index.verify()
    assert report.facts["steps"] == changes.get("train__steps", 6)
    for texts in (["balin demor"], ["", "?!", "Balin"]):
        for hits in index.search_batch(texts, k=3):
            assert all(math.isfinite(hit.score) for hit in hits)
            assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    if changes.get("scoring__floor") != "strict":
        assert len(index.search("balin demor", k=3)) == 3


def test_the_recipe_of_the_paper(tmp_path: Path, corpus: Path, encoder: Path) -> None:
    wish = [f"model.encoder={encoder}", "vocab.size=600", "vocab.min_count=2", "train.steps=2", "train.minutes=0"]
    recipe = override(PAPER, [*wish, "train.batch=8", "train.accumulate=2", "shortlist.learn=false"])
    fit(corpus, tmp_path / "index", recipe, cache=tmp_path / "cache", threads=1)
    index = Index.load(tmp_path / "index")
    assert index.ranker.scorer.rule == PAPER_RULE
    assert index.ranker.fusion is None
    assert index.rows.bias is None
    assert len(index.search("balin demor", k=3)) == 3


def test_the_settings_of_the_recipe_reach_the_rule() -> None:
    assert start_rule(PAPER) == PAPER_RULE
    assert start_rule(Recipe()) == ScoreRule(score="composed", copy=0.2, length_norm=0.0)
    former = override(Recipe(), ["scoring.score=probability", "scoring.copy=0.3"])
    assert start_rule(former) == ScoreRule()
    raw = override(former, ["scoring.normalize=false", "scoring.scale=2.0", "scoring.order=slots", "scoring.ends=true"])
    assert start_rule(raw) == ScoreRule(normalize=False, scale=2.0, order="slots", ends=True)
    careful = override(former, ["scoring.prior_weight=0.0", "scoring.floor=strict"])
    assert start_rule(careful) == ScoreRule(prior_weight=0.0, floor="strict")


@pytest.mark.parametrize("changes", [{"train__fine_tune": 0.5}, {"model__slot_design": "mask"}])
def test_vectors_are_those_of_the_trained_encoder(
    tmp_path: Path, corpus: Path, encoder: Path, changes: dict[str, Any]
) -> None:
    """What queries are compared with must come from the encoder that reads them."""
    wish = settings(encoder, train__encoder_learning_rate=0.01, train__steps=4, train__dev_queries=0, **changes)
    made(corpus, tmp_path / "index", wish)
    model = Nar.from_pretrained(tmp_path / "index" / "model")
    vectors = DocidVectors.load(tmp_path / "index" / "vectors.pixnar")
    index = Index.load(tmp_path / "index")
    for unit, doc_id in enumerate(index.table.snapshot().doc_ids(range(4))):
        docid = next(tokens for tokens, named in index.table if named == [doc_id])
        _, pooled = model.query_vectors([normalize(index.table.spelling(docid) or "")])
        near = vectors.best(pooled[0], np.array([unit]))
        assert float(near[0]) > 0.99


def test_a_corpus_without_dev(tmp_path: Path, encoder: Path) -> None:
    write_small(tmp_path / "corpus", 8, 3, splits=())
    said: list[str] = []
    report = made(tmp_path / "corpus", tmp_path / "index", settings(encoder, fuse__margin=0.005), say=said.append)
    assert report.dev == {}
    assert report.facts["steps"] == 6
    assert any("no dev split" in line for line in said)
    index = Index.load(tmp_path / "index")
    index.verify()
    assert index.ranker.fusion is not None
    assert index.ranker.fusion.weights == {"docids": 1.0, "lexical": 1.0, "text": 0.5}
    assert not (tmp_path / "index" / "vectors.pixnar").exists()  # which no weight asks for
    assert index.ranker.fusion.scales.keys() == index.ranker.fusion.weights.keys()
    assert Index.load(tmp_path / "index", sources="lexical").ranker.fusion is not None
    assert Index.load(tmp_path / "index", sources="docids").ranker.fusion is None
    assert len(index.search("balin", k=20)) == 8
    alone = settings(encoder, lexical__docids=False, lexical__text=False, fuse__dense=False, fuse__text_vectors=0)
    made(tmp_path / "corpus", tmp_path / "alone", alone)
    assert Index.load(tmp_path / "alone").ranker.fusion is None


@pytest.mark.parametrize("margin", [0, 0.005, 1])
def test_what_is_shipped_is_what_dev_wants(tmp_path: Path, corpus: Path, encoder: Path, margin: float) -> None:
    said: list[str] = []
    report = made(corpus, tmp_path / "index", settings(encoder, fuse__margin=margin), say=said.append)
    index = Index.load(tmp_path / "index")
    index.verify()
    fusions = index.manifest["fusions"].values()
    weights = {name for fusion in fusions if fusion for name in fusion["weights"]}
    files = {"dense": "vectors.pixnar", "text": "text.pixnar"}
    shipped = {name for name, file in files.items() if (tmp_path / "index" / file).exists()}
    assert shipped == (files.keys() if margin == 0 else weights & files.keys())
    worth = report.facts.get("worth", {})
    assert worth.keys() == (files.keys() if margin else set())
    assert weights & files.keys() <= {name for name in files if worth.get(name, 1) >= margin}
    assert sum("cross-validated" in line for line in said) == 3 + len(worth)
    assert index.manifest["dev"] == report.dev
    assert all(fusion is None or "figures" not in fusion for fusion in fusions)  # none that flatter


def test_a_corpus_of_one_document(tmp_path: Path, encoder: Path) -> None:
    write_corpus(tmp_path / "corpus", [Document("d", "", "", {})], [DocidRow("d", "balin")], [], {})
    made(tmp_path / "corpus", tmp_path / "index", settings(encoder, train__negatives=2))
    assert [hit.id for hit in Index.load(tmp_path / "index").search("anything")] == ["d"]


def test_lists_are_counted_once_without_a_dev_split(
    tmp_path: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fit that stops after its choices makes the same ones when it resumes."""
    write_small(tmp_path / "corpus", 12, 3)
    shutil.rmtree(tmp_path / "corpus" / "qrels")
    recipe = settings(encoder, train__steps=2, shortlist__learn=True)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("pixnar.pipeline.run.ship", stop)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                made(tmp_path / "corpus", tmp_path / "broken", recipe)
    for name in ("broken", "whole"):
        made(tmp_path / "corpus", tmp_path / name, recipe)
    paths = [tmp_path / name / "shortlist.pixnar" for name in ("broken", "whole")]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert Index.load(tmp_path / "whole").ranker.shortlist is not None


def test_killed_and_started_again(tmp_path: Path, encoder: Path) -> None:
    """Killed with SIGKILL at every stage, a fit gives the index that it would have given otherwise."""
    write_small(tmp_path / "corpus", 12, 3)
    kinds: list[dict[str, Any]] = [{"shortlist__learn": True}, {"shortlist__learn": False, "train__fine_tune": 0.5}]
    wishes = [settings(encoder, train__steps=9, **kind) for kind in kinds]
    wishes[1].append("serve.keep_model=false")
    moments = [
        "work/fit.json",
        "docids",
        "work/solve/solved.pixnar",
        "work/training/log.jsonl:7",
        "priors.pixnar",
        "head.pixnar",
        "factors.pixnar",
        "encoder/encoder.json",
    ]
    command = [sys.executable, "-m", "tests.helpers.fit_kills", str(tmp_path), json.dumps(wishes), json.dumps(moments)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=250
    )
    assert done.returncode == 0, done.stderr
    for i in range(len(wishes)):
        whole, broken = Index.load(tmp_path / f"whole{i}"), Index.load(tmp_path / f"broken{i}")
        broken.verify()
        queries = ["balin demor", "bamor", "rovek fista"]
        assert broken.search_batch(queries) == whole.search_batch(queries)
        for part in ("rule", "fusion", "dev", "facts", "recipe"):
            assert broken.manifest[part] == whole.manifest[part]
        files = {
            name: facts["xxh3"]
            for name, facts in whole.manifest["files"].items()
            if not name.startswith(("training/", "docids/"))
        }
        assert {name: broken.manifest["files"][name]["xxh3"] for name in files} == files
        assert broken.manifest["files"].keys() == whole.manifest["files"].keys()
        assert not list((tmp_path / f"broken{i}").rglob("*.part*"))


def test_what_a_killed_fit_was_writing_is_not_shipped(tmp_path: Path, corpus: Path, encoder: Path) -> None:
    wish = settings(encoder, train__steps=1, shortlist__learn=False)
    index = tmp_path / "index"
    with pytest.raises(KeyboardInterrupt):
        made(corpus, index, wish, say=_interrupt_at("slots"))
    (index / ".head.pixnar.x.part").write_bytes(b"half")
    (index / "encoder" / ".x.part").mkdir(parents=True)
    (index / "encoder" / ".x.part" / "encoder.onnx").write_bytes(b"half")
    made(corpus, index, wish)
    assert not list(index.rglob("*.part*"))
    assert not [name for name in Index.load(index).manifest["files"] if ".part" in name]


def _interrupt_at(word: str) -> Callable[[str], None]:
    def say(line: str) -> None:
        if line.startswith(word):
            raise KeyboardInterrupt

    return say


def message_of(corpus: Path, output: Path, wish: list[str], **how: Any) -> str:
    with pytest.raises(PixnarError) as caught:
        made(corpus, output, wish, **how)
    assert "\n" not in str(caught.value)
    assert str(output) in str(caught.value)
    return str(caught.value)


def test_what_is_in_the_way(tmp_path: Path, corpus: Path, encoder: Path) -> None:
    wish = settings(encoder, train__steps=1, shortlist__learn=False)
    index = tmp_path / "index"
    made(corpus, index, wish)
    stamp = (index / "manifest.json").read_bytes()
    assert "finished index" in message_of(corpus, index, wish)
    assert "--overwrite" in message_of(corpus, index, [*wish, "train.steps=2"])
    assert (index / "manifest.json").read_bytes() == stamp
    made(corpus, index, [*wish, "train.steps=2"], overwrite=True)
    assert Index.load(index).manifest["recipe"]["train"]["steps"] == 2

    foreign = tmp_path / "photos"
    foreign.mkdir()
    (foreign / "cat.jpg").write_bytes(b"meow")
    assert "not empty" in message_of(corpus, foreign, wish)
    assert "would be lost" in message_of(corpus, foreign, wish, overwrite=True)
    assert [path.name for path in foreign.iterdir()] == ["cat.jpg"]

    empty = tmp_path / "empty"
    empty.mkdir()
    made(corpus, empty, wish)
    made(corpus, tmp_path / "new", wish, overwrite=True)  # nothing is there to be replaced
    file = tmp_path / "file"
    file.write_text("not a folder")
    message_of(corpus, file, wish)
    message_of(corpus, file, wish, overwrite=True)
    assert file.read_text() == "not a folder"


def test_another_recipe_does_not_go_on(tmp_path: Path, corpus: Path, encoder: Path) -> None:
    wish = settings(encoder, train__steps=1, shortlist__learn=False)
    index = tmp_path / "index"

    def stop(stage: str, _: int, __: int | None) -> None:
        if stage.startswith("training"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(corpus, index, wish, progress=stop)
    assert "another recipe.train.seed" in message_of(corpus, index, [*wish, "train.seed=1"])
    write_small(tmp_path / "other", 12, 3)
    assert "another corpus" in message_of(tmp_path / "other", index, wish)
    (index / "work" / "fit.json").write_text("{")
    assert "--overwrite" in message_of(corpus, index, wish)
    made(corpus, index, [*wish, "train.seed=1"], overwrite=True)
    Index.load(index).verify()


def test_what_failed_at_once_is_in_nobodys_way(tmp_path: Path, encoder: Path) -> None:
    """A bad row, an encoder that is not there: put right, the same command works, without --overwrite."""
    write_small(tmp_path / "corpus", 8, 2)
    docids = tmp_path / "corpus" / "docids.jsonl"
    right = docids.read_text()
    docids.write_text(right + '{"_id": "nobody", "docid": "of nobody"}\n')
    wish, index = settings(encoder, train__steps=1, shortlist__learn=False), tmp_path / "index"
    with pytest.raises(PixnarError, match="unknown document id 'nobody'"):
        made(tmp_path / "corpus", index, wish)
    assert not index.exists()
    docids.write_text(right)
    missing = [*wish, f"model.encoder={json.dumps(str(tmp_path / 'none'))}"]
    with pytest.raises(PixnarError, match="cannot load the encoder"):
        made(tmp_path / "corpus", index, missing)
    assert not index.exists()
    (index / "logs").mkdir(parents=True)
    (index / "data").symlink_to(tmp_path / "corpus")
    with pytest.raises(PixnarError, match="cannot load the encoder"):
        made(tmp_path / "corpus", index, missing)
    assert sorted(os.listdir(index)) == ["data", "logs"]  # somebody's
    (index / "data").unlink()
    made(tmp_path / "corpus", index, wish)
    Index.load(index).verify()


def test_where_vectors_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIXNAR_CACHE", str(tmp_path / "a"))
    assert default_cache() == tmp_path / "a"
    monkeypatch.delenv("PIXNAR_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert default_cache() == tmp_path / "b" / "pixnar"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache() == tmp_path / ".cache" / "pixnar"


def test_a_query_takes_as_many_lists_as_dev_needs(
    tmp_path: Path, corpus: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish = settings(encoder, train__steps=2, shortlist__learn=True, shortlist__m=6, shortlist__r=20, shortlist__k=0)
    monkeypatch.setattr(
        "pixnar.pipeline.choices._LIST_LOSS", 1.0
    )  # whatever it loses: the smallest number that is tried
    monkeypatch.setattr("pixnar.pipeline.choices._MOST_LISTED", 1.0)
    made(corpus, tmp_path / "few", wish)
    few = Index.load(tmp_path / "few").ranker.shortlist
    assert few is not None
    assert few.k == 1
    monkeypatch.setattr("pixnar.pipeline.choices.SHARES_OF_LISTS", (3, 4))  # of the one list that is 5 % of the tokens
    made(corpus, tmp_path / "more", wish)
    more = Index.load(tmp_path / "more").ranker.shortlist
    assert more is not None
    assert more.k == 3
    said: list[str] = []
    monkeypatch.setattr("pixnar.pipeline.choices._LIST_LOSS", -1.0)  # never good enough
    made(corpus, tmp_path / "none", wish, say=said.append)
    assert any("every token is scored" in line for line in said)
    whole = Index.load(tmp_path / "none")
    assert whole.ranker.shortlist is None
    assert whole.search("balin demor", k=3)


def test_word_pieces_only_for_the_score_that_knows_them(tmp_path: Path, corpus: Path, encoder: Path) -> None:
    """Training by token probabilities sees rows alone: what it is judged by must be the same rows."""
    wish = settings(encoder, scoring__score="probability", train__steps=1, shortlist__learn=False)
    made(corpus, tmp_path / "index", wish, keep_work=True)
    solved = read_container(tmp_path / "index/work/solve/solved.pixnar", "solvedrw", 1)
    assert len(solved.arrays["rows"])
    assert not len(solved.arrays["pieces"])
