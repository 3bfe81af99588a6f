from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from pixnar.model.losses import Sampler, Weights
from pixnar.model.nar import Nar
from pixnar.scoring import ScoreRule
from pixnar.train.pairs import Epoch, Pairs
from pixnar.train.step import Objective, Step, _itself, mined
from tests.helpers.training_runs import SLOTS, TrainingSetup, training_setup

SIZE = 16


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TrainingSetup:
    return training_setup(tmp_path_factory.mktemp("setup"))


def pairs_of(made: TrainingSetup, **settings: Any) -> Pairs:
    data = made.data
    return Pairs(
        len(data.docids), data.pair_docid, data.pair_document, data.query_index, data.query_document, **settings
    )


def step_of(
    made: TrainingSetup,
    rule: ScoreRule | None = None,
    *,
    objective: Objective | None = None,
    sampler: Sampler | None = None,
    pairs: Pairs | None = None,
    model: Nar | None = None,
) -> Step:
    objective = objective or Objective(Weights())
    rule = rule or ScoreRule()
    return Step(model or shaken(made), made.data, pairs or pairs_of(made), objective, rule, made.priors, sampler)


def shaken(made: TrainingSetup) -> Nar:
    """A model whose slots differ."""
    model = made.model()
    torch.manual_seed(4)
    with torch.no_grad():
        for parameter in model.slots.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def parts_of(step: Step, number: int, *, live: bool = False) -> dict[str, float]:
    """The loss of a step and its parts; how well a shortlist would do is measured now and then, and is left out."""
    loss, shown = step(number, SIZE, live=live)
    assert shown["loss"] == loss.item()
    return {name: value for name, value in shown.items() if name != "recall"}


def test_a_step_is_decided_by_its_number(made: TrainingSetup) -> None:
    step = step_of(made)
    shown = parts_of(step, 3)
    parts_of(step, 7)
    assert parts_of(step, 3) == shown
    assert parts_of(step_of(made), 3) == shown  # nothing is carried over from earlier steps
    assert parts_of(step, 4)["loss"] != shown["loss"]
    sampled = [step_of(made, sampler=Sampler(made.data.token_counts(), 50, 1)) for _ in range(2)]
    parts_of(sampled[0], 1)
    assert parts_of(sampled[0], 5) == parts_of(sampled[1], 5)


def test_parts_add_up(made: TrainingSetup) -> None:
    weights = Weights(1.0, 0.5, 2.0)
    loss, shown = step_of(made, objective=Objective(weights, ranking=3.0))(0, SIZE, live=False)
    total = shown["l1"] + 0.5 * shown["l2"] + 2 * shown["l3"] + 3 * shown["ranking"]
    assert loss.item() == pytest.approx(total, rel=1e-5)
    assert shown["loss"] == pytest.approx(loss.item())
    assert 0 <= shown["right"] <= 1
    _, plain = step_of(made, objective=Objective(weights, ranking=0.0))(0, SIZE, live=False)
    assert "ranking" not in plain
    assert plain["l1"] == pytest.approx(shown["l1"])


def test_l1_by_hand(made: TrainingSetup) -> None:
    model = shaken(made)
    step = step_of(made, model=model)
    batch = step.pairs.batch(0, SIZE)
    assert made.data.vectors is not None
    x = model.from_vectors(torch.from_numpy(made.data.vectors[batch.inputs].astype(np.float32)))
    log_p = model.head.logits(x.flatten(0, 1)).log_softmax(1).view(SIZE, SLOTS + 1, -1).detach()
    l1 = l2 = 0.0
    for i, docid in enumerate(batch.targets):
        tokens = [*made.data.tokens.row(docid).tolist(), len(made.data.vocabulary)][:SLOTS]
        l1 -= sum(float(log_p[i, t + 1, v]) for t, v in enumerate(tokens))
        l2 -= sum(float(log_p[i, 0, v]) for v in tokens)
    shown = step(0, SIZE, live=False)[1]
    assert shown["l1"] == pytest.approx(l1 / SIZE, rel=1e-4)
    assert shown["l2"] == pytest.approx(l2 / SIZE, rel=1e-4)


def test_the_encoder_and_kept_vectors_say_the_same(made: TrainingSetup) -> None:
    step = step_of(made)
    kept, live = (parts_of(step, 2, live=live) for live in (False, True))
    for name, value in kept.items():
        assert live[name] == pytest.approx(value, rel=2e-2, abs=2e-2), name  # vectors are kept in 16 bits


@pytest.mark.parametrize("order", ["bag", "any", "slots"])
def test_a_sample_of_everything_is_the_whole(made: TrainingSetup, order: Any) -> None:
    rule = ScoreRule(order=order)
    counts = made.data.token_counts()
    sampler = Sampler(counts, 200 * len(counts), 0, power=0.0)
    sample = sampler.draw(torch.zeros(0, dtype=torch.int64))
    assert len(sample.ids) == len(counts)
    assert float(sample.log_weights.abs().max()) < 1e-6
    full, sampled = step_of(made, rule), step_of(made, rule, sampler=sampler)
    for number in (0, 5):
        whole, some = parts_of(full, number), parts_of(sampled, number)
        for name, value in whole.items():
            assert some[name] == pytest.approx(value, rel=1e-4), name


def ranking_by_hand(step: Step, batch: Epoch, number: int) -> tuple[float, float]:
    """Cross-entropy and share of right answers, document by document and docid by docid."""
    data, rule, model = step.data, step.rule, step.model
    candidates = step._candidates(batch, number)
    assert data.vectors is not None
    x = model.from_vectors(torch.from_numpy(data.vectors[batch.inputs].astype(np.float32)))
    log_p = model.head.logits(x.flatten(0, 1)).log_softmax(1).view(len(batch.inputs), SLOTS + 1, -1).detach().numpy()
    losses, right = [], 0
    named, documents = data.names()
    for i, (source, document) in enumerate(zip(batch.inputs.tolist(), batch.documents.tolist(), strict=True)):
        best = log_p[i, 0] if rule.order == "bag" else log_p[i, 1:].max(0)
        own = data.ngrams.ids[data.ngrams.offsets[source] : data.ngrams.offsets[source + 1]]
        also = set(documents[named == source].tolist()) - {document}
        scores: dict[int, float] = {}
        for place, candidate in enumerate(candidates.documents.tolist()):
            if candidate in also:
                continue
            docids = candidates.docids[candidates.named == place].tolist()
            values = []
            for docid in docids:
                if docid == source and len(docids) > 1:
                    continue
                tokens = data.tokens.row(docid)[:SLOTS]
                total = 0.0
                for v in tokens:
                    p = math.exp(best[v])
                    if rule.copy:
                        p = (1 - rule.copy) * p + (rule.copy / len(own) if v in own else 0.0)
                    score = rule.scale * (math.log(p) - rule.prior_weight * step._log_prior[v].item())
                    total += max(score, 0.0) if rule.floor == "zero" else score
                values.append(total / min(len(tokens) + 1, SLOTS) ** rule.length_norm)
            scores[candidate] = max(values) if rule.aggregate == "max" else float(np.logaddexp.reduce(np.array(values)))
        scale = math.exp(step.ranking_scale.item())
        z = float(np.logaddexp.reduce([scale * score for score in scores.values()]))
        losses.append(z - scale * scores[document])
        right += document == max(scores, key=lambda one: scores[one])  # the first of equals
    return float(np.mean(losses)), right / len(losses)


@pytest.mark.parametrize(
    "rule",
    [
        ScoreRule(),
        ScoreRule(order="any", copy=0.0, aggregate="max", scale=0.5),
        ScoreRule(order="slots", floor="strict", prior_weight=0.5, length_norm=1.0),
    ],
)
def test_ranking_by_hand(made: TrainingSetup, rule: ScoreRule) -> None:
    step = step_of(made, rule)
    with torch.no_grad():
        step.ranking_scale.fill_(-0.3)
    seen = set()
    for number in range(6):
        batch = step.pairs.batch(number, SIZE)
        seen |= set(batch.inputs.tolist())
        loss, right = ranking_by_hand(step, batch, number)
        shown = step(number, SIZE, live=False)[1]
        assert shown["ranking"] == pytest.approx(loss, rel=1e-4, abs=1e-5)
        assert shown["right"] == pytest.approx(right)
    several = [int(i) for i in np.unique(made.data.pair_docid) if (made.data.pair_docid == i).sum() > 1]
    assert several  # a docid that names two documents
    assert set(several) <= seen


class Fixed(Pairs):
    """Gives one batch, whatever the step."""

    def __init__(self, made: TrainingSetup, *rows: tuple[int, int, int]) -> None:
        data = made.data
        super().__init__(len(data.docids), data.pair_docid, data.pair_document, data.query_index, data.query_document)
        self.fixed = Epoch(*(np.array(column) for column in zip(*rows, strict=True)))

    def batch(self, step: int, size: int) -> Epoch:
        return self.fixed


def two_documents(made: TrainingSetup) -> tuple[int, int, int]:
    """A docid and the two documents it names."""
    data = made.data
    (docid,) = [int(i) for i in np.unique(data.pair_docid) if (data.pair_docid == i).sum() == 2]
    one, other = data.pair_document[data.pair_docid == docid].tolist()
    return docid, one, other


def test_a_document_that_the_input_names_too_is_not_wrong(made: TrainingSetup) -> None:
    docid, one, other = two_documents(made)
    pair_docid, pair_document = made.data.pair_docid, made.data.pair_document
    sibling = int(pair_docid[(pair_document == other) & (pair_docid != docid)][0])
    pairs = Fixed(made, (docid, docid, one), (sibling, sibling, other))
    step = step_of(made, pairs=pairs, objective=Objective(Weights(), ranking=1.0))
    batch = pairs.batch(0, 2)
    hidden = step._also_right(batch, step._candidates(batch, 0)).tolist()
    place = sorted([one, other]).index(other)
    assert hidden[0] == [i == place for i in range(2)]
    assert hidden[1] == [False, False]
    # alone with a document that is not wrong, the first input cannot lose anything
    only = Fixed(made, (docid, docid, one), (docid, docid, other))
    assert step_of(made, pairs=only)(0, 2, live=False)[1]["ranking"] == pytest.approx(0.0, abs=1e-6)


def test_a_train_query_with_two_relevant_documents(made: TrainingSetup) -> None:
    data = made.data
    query = len(data.docids) + int(data.query_index[0])
    one = int(data.query_document[0])
    other = (one + 1) % len(data.doc_ids)
    more = TrainingSetup(made.encoder, type(data)(**vars(data) | {}), made.priors)
    order = np.argsort(np.append(data.query_index, data.query_index[0]), kind="stable")
    more.data.query_index = np.append(data.query_index, data.query_index[0])[order]
    more.data.query_document = np.append(data.query_document, other)[order]
    target = int(data.pair_docid[data.pair_document == one][0])
    theirs = int(data.pair_docid[data.pair_document == other][0])
    pairs = Fixed(more, (query, target, one), (query, theirs, other))
    assert step_of(more, pairs=pairs)(0, 2, live=False)[1]["ranking"] == pytest.approx(0.0, abs=1e-6)
    assert step_of(made, pairs=pairs)(0, 2, live=False)[1]["ranking"] > 0.0


def test_the_input_itself_does_not_count(made: TrainingSetup) -> None:
    """However well a docid knows itself, its document must be found by its other docids."""
    data = made.data
    helper, docid = data.pair_docid[data.pair_document == 3][:2].tolist()
    other = int(data.pair_docid[data.pair_document == 5][0])
    pairs = Fixed(made, (helper, helper, 3), (docid, docid, 3), (other, other, 5))
    step = step_of(made, ScoreRule(copy=0.9), pairs=pairs)
    batch = pairs.batch(0, 3)
    candidates = step._candidates(batch, 0)
    assert docid in candidates.docids  # for the first row, to which it is a sibling
    assert helper not in candidates.docids
    mask = _itself(batch.inputs, candidates).tolist()
    assert mask == [[False] * len(candidates.docids), (candidates.docids == docid).tolist(), mask[0]]
    loss, _ = ranking_by_hand(step, batch, 0)
    assert step(0, 3, live=False)[1]["ranking"] == pytest.approx(loss, rel=1e-4)
    third = Fixed(made, (docid, docid, 3), (other, other, 5))
    assert docid not in step_of(made, pairs=third)._candidates(third.batch(0, 2), 0).docids


def test_a_documents_only_docid_counts(made: TrainingSetup) -> None:
    """Or it would have no score at all."""
    data = made.data
    kept = ~np.isin(np.arange(len(data.pair_docid)), np.flatnonzero(data.pair_document == 2)[1:])
    few = TrainingSetup(made.encoder, type(data)(**vars(data)), made.priors)
    few.data.pair_docid, few.data.pair_document = data.pair_docid[kept], data.pair_document[kept]
    only = int(few.data.pair_docid[few.data.pair_document == 2][0])
    other = int(few.data.pair_docid[few.data.pair_document == 4][0])
    step = step_of(few, pairs=Fixed(few, (only, only, 2), (other, other, 4)))
    loss, shown = step(0, 2, live=False)
    assert math.isfinite(shown["ranking"])
    loss.backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in step.model.parameters())


def test_gradients_reach_slots_head_and_scale(made: TrainingSetup) -> None:
    step = step_of(made, ScoreRule(order="any"))
    step.model.encoder.requires_grad_(False)
    step(0, SIZE, live=False)[0].backward()  # type: ignore[no-untyped-call]
    for name, parameter in [*step.model.slots.named_parameters(), *step.model.head.named_parameters()]:
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert float(parameter.grad.abs().max()) > 0, name
    assert step.ranking_scale.grad is not None
    assert all(parameter.grad is None for parameter in step.model.encoder.parameters())


def test_mined_neighbours(made: TrainingSetup) -> None:
    data = made.data
    assert data.vectors is not None
    means = np.stack(
        [
            data.vectors[data.pair_docid[data.pair_document == d]].astype(np.float32).sum(0)
            for d in range(len(data.doc_ids))
        ]
    )
    unit = means / np.linalg.norm(means, axis=1, keepdims=True)
    similar = unit @ unit.T - 9 * np.eye(len(unit))
    got = mined(data, 2)
    for d, row in enumerate(got):
        assert sorted(similar[d, row]) == pytest.approx(np.sort(similar[d])[-2:].tolist(), abs=1e-5)
        assert d not in row
    many = mined(data, 20)
    assert (many >= 0).sum(1).tolist() == [len(data.doc_ids) - 1] * len(data.doc_ids)
    step = step_of(made, objective=Objective(Weights(), negatives=2))
    batch = step.pairs.batch(0, 4)
    candidates = step._candidates(batch, 0)
    assert set(candidates.documents.tolist()) == set(batch.documents.tolist()) | set(
        got[batch.documents].ravel().tolist()
    )
    assert len(set(candidates.documents.tolist())) == len(candidates.documents)
    loss, right = ranking_by_hand(step, batch, 0)
    shown = step(0, 4, live=False)[1]
    assert shown["ranking"] == pytest.approx(loss, rel=1e-4)
    assert shown["right"] == pytest.approx(right)


def test_a_frozen_encoder_needs_vectors(made: TrainingSetup) -> None:
    bare = TrainingSetup(made.encoder, type(made.data)(**vars(made.data) | {"vectors": None}), made.priors)
    with pytest.raises(ValueError, match="vectors"):
        step_of(bare)(0, SIZE, live=False)
    with pytest.raises(ValueError, match="vectors"):
        mined(bare.data, 2)
