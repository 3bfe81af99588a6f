"""Writing: what was written is read back, the folder appears whole or not at all, memory stays small."""

from __future__ import annotations

import os
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pixnar.base.errors import CorpusError
from pixnar.base.normalize import normalize
from pixnar.corpus import DocidRow, Document, Qrel, Query, open_corpus, write_corpus
from pixnar.corpus.records import IdSet

TEA = Document("d1", "Tea", "", {})
NAMES = [DocidRow("d1", "a hot drink")]

any_text = st.text(st.characters(), max_size=12)  # lone surrogates included
plain_ids = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r"), min_size=1, max_size=5)
ids = plain_ids.filter(lambda text: bool(text.strip()))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(any_text, inner, max_size=2),
    max_leaves=4,
)
metadata = st.dictionaries(any_text.filter(lambda key: key not in ("_id", "title", "text")), json_values, max_size=2)


@st.composite
def corpora(draw: st.DrawFn) -> tuple[Any, Any, Any, Any]:
    doc_ids = draw(st.lists(ids, unique=True, min_size=1, max_size=4))
    query_ids = draw(st.lists(ids, unique=True, min_size=1, max_size=3))
    documents = [Document(i, draw(any_text), draw(any_text), draw(metadata)) for i in doc_ids]
    docid = any_text.filter(lambda text: normalize(text) != "")
    docids = draw(st.lists(st.builds(DocidRow, st.sampled_from(doc_ids), docid), max_size=5))
    queries = [Query(i, draw(any_text)) for i in query_ids]
    qrel = st.builds(Qrel, st.sampled_from(query_ids), st.sampled_from(doc_ids), st.integers(-5, 10**17))
    qrels = draw(st.dictionaries(st.sampled_from(["train", "dev", "test", "a.b"]), st.lists(qrel, max_size=4)))
    return documents, docids, queries, qrels


@settings(max_examples=50, deadline=None)
@given(corpora(), st.booleans())
def test_what_was_written_is_read_back(corpus: tuple[Any, Any, Any, Any], packed: bool) -> None:
    documents, docids, queries, qrels = corpus
    with tempfile.TemporaryDirectory() as place:
        write_corpus(Path(place, "c"), documents, docids, queries, qrels, gzip=packed)
        back = open_corpus(Path(place, "c"))
        assert list(back.documents()) == documents
        assert list(back.docids()) == docids
        assert list(back.queries()) == queries
        assert set(back.splits()) == qrels.keys()
        for split, rows in qrels.items():
            assert list(back.qrels(split)) == rows
        assert all(file.name.endswith(".gz") == packed for file in Path(place, "c").rglob("*.*") if file.is_file())


def failing() -> Iterator[DocidRow]:
    yield NAMES[0]
    raise RuntimeError("the source broke")


def test_a_failure_halfway_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the source broke"):
        write_corpus(tmp_path / "c", [TEA], failing(), [], {})
    assert os.listdir(tmp_path) == []


def test_a_failure_halfway_leaves_the_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpus(tmp_path / "c", [TEA], NAMES, [], {})
    with pytest.raises(RuntimeError):
        write_corpus(tmp_path / "c", [], failing(), [], {}, overwrite=True)
    replace = os.replace

    def no_second_rename(source: Path, target: Path) -> None:
        if str(source).endswith(".part"):
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", no_second_rename)
    with pytest.raises(CorpusError, match=r"cannot write .*c: No space left on device"):
        write_corpus(tmp_path / "c", [], [], [], {}, overwrite=True)
    assert os.listdir(tmp_path) == ["c"]
    assert list(open_corpus(tmp_path / "c").docids()) == NAMES


def test_overwriting_is_asked_for_and_only_replaces_a_corpus(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    write_corpus(folder, [TEA], NAMES, [], {}, gzip=True)
    with pytest.raises(CorpusError, match="is not empty; choose another folder"):
        write_corpus(folder, [TEA], [], [], {})
    write_corpus(folder, [TEA], [], [], {}, overwrite=True)
    assert sorted(os.listdir(folder)) == ["corpus.jsonl", "docids.jsonl", "qrels", "queries.jsonl"]
    assert list(open_corpus(folder).docids()) == []
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(CorpusError, match=r"holds more than a corpus \('thesis\.tex'\) and is not replaced"):
        write_corpus(folder, [TEA], NAMES, [], {}, overwrite=True)
    assert (folder / "thesis.tex").exists()
    assert os.listdir(tmp_path) == ["c"]


def test_a_corpus_may_be_rewritten_from_itself(tmp_path: Path) -> None:
    write_corpus(tmp_path / "c", [TEA], NAMES, [], {})
    old = open_corpus(tmp_path / "c")
    write_corpus(tmp_path / "c", old.documents(), old.docids(), old.queries(), {}, gzip=True, overwrite=True)
    assert list(open_corpus(tmp_path / "c").docids()) == NAMES


@pytest.mark.parametrize(
    ("part", "row", "message"),
    [
        (0, Document("d1", "", "", {"text": 1}), "metadata key 'text' is taken"),
        (0, Document("", "", "", {}), '"_id" is empty'),
        (0, Document("d1", "", "", {"when": {1, 2}}), "row 'd1' cannot be written as JSON"),
        (1, DocidRow("d1", " "), "docid ' ' is empty after normalisation"),
        (3, Qrel("q\t1", "d1", 1), "an id has a tab"),
        (3, Qrel("q1", "\ud800", 1), "cannot be written"),
        (3, Qrel("q1", "d1", 10**30), "is not an integer"),
    ],
)
def test_rows_that_could_not_be_read_back_are_refused(part: int, row: Any, message: str, tmp_path: Path) -> None:
    rows: list[Any] = [[TEA], NAMES, [], []]
    rows[part] = [row]
    with pytest.raises(CorpusError, match=message) as caught:
        write_corpus(tmp_path / "c", rows[0], rows[1], rows[2], {"test": rows[3]})
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_bad_targets(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CorpusError, match="is a file; give a folder"):
        write_corpus(tmp_path / "file", [], [], [], {})
    with pytest.raises(CorpusError, match="does not exist; create it first"):
        write_corpus(tmp_path / "no" / "c", [], [], [], {})
    with pytest.raises(CorpusError, match=r"split '\.\./up' cannot be a file name"):
        write_corpus(tmp_path / "c", [], [], [], {"../up": []})
    assert os.listdir(tmp_path) == ["file"]


def test_the_same_rows_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, now in (("a", 1e9), ("b", 2e9)):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        write_corpus(tmp_path / name, [TEA], NAMES, [], {"test": []}, gzip=True)
    monkeypatch.undo()
    files = sorted(file.relative_to(tmp_path / "a") for file in (tmp_path / "a").rglob("*.gz"))
    assert len(files) == 4
    assert all((tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes() for file in files)


def test_reading_keeps_memory_small(tmp_path: Path) -> None:
    text = "word " * 400
    documents = (Document(f"d{i}", "", text, {}) for i in range(25_000))
    write_corpus(tmp_path / "c", documents, (DocidRow(f"d{i}", text) for i in range(500)), [], {})
    assert (tmp_path / "c" / "corpus.jsonl").stat().st_size > 50_000_000
    corpus = open_corpus(tmp_path / "c")
    tracemalloc.start()
    try:
        rows = sum(1 for _ in corpus.documents()) + sum(1 for _ in corpus.docids())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows == 25_500
    assert peak < 5_000_000


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.text(max_size=2), max_size=20), max_size=12), st.lists(st.text(max_size=2)))
def test_id_set_agrees_with_a_python_set(batches: list[list[str]], asked: list[str]) -> None:
    fast, slow = IdSet(), set[str]()
    for batch in batches:
        expected = []
        for text in batch:
            expected.append(text not in slow)
            slow.add(text)
        assert fast.add(batch).tolist() == expected
    assert len(fast) == len(slow)
    assert fast.contains(asked).tolist() == [text in slow for text in asked]


def test_id_set_keeps_eight_bytes_per_id() -> None:
    seen = IdSet()
    for start in range(0, 100_000, 1000):
        assert seen.add([f"a rather long document id {i}" for i in range(start, start + 1000)]).all()
    assert seen.contains(["a rather long document id 5"]).all()
    assert sum(run.nbytes for run in seen._runs) == 100_000 * np.dtype(np.uint64).itemsize
