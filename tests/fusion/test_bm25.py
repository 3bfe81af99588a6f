"""BM25: by hand, and back from disk."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError
from pixnar.base.storage import write_container
from pixnar.base.strings import SortedStrings
from pixnar.fusion import Bm25

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
    assert bm25.score("") == pytest.approx([0, 0, 0, 0])


def test_settings() -> None:
    flat = Bm25.build(["a a b", "a"], k1=1, b=0)
    assert flat.score("a") == pytest.approx([math.log(1.2) * 2 / 3, math.log(1.2) / 2])


@pytest.mark.parametrize("texts", [TEXTS, [], ["?"]])
def test_files(tmp_path: Path, texts: list[str]) -> None:
    bm25 = Bm25.build(texts)
    bm25.save(tmp_path / "b")
    loaded = Bm25.load(tmp_path / "b")
    for query in ("hotels in Rome", "?", "zebra"):
        assert loaded.score(query).tolist() == bm25.score(query).tolist()
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "b").read_bytes()


def parts(bm25: Bm25) -> dict[str, NDArray[Any]]:
    words: dict[str, NDArray[Any]] = {"words": bm25.table.data, "word_offsets": bm25.table.offsets}
    return bm25.postings.arrays() | words


def test_bad_files_are_refused(tmp_path: Path) -> None:
    bm25 = Bm25.build(TEXTS)
    good, meta = parts(bm25), {"n_units": 4}
    for change, reason in (
        ({"offsets": bm25.postings.offsets[:-1]}, "do not fit together"),
        ({"word_offsets": bm25.table.offsets[:-1]}, "do not fit together"),
    ):
        write_container(tmp_path / "b", "bm25", 3, meta, good | change)
        with pytest.raises(FileFormatError, match=reason):
            Bm25.load(tmp_path / "b")


@given(st.sets(st.text("abé中", max_size=4), max_size=12), st.text("abé中", max_size=4))
def test_word_table(words: set[str], asked: str) -> None:
    table = SortedStrings.of(sorted(words))
    listed = sorted(words, key=str.encode)
    assert list(table) == listed
    assert [table.find(word) for word in listed] == list(range(len(words)))
    assert (table.find(asked) is not None) == (asked in words)
