"""The demo's figures and explanations on a small corpus: real baselines, a real index."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from pixnar.corpus import Corpus, open_corpus
from pixnar.evaluation.baselines import describe
from pixnar.index import Index
from pixnar.pipeline import fit
from pixnar.recipe import Recipe, override
from pixnar.research import demo as figures
from pixnar.research.demo import MEASURES, Figures, build_baselines, why
from tests.helpers.fit_corpora import WORDS, settings, write_small
from tests.helpers.tiny_model import save_encoder
from tests.helpers.watching import watched

QUERIES = 10


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    write_small(folder / "corpus", 20, 3, splits=("train", "dev", "test"))
    encoder = save_encoder(folder / "encoder", texts=WORDS)
    recipe = override(Recipe(), settings(encoder, train__steps=2))
    fit(folder / "corpus", folder / "index", recipe, cache=folder / "cache", threads=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIXNAR_CACHE", str(folder / "cache"))
        build_baselines(folder, open_corpus(folder / "corpus"), str(encoder))
    return folder


def test_each_system_is_measured_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, bool]] = []
    monkeypatch.setattr(Corpus, "qrels", watched(Corpus.qrels, seen))
    corpus = open_corpus(home / "corpus")
    made = Figures(home, QUERIES)
    assert made.missing == made.systems
    made.measure(corpus)
    assert set(seen) == {("test", True)}  # by evaluate alone
    console = Console(width=100, file=open("/dev/null", "w"), record=True)  # noqa: SIM115
    console.print(made.table())
    shown = console.export_text().splitlines()
    assert shown[0].split() == [*MEASURES, "ms", "a", "query"]
    assert [line.split("  ")[0] for line in shown[1:]] == [system.name for system in made.systems]
    assert [system.folder.name for system in made.systems] == ["index", "index", "bm25", "dense", "hybrid", "rrf"]
    assert all("±" in line for line in shown[1:])
    sources = dict(line.split(": ", 1) for line in made.sources())
    assert sources["BM25"].startswith("BM25 (")
    assert sources["dense"].startswith(("dense (docids, ", "dense (text and docids, "))  # as dev selects
    assert "dense (" in sources["hybrid of both"]
    assert sources["rank fusion of both"].startswith("reciprocal ranks (constant ")
    assert sources["pixnar, docids alone"].startswith("docids (")
    rows = json.loads((home / "figures.json").read_text())
    assert all(row["queries"] == QUERIES and row["ms"] > 0 for row in rows.values())
    assert all(0 <= row["figures"][measure] <= 1 for row in rows.values() for measure in MEASURES)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("this was there")

    monkeypatch.setattr(figures, "evaluate", never)
    monkeypatch.setattr(figures, "build_bm25", never)
    monkeypatch.setattr(figures, "build_dense", never)
    monkeypatch.setattr(figures, "build_hybrid", never)
    again = Figures(home, QUERIES)
    assert not again.missing
    again.measure(corpus)
    build_baselines(home, corpus, "another encoder")
    assert again.rows == rows
    assert len(Figures(home, QUERIES + 1).missing) == 6  # other queries are other figures


def test_an_interrupted_measurement_goes_on(home: Path, tmp_path: Path) -> None:
    for name in ("index", *figures.BASELINES):
        (tmp_path / name).symlink_to(home / name)
    corpus = open_corpus(home / "corpus")

    class StoppedError(Exception):
        pass

    def stop(stage: str, done: int, total: int) -> None:
        if (tmp_path / "figures.json").exists():
            raise StoppedError

    with pytest.raises(StoppedError):
        Figures(tmp_path, QUERIES).measure(corpus, stop)
    kept = json.loads((tmp_path / "figures.json").read_text())
    assert len(kept) == 1
    rest = Figures(tmp_path, QUERIES)
    assert [system.name for system in rest.missing] == [system.name for system in rest.systems[1:]]
    rest.measure(corpus)
    assert json.loads((tmp_path / "figures.json").read_text()).items() >= kept.items()
    (tmp_path / "figures.json").write_text("half a fi")
    assert len(Figures(tmp_path, QUERIES).missing) == 6


def test_a_row_says_its_sources_weights_and_training(home: Path, tmp_path: Path) -> None:
    """Shares are those of the manifest's weights, which are of scores over their scales; step 0 is untrained."""
    (tmp_path / "index").symlink_to(home / "index")
    content = json.loads((home / "index" / "manifest.json").read_text())
    for best_step in (0, 2):
        fusion = {"weights": {"docids": 1.0, "lexical": 0.5, "dense": 2.0}, "scales": {"docids": 2.0, "lexical": 4.0}}
        rule = content["rule"] | {"aggregate": 3, "copy": 0.25}
        changed = {"facts": content["facts"] | {"best_step": best_step}, "fusion": fusion, "rule": rule}
        other = tmp_path / f"index{best_step}"
        shutil.copytree(home / "index", other)
        (other / "manifest.json").write_text(json.dumps(content | changed))
        said, _, untrained = describe(other).partition("; ")
        assert said == (
            "29% docids (log-sum-exp of the best 3, copy 0.25) + 14% lexical BM25 of words and phrases + 57% dense"
        )
        assert untrained == ("" if best_step else "untrained: the best step on dev is step 0")
    assert describe(home / "index", "docids").startswith("docids (")


def test_older_baselines_are_built_again(home: Path, tmp_path: Path) -> None:
    for name in figures.BASELINES:
        shutil.copytree(home / name, tmp_path / name)
    older = json.loads((tmp_path / "bm25" / "manifest.json").read_text()) | {"version": 1}
    (tmp_path / "bm25" / "manifest.json").write_text(json.dumps(older))
    before = (tmp_path / "dense" / "manifest.json").stat().st_ino
    build_baselines(tmp_path, open_corpus(home / "corpus"), str(home / "encoder"))
    assert figures.is_built(tmp_path / "bm25")
    assert (tmp_path / "dense" / "manifest.json").stat().st_ino == before


@pytest.mark.parametrize("sources", ["all", "docids"])
def test_what_sources_add_is_the_score(home: Path, sources: str) -> None:
    index = Index.load(home / "index", sources=sources)
    hit = index.explain("balin demor rovek", 1)["hits"][0]
    named, *ranked = why(index, hit)
    assert named.startswith("named by [")
    assert all(f"[{token} " in named for token, _ in hit["docids"][0]["tokens"])
    if index.ranker.fusion is None:
        assert not ranked
    else:
        added = sum(float(part.split()[-1]) for part in ranked[0].split(" + "))
        assert added == pytest.approx(hit["score"], abs=0.051 * len(index.ranker.fusion.weights))
