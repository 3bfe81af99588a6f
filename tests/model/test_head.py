import math
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from pixnar.model.head import PhraseHead
from pixnar.model.logsumexp import chunked_logsumexp, logsumexp_and_rows

D, V, N = 5, 23, 7


def _inputs(seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x, rows, bias = (torch.randn(*shape, generator=generator, dtype=dtype) for shape in ((N, D), (V, D), (V,)))
    return x.requires_grad_(), rows.requires_grad_(), bias.requires_grad_()


def _head(sparse: bool = False, bias: bool = True, seed: int = 0) -> PhraseHead:
    _, rows, offsets = _inputs(seed)
    return PhraseHead(rows.detach(), offsets.detach() if bias else None, sparse=sparse)


def _dense(grad: Tensor | None) -> Tensor:
    assert grad is not None
    return grad.to_dense() if grad.is_sparse else grad


def test_log_z_by_hand() -> None:
    x = torch.tensor([[1.0, 2.0]])
    rows = torch.tensor([[0.5, 0.0], [0.0, -1.0], [1.0, 1.0]])
    bias = torch.tensor([0.0, 1.0, -2.0])
    # logits 0.5, -2 + 1, 3 - 2
    expected = math.log(math.exp(0.5) + math.exp(-1.0) + math.exp(1.0))
    assert chunked_logsumexp(x, rows, bias, chunk=2).item() == pytest.approx(expected, abs=1e-6)
    # logits 0.5, -2, 3
    expected = math.log(math.exp(0.5) + math.exp(-2.0) + math.exp(3.0))
    assert chunked_logsumexp(x, rows).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("chunk", [0, 1, 4, 5, V - 1, V, V + 1])
@pytest.mark.parametrize("with_bias", [True, False])
def test_value_and_gradients_are_those_of_the_plain_formula(chunk: int, with_bias: bool) -> None:
    x, rows, bias = _inputs()
    inputs = (x, rows, bias) if with_bias else (x, rows)
    upstream = torch.linspace(-1, 2, N, dtype=torch.float64)
    plain = torch.logsumexp(x @ rows.t() + (bias if with_bias else 0), dim=1)
    ours = chunked_logsumexp(x, rows, bias if with_bias else None, chunk=chunk)
    torch.testing.assert_close(ours, plain, atol=1e-12, rtol=0)
    expected = torch.autograd.grad(plain, inputs, upstream)
    for got, want in zip(torch.autograd.grad(ours, inputs, upstream), expected, strict=True):
        torch.testing.assert_close(got, want, atol=1e-12, rtol=0)


def test_gradient_against_finite_differences() -> None:
    assert torch.autograd.gradcheck(lambda x, rows, bias: chunked_logsumexp(x, rows, bias, chunk=6), _inputs())


def test_gathered_rows_share_the_gradient() -> None:
    x, rows, bias = _inputs()
    ids = torch.tensor([3, 0, 3, V - 1])

    def total(log_z: Tensor, picked: Tensor, offsets: Tensor) -> Tensor:
        return log_z.sum() + picked.square().sum() + offsets.exp().sum()

    log_z, picked, offsets = logsumexp_and_rows(x, rows, bias, ids, chunk=6)
    assert offsets is not None
    got = torch.autograd.grad(total(log_z, picked, offsets), (x, rows, bias))
    plain = total(torch.logsumexp(x @ rows.t() + bias, dim=1), rows[ids], bias[ids])
    for one, other in zip(got, torch.autograd.grad(plain, (x, rows, bias)), strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)
    only = torch.autograd.grad(logsumexp_and_rows(x, rows, bias, ids)[1].sum(), rows)[0]
    assert only.sum().item() == len(ids) * D
    assert only[1].abs().sum() == 0


def test_only_wanted_gradients_are_made() -> None:
    x, rows, bias = _inputs()
    chunked_logsumexp(x, rows.detach(), bias.detach()).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    chunked_logsumexp(x.detach(), rows, None).sum().backward()  # type: ignore[no-untyped-call]
    assert rows.grad is not None
    assert bias.grad is None


def test_second_derivatives_are_refused() -> None:
    x, rows, bias = _inputs()
    with pytest.raises(RuntimeError, match="only once"):
        torch.autograd.grad(chunked_logsumexp(x, rows, bias).sum(), x, create_graph=True)


def test_large_logits_do_not_overflow() -> None:
    x = torch.tensor([[1000.0], [-1000.0]], requires_grad=True)
    rows = torch.tensor([[1.0], [-1.0], [0.5]])
    log_z = chunked_logsumexp(x, rows, chunk=1)
    assert log_z.tolist() == [1000.0, 1000.0]
    assert torch.autograd.grad(log_z.sum(), x)[0].tolist() == [[1.0], [-1.0]]


def test_banned_tokens_count_nothing() -> None:
    x, rows, bias = _inputs()
    banned = bias.detach().clone()
    banned[:10] = -torch.inf
    log_z = chunked_logsumexp(x, rows, banned, chunk=5)
    torch.testing.assert_close(log_z, torch.logsumexp(x @ rows[10:].t() + bias[10:], dim=1))
    grad_x, grad_rows = torch.autograd.grad(log_z.sum(), (x, rows))
    assert bool(grad_x.isfinite().all())
    assert bool((grad_rows[:10] == 0).all())
    nothing = chunked_logsumexp(x, rows, torch.full_like(bias, -torch.inf))
    assert bool((nothing == -torch.inf).all())
    assert bool((torch.autograd.grad(nothing.sum(), x)[0] == 0).all())


def test_many_chunks_lose_no_precision_in_float32() -> None:
    generator = torch.Generator().manual_seed(0)
    x, rows = torch.randn(3, 8, generator=generator), torch.randn(50_000, 8, generator=generator)
    exact = torch.logsumexp(x.double() @ rows.double().t(), dim=1)
    torch.testing.assert_close(chunked_logsumexp(x, rows, chunk=7).double(), exact, atol=1e-5, rtol=0)


@pytest.mark.parametrize("narrow_rows", [False, True])
def test_bfloat16_is_near_and_sums_in_float32(narrow_rows: bool) -> None:
    x, rows, bias = (value.detach().float().requires_grad_() for value in _inputs())
    stored = rows.bfloat16() if narrow_rows else rows
    with torch.autocast("cpu", dtype=torch.bfloat16):
        log_z = chunked_logsumexp(x, stored, bias, chunk=6)
    assert log_z.dtype == torch.float32
    plain = torch.logsumexp(x @ rows.t() + bias, dim=1)
    torch.testing.assert_close(log_z, plain, atol=0.03, rtol=0)
    grads = torch.autograd.grad(log_z.sum(), (x, rows, bias))
    for got, want in zip(grads, torch.autograd.grad(plain.sum(), (x, rows, bias)), strict=True):
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, want, atol=0.06, rtol=0)


def test_autocast_of_a_head_and_of_narrow_vectors() -> None:
    head = PhraseHead.random(40, 8, std=0.5, generator=torch.Generator().manual_seed(0), bias=np.zeros(40))
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))
    ids = torch.arange(12).view(6, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        near = [head.log_z(x.bfloat16()), head.logits_at(x.bfloat16(), ids), head.logits(x.bfloat16())]
    for got, want in zip(near, (head.log_z(x), head.logits_at(x, ids), head.logits(x)), strict=True):
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, want, atol=0.05, rtol=0)


def _shard(whole: PhraseHead, first: int, last: int) -> PhraseHead:
    bias = None if whole.bias is None else whole.bias.detach()[first:last].clone()
    rows = whole.rows.detach()[first:last].clone()
    return PhraseHead(rows, bias, first=first, total=whole.total, sparse=whole.sparse)


def _merged(parts: list[Tensor]) -> Tensor:
    return torch.logsumexp(torch.stack(parts), dim=0)


def test_shards_make_the_whole() -> None:
    whole = _head()
    cuts = [0, 4, 5, 17, V]
    shards = [_shard(whole, first, last) for first, last in pairwise(cuts)]
    x = _inputs(1)[0]
    ids = torch.tensor([[0, 22, 5], [4, 4, 16]] + [[17, 3, 21]] * (N - 2))
    torch.testing.assert_close(_merged([shard.log_z(x) for shard in shards]), whole.log_z(x))
    torch.testing.assert_close(sum(shard.logits_at(x, ids) for shard in shards), whole.logits_at(x, ids))
    torch.testing.assert_close(torch.cat([shard.logits(x) for shard in shards], dim=1), whole.logits(x))
    sample, weights = torch.tensor([1, 4, 9, 20]), torch.tensor([0.0, 1.0, 2.0, 0.5])
    estimates = [shard.log_z_sampled(x, sample, weights) for shard in shards]
    torch.testing.assert_close(_merged(estimates), whole.log_z_sampled(x, sample, weights))
    assert [shard.eos for shard in shards] == [V - 1] * 4


def test_shards_get_the_gradients_of_the_whole() -> None:
    whole = _head()
    shards = [_shard(whole, 0, 9), _shard(whole, 9, V)]
    x = _inputs(1)[0].detach()
    ids = torch.tensor([[2, 15]] * N)
    (whole.log_z(x) - whole.logits_at(x, ids).sum(dim=1)).sum().backward()  # type: ignore[no-untyped-call]
    parts = [shard.score(x, ids.flatten()) for shard in shards]
    logits = sum(shard.logits_at(x, ids) for shard in shards)
    assert isinstance(logits, Tensor)
    loss = (_merged([log_z for log_z, _, _ in parts]) - logits.sum(dim=1)).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(torch.cat([_dense(shard.rows.grad) for shard in shards]), whole.rows.grad)
    assert whole.bias is not None
    biases = [shard.bias for shard in shards if shard.bias is not None]
    torch.testing.assert_close(torch.cat([_dense(bias.grad) for bias in biases]), whole.bias.grad)


@pytest.mark.parametrize("bias", [True, False])
def test_sparse_and_dense_gradients_agree(bias: bool) -> None:
    x, ids = _inputs(1)[0].detach(), torch.tensor([[2, 15]] * N)
    sample, weights = torch.tensor([0, 2, 7, 15]), torch.tensor([0.0, 1.0, 2.0, 0.0], dtype=torch.float64)
    grads = []
    for sparse in (False, True):
        head = _head(sparse, bias)
        loss = (head.log_z_sampled(x, sample, weights) - head.logits_at(x, ids).sum(dim=1)).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        assert head.rows.grad is not None
        assert head.rows.grad.is_sparse == sparse
        grads.append([_dense(parameter.grad) for parameter in head.parameters()])
        assert len(grads[-1]) == 1 + bias
    for dense, scattered in zip(*grads, strict=True):
        torch.testing.assert_close(dense, scattered)


def test_logits_at_are_those_of_the_full_table() -> None:
    head, x = _head(), _inputs(1)[0]
    ids = torch.arange(N * 3).view(N, 3)
    torch.testing.assert_close(head.logits_at(x, ids), head.logits(x).gather(1, ids))
    torch.testing.assert_close(head.log_z(x), head.logits(x).logsumexp(dim=1))


def test_makers() -> None:
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    vectors.setflags(write=False)
    head = PhraseHead.from_vectors(vectors, bias=[0.0, 1.0, 2.0], scale=2.0)
    assert head.rows.tolist() == [[0.0, 2.0], [4.0, 6.0], [8.0, 10.0]]
    assert head.bias is not None
    assert head.bias.tolist() == [0.0, 1.0, 2.0]
    assert (head.total, head.eos, head.width, head.first) == (3, 2, 2, 0)
    assert vectors[1, 0] == 2.0
    given = torch.ones(3, 2)
    PhraseHead.from_vectors(given, scale=3.0)
    assert given.sum() == 6
    one, two = (PhraseHead.random(1000, 16, generator=torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(one.rows, two.rows)
    assert one.rows.std().item() == pytest.approx(0.02, rel=0.05)
    assert one.bias is None


def test_wrong_shapes_are_told() -> None:
    with pytest.raises(ValueError, match="rows"):
        PhraseHead(torch.zeros(3))
    with pytest.raises(ValueError, match="bias"):
        PhraseHead(torch.zeros(3, 2), torch.zeros(2))
    with pytest.raises(ValueError, match="vocabulary of 4"):
        PhraseHead(torch.zeros(3, 2), first=2, total=4)
    with pytest.raises(IndexError):
        PhraseHead(torch.zeros(3, 2)).logits_at(torch.zeros(1, 2), torch.tensor([[3]]))


_STATUS = Path("/proc/self/status")  # unlike ru_maxrss, not inherited from the process that starts the child
_PEAK = """
def peak():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024
"""

_FULL_STEP = """
import torch
from pixnar.model.head import PhraseHead
from pixnar.model.losses import losses
torch.set_num_threads(1)
head = PhraseHead.random(1_000_001, 32)
x = torch.randn(32, 8, 32, requires_grad=True)
targets = torch.randint(0, 1_000_000, (32, 7))
before = peak()
sum(losses(x, targets, head)[:3]).backward()
assert head.rows.grad is not None
print(peak() - before)
"""

_SAMPLED_STEP = """
import time, torch
from pixnar.model.head import PhraseHead
from pixnar.model.losses import Sampler, losses
from pixnar.train.optimizers import RowAdam
torch.set_num_threads(1)
V = 1_000_001
head = PhraseHead(torch.zeros(V, 384), torch.zeros(V), sparse=True)
adam = RowAdam(head.parameters(), lr=0.1)
sampler = Sampler(torch.ones(V).numpy(), 4000)
x = torch.randn(32, 8, 384, requires_grad=True)
targets = torch.randint(0, V - 1, (32, 7))
before, start = peak(), time.perf_counter()
for _ in range(3):
    adam.zero_grad()
    sum(losses(x, targets, head, sample=sampler.draw(targets))[:3]).backward()
    adam.step()
assert head.rows.grad.is_sparse and head.bias.grad.is_sparse
assert head.rows[targets[0]].abs().sum() > 0
print(peak() - before, (time.perf_counter() - start) / 3)
"""


def _run(code: str) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-c", _PEAK + code], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return [float(word) for word in done.stdout.split()]


@pytest.mark.skipif(not _STATUS.exists(), reason="needs Linux to measure the peak")
def test_a_full_step_at_a_million_tokens_holds_no_full_logits() -> None:
    """The logits would be 256 × 1 M floats, 1,000 MB; the gradient of the rows is 128 MB."""
    (grown,) = _run(_FULL_STEP)
    assert grown < 300


@pytest.mark.skipif(not _STATUS.exists(), reason="needs Linux to measure the peak")
def test_a_sampled_step_at_a_million_tokens_is_small_and_quick() -> None:
    """Rows and a dense gradient would be 1,536 MB each."""
    grown, seconds = _run(_SAMPLED_STEP)
    assert grown < 300
    assert seconds < 3
