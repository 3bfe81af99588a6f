"""Rows that add up to vectors of docids: against numpy's own solution, killed and resumed, in columns, with pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pixnar.model import solve
from pixnar.model.head import PhraseHead
from pixnar.model.optim import LazyAdam
from pixnar.model.pieces import PieceRows
from pixnar.model.sharded import ShardedHead
from pixnar.model.solve import SolveOptions, solve_rows
from pixnar.model.world import World
from pixnar.vocab.protocol import EncodedBatch

SIZE, DIM, DOCIDS = 30, 6, 200
EXACT = SolveOptions(ridge=0.5, rounds=400, tolerance=1e-7, threads=1)
Floats = NDArray[np.float32]


@pytest.fixture(scope="module")
def tokens() -> EncodedBatch:
    random = np.random.default_rng(0)
    return EncodedBatch.from_lists([random.integers(0, SIZE, random.integers(1, 5)).tolist() for _ in range(DOCIDS)])


@pytest.fixture(scope="module")
def pieces() -> EncodedBatch:
    random = np.random.default_rng(1)
    lists = [random.integers(0, 9, random.integers(1, 4)).tolist() for _ in range(SIZE)]
    return EncodedBatch.from_lists([*lists[:-1], [8]])


@pytest.fixture(scope="module")
def vectors() -> Floats:
    found = np.random.default_rng(2).normal(size=(DOCIDS, DIM))
    unit: Floats = (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)
    return unit


def counts(batch: EncodedBatch, width: int) -> NDArray[np.float64]:
    """How often each token stands in each list."""
    found = np.zeros((len(batch.offsets) - 1, width))
    for row in range(len(found)):
        np.add.at(found[row], batch.ids[batch.offsets[row] : batch.offsets[row + 1]].astype(int), 1)
    return found


def by_hand(a: NDArray[np.float64], vectors: Floats, start: Any = 0.0) -> NDArray[np.float64]:
    right = a.T @ (vectors - a @ start) if np.ndim(start) else a.T @ vectors.astype(np.float64)
    rows: NDArray[np.float64] = np.linalg.solve(a.T @ a + EXACT.ridge * np.eye(a.shape[1]), right) + start
    return rows


def test_against_numpy(tokens: EncodedBatch, pieces: EncodedBatch, vectors: Floats) -> None:
    a = counts(tokens, SIZE)
    plain = solve_rows(tokens, vectors, SIZE, EXACT)
    assert plain.pieces.shape == (0, DIM)
    np.testing.assert_allclose(plain.rows, by_hand(a, vectors), atol=1e-5)
    start = np.random.default_rng(3).normal(size=(SIZE, DIM)).astype(np.float32)
    np.testing.assert_allclose(
        solve_rows(tokens, vectors, SIZE, EXACT, start=start).rows, by_hand(a, vectors, start), atol=1e-5
    )
    shared = solve_rows(tokens, vectors, SIZE, EXACT, pieces=pieces)
    both = by_hand(np.hstack([a, a @ counts(pieces, 9)]), vectors)
    np.testing.assert_allclose(np.vstack([shared.rows, shared.pieces]), both, atol=1e-5)
    with pytest.raises(ValueError, match="give start or pieces"):
        solve_rows(tokens, vectors, SIZE, EXACT, pieces=pieces, start=start)


def test_columns_are_independent(tokens: EncodedBatch, pieces: EncodedBatch, vectors: Floats) -> None:
    options = SolveOptions(rounds=9, tolerance=0, threads=1)
    whole = solve_rows(tokens, vectors, SIZE, options, pieces=pieces)
    parts = [solve_rows(tokens, vectors, SIZE, options, pieces=pieces, columns=slice(*c)) for c in ((0, 2), (2, DIM))]
    np.testing.assert_allclose(np.hstack([part.rows for part in parts]), whole.rows, atol=1e-6)
    np.testing.assert_allclose(np.hstack([part.pieces for part in parts]), whole.pieces, atol=1e-6)


def test_a_solve_that_was_killed_goes_on(
    tokens: EncodedBatch, pieces: EncodedBatch, vectors: Floats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solve, "_SAVE_SECONDS", -1.0)
    options, state = SolveOptions(rounds=20, tolerance=0, threads=1), tmp_path / "state.pixnar"
    whole = solve_rows(tokens, vectors, SIZE, options, pieces=pieces)
    rounds: list[int] = []

    def killed(words: str, done: int, _: int | None) -> None:
        if "residual" in words:
            rounds.append(done)
            if done == 8 and len(rounds) == 8:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve_rows(tokens, vectors, SIZE, options, pieces=pieces, state=state, progress=killed)
    assert state.exists()
    found = solve_rows(tokens, vectors, SIZE, options, pieces=pieces, state=state, progress=killed)
    assert rounds == [*range(1, 9), *range(8, 21)]  # the eighth was not saved
    assert np.array_equal(found.rows, whole.rows)
    assert np.array_equal(found.pieces, whole.pieces)
    assert (found.rounds, found.residual) == (whole.rounds, whole.residual)
    assert not state.exists()
    state.write_bytes(b"damaged")
    assert np.array_equal(solve_rows(tokens, vectors, SIZE, options, pieces=pieces, state=state).rows, whole.rows)


def test_rows_with_pieces(pieces: EncodedBatch) -> None:
    """The same row of a token for a step of training, for search, and after folding; so in a head in shards."""
    torch.manual_seed(0)
    rows, shared = torch.randn(SIZE + 1, DIM), torch.randn(9, DIM)
    head = PhraseHead(rows.clone(), torch.zeros(SIZE + 1))
    head.pieces = PieceRows(shared.clone(), pieces)
    wanted = rows.numpy().astype(np.float64)
    wanted[:-1] += counts(pieces, 9) @ shared.numpy()  # the end of a docid has none
    ids = torch.tensor([0, 3, 7, SIZE - 1, SIZE])
    np.testing.assert_allclose(head.rows_of(ids).detach().numpy(), wanted[ids.numpy()], atol=1e-5)
    np.testing.assert_allclose(head.arrays()[0], wanted, atol=1e-5)
    np.testing.assert_allclose(head.written().rows.detach().numpy(), wanted, atol=1e-5)
    assert torch.equal(head.rows.detach(), rows)
    for rank in range(3):
        world = World(rank, 3)
        first, last = world.rows(SIZE + 1)
        part = ShardedHead(rows[first:last].clone(), torch.zeros(last - first), total=SIZE + 1, world=world)
        part.pieces = PieceRows(shared.clone(), pieces)
        np.testing.assert_allclose(part.written().rows.detach().numpy(), wanted[first:last], atol=1e-5)
    head.fold()
    assert head.pieces is None
    assert head.written() is head
    np.testing.assert_allclose(head.rows.detach().numpy(), wanted, atol=1e-5)


def test_lazy_adam_is_adam_where_every_row_has_a_gradient() -> None:
    torch.manual_seed(0)
    start = torch.randn(7, 3)
    mine, theirs, sparse = (torch.nn.Parameter(start.clone()) for _ in range(3))
    lazy = LazyAdam([{"params": [mine, sparse]}], lr=0.1)
    plain = torch.optim.Adam([theirs], lr=0.1, betas=(0.9, 0.99))
    for _ in range(5):
        gradient = torch.randn(7, 3)
        mine.grad, theirs.grad, sparse.grad = gradient, gradient.clone(), gradient.to_sparse(1)
        lazy.step()
        plain.step()
    assert torch.allclose(mine, theirs, atol=1e-6)
    assert torch.equal(mine, sparse)
    before = mine.detach().clone()
    mine.grad, sparse.grad = torch.sparse_coo_tensor(torch.tensor([[2]]), torch.ones(1, 3), (7, 3)), None
    lazy.step()
    moved = (mine.detach() != before).any(1)
    assert moved.tolist() == [row == 2 for row in range(7)]
    state = lazy.state_dict()
    again = LazyAdam([{"params": [mine, sparse]}], lr=0.1)
    again.load_state_dict(state)
    assert again.param_groups[0]["steps"] == 6
