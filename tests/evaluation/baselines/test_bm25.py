"""BM25 by bm25s, against our own and by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("bm25s")

from pixnar.base.errors import CorpusError, FileFormatError, MissingExtraError, PixnarError
from pixnar.corpus import open_corpus
from pixnar.evaluation.baselines import Bm25Retriever, build_bm25, describe, open_retriever, verify
from pixnar.evaluation.baselines.bm25 import B_GRID, K1_GRID
from pixnar.evaluation.baselines.entries import Entries
from pixnar.evaluation.measures import mrr_at
from pixnar.evaluation.queries import read_queries
from pixnar.fusion import Bm25
from tests.helpers.fit_corpora import WORDS, write_small

FORMS = ("docids", "joined", "text", "both")
QUERIES = [f"{one} {other}, {one.upper()}" for one, other in zip(WORDS, WORDS[5:], strict=False)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("bm25") / "corpus"
    write_small(where)
    return where


@pytest.mark.parametrize("over", FORMS)
def test_scores_are_those_of_our_own(corpus: Path, over: str) -> None:
    made = Bm25Retriever.build(open_corpus(corpus), over, k1=1.2, b=0.6)
    entries, texts = Entries.read(open_corpus(corpus), over)
    own = Bm25.build(texts, k1=1.2, b=0.6)
    found_some = 0
    for query in [*QUERIES, "title", "title text some", "zebra", "", "?"]:
        scores = own.score(query)
        rows = np.flatnonzero(scores > 0)
        wanted = {hit.id: hit.score for hit in entries.ranked(rows, scores[rows], 1000)}
        hits = made.search(query, 1000)
        assert {hit.id: hit.score for hit in hits} == pytest.approx(wanted, rel=1e-4)
        assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.id))
        assert made.search(query, 7) == hits[:7]
        assert all((hit.docid != "") == (over == "docids") for hit in hits)
        found_some += len(hits)
    assert found_some > 50
    assert made.search_batch(QUERIES, 3) == [made.search(query, 3) for query in QUERIES]


def test_dev_selects_k1_and_b(tmp_path: Path) -> None:
    """Every pair of the grid is built by the library, asked, and measured; the one chosen is among the best."""
    chance = np.random.default_rng(0)
    write_small(tmp_path / "corpus")
    rows = [json.loads(line) for line in (tmp_path / "corpus" / "docids.jsonl").read_text().splitlines()]
    for row in rows:  # of very different lengths, with repeats
        row["docid"] += " " + " ".join(chance.choice(WORDS, chance.integers(0, 12)).tolist())
    (tmp_path / "corpus" / "docids.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = open_corpus(tmp_path / "corpus")
    dev = read_queries(source, "dev")
    figures = {}
    for k1 in K1_GRID:
        for b in B_GRID:
            found = Bm25Retriever.build(source, "joined", k1=k1, b=b).search_batch(dev.texts)
            figures[k1, b] = mrr_at([[hit.id for hit in row] for row in found], dev.relevant)
    assert len(set(figures.values())) > 5
    chosen = Bm25Retriever.build(source, "joined", dev=dev)
    assert figures[chosen.k1, chosen.b] == pytest.approx(max(figures.values()))
    assert chosen.figures["MRR@10"] == pytest.approx(max(figures.values()))
    fixed = Bm25Retriever.build(source, "joined", k1=2.0, dev=dev)
    row = {pair: value for pair, value in figures.items() if pair[0] == 2.0}
    assert (fixed.k1, row[fixed.k1, fixed.b]) == (2.0, pytest.approx(max(row.values())))
    plain = Bm25Retriever.build(source, "joined")
    assert (plain.k1, plain.b, plain.figures) == (1.5, 0.75, {})


def test_words_are_those_of_an_index(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text("".join(f'{{"_id": "{i}", "title": "", "text": ""}}\n' for i in "abc"))
    docids = {"a": "print_all c", "b": "vitamin C", "c": "Überraschung 漢字"}
    (tmp_path / "docids.jsonl").write_text(
        "".join(json.dumps({"_id": a, "docid": b}) + "\n" for a, b in docids.items())
    )
    made = Bm25Retriever.build(open_corpus(tmp_path))
    for query, wanted in (("all", "a"), ("c", "ab"), ("überraschung", "c"), ("字", "c"), ("print_all", "a")):
        assert sorted(hit.id for hit in made.search(query)) == list(wanted)


def test_a_docid_may_name_several_documents(corpus: Path) -> None:
    row = json.loads((corpus / "docids.jsonl").read_text().splitlines()[0])
    hits = Bm25Retriever.build(open_corpus(corpus)).search(row["docid"].upper(), 5)
    assert [(hit.id, hit.docid) for hit in hits[:2]] == [("d00", row["docid"]), ("d01", row["docid"])]
    assert hits[0].score == hits[1].score > hits[2].score


def test_as_deep_as_it_takes(tmp_path: Path) -> None:
    """One document has a hundred docids that match better than the only one of each other document."""
    (tmp_path / "corpus.jsonl").write_text(
        "".join(f'{{"_id": "{i:02}", "title": "", "text": ""}}\n' for i in range(12))
    )
    rows = [("00", f"tea tea w{i}") for i in range(300)] + [
        (f"{i:02}", f"a long text on tea v{i}") for i in range(1, 12)
    ]
    (tmp_path / "docids.jsonl").write_text("".join(json.dumps({"_id": a, "docid": b}) + "\n" for a, b in rows))
    made = Bm25Retriever.build(open_corpus(tmp_path))
    assert [hit.id for hit in made.search("tea", 5)] == ["00", "01", "02", "03", "04"]
    assert len(made.search("tea", 100)) == 12
    assert made.search("tea", 0) == []


def test_saved_and_opened(corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    facts = build_bm25(corpus, folder, k1=0.9, b=0.75)
    assert (facts["documents"], facts["entries"], facts["dev"]["queries"]) == (50, 200, 50)
    assert describe(folder) == "BM25 (docids, k1 0.9, b 0.75)"
    assert not [path for path in tmp_path.iterdir() if path != folder]
    opened = open_retriever(folder)
    built = Bm25Retriever.build(open_corpus(corpus), k1=0.9)
    assert opened.search_batch(QUERIES) == built.search_batch(QUERIES)
    assert verify(folder) == len([path for path in folder.rglob("*") if path.is_file()]) - 1
    with pytest.raises(PixnarError, match="holds a baseline"):
        build_bm25(corpus, folder)
    build_bm25(corpus, folder, over="text", overwrite=True)
    assert [hit.id for hit in open_retriever(folder).search("title text", 2)] == ["d00", "d01"]
    assert list(tmp_path.iterdir()) == [folder]


def test_damage_is_told_in_one_line(corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    build_bm25(corpus, folder)
    names = [path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json"]
    assert len(names) >= 5
    for path in names:
        whole = path.read_bytes()
        path.unlink()
        _refused(folder, f"{path} is missing")
        path.write_bytes(whole[:-1])
        _refused(folder, f"{len(whole) - 1} bytes")
        damaged = bytearray(whole)
        damaged[len(whole) // 2] ^= 0x55
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError, match="checksum"):
            verify(folder)
        message = ""
        try:
            open_retriever(folder).search_batch(QUERIES)
        except FileFormatError as error:
            message = str(error)  # or the damage changes a score, or a word that nobody asks for
        assert "\n" not in message
        path.write_bytes(whole)
    for change, reason in (
        ({"kind": "magic"}, "'magic', unknown here"),
        ({"version": 9}, "upgrade"),
        ({"files": {"entries.pixnar": 3}}, "says no size"),
        ({"format": "other"}, "not the manifest of an index"),
    ):
        content = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps(content | change))
        _refused(folder, reason)
        (folder / "manifest.json").write_text(json.dumps(content))
    verify(folder)


def _refused(folder: Path, reason: str) -> None:
    with pytest.raises(FileFormatError) as caught:
        open_retriever(folder)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_wrong(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PixnarError, match="b 2 are not possible"):
        Bm25Retriever.build(open_corpus(corpus), b=2)
    (tmp_path / "file").write_text("")
    with pytest.raises(PixnarError, match="is a file"):
        build_bm25(corpus, tmp_path / "file")
    with pytest.raises(PixnarError, match="not empty and no baseline"):
        build_bm25(corpus, tmp_path, overwrite=True)
    with pytest.raises(FileFormatError, match="is no index"):
        open_retriever(tmp_path)
    with pytest.raises(PixnarError, match="over 'x'"):
        build_bm25(corpus, tmp_path / "made", over="x")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    with pytest.raises(TypeError, match="list of queries"):
        Bm25Retriever.build(open_corpus(corpus)).search_batch("tea")
    odd = tmp_path / "odd"
    odd.mkdir()
    (odd / "corpus.jsonl").write_text('{"_id": "d", "title": "", "text": "a ?"}\n')
    (odd / "docids.jsonl").write_text('{"_id": "d", "docid": "!?"}\n')
    with pytest.raises(CorpusError, match="has no words to index"):
        Bm25Retriever.build(open_corpus(odd))
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(MissingExtraError, match=r"pixnar\[baselines\]"):
        Bm25Retriever.build(open_corpus(corpus))


def test_auto_takes_what_a_corpus_has(tmp_path: Path) -> None:
    rows = [{"_id": one, "title": "", "text": f"green tea {one}"} for one in ("ab", "cd")]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    build_bm25(tmp_path, tmp_path / "text", over="auto")
    assert describe(tmp_path / "text") == "BM25 (text, k1 1.5, b 0.75)"
    (tmp_path / "docids.jsonl").write_text('{"_id": "ab", "docid": "?"}\n')  # no word: docids and joined are left out
    build_bm25(tmp_path, tmp_path / "both", over="auto")
    assert describe(tmp_path / "both") == "BM25 (text and docids, k1 1.5, b 0.75)"
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "cd"}\n')
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq\tcd\t1\n")
    facts = build_bm25(tmp_path, tmp_path / "dev", over="auto")
    assert describe(tmp_path / "dev") == "BM25 (text and docids, k1 1.5, b 0.75)"  # equals go to the defaults
    assert facts["dev"] == {"queries": 1, "MRR@10": 1.0}


def test_the_form_is_chosen_with_its_settings(corpus: Path, tmp_path: Path) -> None:
    alone = [build_bm25(corpus, tmp_path / form, over=form)["dev"]["MRR@10"] for form in FORMS]
    found = build_bm25(corpus, tmp_path / "auto", over="auto")["dev"]
    assert found["MRR@10"] == max(alone)
    assert found["MRR@10 cross-validated"] <= found["MRR@10"]
