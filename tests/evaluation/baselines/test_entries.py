"""From entries to documents: the best entry counts, equals by id, and as deep as it takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixnar.base.errors import CorpusError, FileFormatError, PixnarError
from pixnar.base.storage import write_container
from pixnar.corpus import open_corpus
from pixnar.evaluation.baselines.entries import Entries, ScoredEntries
from pixnar.search import Hit

NAMED = st.lists(st.sets(st.sampled_from("abcdef"), min_size=1), min_size=1, max_size=60)


def slow(entries: Entries, scores: list[float], k: int) -> list[Hit]:
    best: dict[str, tuple[float, int]] = {}
    for row in sorted(range(len(scores)), key=lambda row: (-scores[row], row)):
        for document in entries.documents[entries.offsets[row] : entries.offsets[row + 1]]:
            best.setdefault(entries.doc_ids[document], (scores[row], row))
    order = sorted(best, key=lambda doc_id: (-best[doc_id][0], doc_id))
    return [Hit(doc_id, best[doc_id][0], f"t{best[doc_id][1]}") for doc_id in order[:k]]


@given(NAMED, st.data(), st.integers(1, 8))
def test_documents_by_their_best_entry(named: list[set[str]], data: st.DataObject, k: int) -> None:
    entries = Entries.of([f"t{i}" for i in range(len(named))], named)
    few = st.integers(0, 3).map(float)  # many ties
    scores = np.array(data.draw(st.lists(few, min_size=len(named), max_size=len(named))), np.float32)
    asked: list[int] = []

    def find(depth: int) -> ScoredEntries:
        asked.append(depth)
        depth = min(depth, len(scores))
        rows = np.flatnonzero(scores >= np.sort(scores)[-depth])
        return ScoredEntries(rows, scores[rows], depth == len(scores))

    assert entries.best(k, find) == slow(entries, scores.tolist(), k)
    assert asked == sorted(asked)
    assert entries.ranked(np.arange(len(scores)), scores, k) == slow(entries, scores.tolist(), k)


def test_files(tmp_path: Path) -> None:
    entries = Entries.of(["a", "b c", ""], [{"d2", "d1"}, {"d1"}, {"é"}], ["A", "B  c", "\ud800"])
    entries.save(tmp_path)
    again = Entries.load(tmp_path)
    rows, scores = np.arange(3), np.array([1, 3, 2], np.float32)
    wanted = [Hit("d1", 3.0, "B  c"), Hit("é", 2.0, "\ud800"), Hit("d2", 1.0, "A")]
    assert entries.ranked(rows, scores, 5) == again.ranked(rows, scores, 5) == wanted
    good = {"offsets": entries.offsets, "documents": entries.documents}
    for change, meta, reason in (
        ({"documents": entries.documents + 7}, {"spelled": False, "entries": 3}, "does not fit"),
        ({"offsets": entries.offsets + 1}, {"spelled": False, "entries": 3}, "does not fit"),
        ({}, {"spelled": False, "entries": 2}, "does not fit"),
        ({}, {"entries": 3}, "does not say 'spelled'"),
        ({}, {"spelled": True, "entries": 3}, "blocks is not there"),
    ):
        write_container(tmp_path / "entries.pixnar", "entries", 1, meta, good | change)
        with pytest.raises(FileFormatError, match=reason):
            Entries.load(tmp_path)


def test_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text(
        '{"_id": "d1", "title": "Tea", "text": "hot"}\n{"_id": "d2", "title": "", "text": ""}\n'
        '{"_id": "d3", "title": "Milk", "text": ""}\n'
    )
    (tmp_path / "docids.jsonl").write_text(
        '{"_id": "d2", "docid": "A Cup"}\n{"_id": "d1", "docid": "a  cup"}\n{"_id": "d1", "docid": "leaves"}\n'
    )
    corpus = open_corpus(tmp_path)
    entries, texts = Entries.read(corpus, "docids")
    assert (texts, list(entries.doc_ids), entries.spellings) == (["a cup", "leaves"], ["d1", "d2"], ["A Cup", "leaves"])
    assert (entries.offsets.tolist(), entries.documents.tolist()) == ([0, 2, 3], [0, 1, 0])
    for over, wanted in (
        ("joined", {"d1": "a cup leaves", "d2": "a cup"}),
        ("text", {"d1": "tea hot", "d3": "milk"}),
        ("both", {"d1": "tea hot a cup leaves", "d2": "a cup", "d3": "milk"}),
    ):
        entries, texts = Entries.read(corpus, over)
        assert dict(zip(entries.doc_ids, texts, strict=True)) == wanted
        assert entries.ranked(np.arange(1), np.ones(1, np.float32), 1) == [Hit("d1", 1.0, "")]
    with pytest.raises(PixnarError, match="over 'titles' is not possible"):
        Entries.read(corpus, "titles")
    (tmp_path / "docids.jsonl").write_text("")
    for over in ("docids", "joined"):
        with pytest.raises(CorpusError, match=r"no docids|nothing to index"):
            Entries.read(open_corpus(tmp_path), over)
