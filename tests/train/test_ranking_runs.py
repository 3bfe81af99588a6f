"""Training by ranking: its negatives, and whole runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pixnar.scoring import COMPOSED_RULE
from pixnar.train import log, neighbours, ranking
from pixnar.train.pairs import Epoch
from pixnar.train.ranking import RankingStep
from tests.helpers.ranking_steps import SIZE, Floats, first_of, model_of, step_of
from tests.helpers.training_runs import TrainingSetup, losses, options, run, training_setup


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TrainingSetup:
    return training_setup(tmp_path_factory.mktemp("setup"), documents=9, docids=4)


# Negatives


def test_negatives_are_documents_of_neighbours(made: TrainingSetup) -> None:
    step = step_of(made, negatives=2)
    batch = step.pairs.batch(0, 3)
    inputs = np.unique(batch.inputs)
    near = np.arange(2 * len(inputs)).reshape(-1, 2) * 5 % len(made.data.docids)
    step.mined = inputs, near
    step._round = 0
    allowed = {int(d) for d in made.data.pair_document[np.isin(made.data.pair_docid, near)]}
    drawn: set[int] = set()
    for number in range(40):
        found = set(step._candidates(batch, number).documents.tolist())
        assert set(batch.documents.tolist()) <= found
        assert found <= set(batch.documents.tolist()) | allowed
        drawn |= set(step._negatives(step._near(batch.inputs), number).tolist())
    assert drawn == allowed
    unknown = np.setdiff1d(np.arange(len(made.data.docids)), inputs)[:3]
    assert len(step._negatives(step._near(unknown), 0)) == 0  # inputs that were not mined have none
    step.mined = inputs[:1], near[:1]
    own = {int(d) for d in made.data.pair_document[np.isin(made.data.pair_docid, near[:1])]}
    assert set(step._negatives(step._near(inputs), 0).tolist()) <= own


def test_what_an_input_misspells_does_not_count(made: TrainingSetup) -> None:
    data = made.data
    step = step_of(made, all_documents=True)
    batch = step.pairs.batch(0, SIZE)
    candidates = step._candidates(batch, 0)
    query = len(data.docids)
    assert data.queries
    asked = batch._replace(inputs=np.full(SIZE, query))
    assert not step._itself(asked, candidates).any()
    misspelt = candidates.docids[candidates.member[0]]
    step.data = replace(data, query_docid=np.full(len(data.queries), misspelt))
    assert torch.equal(
        step._itself(asked, candidates), step._itself(batch._replace(inputs=np.full(SIZE, misspelt)), candidates)
    )


def test_near_docids_speak_for_their_documents(made: TrainingSetup) -> None:
    step = step_of(made, negatives=2, docids=1)
    batch = step.pairs.batch(0, 3)
    near = np.arange(12).reshape(3, 4) % len(made.data.docids)
    step.mined, step._round = (np.unique(batch.inputs), near[: len(np.unique(batch.inputs))]), 0
    found = step._candidates(batch, 0)
    pairs = {(int(found.docids[m]), int(found.documents[o])) for m, o in zip(found.member, found.owner, strict=True)}
    known = set(zip(made.data.pair_docid.tolist(), made.data.pair_document.tolist(), strict=True))
    mined = set(step._near(batch.inputs).ravel().tolist())
    wanted = {(docid, document) for docid, document in known if docid in mined and document in found.documents}
    assert wanted <= pairs <= known
    counts = np.bincount(made.data.pair_document, minlength=len(made.data.doc_ids))[found.documents]
    estimated = np.bincount(found.owner, weights=np.exp(found.log_weight), minlength=len(found.documents))
    all_pairs = zip(found.docids[found.member].tolist(), found.documents[found.owner].tolist(), strict=True)
    sampled = np.bincount(found.owner, weights=[pair not in wanted for pair in all_pairs])
    np.testing.assert_allclose(estimated[sampled > 0], counts[sampled > 0], rtol=1e-5)  # all docids are stood for


def spied(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Floats, Floats]]:
    """What is asked of `nearest`."""
    calls: list[tuple[Floats, Floats]] = []

    def nearest(x: Floats, d: Floats, k: int, *, seed: int) -> Any:
        calls.append((x.copy(), d.copy()))
        return neighbours.nearest(x, d, k, seed=seed)

    monkeypatch.setattr(ranking, "nearest", nearest)
    return calls


def test_the_model_mines_again(made: TrainingSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = spied(monkeypatch)
    step = step_of(made, mine_every=3)
    vectors = made.data.vectors
    assert vectors is not None
    for number in range(7):
        with torch.no_grad():
            step.model.head.rows.add_(0.05 * torch.randn_like(step.model.head.rows))
        before = step.docid_vectors(np.arange(len(made.data.docids)))
        step(number, SIZE, live=False)
        assert len(calls) == number // 3 + 1
        if number % 3:
            continue
        assert step.mined is not None
        inputs, near = step.mined
        here = [step.pairs.batch(s, SIZE).inputs for s in range(number, number + 3)]
        whole = step.pairs.steps_per_epoch(SIZE) <= 3  # a round as long as an epoch mines for all inputs
        wanted = made.data.names()[0] if whole else np.concatenate(here)
        assert inputs.tolist() == np.unique(wanted).tolist()
        assert set(np.concatenate(here)) <= set(inputs)
        x, docids = calls[-1]
        if number == 0:  # by the encoder's own vectors
            np.testing.assert_array_equal(x, vectors[inputs].astype(np.float32))
            np.testing.assert_array_equal(docids, vectors[: len(made.data.docids)].astype(np.float32))
        else:
            np.testing.assert_allclose(x, first_of(step, inputs).detach().numpy(), atol=1e-5)
            np.testing.assert_allclose(docids, before, atol=1e-6)
        scores = x @ docids.T
        best = -np.sort(-scores, 1)[:, :16]
        np.testing.assert_allclose(-np.sort(-np.take_along_axis(scores, near, 1), 1), best, atol=1e-5)  # the nearest
    assert not np.allclose(calls[1][1], calls[2][1])


def test_nothing_is_mined_where_nothing_is_asked_for(made: TrainingSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = spied(monkeypatch)
    step_of(made, negatives=0)(0, SIZE, live=False)
    step_of(made, all_documents=True)(0, SIZE, live=False)
    assert not calls


# Runs


def wish(**changes: Any) -> Any:
    return options(**({"steps": 10, "mine_every": 4, "docids": 3, "batch": SIZE} | changes))


@pytest.mark.parametrize("changes", [{}, {"fine_tune": 0.5}, {"optimizer": "rows", "accumulate": 2}])
def test_the_same_seed_gives_the_same_run(made: TrainingSetup, tmp_path: Path, changes: dict[str, Any]) -> None:
    models = [
        run(made, tmp_path / name, wish(**changes), rule=COMPOSED_RULE, model=model_of(made))[0] for name in ("a", "b")
    ]
    assert losses(tmp_path / "a") == losses(tmp_path / "b")
    assert len(losses(tmp_path / "a")) == 10
    assert all(torch.equal(a, b) for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True))
    assert models[0].head.pieces is None  # folded
    run(made, tmp_path / "c", wish(seed=1, **changes), rule=COMPOSED_RULE, model=model_of(made))
    assert losses(tmp_path / "c") != losses(tmp_path / "a")


@pytest.mark.parametrize("changes", [{}, {"fine_tune": 0.4, "accumulate": 2}])
def test_resuming_in_the_middle_of_a_round(
    made: TrainingSetup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    """Saved at steps 3, 6 and 9, mined at 0, 4 and 8: from 6 on it goes on with what was mined at 4."""
    calls, every = spied(monkeypatch), 4 * changes.get("accumulate", 1)
    settings = wish(mine_every=every, **changes)
    whole, _ = run(made, tmp_path / "whole", settings, rule=COMPOSED_RULE, model=model_of(made))
    assert len(calls) == 3

    def stop(words: str, done: int, total: int | None) -> None:
        if len(losses(tmp_path / "broken")) >= 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(made, tmp_path / "broken", settings, rule=COMPOSED_RULE, model=model_of(made), progress=stop)
    calls.clear()
    again, _ = run(made, tmp_path / "broken", settings, rule=COMPOSED_RULE, model=model_of(made))
    assert len(calls) == 1  # at step 8 only
    assert losses(tmp_path / "broken") == losses(tmp_path / "whole")
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), again.parameters(), strict=True))


def test_going_back_to_the_best_weights_keeps_what_was_mined(
    made: TrainingSetup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped early at step 6, the best of step 3: the encoder is then trained with the negatives of this round."""
    covered: list[bool] = []
    plain = RankingStep._near

    def near(self: RankingStep, inputs: NDArray[np.int64]) -> Any:
        assert self.mined is not None
        covered.append(bool(np.isin(inputs, self.mined[0]).all()))
        return plain(self, inputs)

    monkeypatch.setattr(RankingStep, "_near", near)
    values = iter([0.1, 0.5, 0.4] + [0.3] * 20)
    _, trained = run(
        made,
        tmp_path,
        wish(steps=20, fine_tune=0.5, patience=1, batch=4),
        rule=COMPOSED_RULE,
        model=model_of(made),
        evaluate=lambda _: next(values),
    )
    assert trained.best_step == 3
    assert trained.steps > 6
    assert all(covered)


def test_a_run_learns(made: TrainingSetup, tmp_path: Path) -> None:
    """The documents of inputs are found better, without and with word pieces and whatever the optimizer."""
    for i, (pieces, kind) in enumerate([(True, "adam"), (False, "adam"), (True, "rows")]):
        model = model_of(made, pieces=pieces)
        settings = wish(steps=40, rank_against="all", optimizer=kind, head_learning_rate=3e-3, learning_rate=2e-3)
        run(made, tmp_path / str(i), settings, rule=COMPOSED_RULE, model=model)
        found = [row["ranking"] for row in log.read(tmp_path / str(i)) if "ranking" in row]
        assert sum(found[-5:]) < 0.6 * sum(found[:5]), (pieces, kind)


def test_the_last_pairs_of_an_epoch(made: TrainingSetup) -> None:
    """Inputs that name no candidate but their own, and batches of one."""
    step = step_of(made, docids=1, negatives=0)
    batch = step.pairs.batch(0, 1)
    loss, right = step._ranking(first_of(step, batch.inputs), batch, step._candidates(batch, 0))
    assert float(loss.detach()) == pytest.approx(0, abs=1e-6)  # nothing to be told apart
    assert right == 1.0
    two = Epoch(*(np.repeat(column, 2) for column in batch))
    assert float(step._ranking(first_of(step, two.inputs), two, step._candidates(two, 0))[0].detach()) < 1e-6
