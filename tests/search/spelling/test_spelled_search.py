"""Correction in every way to search an index: library, explanation, live changes, command line, baselines."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.corpus import open_corpus
from pixnar.corpus.queries import Perturbation
from pixnar.evaluation import evaluate
from pixnar.evaluation.baselines import build_bm25
from pixnar.evaluation.queries import read_queries
from pixnar.index import Index
from pixnar.index.files import LEXICON
from pixnar.index.manifest import write_manifest
from pixnar.pipeline import fit
from pixnar.pipeline.sources import decide
from pixnar.recipe import Recipe, override
from pixnar.search.spelling import Corrected, Lexicon, Speller
from pixnar.search.types import SearchOptions
from pixnar.serve.handlers import Job, answers
from pixnar.vocab import normalize
from tests.helpers.fit_corpora import WORDS, settings, write_small
from tests.helpers.tiny_model import save_encoder
from tests.test_cli import fails, pixnar

TYPED, MEANT = "Balni  rovvek!", "balin rovek!"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`index` corrects queries, `plain` is of the same corpus and has no lexicon."""
    folder = tmp_path_factory.mktemp("spelled")
    write_small(folder / "corpus", 20, 3)
    encoder = save_encoder(folder / "encoder", texts=WORDS)
    for name, spelling in (("index", "on"), ("plain", "off")):
        wish = settings(encoder, train__steps=1, scoring__tune=False, serve__spelling=spelling)
        report = fit(folder / "corpus", folder / name, override(Recipe(), wish), cache=folder / "cache", threads=1)
        (folder / f"{name}.json").write_text(json.dumps(report.facts.get("spelling")))
    return folder


@pytest.fixture
def index(home: Path) -> Index:
    return Index.load(home / "index", threads=1)


def test_what_fit_writes_and_measures(home: Path, index: Index) -> None:
    facts = json.loads((home / "index.json").read_text())
    assert facts["on"] is True
    assert facts["words"] == len(Lexicon.load(home / "index" / LEXICON))
    figures = facts["dev_mrr10_in_sample"]
    assert figures.keys() == {"clean", "one_typo"}
    dev = read_queries(open_corpus(home / "corpus"), "dev")
    for name, spelling in (("without", False), ("with", True)):
        index.searcher.corrects = spelling
        for asked, perturbation in (("clean", None), ("one_typo", Perturbation(typos=1))):
            found = evaluate(index, str(home / "corpus"), "dev", measures=["MRR@10"], perturbation=perturbation)
            assert figures[asked][name] == pytest.approx(found.figures["MRR@10"], abs=0.05)  # rows in other precision
    assert len(dev) == 20
    assert json.loads((home / "index" / "manifest.json").read_text())["spelling"] is True
    assert json.loads((home / "plain" / "manifest.json").read_text())["spelling"] is False
    assert not (home / "plain" / LEXICON).exists()
    assert json.loads((home / "plain.json").read_text()) is None


def test_rare_words_are_left_out_until_clean_queries_keep_their_rank(home: Path, index: Index) -> None:
    dev = read_queries(open_corpus(home / "corpus"), "dev")
    said: list[str] = []
    right = {word for text in dev.texts for word in text.split()}

    def decided(setting: str, frequency: int) -> dict[str, Any]:
        wrong = Lexicon.of(
            {f"{word}q": frequency for word in right} | {"zebra": 99}
        )  # each known word is one edit away
        return decide(setting, index.ranker, index.encoder, wrong, dev, said.append)

    rare = decided("auto", 4)
    assert (rare["on"], rare["least"]) == (True, 5)
    assert rare["dev_mrr10_in_sample"]["clean"]["with"] == rare["dev_mrr10_in_sample"]["clean"]["without"]
    frequent = decided("auto", 40)
    assert (frequent["on"], frequent["least"]) == (False, 1)
    assert frequent["dev_mrr10_in_sample"]["clean"]["with"] < frequent["dev_mrr10_in_sample"]["clean"]["without"]
    assert decided("on", 40)["on"]
    assert "corrected to those that occur 5 times or more" in said[0]


def test_an_index_corrects_to_words_as_frequent_as_fit_found(home: Path, tmp_path: Path) -> None:
    Index.load(home / "index").save(tmp_path / "index")
    content = json.loads((tmp_path / "index/manifest.json").read_text())
    assert content["spelling_least"] == json.loads((home / "index.json").read_text())["least"]
    write_manifest(tmp_path / "index", content | {"spelling_least": 10_000})
    assert Index.load(tmp_path / "index").asked(TYPED) == normalize(TYPED)


def test_a_search_corrects_unless_told_otherwise(home: Path, index: Index) -> None:
    assert index.asked(TYPED) == MEANT
    assert index.asked(TYPED, False) == "balni rovvek!"
    assert index.search(TYPED, 5) == index.search(TYPED, 5, spelling=True) == index.search(MEANT, 5)
    assert index.search(TYPED, 5, spelling=False) != index.search(MEANT, 5)
    both = index.search_batch([TYPED, "fizon"], 5)
    assert [[hit.id for hit in hits] for hits in both] == [
        [hit.id for hit in index.search(text, 5)] for text in (MEANT, "fizon")
    ]
    assert index.generate(TYPED, 3) == index.generate(MEANT, 3)
    assert index.search(TYPED, 5, beam=4) == index.search(MEANT, 5, beam=4)
    one = index.queries([TYPED, MEANT])
    assert [(query.text, query.original) for query in one] == [(MEANT, "balni rovvek!"), (MEANT, "")]


def test_an_explanation_tells_what_was_corrected(index: Index) -> None:
    told = index.explain(TYPED, 3)
    assert (told["query"], told["corrected_from"]) == (MEANT, "balni rovvek!")
    assert told["microseconds"]["spelling"] > 0
    assert [hit["doc_id"] for hit in told["hits"]] == [hit.id for hit in index.search(MEANT, 3)]
    told = index.explain(TYPED, 3, spelling=False)
    assert (told["query"], told["corrected_from"]) == ("balni rovvek!", None)


def test_words_of_added_docids_are_known_at_once(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "index", tmp_path / "index")
    for sources in ("all", "docids"):
        index = Index.load(tmp_path / "index", sources=sources, threads=1)
        assert index.asked("balinx") == "balin"
        index.table.add("d03", ["Balinx Quuzle"])
        assert index.asked("balinx quulze") == "balinx quuzle"
        assert index.search("balinx quulze", 1)[0].id == "d03"
        assert Index.load(tmp_path / "index", threads=1).asked("quuzl") == "quuzle"
        index.table.compact()
        assert index.asked("quuzl") == Index.load(tmp_path / "index", threads=1).asked("quuzl") == "quuzle"
        index.table.change(remove_docids=[index.table.encode("balinx quuzle")])
        assert index.asked("balinx quulze") == "balin quulze"


def test_an_index_without_a_lexicon(home: Path, tmp_path: Path) -> None:
    plain = Index.load(home / "plain", threads=1)
    assert plain.asked(TYPED) == plain.asked(TYPED, False) == "balni rovvek!"
    with pytest.raises(PixnarError, match=f"has no {LEXICON}, so spelling cannot be corrected"):
        plain.search(TYPED, spelling=True)
    fails(f"has no {LEXICON}", "search", home / "plain", TYPED, "--spelling")
    done = answers(plain, [Job(TYPED, SearchOptions(k=3, spelling=True)), Job(TYPED, SearchOptions(k=3))])
    assert isinstance(done[0], PixnarError)
    assert isinstance(done[1], bytes)
    shutil.copytree(home / "index", tmp_path / "index")
    (tmp_path / "index" / LEXICON).unlink()
    with pytest.raises(FileFormatError, match=rf"{LEXICON} is missing"):
        Index.load(tmp_path / "index")


def test_the_search_command(home: Path, index: Index) -> None:
    done = pixnar("search", home / "index", TYPED, "-k", "2")
    first = done.stdout.splitlines()[0]
    assert first == f"searching for: {MEANT} (instead of: {TYPED}; --no-spelling searches as typed)"
    told = json.loads(pixnar("search", home / "index", TYPED, "-k", "2", "--json", "-").stdout)
    assert told == {
        "query": TYPED,
        "corrected": MEANT,
        "hits": [{**hit.facts(), "title": hit.title} for hit in index.search(MEANT, 2)],
    }
    told = json.loads(pixnar("search", home / "index", TYPED, "-k", "2", "--json", "-", "--no-spelling").stdout)
    assert told["corrected"] is None
    assert told["hits"] == [{**hit.facts(), "title": hit.title} for hit in index.search(TYPED, 2, spelling=False)]
    assert f"corrected from: {'balni rovvek!'}" in pixnar("search", home / "index", TYPED, "--explain").stdout


def test_every_retriever_can_be_measured_with_correction(home: Path, tmp_path: Path) -> None:
    build_bm25(open_corpus(home / "corpus"), tmp_path / "bm25")
    figures = {}
    for folder in (tmp_path / "bm25", home / "plain", home / "index"):
        for option in ("--spelling", "--no-spelling"):
            out = tmp_path / f"{folder.name}{option}.json"
            done = pixnar("evaluate", folder, home / "corpus", "--typos", "1", option, "--json", out)
            assert done.returncode == 0, done.stderr
            content = json.loads(out.read_text())
            assert content["spelling"] is (option == "--spelling")
            figures[folder.name, option] = content["figures"]["MRR@10"]
    assert figures["bm25", "--spelling"] > figures["bm25", "--no-spelling"]
    for name in ("plain", "index"):  # the same lexicon, made of the corpus or shipped
        assert figures[name, "--spelling"] != figures[name, "--no-spelling"]
    assert figures["plain", "--spelling"] == figures["index", "--spelling"]
    fails("is a baseline, and --spelling is for an index", "search", tmp_path / "bm25", TYPED, "--spelling")


def test_a_retriever_behind_a_speller(home: Path, index: Index) -> None:
    index.searcher.corrects = False
    corrected = Corrected(index, Speller(Lexicon.of({"balin": 3, "rovek": 1})))
    assert corrected.search(TYPED, 4) == index.search(MEANT, 4)
    assert corrected.search_batch([TYPED], 4) == index.search_batch([MEANT], 4)
