import math
import time

import numpy as np
import pytest
import torch
from torch import Tensor

from pixnar.model.head import PhraseHead
from pixnar.model.losses import LossParts, Sampler, TokenSample, Weights, losses, shortlist_loss

# Two tokens and the end; width two; two examples, two slots. Rows: a = (1, 0), b = (0, 1), end = (1, 1).
ROWS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
X = torch.tensor([[[0.5, 0.0], [1.0, 0.0], [0.0, 2.0]], [[0.0, 0.25], [-1.0, 0.0], [3.0, -1.0]]])
TARGETS = torch.tensor([[0, 2], [2, -1]])  # "a" then the end; an empty docid: the end at once, then padding


def _log_z(*logits: float) -> float:
    return math.log(sum(math.exp(logit) for logit in logits))


def test_the_three_losses_by_hand() -> None:
    parts = losses(X, TARGETS, PhraseHead(ROWS))
    # logits of (a, b, end): example 0: x0 (.5, 0, .5), x1 (1, 0, 1), x2 (0, 2, 2); example 1: x0 (0, .25, .25),
    # x1 (-1, 0, -1), x2 (3, -1, 2)
    z01, z02, z11, z12 = _log_z(1, 0, 1), _log_z(0, 2, 2), _log_z(-1, 0, -1), _log_z(3, -1, 2)
    z00, z10 = _log_z(0.5, 0, 0.5), _log_z(0, 0.25, 0.25)
    l1 = ((z01 - 1) + (z02 - 2) + (z11 + 1)) / 2
    l2 = ((z00 - 0.5) + (z00 - 0.5) + (z10 - 0.25)) / 2
    l3 = (z01**2 + z02**2 + z11**2 + z12**2) / 2
    assert parts.l1.item() == pytest.approx(l1, abs=1e-6)
    assert parts.l2.item() == pytest.approx(l2, abs=1e-6)
    assert parts.l3.item() == pytest.approx(l3, abs=1e-5)
    assert parts.log_z_abs.item() == pytest.approx((abs(z01) + abs(z02) + abs(z11) + abs(z12)) / 4, abs=1e-6)
    assert parts.tokens.item() == 3
    assert parts.total(Weights()).item() == pytest.approx(l1 + 0.25 * l2 + l3, abs=1e-5)


def test_the_three_losses_with_bias_by_hand() -> None:
    parts = losses(X[:1], TARGETS[:1], PhraseHead(ROWS, torch.tensor([0.0, -1.0, 0.5])))
    z0, z1, z2 = _log_z(0.5, -1, 1), _log_z(1, -1, 1.5), _log_z(0, 1, 2.5)
    assert parts.l1.item() == pytest.approx((z1 - 1) + (z2 - 2.5), abs=1e-6)
    assert parts.l2.item() == pytest.approx((z0 - 0.5) + (z0 - 1), abs=1e-6)
    assert parts.l3.item() == pytest.approx(z1**2 + z2**2, abs=1e-5)


def test_shortlist_loss_by_hand() -> None:
    c = torch.tensor([[2.0, 0.0], [0.0, 3.0], [-5.0, -5.0]], requires_grad=True)
    loss, assignment = shortlist_loss(c, X[:, 0], TARGETS, PhraseHead(ROWS, torch.tensor([0.0, 0.0, 1.0])))
    # x0 · c: (1, 0, -2.5) and (0, .75, -1.25); logits under c0: (2, 0, 3), under c1: (0, 3, 4)
    assert assignment.tolist() == [0, 1]
    z0, z1 = _log_z(2, 0, 3), _log_z(0, 3, 4)
    assert loss.item() == pytest.approx(((z0 - 2) + (z0 - 3) + (z1 - 4)) / 2, abs=1e-6)
    loss.backward()  # type: ignore[no-untyped-call]
    assert c.grad is not None
    # d/dc1 = (mean row under P_c1 - end's row) / 2
    p = [math.exp(logit - z1) for logit in (0, 3, 4)]
    assert c.grad[1].tolist() == pytest.approx([(p[0] + p[2] - 1) / 2, (p[1] + p[2] - 1) / 2], abs=1e-6)
    assert c.grad[2].tolist() == [0.0, 0.0]


def test_shortlist_examples_that_share_a_vector() -> None:
    c = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    x0 = torch.tensor([[1.0, 0.0], [0.0, -1.0], [0.0, 1.0]])
    loss, assignment = shortlist_loss(c, x0, torch.tensor([[0], [1], [2]]), PhraseHead(ROWS))
    assert assignment.tolist() == [0, 1, 0]
    near, far = _log_z(1, 1, 2), _log_z(-1, -1, -2)
    assert loss.item() == pytest.approx(((near - 1) + (far + 1) + (near - 2)) / 3, abs=1e-6)


def _random(seed: int = 0, bias: bool = True, sparse: bool = False) -> tuple[Tensor, Tensor, PhraseHead]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4, 4, 6, generator=generator, dtype=torch.float64).requires_grad_()
    targets = torch.tensor([[3, 9, 30], [7, 30, -1], [30, -1, -1], [5, 5, 5]])
    rows = torch.randn(31, 6, generator=generator, dtype=torch.float64)
    offsets = torch.randn(31, generator=generator, dtype=torch.float64) if bias else None
    return x, targets, PhraseHead(rows, offsets, sparse=sparse)


def _plain(x: Tensor, targets: Tensor, head: PhraseHead) -> tuple[Tensor, Tensor, Tensor]:
    """Slot by slot, from a full softmax."""
    l1, l2, l3 = [], [], []
    for vectors, tokens in zip(x, targets.tolist(), strict=True):
        for slot, token in enumerate(tokens, start=1):
            logits = head.rows @ vectors[slot] + (0 if head.bias is None else head.bias)
            first = head.rows @ vectors[0] + (0 if head.bias is None else head.bias)
            l3.append(logits.exp().sum().log() ** 2)
            if token >= 0:
                l1.append(-torch.log_softmax(logits, dim=0)[token])
                l2.append(-torch.log_softmax(first, dim=0)[token])
    count = len(x)
    return torch.stack(l1).sum() / count, torch.stack(l2).sum() / count, torch.stack(l3).sum() / count


@pytest.mark.parametrize("chunk", [0, 1, 8, 31])
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_those_of_the_full_softmax(chunk: int, bias: bool) -> None:
    x, targets, head = _random(bias=bias)
    inputs = [x, *head.parameters()]
    parts = losses(x, targets, head, chunk=chunk)
    for ours, plain in zip(parts[:3], _plain(x, targets, head), strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-10, rtol=0)
        got = torch.autograd.grad(ours, inputs, retain_graph=True, allow_unused=True)
        want = torch.autograd.grad(plain, inputs, retain_graph=True, allow_unused=True)
        for one, other in zip(got, want, strict=True):
            torch.testing.assert_close(one, other, atol=1e-10, rtol=0)


def test_a_sample_of_everything_is_exact() -> None:
    x, targets, head = _random(sparse=True)
    everything = TokenSample(torch.arange(31), torch.zeros(31))
    full, sampled = losses(x, targets, head), losses(x, targets, head, sample=everything)
    for one, other in zip(full, sampled, strict=True):
        torch.testing.assert_close(one, other)
    c = x.detach()[:, 0] * 2
    torch.testing.assert_close(
        shortlist_loss(c, x[:, 0], targets, head), shortlist_loss(c, x[:, 0], targets, head, everything)
    )


@pytest.mark.parametrize(
    "weights", [Weights(1, 0, 0), Weights(0, 1, 0), Weights(0, 0, 1), Weights(1, 0, 1), Weights(0, 0, 0)]
)
def test_weight_zero_is_not_computed(weights: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    x, targets, head = _random()
    every = losses(x, targets, head)
    seen: list[int] = []
    score = head.score

    def watched(vectors: Tensor, ids: Tensor, chunk: int = 0) -> tuple[Tensor, Tensor, Tensor | None]:
        seen.append(len(vectors))
        return score(vectors, ids, chunk)

    monkeypatch.setattr(head, "score", watched)
    parts = losses(x, targets, head, weights)
    assert sum(seen) == 12 * bool(weights.l1 or weights.l3) + 4 * bool(weights.l2)
    for name in ("l1", "l2", "l3"):
        expected = getattr(every, name) if getattr(weights, name) else torch.zeros((), dtype=torch.float64)
        torch.testing.assert_close(getattr(parts, name), expected)
    assert bool(parts.log_z_abs.isnan()) == (not (weights.l1 or weights.l3))


def test_padding_moves_nothing() -> None:
    x, _, head = _random()
    targets = torch.full((4, 3), -1)
    parts = losses(x, targets, head, Weights(1, 1, 0))
    assert parts.l1.item() == parts.l2.item() == parts.tokens.item() == 0
    (grad,) = torch.autograd.grad(parts.l1 + parts.l2, head.rows)
    assert bool((grad == 0).all())


def test_wrong_input_is_told() -> None:
    x, targets, head = _random()
    with pytest.raises(ValueError, match=r"\[4, 3\]"):
        losses(x[:, 1:], targets, head)
    with pytest.raises(ValueError, match="lacks"):
        losses(x, targets, head, sample=TokenSample(torch.tensor([3, 9, 30]), torch.zeros(3)))
    with pytest.raises(IndexError):
        losses(x, targets + 1, head)
    with pytest.raises(ValueError, match="size"):
        Sampler([1, 2], 0)


def test_autocast_is_near() -> None:
    x, targets, head = _random()
    x, head = x.detach().float(), head.float()
    exact = losses(x, targets, head)
    sample = Sampler(np.ones(31), 20).draw(targets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        near = losses(x, targets, head)
        losses(x, targets, head, sample=sample).total(Weights()).backward()  # type: ignore[no-untyped-call]
        listed, _ = shortlist_loss(x[:, 0], x[:, 0].bfloat16(), targets, head)
    assert near.l1.dtype == listed.dtype == torch.float32
    torch.testing.assert_close(LossParts(*near), exact, atol=0.1, rtol=0.02)
    assert head.rows.grad is not None


def test_the_estimate_of_z_is_unbiased() -> None:
    generator = torch.Generator().manual_seed(3)
    head = PhraseHead.random(301, 4, std=1.0, generator=generator, bias=torch.randn(301, generator=generator))
    x = torch.randn(2, 4, generator=generator)
    targets = torch.tensor([[4, 300, -1], [17, 4, 300]])
    sampler = Sampler(np.arange(301) % 40, 100, seed=1)
    exact = head.log_z(x).detach().double().exp()
    estimates = []
    with torch.no_grad():
        for _ in range(3000):
            sample = sampler.draw(targets)
            estimates.append(head.log_z_sampled(x, sample.ids, sample.log_weights).double().exp())
    ratios = torch.stack(estimates) / exact
    error = ratios.std(dim=0) / math.sqrt(len(estimates))
    assert bool((error < 0.02).all())
    assert bool(((ratios.mean(dim=0) - 1).abs() < 4 * error).all())


def test_a_draw_is_sorted_holds_the_targets_and_can_be_repeated() -> None:
    targets = torch.tensor([[90, 3, -1], [3, 50, 99]])
    sampler = Sampler(np.ones(100), 20, seed=7)
    first, second = sampler.draw(targets), sampler.draw(targets)
    assert not torch.equal(first.ids, second.ids)
    assert bool((first.ids.diff() > 0).all())
    sure = torch.isin(first.ids, targets)
    assert set(first.ids[sure].tolist()) == {3, 50, 90, 99}
    assert bool((first.log_weights[sure] == 0).all())
    chance = 1 - 0.99**20  # each of 20 draws misses a token with chance 0.99
    assert first.log_weights[~sure].tolist() == pytest.approx([-math.log(chance)] * int((~sure).sum()), abs=1e-5)
    again = Sampler(np.ones(100), 20, seed=7)
    again.step = 1
    assert torch.equal(again.draw(targets).ids, second.ids)
    assert not torch.equal(Sampler(np.ones(100), 20, seed=8).draw(targets).ids, first.ids)


def test_frequent_tokens_are_drawn_more_and_unseen_ones_too() -> None:
    counts = np.zeros(10)
    counts[0], counts[1] = 100, 25
    sampler = Sampler(counts, 4, uniform=0.1)
    nothing = torch.full((1, 1), -1)
    hits = np.zeros(10)
    for _ in range(4000):
        hits[sampler.draw(nothing).ids.numpy()] += 1
    # chances of one draw: 0.9 * 10/15 + 0.01, 0.9 * 5/15 + 0.01, 0.01 …
    expected = [1 - (1 - q) ** 4 for q in (0.61, 0.31, *[0.01] * 8)]
    assert hits / 4000 == pytest.approx(np.array(expected), abs=0.03)


def test_a_sampler_of_five_million_is_quick() -> None:
    sampler = Sampler(np.ones(5_000_000), 10_000)
    targets = torch.randint(0, 5_000_000, (64, 8))
    start = time.perf_counter()
    for _ in range(5):
        sampler.draw(targets)
    assert (time.perf_counter() - start) / 5 < 0.2
