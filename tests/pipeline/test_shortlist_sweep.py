from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pixnar.pipeline.shortlist_sweep import DIRECT, KMEANS, LEARNED, Chooser, Direct, Row, draw, sweep, table

ROWS = np.concatenate([np.eye(4), np.zeros((1, 4))]).astype(np.float32)
BIAS = np.array([0.3, 0.2, 0.1, 0, 9], dtype=np.float32)
X0 = np.array([[0, 0, 0, 1], [1, 0, 0, 0]], dtype=np.float32)
NEEDED = [[3, 0, 3, 4, -1], [1, 2]]  # 4 is the end token
C = X0.copy()


def test_direct_is_the_exact_top() -> None:
    assert Direct(ROWS, BIAS, 2).tokens(X0[0]).tolist() == [0, 3]
    assert Direct(ROWS, BIAS, 2).tokens(X0[0], extra=[2, 3]).tolist() == [0, 2, 3]


def test_rows_tell_recall_and_size() -> None:
    found = sweep(X0, NEEDED, [(LEARNED, C), (KMEANS, C[:1])], ROWS, BIAS, r=[1, 2], k=[1, 2], direct=[2])
    assert found == [
        Row(LEARNED, 2, 1, 1, 0.25, 1.0, 0.25),
        Row(LEARNED, 2, 1, 2, 0.5, 2.0, 0.5),
        Row(LEARNED, 2, 2, 1, 0.75, 2.0, 0.5),
        Row(LEARNED, 2, 2, 2, 0.75, 3.0, 0.75),
        Row(KMEANS, 1, 1, 1, 0.25, 1.0, 0.25),
        Row(KMEANS, 1, 2, 1, 0.5, 2.0, 0.5),
        Row(DIRECT, None, None, None, 0.75, 2.0, 0.5),
    ]


def test_direct_sizes_follow_the_lists_and_extra_counts() -> None:
    found = sweep(X0, NEEDED, [(LEARNED, C)], ROWS, BIAS, r=[1, 50], k=[1], extra=[[2], [2]])
    assert [(row.kind, row.r, row.size, row.recall) for row in found] == [
        (LEARNED, 1, 2.0, 0.5),
        (LEARNED, 4, 4.0, 1.0),
        (DIRECT, None, 3.0, 0.75 + 0.25),
        (DIRECT, None, 4.0, 1.0),
    ]


def test_quality_is_the_callers(tmp_path: Path) -> None:
    def quality(chooser: Chooser) -> float:
        return len(chooser.tokens(X0[0])) / 10

    found = sweep(X0, NEEDED, [(LEARNED, C)], ROWS, BIAS, r=[1, 2], k=[1], quality=quality, full=0.5)
    assert [row.quality for row in found] == [0.1, 0.2, 0.1, 0.2]
    assert [row.lost for row in found] == pytest.approx([0.4, 0.3, 0.4, 0.3])
    lines = table(found).splitlines()
    assert len(lines) == 5
    assert "0.4000" in lines[1]
    pytest.importorskip("matplotlib")
    draw(found, tmp_path / "a.png", full=0.5)
    draw([Row(LEARNED, 2, 1, 1, 0.25, 1.0, 0.25)], tmp_path / "b.png")
    timed = sweep(X0, NEEDED, [(LEARNED, C)], ROWS, BIAS, r=[1, 2], k=[1], quality=quality, cost=lambda _: 1.25)
    assert [row.ms for row in timed] == [1.25, 1.25, None, None]
    assert "1.25" in table(timed).splitlines()[1]
    draw(timed, tmp_path / "c.png", full=0.5)
    assert (tmp_path / "c.png").stat().st_size > (tmp_path / "b.png").stat().st_size
    assert (tmp_path / "a.png").read_bytes()[:4] == (tmp_path / "b.png").read_bytes()[:4] == b"\x89PNG"


def test_queries_without_needs_do_not_count() -> None:
    found = sweep(X0, [[3], []], [(LEARNED, C)], ROWS, BIAS, r=[1], k=[1], direct=[])
    assert [row.recall for row in found] == [1.0]


def test_needs_must_match_queries() -> None:
    with pytest.raises(ValueError, match="each of its 2 queries"):
        sweep(X0, [[1]], [], ROWS, BIAS, r=[1], k=[1])
