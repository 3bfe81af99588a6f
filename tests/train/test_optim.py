import io
import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from pixnar.model.head import PhraseHead
from pixnar.model.losses import LossParts, Sampler, Weights, losses
from pixnar.model.process_group import ProcessGroup
from pixnar.train.optimizers import RowAdam


def _sparse(ids: list[int], values: list[list[float]], shape: tuple[int, ...]) -> Tensor:
    return torch.sparse_coo_tensor(torch.tensor([ids]), torch.tensor(values), shape, check_invariants=True)


def test_two_steps_by_hand() -> None:
    rows = nn.Parameter(torch.tensor([[1.0, 1.0], [5.0, 5.0]]))
    adam = RowAdam([rows], lr=0.1, beta2=0.9, eps=0.0)
    rows.grad = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    adam.step()
    # mean square 12.5; corrected, the first average is 12.5 itself
    first = [1 - 0.1 * 3 / math.sqrt(12.5), 1 - 0.1 * 4 / math.sqrt(12.5)]
    assert rows[0].tolist() == pytest.approx(first, abs=1e-6)
    assert rows[1].tolist() == [5.0, 5.0]
    rows.grad = torch.tensor([[0.0, 2.0], [6.0, 8.0]])
    adam.step()
    # row 0: (0.9 * 0.1 * 12.5 + 0.1 * 2) / (1 - 0.81); row 1 takes its first step: 50
    root = math.sqrt((0.9 * 0.1 * 12.5 + 0.1 * 2.0) / 0.19)
    assert rows[0].tolist() == pytest.approx([first[0], first[1] - 0.1 * 2 / root], abs=1e-6)
    assert rows[1].tolist() == pytest.approx([5 - 0.6 / math.sqrt(50), 5 - 0.8 / math.sqrt(50)], abs=1e-6)


def test_momentum_by_hand() -> None:
    rows = nn.Parameter(torch.zeros(1, 1))
    adam = RowAdam([rows], lr=1.0, beta1=0.5, beta2=0.0, eps=0.0)
    for grad in (2.0, -1.0):
        rows.grad = torch.tensor([[grad]])
        adam.step()
    # averages: 1 / 0.5 = 2, over size 2; then (0.5 * 1 - 0.5) / 0.75 = 0
    assert rows.item() == pytest.approx(-1.0)


@pytest.mark.parametrize("beta1", [0.0, 0.9])
def test_dense_sparse_and_given_gradients_move_alike(beta1: float) -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(6, 3, generator=generator)
    tables = [nn.Parameter(start.clone()) for _ in range(3)]
    adams = [RowAdam([table], lr=0.1, beta1=beta1) for table in tables]
    for ids in ([1, 4, 1], [4, 0, 0], [5, 1, 2]):
        values = torch.randn(3, 3, generator=generator)
        scattered = _sparse(ids, values.tolist(), (6, 3))
        tables[0].grad, tables[1].grad = scattered.to_dense(), scattered
        adams[0].step()
        adams[1].step()
        adams[2].step_rows(tables[2], torch.tensor(ids), values)
    for table in tables[1:]:
        torch.testing.assert_close(table, tables[0])
    assert torch.equal(tables[0][3], start[3])
    assert adams[1].state[tables[1]]["steps"].tolist() == [1, 2, 1, 0, 2, 1]


def test_a_row_left_out_keeps_still_whatever_its_momentum() -> None:
    rows = nn.Parameter(torch.zeros(2, 2))
    adam = RowAdam([rows], lr=0.1, beta1=0.9)
    rows.grad = torch.ones(2, 2)
    adam.step()
    before = rows.detach().clone()
    rows.grad = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    adam.step()
    assert torch.equal(rows[1], before[1])
    assert not torch.equal(rows[0], before[0])


def test_state_is_one_float_and_a_count_per_row() -> None:
    rows, bias = nn.Parameter(torch.zeros(1000, 64)), nn.Parameter(torch.zeros(1000))
    adam = RowAdam([rows, bias])
    rows.grad, bias.grad = torch.ones(1000, 64), torch.ones(1000)
    adam.step()
    for parameter in (rows, bias):
        state = adam.state[parameter]
        assert sum(value.numel() * value.element_size() for value in state.values()) == 1000 * (4 + 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_state_comes_back_as_it_was(dtype: torch.dtype) -> None:
    torch.manual_seed(0)

    def fresh() -> tuple[nn.Parameter, RowAdam]:
        table = nn.Parameter(torch.zeros(5, 3, dtype=dtype))
        return table, RowAdam([table], lr=0.1, beta1=0.9)

    rows, adam = fresh()
    for _ in range(3):
        rows.grad = torch.randn(5, 3, dtype=dtype)
        adam.step()
    file = io.BytesIO()
    torch.save(adam.state_dict(), file)
    file.seek(0)
    again, other = fresh()
    other.load_state_dict(torch.load(file, weights_only=True))
    for key, value in adam.state[rows].items():
        assert other.state[again][key].dtype == value.dtype
        assert torch.equal(other.state[again][key], value)
    with torch.no_grad():
        again.copy_(rows)
    rows.grad = torch.randn(5, 3, dtype=dtype)
    again.grad = rows.grad.clone()
    adam.step()
    other.step()
    assert torch.equal(rows, again)


def test_step_counts_stop_instead_of_wrapping() -> None:
    rows = nn.Parameter(torch.zeros(1, 1))
    adam = RowAdam([rows], lr=0.1)
    rows.grad = torch.ones(1, 1)
    adam.step()
    adam.state[rows]["steps"].fill_(32_767)
    adam.step()
    assert adam.state[rows]["steps"].item() == 32_767


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="betas"):
        RowAdam([nn.Parameter(torch.zeros(1, 1))], beta2=1.0)


def _trained(make: Callable[[PhraseHead], torch.optim.Optimizer], sparse: bool = False) -> tuple[LossParts, LossParts]:
    """The losses before and after training a head alone, with fixed vectors; sampled if sparse."""
    generator = torch.Generator().manual_seed(0)
    tokens, batch, slots = 50, 16, 3
    head = PhraseHead.random(tokens + 1, 32, generator=generator, bias=torch.zeros(tokens + 1), sparse=sparse)
    x = torch.randn(batch, slots + 1, 32, generator=generator)
    targets = torch.randint(0, tokens, (batch, slots), generator=generator)
    targets[:, -1] = head.eos
    sampler = Sampler(torch.bincount(targets.flatten(), minlength=tokens + 1).numpy(), 100)
    optimizer = make(head)
    before = losses(x, targets, head)
    for _ in range(200):
        optimizer.zero_grad()
        parts = losses(x, targets, head, sample=sampler.draw(targets) if sparse else None)
        parts.total(Weights()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return before, losses(x, targets, head)


def test_it_learns_about_as_fast_as_adam() -> None:
    before, after = _trained(lambda head: RowAdam(head.parameters(), lr=0.02))
    _, other = _trained(lambda head: torch.optim.Adam(head.parameters(), lr=0.02))
    assert after.l1 < 0.2 * before.l1
    assert after.l3 < 0.1 * before.l3
    assert after.total(Weights()) < 1.2 * other.total(Weights())


def test_it_learns_from_samples() -> None:
    before, after = _trained(lambda head: RowAdam(head.parameters(), lr=0.02), sparse=True)
    assert after.l1 < 0.35 * before.l1
    assert after.l3 < 0.2 * before.l3


def test_rows_with_vanishing_gradients_hardly_move() -> None:
    """Alone each of them would take steps of full length, however small its gradients are."""
    torch.manual_seed(0)
    sizes = torch.cat([torch.ones(50), torch.full((50,), 1e-5)])[:, None]
    for sparse in (False, True):
        rows = nn.Parameter(torch.zeros(100, 8))
        adam = RowAdam([rows], lr=0.1)
        for _ in range(20):
            grads = torch.randn(100, 8).abs() * sizes
            rows.grad = grads.to_sparse(1) if sparse else grads
            adam.step()
        moved = rows.detach().norm(dim=1)
        assert moved[:50].min() > 1
        assert moved[50:].max() < 1e-3 * moved[:50].min()
    rows = nn.Parameter(torch.zeros(100, 8))
    adam = RowAdam([rows], lr=0.1)
    adam.step_rows(rows, torch.arange(100), torch.randn(100, 8) * sizes)  # centres of small clusters need long steps
    assert rows.detach().norm(dim=1).min() > 0.25


def test_tokens_that_are_never_a_target_come_to_rest() -> None:
    """Once the model knows them, their gradients vanish, and they should not go on moving at the pace of targets."""
    generator = torch.Generator().manual_seed(0)
    tokens, used, batch = 200, 20, 32
    head = PhraseHead.random(tokens + 1, 16, generator=generator, bias=torch.zeros(tokens + 1))
    vectors = torch.randn(used, 16, generator=generator)
    adam = RowAdam(head.parameters(), lr=0.02)
    moved = torch.zeros(tokens + 1)
    for step in range(600):
        before = head.rows.detach().clone()
        targets = torch.randint(0, used, (batch, 1), generator=generator)
        x = vectors[targets] + 0.3 * torch.randn(batch, 1, 16, generator=generator)
        adam.zero_grad()
        losses(torch.cat([x, x], 1), targets, head).total(Weights(l2=0.0, l3=0.0)).backward()  # type: ignore[no-untyped-call]
        adam.step()
        if step >= 300:
            moved += (head.rows.detach() - before).norm(dim=1)
    assert moved[used:tokens].median() < 0.3 * moved[:used].median()  # 0.23; without the floor 0.41


def test_rows_of_two_processes_move_as_those_of_one() -> None:
    """The floor is shared: a process whose rows all have small gradients does not take them for usual."""

    class Pair(ProcessGroup):
        """One of two processes; what both add up is known beforehand."""

        def __init__(self, total: Tensor) -> None:
            super().__init__(0, 2)
            self.total = total

        def add_up(self, tensors: Sequence[Tensor]) -> None:
            tensors[0].copy_(self.total)

    generator = torch.Generator().manual_seed(0)
    grads = torch.randn(8, 4, generator=generator)
    grads[4:] *= 1e-4
    whole = nn.Parameter(torch.zeros(8, 4))
    whole.grad = grads
    RowAdam([whole], lr=0.1).step()
    halves = [nn.Parameter(torch.zeros(4, 4)) for _ in range(2)]
    pair = Pair(torch.tensor([[float(grads.square().mean(1).sum()), 8.0]]))
    for half, part in zip(halves, grads.chunk(2), strict=True):
        half.grad = part
        RowAdam([half], lr=0.1, processes=pair).step()
    torch.testing.assert_close(torch.cat([half.detach() for half in halves]), whole.detach())
    assert whole.detach()[4:].abs().max() < 0.01 * whole.detach()[:4].abs().max()


def test_an_overflow_in_one_row_does_not_stop_the_others() -> None:
    rows = nn.Parameter(torch.zeros(3, 2))
    adam = RowAdam([rows], lr=0.1)
    rows.grad = torch.tensor([[1e30, 1e30], [1.0, 1.0], [float("nan"), 1.0]])
    adam.step()
    assert rows[1].tolist() == pytest.approx([-0.1, -0.1], rel=1e-4)
