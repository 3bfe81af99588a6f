"""Vectors of docids: equal to the naive computation, ties, and back from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError
from pixnar.base.storage import write_container
from pixnar.fusion.vectors import DocidVectors

PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), max_size=20)


def vectors_of(pairs: list[tuple[int, int]], seed: int = 0) -> DocidVectors:
    matrix = np.random.default_rng(seed).normal(size=(7, 5))
    return DocidVectors.build(matrix, [row for row, _ in pairs], [document for _, document in pairs], 5)


@settings(max_examples=50)
@given(PAIRS, st.lists(st.integers(0, 4), max_size=6), st.integers(0, 9))
def test_best_is_the_naive_one(pairs: list[tuple[int, int]], documents: list[int], seed: int) -> None:
    vectors = vectors_of(pairs, seed)
    query = np.random.default_rng(seed + 1).normal(size=5)
    cosines = vectors.matrix.astype(float) @ (query / np.linalg.norm(query))
    expected = [max([-1.0, *(cosines[row] for row, owner in pairs if owner == document)]) for document in documents]
    assert vectors.best(query, documents) == pytest.approx(expected, abs=2e-6)


@settings(max_examples=50)
@given(PAIRS, st.integers(0, 7), st.integers(1, 3), st.integers(1, 40))
def test_search_ranks_all_documents(pairs: list[tuple[int, int]], k: int, chunk: int, held: int) -> None:
    vectors = vectors_of(pairs)
    queries = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pixnar.fusion.vectors._CHUNK", chunk)
        patch.setattr("pixnar.fusion.vectors._SCORES_HELD", held)
        documents, scores = vectors.search(queries, k)
    assert documents.shape == scores.shape == (4, min(k, 5))
    for i, query in enumerate(queries):
        every = vectors.best(query, range(5))
        expected = sorted(range(5), key=lambda document: (-every[document], document))[:k]
        assert documents[i].tolist() == expected
        assert scores[i] == pytest.approx(every[expected])


def test_a_docid_of_many_documents_gives_them_equal_scores() -> None:
    matrix = np.random.default_rng(0).normal(size=(3, 384))
    vectors = DocidVectors.build(matrix, np.arange(3).repeat(101), np.tile(np.arange(101), 3), 101)
    documents, scores = vectors.search(matrix, 101)
    assert documents.tolist() == [list(range(101))] * 3
    assert all(len(set(row.tolist())) == 1 for row in scores)


def test_lengths_do_not_matter_and_nothing_has_no_direction() -> None:
    matrix = np.array([[3.0, 4.0], [0.0, 0.0], [0.6, 0.8]])
    vectors = DocidVectors.build(matrix, [0, 1, 2], [0, 1, 2], 3)
    assert vectors.best([30, 40], [0, 1, 2]) == pytest.approx([1, 0, 1], abs=1e-3)
    assert vectors.best([0, 0], [0, 1, 2]).tolist() == [0, 0, 0]


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="every document must be in 0 … 1"):
        DocidVectors.build(np.eye(2), [0], [2], 2)
    with pytest.raises(ValueError, match="every row must be in 0 … 1"):
        DocidVectors.build(np.eye(2), [2], [0], 2)
    with pytest.raises(ValueError, match="2 rows for 1 documents"):
        DocidVectors.build(np.eye(2), [0, 1], [0], 2)
    with pytest.raises(ValueError, match="two-dimensional"):
        DocidVectors.build(np.zeros(3), [], [], 0)
    vectors = DocidVectors.build(np.eye(2), [0], [0], 2)
    with pytest.raises(IndexError, match="documents must be in 0 … 1"):
        vectors.best([1, 0], [2])
    with pytest.raises(ValueError, match="for one query give"):
        vectors.search([1, 0], 1)


@pytest.mark.parametrize("pairs", [[(0, 0), (1, 0), (1, 3), (6, 4)], []])
def test_files(tmp_path: Path, pairs: list[tuple[int, int]]) -> None:
    vectors = vectors_of(pairs)
    vectors.save(tmp_path / "v")
    loaded = DocidVectors.load(tmp_path / "v")
    assert loaded.matrix.tolist() == vectors.matrix.tolist()
    assert loaded.best(np.ones(5), range(5)).tolist() == vectors.best(np.ones(5), range(5)).tolist()
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "v").read_bytes()


def test_bad_files_are_refused(tmp_path: Path) -> None:
    vectors = vectors_of([(0, 0), (3, 2)])
    vectors.save(tmp_path / "v")
    raw = bytearray((tmp_path / "v").read_bytes())
    raw[-1] ^= 1
    (tmp_path / "v").write_bytes(raw)
    with pytest.raises(FileFormatError, match="damaged"):
        DocidVectors.load(tmp_path / "v")
    flat = vectors.matrix.reshape(-1).view(np.uint16)
    good: dict[str, NDArray[Any]] = {"vectors": flat, "offsets": vectors.offsets, "rows": vectors.rows}
    for change, dimensions, reason in (
        ({"vectors": flat[:10]}, 5, "row 3 is not below 2"),
        ({}, 4, "reshape"),
        ({}, 0, "0 dimensions"),
        ({"offsets": vectors.offsets[:2]}, 5, "do not fit together"),
        ({"vectors": flat.astype(np.uint32)}, 5, "vectors are uint32"),
    ):
        write_container(tmp_path / "v", "vectors", 1, {"dimensions": dimensions}, {**good, **change})
        with pytest.raises(FileFormatError, match=reason):
            DocidVectors.load(tmp_path / "v")


def test_damage_that_nobody_looked_for_is_told_when_it_is_met(tmp_path: Path) -> None:
    vectors = vectors_of([(0, 0), (3, 2)])
    flat = vectors.matrix.reshape(-1).view(np.uint16)
    good: dict[str, NDArray[Any]] = {"vectors": flat, "offsets": vectors.offsets, "rows": vectors.rows}
    wild = vectors.offsets.copy()
    wild[1] = 2**40
    for change, reason in (
        ({"rows": np.array([0, 70], np.uint32)}, "a row is not below"),
        ({"offsets": wild}, "the rows of a document are out of range"),
    ):
        write_container(tmp_path / "v", "vectors", 1, {"dimensions": 5}, {**good, **change})
        loaded = DocidVectors.load(tmp_path / "v", verify=False)
        with pytest.raises(FileFormatError, match=reason):
            loaded.best(np.ones(5), [0, 2])
        with pytest.raises(FileFormatError, match=reason):
            loaded.search(np.ones((1, 5)), 3)
