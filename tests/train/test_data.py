from __future__ import annotations

from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
import pytest

from pixnar.base.errors import CorpusError
from pixnar.corpus import DocidRow, Document, Qrel, Query, open_corpus, write_corpus
from pixnar.model.losses import PADDING
from pixnar.train.data import TrainingData, default_slots, read_inputs
from pixnar.vocab import Vocabulary

DOCIDS = [
    ("b", "Green Tea"),
    ("a", "green  tea"),  # the same docid
    ("a", "black tea from ceylon"),
    ("c", "tea"),
    ("a", "black tea from ceylon"),  # the same row
    ("c", "green tea from ceylon, black tea from ceylon, tea"),
]
QUERIES = [("q1", "Hot  drink"), ("q2", "tea?"), ("q3", "hot drink"), ("q4", "secret dev"), ("q5", "unjudged")]
QRELS = {
    "train": [("q1", "a", 1), ("q2", "c", 1), ("q2", "a", 2), ("q3", "b", 1), ("q2", "b", 0)],
    "dev": [("q4", "a", 1)],
}


@pytest.fixture
def data(tmp_path: Path) -> TrainingData:
    write_corpus(
        tmp_path / "corpus",
        [Document(name, name, "", {}) for name in "abcd"],
        [DocidRow(*row) for row in DOCIDS],
        [Query(*row) for row in QUERIES],
        {split: [Qrel(*row) for row in rows] for split, rows in QRELS.items()},
    )
    texts = [text for _, text in DOCIDS] * 2
    return TrainingData.read(open_corpus(tmp_path / "corpus"), Vocabulary.build(texts, 600, min_count=2, threads=1))


def test_what_is_read(data: TrainingData) -> None:
    assert data.doc_ids == ["a", "b", "c"]  # d has no docid
    assert data.docids == [
        "black tea from ceylon",
        "green tea",
        "green tea from ceylon, black tea from ceylon, tea",
        "tea",
    ]
    pairs = list(zip(data.pair_docid.tolist(), data.pair_document.tolist(), strict=True))
    assert pairs == [(0, 0), (1, 0), (1, 1), (2, 2), (3, 2)]
    assert data.queries == ["hot drink", "tea?"]  # of train alone, equal texts once
    asked = list(zip(data.query_index.tolist(), data.query_document.tolist(), strict=True))
    assert asked == [(0, 0), (0, 1), (1, 0), (1, 2)]
    assert data.inputs == data.docids + data.queries
    inputs, documents = data.names()
    assert list(zip(inputs.tolist(), documents.tolist(), strict=True)) == [*pairs, (4, 0), (4, 1), (5, 0), (5, 2)]
    for i, text in enumerate(data.docids):
        assert data.vocabulary.decode(data.tokens.row(i)) == text


def test_targets(data: TrainingData) -> None:
    end, slots = len(data.vocabulary), 4
    longest = int(data.tokens.lengths.max())
    assert longest >= slots
    got = data.targets(np.arange(4), slots).tolist()
    for i, row in enumerate(got):
        tokens = data.tokens.row(i).tolist()
        assert row == ([*tokens, end] + [PADDING] * slots)[:slots]
    assert end not in got[2]  # cut: it does not end there
    exact = data.targets(np.array([2]), longest).tolist()[0]
    assert exact == data.tokens.row(2).tolist()  # no slot is left for its end
    assert data.targets(np.array([2]), longest + 1).tolist()[0] == [*exact, end]
    assert data.targets(np.zeros(0, np.int64), slots).shape == (0, slots)
    repeated = data.targets(np.array([3, 3, 1]), slots).tolist()
    assert repeated == [got[3], got[3], got[1]]


def test_rows(data: TrainingData) -> None:
    wanted = np.array([2, 0, 2])
    tokens, owner = data.rows(wanted, 3)
    for i, docid in enumerate(wanted):
        assert tokens[owner == i].tolist() == data.tokens.row(docid).tolist()[:3]
    assert data.rows(np.zeros(0, np.int64), 3)[0].size == 0


def test_counts(data: TrainingData) -> None:
    counts = data.token_counts()
    assert len(counts) == len(data.vocabulary) + 1
    assert counts[-1] == len(data.docids)
    assert counts[:-1].tolist() == np.bincount(data.tokens.ids, minlength=len(data.vocabulary)).tolist()
    assert counts[:-1].sum() == data.tokens.lengths.sum()


def test_ngrams_of_the_inputs(data: TrainingData) -> None:
    ngrams = data.ngrams
    assert data.ngrams is ngrams  # made once
    assert len(ngrams.offsets) == len(data.inputs) + 1
    for i, text in enumerate(data.inputs):
        own = set(ngrams.ids[ngrams.offsets[i] : ngrams.offsets[i + 1]].tolist())
        assert own
        assert set(data.vocabulary.encode(text).tolist()) <= own


def test_default_slots(data: TrainingData) -> None:
    assert default_slots(np.array([1] * 200 + [50])) == 2
    assert default_slots(np.array([1] * 20 + [7])) == 8
    assert default_slots(np.array([40] * 20)) == 32
    assert data.default_slots() == min(32, int(data.tokens.lengths.max()) + 1)


def test_no_train_split_and_no_docids(tmp_path: Path) -> None:
    documents = [Document("a", "a", "", {})]
    vocabulary = Vocabulary.build(["tea"] * 2, 600, min_count=2, threads=1)
    write_corpus(tmp_path / "x", documents, [DocidRow("a", "tea")], [], {})
    data = TrainingData.read(open_corpus(tmp_path / "x"), vocabulary)
    assert data.queries == []
    assert data.query_index.size == data.query_document.size == 0
    write_corpus(tmp_path / "y", documents, [], [], {})
    with pytest.raises(CorpusError, match=r"docids\.jsonl") as caught:
        TrainingData.read(open_corpus(tmp_path / "y"), vocabulary)
    assert "\n" not in str(caught.value)


def test_passages_of_the_text_are_inputs(tmp_path: Path) -> None:
    """Titles and sentences name their document, but for docids, what several documents say, and what is too much."""
    long = " ".join(f"Word{i}" for i in range(45))
    texts = {
        "a": "Brewed for three minutes. Shared by all! Green tea. One more. Too much.",
        "b": f"Shared by all. {long}",
        "c": "",
        "d": "Not a document that training knows.",
    }
    write_corpus(
        tmp_path / "corpus",
        [Document(name, f"Title {name}", text, {}) for name, text in texts.items()],
        [DocidRow(*row) for row in DOCIDS],
        [Query(*row) for row in QUERIES],
        {split: [Qrel(*row) for row in rows] for split, rows in QRELS.items()},
    )
    source = open_corpus(tmp_path / "corpus")
    plain, names = read_inputs(source), read_inputs(source, passages=4)
    by_document: dict[str, list[str]] = {}
    for i, document in zip(names.query_index.tolist(), names.query_document.tolist(), strict=True):
        if names.queries[i] not in plain.queries:
            by_document.setdefault(names.doc_ids[document], []).append(names.queries[i])
    parts = [" ".join(f"word{i}" for i in some) for some in (range(30), range(30, 45))]
    assert {name: sorted(found) for name, found in by_document.items()} == {
        "a": ["brewed for three minutes.", "green tea.", "shared by all!", "title a"],
        "b": ["shared by all.", "title b", *parts],
        "c": ["title c"],
    }
    assert set(plain.queries) < set(names.queries)
    assert names.queries == sorted(names.queries)
    again = {"a": "Said twice. Said once.", "b": "Said twice."}
    write_corpus(
        tmp_path / "again",
        [Document(name, "", text, {}) for name, text in again.items()],
        [DocidRow("a", "said once."), DocidRow("b", "x")],
        [],
        {},
    )
    assert read_inputs(open_corpus(tmp_path / "again"), passages=20).queries == []
    few = [Document(name, "", "A text of its own." * (name == "a"), {}) for name in "abc"]
    docids = [DocidRow(name, f"docid of {name}") for name in "abc"]
    write_corpus(tmp_path / "few", few, docids, [], {})
    assert read_inputs(open_corpus(tmp_path / "few"), passages=20).queries == []
    write_corpus(tmp_path / "half", few[:2], docids[:2], [], {})
    assert read_inputs(open_corpus(tmp_path / "half"), passages=20).queries == ["a text of its own."]


def test_docids_with_a_typo_are_inputs(tmp_path: Path) -> None:
    """A share of the docids, each one edit away, with the documents of the docid; never a docid that exists."""
    docids = [
        DocidRow(doc, f"green tea number {i}") for i in range(40) for doc in (("a", "b") if i % 4 == 0 else ("a",))
    ]
    write_corpus(tmp_path / "corpus", [Document(name, "", "", {}) for name in "ab"], docids, [], {})
    source = open_corpus(tmp_path / "corpus")
    assert read_inputs(source).queries == []
    for share, least, most in ((0.5, 15, 20), (1.0, 30, 40)):
        names = read_inputs(source, typos=share)
        assert least <= len(names.queries) <= most
        assert not set(names.queries) & set(names.docids)
        named = {i: set(names.pair_document[names.pair_docid == i].tolist()) for i in range(len(names.docids))}
        for number, text in enumerate(names.queries):
            meant = set(names.query_document[names.query_index == number].tolist())
            (own,) = names.own_docids(np.array([len(names.docids) + number])).tolist()
            assert named[own] <= meant
            assert abs(len(names.docids[own]) - len(text)) <= 1
            assert SequenceMatcher(None, names.docids[own], text).ratio() > 0.9
    assert names.own_docids(np.arange(40)).tolist() == list(range(40))
    assert read_inputs(source, typos=1.0).queries == names.queries  # the same typos every time
