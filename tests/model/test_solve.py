"""Rows that compose, against the normal equations solved by numpy; the native products they are made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pixnar import _native
from pixnar.base.storage import read_container, write_container
from pixnar.model import solve
from pixnar.model.solve import Solved, SolveOptions, solve_rows
from pixnar.vocab.protocol import EncodedBatch

Floats = NDArray[np.float32]
SIZE, PIECES, WIDTH = 40, 15, 7
NEVER = 11  # a token that no docid has
EXACT = SolveOptions(ridge=0.5, rounds=300, tolerance=1e-6, threads=1)


class Case(NamedTuple):
    """Docids with their vectors, and the pieces of every token."""

    tokens: EncodedBatch
    vectors: Floats
    pieces: EncodedBatch


def case(seed: int = 0, docids: int = 120, width: int = WIDTH) -> Case:
    """Some docids are empty, some say a token twice, one token never occurs."""
    random = np.random.default_rng(seed)
    lists = [random.integers(0, SIZE, random.integers(0, 6)).tolist() for _ in range(docids)]
    lists = [[token for token in tokens if token != NEVER] for tokens in lists]
    lists[:4] = [[], [3, 3], [5, 3, 5], [SIZE - 1] * 4][: len(lists)]
    vectors = random.normal(size=(docids, width))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    pieces = [random.integers(0, PIECES, random.integers(0, 4)).tolist() for _ in range(SIZE)]
    pieces[:2] = [[PIECES - 1], [2, 2]]
    return Case(EncodedBatch.from_lists(lists), vectors.astype(np.float32), EncodedBatch.from_lists(pieces))


def matrix(bags: EncodedBatch, size: int) -> NDArray[np.float64]:
    out = np.zeros((len(bags.offsets) - 1, size))
    for i, bag in enumerate(bags.rows()):
        for token in bag:
            out[i, token] += 1
    return out


def by_numpy(
    made: Case, ridge: float, *, pieces: bool = False, start: Floats | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The rows of tokens and of pieces that solve the normal equations."""
    a = matrix(made.tokens, SIZE)
    h = made.vectors.astype(np.float64)
    if start is not None:
        h = h - a @ start
    if pieces:
        a = np.hstack([a, a @ matrix(made.pieces, PIECES)])
    found = np.linalg.solve(a.T @ a + ridge * np.eye(a.shape[1]), a.T @ h)
    rows = found[:SIZE] + (0 if start is None else start)
    return rows, found[SIZE:]


def start_of(width: int = WIDTH) -> Floats:
    return np.random.default_rng(9).normal(size=(SIZE, width)).astype(np.float32)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("how", ["plain", "start", "pieces"])
@pytest.mark.parametrize("ridge", [0.05, 1.0, 30.0])
def test_equals_the_normal_equations(seed: int, how: str, ridge: float) -> None:
    made = case(seed)
    start = start_of() if how == "start" else None
    pieces = made.pieces if how == "pieces" else None
    options = SolveOptions(ridge=ridge, rounds=500, tolerance=1e-6, threads=1)
    found = solve_rows(made.tokens, made.vectors, SIZE, options, pieces=pieces, start=start)
    rows, of_pieces = by_numpy(made, ridge, pieces=how == "pieces", start=start)
    assert found.rows.dtype == np.float32
    assert found.rows.shape == (SIZE, WIDTH)
    assert found.pieces.shape == ((PIECES, WIDTH) if pieces else (0, WIDTH))
    np.testing.assert_allclose(found.rows, rows, atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(found.pieces, of_pieces, atol=1e-4, rtol=1e-4)
    assert found.residual < 1e-6
    assert 1 < found.rounds < 500
    assert np.array_equal(found.rows[NEVER], np.zeros(WIDTH) if start is None else start[NEVER])
    assert np.array_equal(made.vectors, case(seed).vectors)  # what was given is left as it was


def test_a_few_rounds_come_near() -> None:
    """The options of a fit: on docids like these the sums are as near to the vectors as they can be."""
    made = case(2, docids=400)
    found = solve_rows(made.tokens, made.vectors, SIZE, SolveOptions(threads=1))
    rows, _ = by_numpy(made, 1.0)
    a, h = matrix(made.tokens, SIZE), made.vectors
    cost, least = (float(((a @ w - h) ** 2).sum() + (w**2).sum()) for w in (found.rows, rows))
    assert least <= cost + 1e-6
    assert cost < 1.0001 * least
    assert found.rounds <= 60


@pytest.mark.parametrize("lists", [[], [[]], [[], []]])
def test_no_tokens(lists: list[list[int]]) -> None:
    tokens, vectors = EncodedBatch.from_lists(lists), np.ones((len(lists), 3), np.float32)
    assert not solve_rows(tokens, vectors, 5, EXACT).rows.any()
    start = np.ones((5, 3), np.float32)
    assert np.array_equal(solve_rows(tokens, vectors, 5, EXACT, start=start).rows, start)


@pytest.mark.parametrize("how", ["plain", "start", "pieces"])
def test_columns_by_themselves_give_the_same_bits(how: str) -> None:
    """Whatever the others need: a column stops by its own residual."""
    made = case(3, width=9)
    made.vectors[:, 4] *= np.linspace(0, 40, len(made.vectors), dtype=np.float32) ** 3  # one that is slower
    parts: dict[str, Any] = {}
    if how != "plain":
        parts = {"start": start_of(9)} if how == "start" else {"pieces": made.pieces}
    for options in (SolveOptions(threads=1), SolveOptions(rounds=7, tolerance=0.0, threads=1)):
        whole = solve_rows(made.tokens, made.vectors, SIZE, options, **parts)
        for columns in (slice(0, 4), slice(4, 9), slice(4, 5), slice(8, 9)):
            some = solve_rows(made.tokens, made.vectors, SIZE, options, columns=columns, **parts)
            assert np.array_equal(some.rows, whole.rows[:, columns]), columns
            assert np.array_equal(some.pieces, whole.pieces[:, columns]), columns
            assert some.rounds <= whole.rounds


def test_threads_give_the_same_bits() -> None:
    made = case(4, docids=300, width=200)
    for pieces in (None, made.pieces):
        found = [
            solve_rows(made.tokens, made.vectors, SIZE, SolveOptions(threads=threads), pieces=pieces)
            for threads in (1, 2, 4)
        ]
        for other in found[1:]:
            assert np.array_equal(other.rows, found[0].rows)
            assert np.array_equal(other.pieces, found[0].pieces)


def test_vectors_are_read_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made = case(5)
    whole = solve_rows(made.tokens, made.vectors, SIZE, EXACT, start=start_of())
    monkeypatch.setattr(solve, "_AT_ONCE", 7)
    monkeypatch.setattr(solve, "_SUMMED", 9)
    parts = solve_rows(made.tokens, made.vectors, SIZE, EXACT, start=start_of())
    np.testing.assert_allclose(parts.rows, whole.rows, atol=1e-5)
    half = solve_rows(made.tokens, made.vectors.astype(np.float16), SIZE, EXACT)
    plain = solve_rows(made.tokens, made.vectors, SIZE, EXACT)
    np.testing.assert_allclose(half.rows, plain.rows, atol=2e-3)
    assert not np.array_equal(half.rows, plain.rows)


@pytest.mark.parametrize("most", [119, 60, 50, 13, 1])
def test_a_sample_is_every_so_many_th_docid(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = case(6)
    monkeypatch.setattr(solve, "_AT_ONCE", 11)
    step = -(-120 // most)
    some = Case(
        EncodedBatch.from_lists([row.tolist() for row in made.tokens.rows()][::step]),
        np.ascontiguousarray(made.vectors[::step]),
        made.pieces,
    )
    assert len(some.vectors) <= most
    options = SolveOptions(ridge=0.5, rounds=300, tolerance=1e-6, threads=1, sample=most)
    for pieces in (None, made.pieces):
        sampled = solve_rows(made.tokens, made.vectors, SIZE, options, pieces=pieces)
        alone = solve_rows(some.tokens, some.vectors, SIZE, EXACT, pieces=pieces)
        assert np.array_equal(sampled.rows, alone.rows)
        assert np.array_equal(sampled.pieces, alone.pieces)


def stopping(after: int) -> Callable[[str, int, int | None], None]:
    """Stands for a kill after some rounds."""

    def progress(stage: str, done: int, total: int | None) -> None:
        if "residual" in stage and done > after:
            raise KeyboardInterrupt

    return progress


def same(one: Solved, other: Solved) -> bool:
    equal = np.array_equal(one.rows, other.rows) and np.array_equal(one.pieces, other.pieces)
    return equal and (one.rounds, one.residual) == (other.rounds, other.residual)


@pytest.mark.parametrize("how", ["plain", "start", "pieces"])
@pytest.mark.parametrize("kills", [[1], [5], [2, 3, 9]])
def test_a_solve_that_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, kills: list[int]) -> None:
    monkeypatch.setattr(solve, "_SAVE_SECONDS", -1.0)
    made = case(7)
    start, pieces = start_of() if how == "start" else None, made.pieces if how == "pieces" else None
    parts: dict[str, Any] = {"start": start, "pieces": pieces}
    whole = solve_rows(made.tokens, made.vectors, SIZE, EXACT, **parts)
    state = tmp_path / "state"
    for after in kills:
        with pytest.raises(KeyboardInterrupt):
            solve_rows(made.tokens, made.vectors, SIZE, EXACT, state=state, progress=stopping(after), **parts)
        assert read_container(state, "solverst", 1).meta["done"] == after
    rounds: list[int] = []

    def heard(stage: str, done: int, total: int | None) -> None:
        rounds.extend([done] if "residual" in stage else [])

    again = solve_rows(made.tokens, made.vectors, SIZE, EXACT, state=state, progress=heard, **parts)
    assert rounds == list(range(kills[-1] + 1, whole.rounds + 1))
    assert same(again, whole)
    assert not state.exists()


def test_a_state_that_does_not_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solve, "_SAVE_SECONDS", -1.0)
    made, state = case(8), tmp_path / "state"
    whole = solve_rows(made.tokens, made.vectors, SIZE, EXACT)

    def left(options: SolveOptions = EXACT, columns: slice = slice(None), docids: Case = made) -> bytes:
        with pytest.raises(KeyboardInterrupt):
            solve_rows(
                docids.tokens,
                docids.vectors,
                SIZE,
                options,
                columns=columns,
                state=state,
                progress=stopping(4),
            )
        written = state.read_bytes()
        state.unlink()
        return written

    good = left()
    broken = bytearray(good)
    broken[len(broken) // 2] ^= 1
    others = {
        "cut": good[:-9],
        "empty": b"",
        "another file": b"x" * 500,
        "changed": bytes(broken),
        "another ridge": left(SolveOptions(ridge=0.7, rounds=300, tolerance=1e-6, threads=1)),
        "fewer columns": left(columns=slice(0, 3)),
        "other docids": left(docids=case(8, docids=119)),
        "other vectors": left(docids=made._replace(vectors=made.vectors[:, ::-1])),
    }
    for name, content in others.items():
        state.write_bytes(content)
        assert same(solve_rows(made.tokens, made.vectors, SIZE, EXACT, state=state), whole), name
        assert not state.exists()
    write_container(state, "solverst", 1, {"done": 3}, {})
    assert same(solve_rows(made.tokens, made.vectors, SIZE, EXACT, state=state), whole)


def test_a_finished_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed behind the last round: nothing is left to do, and the residual is known."""
    monkeypatch.setattr(solve, "_SAVE_SECONDS", -1.0)
    made, state = case(8), tmp_path / "state"
    options = SolveOptions(rounds=4, tolerance=0.0, threads=1)
    whole = solve_rows(made.tokens, made.vectors, SIZE, options)
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)
    solve_rows(made.tokens, made.vectors, SIZE, options, state=state)
    assert state.exists()
    assert same(solve_rows(made.tokens, made.vectors, SIZE, options, state=state), whole)


def test_bad_arguments() -> None:
    made = case()
    with pytest.raises(ValueError, match="not both"):
        solve_rows(made.tokens, made.vectors, SIZE, pieces=made.pieces, start=start_of())
    with pytest.raises(ValueError, match="token id 39 is not below 39"):
        solve_rows(made.tokens, made.vectors, SIZE - 1, EXACT)
    with pytest.raises(ValueError, match=r"rows for|vectors"):
        solve_rows(made.tokens, made.vectors[:-1], SIZE, EXACT)
    with pytest.raises(ValueError, match="pieces"):
        solve_rows(made.tokens, made.vectors, SIZE, EXACT, pieces=EncodedBatch.from_lists([[0]] * (SIZE - 1)))
    with pytest.raises(ValueError, match="start"):
        solve_rows(made.tokens, made.vectors, SIZE, EXACT, start=start_of()[:-1])
    for wrong in ({"ridge": 0.0}, {"ridge": -1.0}, {"ridge": float("nan")}, {"sample": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            SolveOptions(**wrong)


# The native products


@st.composite
def bags(draw: st.DrawFn) -> tuple[EncodedBatch, int, int]:
    size = draw(st.integers(1, 9))
    lists = draw(st.lists(st.lists(st.integers(0, size - 1), max_size=7), max_size=12))
    return EncodedBatch.from_lists(lists), size, draw(st.sampled_from([1, 3, 64, 65, 130]))


@settings(max_examples=60)
@given(bags(), st.integers(0, 10**6), st.sampled_from([1, 2, 4]))
def test_products_equal_numpy(drawn: tuple[EncodedBatch, int, int], seed: int, threads: int) -> None:
    tokens, size, width = drawn
    random = np.random.default_rng(seed)
    a, n = matrix(tokens, size), len(tokens.offsets) - 1
    rows, values, given_ = (
        random.integers(-9, 9, shape).astype(np.float32) for shape in ((size, width), (n, width), (size, width))
    )  # whole numbers: every sum is exact
    sums = np.full((n, width), 7, np.float32)
    _native.bag_sums(tokens.ids, tokens.offsets, rows, sums, threads)
    assert np.array_equal(sums, a @ rows)
    out = given_.copy()
    _native.bag_scatter(tokens.ids, tokens.offsets, values, out, threads)
    assert np.array_equal(out, given_ + a.T @ values)
    out = given_.copy()
    _native.bag_gram(tokens.ids, tokens.offsets, rows, out, threads)
    assert np.array_equal(out, given_ + a.T @ (a @ rows))


def test_products_of_floats_do_not_depend_on_threads() -> None:
    made = case(1, docids=500, width=333)
    rows = np.random.default_rng(0).normal(size=(SIZE, 333)).astype(np.float32)
    found = []
    for threads in (1, 2, 4, 0):
        out = np.zeros_like(rows)
        _native.bag_gram(made.tokens.ids, made.tokens.offsets, rows, out, threads)
        found.append(out)
    assert all(np.array_equal(one, found[0]) for one in found[1:])
    np.testing.assert_allclose(found[0], matrix(made.tokens, SIZE).T @ (matrix(made.tokens, SIZE) @ rows), atol=1e-3)


@pytest.mark.parametrize("product", [_native.bag_sums, _native.bag_scatter, _native.bag_gram])
def test_products_that_cannot_be(product: Callable[..., None]) -> None:
    square = np.zeros((3, 2), np.float32)  # three bags over three rows: every product takes the same shapes
    ids, offsets = np.array([0, 2, 1], np.uint32), np.array([0, 1, 1, 3], np.int64)
    product(ids, offsets, square, square.copy(), 1)
    wrong_offsets: list[list[int]] = [[0, 1, 1, 2], [0, 1, 1, 4], [1, 1, 1, 3], [0, 2, 1, 3], [0, -1, 1, 3]]
    for wrong in wrong_offsets:
        with pytest.raises(ValueError, match="offsets do not fit"):
            product(ids, np.array(wrong, np.int64), square, square.copy(), 1)
    for unknown in (3, 2**32 - 1):
        with pytest.raises(ValueError, match=f"token id {unknown} is not below 3"):
            product(np.array([0, unknown, 1], np.uint32), offsets, square, square.copy(), 1)
    with pytest.raises(ValueError, match="widths"):
        product(ids, offsets, square, np.zeros((3, 3), np.float32), 1)
    with pytest.raises(ValueError, match=r"rows for|lengths|offsets"):
        product(ids, np.array([0, 3], np.int64), square, np.zeros((4, 2), np.float32), 1)
    with pytest.raises(ValueError, match="offsets"):
        product(ids, np.zeros(0, np.int64), square, square.copy(), 1)
    for out in (square.astype(np.float64), np.zeros((2, 3), np.float32).T):  # a copy would take the result
        with pytest.raises(TypeError):
            product(ids, offsets, square, out, 1)
