from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from pixnar.model.head import PhraseHead
from pixnar.model.kmeans import assign, kmeans
from pixnar.model.losses import shortlist_loss
from pixnar.runtime import Shortlist, token_lists
from pixnar.train.optimizers import RowAdam
from pixnar.train.shortlist_learning import Options, _batches, _dense, _problem, _revive, learn, start

TOPICS, TOKENS, WIDTH = 6, 20, 24  # topics, tokens of each, width


@dataclasses.dataclass(frozen=True)
class Toy:
    """Topics whose x_0 point elsewhere than their tokens' rows, so that only learning can find those."""

    x0: np.ndarray
    targets: np.ndarray
    topic: np.ndarray
    head: PhraseHead

    def recall(self, c: np.ndarray, r: int) -> float:
        rows = self.head.rows.detach().numpy()
        shortlist = Shortlist(c, token_lists(c, rows, None, r), 1)
        pairs = zip(self.x0, self.targets, strict=True)
        return float(np.mean([np.isin(wanted[wanted >= 0], shortlist.tokens(x)).mean() for x, wanted in pairs]))

    def loss(self, c: np.ndarray) -> float:
        x0, targets = torch.from_numpy(self.x0), torch.from_numpy(self.targets)
        return float(shortlist_loss(torch.from_numpy(c), x0, targets, self.head)[0].detach())


@pytest.fixture(scope="module")
def toy() -> Toy:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(TOPICS, WIDTH))
    places = rng.normal(size=(TOPICS, WIDTH))
    rows = np.repeat(places, TOKENS, axis=0) + 0.5 * rng.normal(size=(TOPICS * TOKENS, WIDTH))
    topic = rng.integers(0, TOPICS, 400)
    x0 = centres[topic] + 0.4 * rng.normal(size=(400, WIDTH))
    targets = topic[:, None] * TOKENS + rng.integers(0, TOKENS, (400, 5))
    targets[::3, 3:] = -1
    head = PhraseHead.from_vectors(np.concatenate([rows, np.zeros((1, WIDTH))]))
    return Toy(x0.astype(np.float32), targets, topic, head)


def test_learning_lowers_the_loss_and_beats_kmeans(toy: Toy) -> None:
    options = Options(m=8, rounds=15)
    before, after = start(toy.x0, options), learn(toy.x0, toy.targets, toy.head, options)
    assert after.shape == (8, WIDTH)
    assert after.dtype == np.float32
    assert toy.loss(after) < 0.8 * toy.loss(before)
    assert toy.recall(after, TOKENS) > 0.85
    assert toy.recall(after, TOKENS) > toy.recall(before, TOKENS) + 0.3


def test_a_sample_of_tokens_teaches_too(toy: Toy) -> None:
    after = learn(toy.x0, toy.targets, toy.head, Options(m=8, rounds=15, sampled=60))
    assert toy.recall(after, TOKENS) > 0.8


def test_same_seed_same_vectors(toy: Toy) -> None:
    options = Options(m=8, rounds=3, batch=50, sampled=40)
    first = learn(toy.x0, toy.targets, toy.head, options)
    again = learn(torch.from_numpy(toy.x0), torch.from_numpy(toy.targets), toy.head, options)
    other = learn(toy.x0, toy.targets, toy.head, dataclasses.replace(options, seed=1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_head_stays_as_it_was(toy: Toy) -> None:
    rows = toy.head.rows.detach().clone()
    learn(toy.x0, toy.targets, toy.head, Options(m=4, rounds=1))
    assert torch.equal(toy.head.rows, rows)
    assert toy.head.rows.requires_grad
    assert toy.head.rows.grad is None


def test_m_has_at_least_eight_examples_each(toy: Toy) -> None:
    assert len(start(toy.x0, Options(m=4096))) == 50
    assert len(start(toy.x0)) == 50
    assert len(start(toy.x0[:3])) == 1


def test_progress_tells_the_loss(toy: Toy) -> None:
    told: list[tuple[str, int, int]] = []
    learn(toy.x0, toy.targets, toy.head, Options(m=8, rounds=4), lambda *words: told.append(words))
    losses = [float(stage.split()[-1]) for stage, _, _ in told]
    assert [words[1:] for words in told] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert losses[-1] < losses[0]


def test_minutes_end_the_learning(toy: Toy) -> None:
    told: list[int] = []
    learn(
        toy.x0, toy.targets, toy.head, Options(m=8, rounds=10**6, minutes=0.005), lambda *words: told.append(words[1])
    )
    assert 0 < len(told) < 10**4


def test_a_dead_vector_starts_again_where_it_is_needed(toy: Toy) -> None:
    known = toy.topic != 0
    served = learn(toy.x0[known], toy.targets[known], toy.head, Options(m=5, rounds=10))
    c = torch.from_numpy(np.concatenate([served, np.zeros((1, WIDTH), np.float32)])).requires_grad_(True)
    optimizer = RowAdam([c], beta1=0.5)
    c.grad = torch.ones_like(c)
    optimizer.step()
    dead = np.array([5])
    everyone = np.arange(len(toy.x0))
    _revive(c, dead, _problem(toy.x0, toy.targets, toy.head, Options()), everyone, optimizer, np.random.default_rng(0))
    won = assign(toy.x0, c.detach()).numpy() == 5
    assert won.any()
    assert np.mean(toy.topic[won] == 0) > np.mean(~known)
    assert not optimizer.state[c]["momentum"][dead].any()
    assert optimizer.state[c]["momentum"][:5].all()


def test_vectors_without_members_get_some(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    def lopsided(x0: np.ndarray, m: int, **_: object) -> torch.Tensor:
        c = kmeans(x0, m)
        c[2:] = 1e-6
        return c

    monkeypatch.setattr("pixnar.train.shortlist_learning.kmeans", lopsided)
    options = Options(m=8, rounds=25)
    revived = learn(toy.x0, toy.targets, toy.head, options)
    monkeypatch.setattr("pixnar.train.shortlist_learning.PATIENCE", 1000)
    left = learn(toy.x0, toy.targets, toy.head, options)
    assert len(np.unique(assign(toy.x0, torch.from_numpy(revived)).numpy())) == 8
    assert toy.recall(revived, TOKENS) > toy.recall(left, TOKENS) + 0.1


def test_batches_keep_members_together() -> None:
    members = np.random.default_rng(0).integers(0, 9, 300)
    found = list(_batches(members, 9, 100, np.random.default_rng(1)))
    assert sorted(np.concatenate(found).tolist()) == list(range(300))
    assert all(len(places) <= 100 for places in found)
    homes = [set(members[places].tolist()) for places in found]
    assert sum(map(len, homes)) == 9
    crowded = [len(places) for places in _batches(np.zeros(250, np.int64), 9, 100, np.random.default_rng(1))]
    assert crowded == [100, 100, 50]


def test_long_examples_are_split_without_change_of_the_sum(toy: Toy) -> None:
    rng = np.random.default_rng(3)
    targets = torch.from_numpy(rng.integers(0, TOPICS * TOKENS, (7, 37)))
    for line, size in enumerate([37, 16, 17, 1, 0, 32, 33]):
        targets[line, size:] = -1
    x0 = torch.from_numpy(toy.x0[:7])
    c = torch.from_numpy(start(toy.x0, Options(m=8)))
    split_x0, split = _dense(x0, targets)
    assert split.shape == (3 + 1 + 2 + 1 + 0 + 2 + 3, 16)
    whole, parts = shortlist_loss(c, x0, targets, toy.head)[0], shortlist_loss(c, split_x0, split, toy.head)[0]
    assert torch.isclose(whole * 7, parts * len(split))


def test_wrong_input_is_refused(toy: Toy) -> None:
    with pytest.raises(ValueError, match="learning needs"):
        learn(toy.x0, toy.targets[:5], toy.head)
    with pytest.raises(ValueError, match="outside a vocabulary of 121"):
        learn(toy.x0, toy.targets + 100, toy.head)


def test_examples_without_targets_do_no_harm(toy: Toy) -> None:
    nothing = np.full((len(toy.x0), 20), -1)
    assert np.array_equal(learn(toy.x0, nothing, toy.head, Options(m=4, rounds=2)), start(toy.x0, Options(m=4)))
