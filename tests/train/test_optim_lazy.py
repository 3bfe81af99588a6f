"""LazyAdam against torch's own optimizers."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pixnar.train.checkpoint import flatten, restore
from pixnar.train.optimizers import LazyAdam

SHAPE = (9, 4)


def sparse(ids: list[int], generator: torch.Generator, shape: tuple[int, ...] = SHAPE) -> Tensor:
    values = torch.randn(len(ids), *shape[1:], generator=generator)
    return torch.sparse_coo_tensor(torch.tensor([ids]), values, shape, check_invariants=True)


def start(shape: tuple[int, ...] = SHAPE) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


STEPS = [[1, 4, 1], [4, 0, 0], [8, 1, 2], [1], [0, 2, 4, 5]]  # rows, some given twice


@pytest.mark.parametrize("shape", [SHAPE, (9,), (9, 2, 3)])
def test_equals_sparse_adam(shape: tuple[int, ...]) -> None:
    ours, theirs = nn.Parameter(start(shape)), nn.Parameter(start(shape))
    lazy = LazyAdam([ours], lr=0.05, beta1=0.8, beta2=0.95, eps=1e-12)
    known = torch.optim.SparseAdam([theirs], lr=0.05, betas=(0.8, 0.95), eps=1e-12)
    generator = torch.Generator().manual_seed(1)
    for i, ids in enumerate(STEPS):
        ours.grad = sparse(ids, generator, shape)
        theirs.grad = ours.grad.clone()
        for group in (lazy.param_groups[0], known.param_groups[0]):
            group["lr"] = 0.05 * (1 - i / 10)  # a schedule
        before = ours.detach().clone()
        lazy.step()
        known.step()  # type: ignore[no-untyped-call]
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
        moved = (ours.detach() != before).flatten(1).any(1) if ours.dim() > 1 else ours.detach() != before
        assert set(moved.nonzero()[:, 0].tolist()) == set(ids)
    untouched = sorted(set(range(9)) - {i for ids in STEPS for i in ids})
    assert untouched
    assert torch.equal(ours[untouched], start(shape)[untouched])


def test_equals_adam_on_dense_gradients() -> None:
    ours, theirs = nn.Parameter(start()), nn.Parameter(start())
    lazy = LazyAdam([ours], lr=0.05, eps=1e-3)
    known = torch.optim.Adam([theirs], lr=0.05, betas=(0.9, 0.99), eps=1e-3)
    generator = torch.Generator().manual_seed(2)
    for _ in range(6):
        ours.grad = torch.randn(SHAPE, generator=generator)
        theirs.grad = ours.grad.clone()
        lazy.step()
        known.step()
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


def test_a_sparse_gradient_of_all_rows_is_a_dense_one() -> None:
    tables = [nn.Parameter(start()) for _ in range(2)]
    optimizers = [LazyAdam([table], lr=0.1) for table in tables]
    generator = torch.Generator().manual_seed(3)
    for _ in range(3):
        tables[0].grad = sparse([*range(9), 3, 3], generator)
        tables[1].grad = tables[0].grad.to_dense()
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(tables[0], tables[1])


def test_a_parameter_without_a_gradient_stays() -> None:
    table, other = nn.Parameter(start()), nn.Parameter(start())
    optimizer = LazyAdam([table, other], lr=0.1)
    table.grad = torch.ones(SHAPE)
    optimizer.step()
    assert torch.equal(other, start())
    assert not torch.equal(table, start())


@pytest.mark.parametrize("after", [0, 1, 3])
def test_saved_and_restored(after: int) -> None:
    """Through what a checkpoint holds: named tensors and JSON."""

    def advance(table: nn.Parameter, bias: nn.Parameter, optimizer: LazyAdam, steps: range) -> None:
        for i in steps:
            generator = torch.Generator().manual_seed(i)
            table.grad = sparse(STEPS[i], generator)
            bias.grad = sparse(STEPS[i], generator, (9,))
            optimizer.step()

    def made(rows: Tensor, biases: Tensor) -> tuple[nn.Parameter, nn.Parameter, LazyAdam]:
        table, bias = nn.Parameter(rows.detach().clone()), nn.Parameter(biases.detach().clone())
        groups: list[dict[str, Any]] = [{"params": [table, bias], "lr": 0.1, "start": 0.1}]
        return table, bias, LazyAdam(groups)

    whole = made(start(), start((9,)))
    advance(*whole, range(5))
    first = made(start(), start((9,)))
    advance(*first, range(after))
    tensors, rest = flatten(first[2].state_dict(), "optimizer.")
    again = made(first[0], first[1])
    again[2].load_state_dict(restore({k: v.clone() for k, v in tensors.items()}, json.loads(json.dumps(rest))))
    assert again[2].param_groups[0]["steps"] == after
    assert again[2].param_groups[0]["start"] == 0.1
    advance(*again, range(after, 5))
    assert torch.equal(again[0], whole[0])
    assert torch.equal(again[1], whole[1])
