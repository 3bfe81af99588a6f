"""BM25: by hand, by groups, joined, and back from disk."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError
from pixnar.base.storage import write_container
from pixnar.base.strings import SortedStrings
from pixnar.fusion import STOP_WORDS, Bm25

TEXTS = ["Cheap hotels, cheap flights!", "hotels in Rome", "", "the weather in Rome"]


def weight(n_units: int, found_in: int, count: int, length: float, mean: float) -> float:
    idf = math.log(1 + (n_units - found_in + 0.5) / (found_in + 0.5))
    return idf * count / (count + 1.5 * (1 - 0.75 + 0.75 * length / mean))


def test_scores_by_hand() -> None:
    bm25 = Bm25.build(TEXTS)
    mean = (4 + 3 + 0 + 4) / 4
    cheap, hotels = weight(4, 1, 2, 4, mean), [weight(4, 2, 1, length, mean) for length in (4, 3)]
    assert bm25.score("CHEAP hotels? unheard-of") == pytest.approx([cheap + hotels[0], hotels[1], 0, 0])
    assert bm25.score("hotels hotels") == pytest.approx([2 * hotels[0], 2 * hotels[1], 0, 0])
    assert bm25.documents("hotels") == pytest.approx([*hotels, 0, 0])
    assert bm25.score("") == pytest.approx([0, 0, 0, 0])


def test_settings() -> None:
    flat = Bm25.build(["a a b", "a"], k1=1, b=0)
    assert flat.score("a") == pytest.approx([math.log(1.2) * 2 / 3, math.log(1.2) / 2])


def test_stop_words_count_nowhere() -> None:
    bm25 = Bm25.build(TEXTS, stop_words=STOP_WORDS)
    assert "in" not in list(bm25.table)
    assert bm25.terms("in the") == []
    mean = (4 + 2 + 0 + 2) / 4
    expected = weight(4, 2, 1, 2, mean)
    assert bm25.score("in Rome") == pytest.approx([0, expected, 0, expected])


def test_a_document_is_as_good_as_its_best_text() -> None:
    bm25 = Bm25.build(TEXTS, groups=[2, 0, 0, 2], n_documents=4)
    scores = bm25.score("hotels in rome")
    assert (scores == Bm25.build(TEXTS).score("hotels in rome")).all()
    assert bm25.documents("hotels in rome").tolist() == [scores[1], 0, max(scores[0], scores[3]), 0]


@given(
    st.lists(st.tuples(st.text("ab ,é中", max_size=8), st.integers(0, 3)), max_size=8), st.text("ab é中", max_size=6)
)
def test_joined_texts_are_one_text(rows: list[tuple[str, int]], query: str) -> None:
    texts, groups = [text for text, _ in rows], [group for _, group in rows]
    joined = Bm25.build(texts, groups, join=True, n_documents=4)
    written_out = [" ".join(text for text, owner in rows if owner == group) for group in range(4)]
    assert joined.documents(query).tolist() == Bm25.build(written_out).score(query).tolist()


def test_groups_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="1 groups for 2 texts"):
        Bm25.build(["a", "b"], groups=[0])
    with pytest.raises(ValueError, match="groups must be in 0 … 1"):
        Bm25.build(["a", "b"], groups=[0, 2], n_documents=2)


@pytest.mark.parametrize("texts", [TEXTS, [], ["?"]])
@pytest.mark.parametrize("grouped", [True, False])
def test_files(tmp_path: Path, texts: list[str], grouped: bool) -> None:
    bm25 = Bm25.build(texts, [i // 2 for i in range(len(texts))] if grouped else None)
    bm25.save(tmp_path / "b")
    loaded = Bm25.load(tmp_path / "b")
    for query in ("hotels in Rome", "?", "zebra"):
        assert loaded.score(query).tolist() == bm25.score(query).tolist()
        assert loaded.documents(query).tolist() == bm25.documents(query).tolist()
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "b").read_bytes()


def parts(bm25: Bm25) -> dict[str, NDArray[Any]]:
    words: dict[str, NDArray[Any]] = {"words": bm25.table.data, "word_offsets": bm25.table.offsets}
    return bm25.postings.arrays() | words | {"lengths": bm25.lengths.values}


def test_bad_files_are_refused(tmp_path: Path) -> None:
    bm25 = Bm25.build(TEXTS, groups=[0, 0, 1, 1])
    good, meta = parts(bm25), {"n_units": 4, "n_documents": 2, "docids": True, **bm25.lengths.meta}
    for change, reason in (
        ({"groups": np.array([0, 0, 1], np.uint32)}, "3 groups for 4 units"),
        ({"groups": np.array([0, 0, 1, 2], np.uint32)}, "group 2 is not below 2"),
        ({"word_offsets": bm25.table.offsets[:-1]}, "do not fit together"),
        ({"lengths": bm25.lengths.values[1:], "groups": np.array([0, 0, 1, 1], np.uint32)}, "3 lengths for 4 units"),
    ):
        write_container(tmp_path / "b", "bm25", 1, meta, good | change)
        with pytest.raises(FileFormatError, match=reason):
            Bm25.load(tmp_path / "b")


@given(st.sets(st.text("abé中", max_size=4), max_size=12), st.text("abé中", max_size=4))
def test_word_table(words: set[str], asked: str) -> None:
    table = SortedStrings.of(sorted(words))
    listed = sorted(words, key=str.encode)
    assert list(table) == listed
    assert [table.find(word) for word in listed] == list(range(len(words)))
    assert (table.find(asked) is not None) == (asked in words)


def test_damage_that_nobody_looked_for_is_told_when_it_is_met(tmp_path: Path) -> None:
    bm25 = Bm25.build(TEXTS, groups=[0, 0, 1, 1])
    meta = {"n_units": 4, "n_documents": 2, "docids": True, **bm25.lengths.meta}
    write_container(tmp_path / "b", "bm25", 1, meta, parts(bm25) | {"groups": np.array([0, 0, 1, 7], np.uint32)})
    loaded = Bm25.load(tmp_path / "b", verify=False)
    assert loaded.score("rome").tolist() == bm25.score("rome").tolist()
    with pytest.raises(FileFormatError, match=r"b is damaged \(a group is not below 2\)"):
        loaded.documents("rome")


def test_documents_that_are_not_counted_change_no_score() -> None:
    texts = ["cheap hotels in rome", "pizza in rome"]
    alone = Bm25.build(texts, [0, 1], join=True)
    among = Bm25.build(texts, [0, 2], join=True, n_documents=4, n_counted=2)
    for query in ("rome", "cheap pizza", "paris"):
        found = among.documents(query)
        assert found[[0, 2]].tolist() == alone.documents(query).tolist()
        assert found[[1, 3]].tolist() == [0, 0]
