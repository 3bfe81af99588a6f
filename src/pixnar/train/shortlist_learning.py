"""Shortlist learning: train the vectors c_1 … c_m by the paper's loss l', under the c_i nearest to each x_0."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

from pixnar.base.progress import Progress
from pixnar.model.head import PhraseHead
from pixnar.model.kmeans import assign, kmeans
from pixnar.model.losses import PADDING, Sampler, TokenSample, shortlist_loss
from pixnar.runtime.shortlist import LEAST_MEMBERS, defaults
from pixnar.train.optimizers import RowAdam

FULL_UP_TO = 70_000  # tokens: beyond, Z is estimated from a sample
POOL = 64  # examples for each vector that a round looks at, at most
PATIENCE = (
    2  # rounds without members after which a vector starts again elsewhere, in the first half: later it could not learn
)
MARGIN = 1.02  # by how much a vector that starts again wins its example
WIDTH = 16  # targets of an example that are looked at together
CANDIDATES = 1024  # examples among which the worst served are looked for


@dataclass(frozen=True)
class Options:
    """How to learn; 0 means: choose by size.

    A round assigns the examples (of many, a draw of 64 per vector), then visits every vector once with its members.
    With `minutes` the rounds end when the time is up, so how many there are, and the answer, depend on the machine.
    """

    m: int = 0
    rounds: int = 20
    minutes: float = 0.0
    batch: int = 512
    lr: float = 0.4  # first step of a vector, as a share of its length; falls to 0 over the rounds
    sampled: int = 0  # tokens drawn for Z; -1: all tokens, exactly
    seed: int = 0


@dataclass(frozen=True)
class _LearningProblem:
    x0: NDArray[np.float32]
    targets: NDArray[np.int64]
    head: PhraseHead
    sampler: Sampler | None

    def part(self, ids: NDArray[np.int64]) -> tuple[Tensor, Tensor, TokenSample | None]:
        """x_0, targets and a sample of tokens for some examples, on the head's device."""
        device = self.head.rows.device
        x0 = torch.from_numpy(self.x0[ids].astype(np.float32)).to(device)
        targets = torch.from_numpy(self.targets[ids].astype(np.int64)).to(device)
        return x0, targets, None if self.sampler is None else self.sampler.draw(targets)


def start(x0: Any, options: Options | None = None, head: PhraseHead | None = None) -> NDArray[np.float32]:
    """The vectors before learning: k-means of x_0."""
    options = options or Options()
    points = _array(x0)
    device = "cpu" if head is None else head.rows.device
    return kmeans(points, _count(options, len(points)), seed=options.seed, device=device).cpu().numpy()


def learn(
    x0: Any, targets: Any, head: PhraseHead, options: Options | None = None, progress: Progress | None = None
) -> NDArray[np.float32]:
    """The vectors c [m, d] for examples x_0 [N, d] with targets [N, s] (padded with -1 at the end); the head is kept.

    The more of its siblings' tokens an example's targets hold, the better the lists. With a head in shards all of its
    processes call this with the same examples, each sums over its own rows, and all get the same vectors.
    """
    options = options or Options()
    problem = _problem(x0, targets, head, options)
    group = head.group
    c = torch.from_numpy(start(problem.x0, options, head)).to(head.rows.device).requires_grad_(True)
    group.copy_first([c])
    optimizer = RowAdam([c], beta1=0.5, beta2=0.9)
    length = float(c.detach().norm(dim=1).mean()) / c.shape[1] ** 0.5
    generator = np.random.default_rng((options.seed, 1))
    idle = np.zeros(len(c), dtype=np.int64)
    began = time.monotonic()
    flags = [head.rows.requires_grad, head.bias is not None and head.bias.requires_grad]
    head.requires_grad_(False)
    try:
        for turn in range(options.rounds):
            done = turn / options.rounds
            if options.minutes:
                done = group.tell(max(done, (time.monotonic() - began) / (60 * options.minutes)))
                if done >= 1:
                    break
            optimizer.param_groups[0]["lr"] = options.lr * length * (1 - done)
            loss = _round(c, problem, optimizer, generator, idle, options.batch, done < 0.5)
            if progress is not None:
                progress(f"shortlist: loss {loss:.3f}", turn + 1, options.rounds)
    finally:
        _restore(head, flags)
    return c.detach().cpu().numpy()


def _round(
    c: Tensor,
    problem: _LearningProblem,
    optimizer: RowAdam,
    generator: np.random.Generator,
    idle: NDArray[np.int64],
    batch: int,
    revive: bool,
) -> float:
    """Assign, start the idle vectors again, then one step for every vector that has members; the mean loss."""
    count = len(problem.x0)
    pool = np.arange(count)
    if count > POOL * len(c):
        pool = np.sort(generator.choice(count, POOL * len(c), replace=False))
    group = problem.head.group
    members = group.tell_array(assign(_Pool(problem.x0, pool), c.detach()).cpu().numpy())
    idle += 1
    idle[members] = 0
    dead = np.flatnonzero(idle >= PATIENCE)
    if revive and dead.size:
        _revive(c, dead, problem, generator.permutation(pool)[: max(CANDIDATES, len(dead))], optimizer, generator)
        idle[dead] = 0
    total = 0.0
    for places in _batches(members, len(c), batch, generator):
        x0, targets, sample = problem.part(pool[places])
        x0, targets = _dense(x0, targets)
        if not len(x0):
            continue
        ids = torch.from_numpy(np.unique(members[places])).to(c.device)
        near = c.detach()[ids].requires_grad_(True)  # the others are further from all these examples
        loss, _ = shortlist_loss(near, x0, targets, problem.head, sample)
        loss.backward()  # type: ignore[no-untyped-call]
        assert near.grad is not None
        group.add_up([near.grad])
        optimizer.step_rows(c, ids, near.grad)
        total += float(loss.detach()) * len(x0)
    return total / len(pool)


def _dense(x0: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The same examples with little padding: one with many targets becomes several with at most `WIDTH` each."""
    if targets.shape[1] <= WIDTH:
        return x0, targets
    targets = F.pad(targets, (0, -targets.shape[1] % WIDTH), value=PADDING)
    pieces = targets.view(-1, WIDTH)
    real = (pieces[:, 0] != PADDING).nonzero().flatten()
    return x0[real // (targets.shape[1] // WIDTH)], pieces[real]


class _Pool:
    """Some rows of an array, sliced without copying them all."""

    def __init__(self, rows: NDArray[np.float32], ids: NDArray[np.int64]) -> None:
        self._rows, self._ids = rows, ids

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, piece: slice) -> NDArray[np.float32]:
        return self._rows[self._ids[piece]]


def _batches(
    members: NDArray[np.int64], m: int, batch: int, generator: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    """Places of examples, those of one vector together: its log Z, the dear part, is then computed once a round."""
    rank = generator.permutation(m)[members]
    order = np.argsort(rank, kind="stable")
    borders = np.append(np.flatnonzero(np.diff(rank[order])) + 1, len(order))
    begin = 0
    while begin < len(order):
        last = np.searchsorted(borders, begin + batch, side="right") - 1
        end = int(borders[last]) if last >= 0 and borders[last] > begin else begin + batch
        yield order[begin:end]
        begin = end


@torch.no_grad()
def _revive(
    c: Tensor,
    dead: NDArray[np.int64],
    problem: _LearningProblem,
    candidates: NDArray[np.int64],
    optimizer: RowAdam,
    generator: np.random.Generator,
) -> None:
    """Put each dead vector on the x_0 of a badly served example, just long enough to win it and few others.

    Examples are drawn by how badly they are served: the very worst are often neighbours, and one vector would do.
    """
    x0, targets, sample = problem.part(candidates)
    now = assign(x0, c)
    chosen, place = torch.unique(now, return_inverse=True)
    log_z = (
        problem.head.log_z(c[chosen])
        if sample is None
        else problem.head.log_z_sampled(c[chosen], sample.ids, sample.log_weights)
    )
    real = targets >= 0
    gaps = log_z[place][:, None] - problem.head.logits_at(c[now], targets.clamp(min=0))
    per_target = gaps.masked_fill(~real, 0).sum(dim=1) / real.sum(dim=1).clamp(min=1)
    chances = (per_target - per_target.min()).square().double().cpu().numpy() + 1e-9
    chances = problem.head.group.tell_array(chances)
    drawn = generator.choice(len(chances), min(len(dead), len(chances)), replace=False, p=chances / chances.sum())
    worst = torch.from_numpy(drawn).to(c.device)
    rows = torch.from_numpy(dead[: len(worst)]).to(c.device)
    points = x0[worst]
    reached = (points * c[now[worst]]).sum(dim=1) / points.square().sum(dim=1).clamp(min=1e-12)
    c[rows] = points * (MARGIN * reached.clamp(min=1e-3))[:, None]
    for part in optimizer.state[c].values():
        part[rows] = 0


def _problem(x0: Any, targets: Any, head: PhraseHead, options: Options) -> _LearningProblem:
    points, wanted = _array(x0), _array(targets)
    if points.ndim != 2 or wanted.ndim != 2 or len(points) != len(wanted) or not len(points):
        raise ValueError(f"learning needs x_0 [N, d] and targets [N, s], not {points.shape} and {wanted.shape}")
    if wanted.max() >= head.total:
        raise ValueError(f"target {wanted.max()} is outside a vocabulary of {head.total}")
    drawn = options.sampled or (-1 if head.total <= FULL_UP_TO else max(16_384, head.total // 50))
    if drawn < 0:
        return _LearningProblem(points, wanted, head, None)
    counts = np.bincount(wanted[wanted >= 0], minlength=head.total)
    return _LearningProblem(points, wanted, head, Sampler(counts, drawn, options.seed))


def _count(options: Options, examples: int) -> int:
    return min(options.m or defaults(1, examples)[0], max(1, examples // LEAST_MEMBERS))


def _restore(head: PhraseHead, flags: list[bool]) -> None:
    head.rows.requires_grad_(flags[0])
    if head.bias is not None:
        head.bias.requires_grad_(flags[1])


def _array(values: Any) -> NDArray[Any]:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
