"""Training by ranking: the loss against a slow twin, its gradients, its negatives, and the scores of search."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

from pixnar.fusion.bm25 import Bm25
from pixnar.fusion.terms import Ngrams, words
from pixnar.model.losses import Sampler, Weights
from pixnar.model.nar import Nar, scorer_of
from pixnar.scoring import COMPOSED_RULE
from pixnar.search.ranker import Ranker
from pixnar.table import DocidTable
from pixnar.train.neighbours import Teacher
from pixnar.train.ranking import RankingStep, compose
from tests.helpers.ranking_steps import ONLY, SIZE, first_of, model_of, step_of
from tests.helpers.training_runs import SLOTS, TrainingSetup, training_setup


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TrainingSetup:
    return training_setup(tmp_path_factory.mktemp("setup"), documents=9, docids=4)


def slow_vector(rows: NDArray[Any], tokens: NDArray[Any]) -> NDArray[np.float64]:
    total = np.zeros(rows.shape[1])
    for token in tokens[:SLOTS]:
        total += rows[token]
    return total / np.linalg.norm(total)


def slow_loss(step: RankingStep, number: int) -> tuple[float, float, dict[str, int]]:
    """The loss and the share of right answers, one docid of one document of one input at a time; what occurred."""
    data, batch = step.data, step.pairs.batch(number, SIZE)
    documents = step._candidates(batch, number).documents.tolist()
    most = len(data.pair_docid) if step.options.all_documents else step.options.docids
    drawn, offsets = step.pairs.siblings(documents, most, number)
    mined = {} if step.mined is None else dict(zip(step.mined[0].tolist(), step.mined[1].tolist(), strict=True))
    near = {docid for i in batch.inputs.tolist() for docid in mined.get(i, [])}
    rows = step.model.head.arrays()[0].astype(np.float64)
    xs = first_of(step, batch.inputs).detach().double().numpy()
    names: dict[int, set[int]] = {}
    for i, document in zip(*step.data.names(), strict=True):
        names.setdefault(int(i), set()).add(int(document))
    total, hits = 0.0, 0
    drawn_with = slow_chances(step) if step.options.correct_sampling and not step.options.all_documents else None
    seen = {"itself": 0, "alone": 0, "also right": 0, "weighted": 0, "near": 0, "drawn": 0}
    for x, own, right in zip(xs, batch.inputs.tolist(), batch.documents.tolist(), strict=True):
        scores: dict[int, float] = {}
        for place, document in enumerate(documents):
            if document in names[own] and document != right:
                seen["also right"] += 1
                continue
            named = set(data.pair_docid[data.pair_document == document].tolist())
            sure = named & near
            sampled = set(drawn[offsets[place] : offsets[place + 1]].tolist()) - sure
            seen["weighted"] += bool(sampled) and len(named) > len(sure) + len(sampled)
            seen["near"] += bool(sure)
            terms = []
            for docid in sure | sampled:
                if docid == own and len(sure | sampled) > 1:
                    seen["itself"] += 1
                    continue
                seen["alone"] += docid == own
                score = float(x @ slow_vector(rows, data.tokens.row(docid)))
                stands_for = 1 if docid in sure else (len(named) - len(sure)) / len(sampled)
                terms.append(math.exp(score + math.log(stands_for)))
            scores[document] = math.log(sum(terms))
            mine = {docid for docid in mined.get(own, []) if docid in named}
            if drawn_with is not None and document != right and not mine:
                scores[document] -= math.log(drawn_with[document])
                seen["drawn"] += 1
        total -= scores[right] - math.log(sum(math.exp(score) for score in scores.values()))
        hits += max(scores, key=lambda document: scores[document]) == right
    return total / len(batch.inputs), hits / len(batch.inputs), seen


def slow_chances(step: RankingStep) -> dict[int, float]:
    """How likely each document is among the candidates of a step, by counting pairs and docids."""
    data, epoch = step.data, step.pairs.epoch(0)
    names: dict[int, list[int]] = {}
    for docid, document in zip(data.pair_docid.tolist(), data.pair_document.tolist(), strict=True):
        names.setdefault(docid, []).append(document)
    chances = {}
    for document in range(len(data.doc_ids)):
        in_batch = epoch.documents.tolist().count(document) / len(epoch.documents)
        near = sum(1 / len(found) for found in names.values() if document in found) / len(names)
        chances[document] = 1 - (1 - in_batch) ** SIZE * (1 - near) ** (SIZE * step.options.negatives)
    return chances


@pytest.mark.parametrize(
    "changes",
    [
        {"all_documents": True, "negatives": 0},
        {"docids": 3},
        {"docids": 3, "correct_sampling": False},
        {"docids": 1, "negatives": 2},
        {"docids": 1, "negatives": 0},
        {"docids": 8, "negatives": 0},
    ],
)
def test_the_loss_equals_the_slow_twin(made: TrainingSetup, changes: dict[str, Any]) -> None:
    step = step_of(made, **changes)
    seen = dict.fromkeys(["itself", "alone", "also right", "weighted", "near", "drawn"], 0)
    for number in range(8):
        loss, shown = step(number, SIZE, live=False)
        wanted, right, here = slow_loss(step, number)
        assert float(loss.detach()) == pytest.approx(wanted, rel=1e-4, abs=1e-4)
        assert shown["ranking"] == shown["loss"] == float(loss.detach())
        assert shown["right"] == pytest.approx(right)
        seen = {name: seen[name] + count for name, count in here.items()}
    most, mined = changes.get("docids", 99), changes.get("negatives", 3) > 0
    assert seen["also right"]
    assert bool(seen["drawn"]) == (changes.get("correct_sampling", True) and not changes.get("all_documents"))
    assert bool(seen["near"]) == mined
    assert bool(seen["itself"]) == (most > 1 or mined)
    if not mined:
        assert bool(seen["alone"]) == (most == 1)
        assert bool(seen["weighted"]) == (most < 4)


def test_everything_in_a_step_comes_from_its_number(made: TrainingSetup) -> None:
    first, second = (step_of(made, weights=Weights(), docids=2) for _ in range(2))
    shown = first(3, SIZE, live=False)[1]
    first(4, SIZE, live=False)
    assert first(3, SIZE, live=False)[1] == shown == second(3, SIZE, live=False)[1]
    assert step_of(made, weights=Weights(), docids=2, seed=1)(3, SIZE, live=False)[1] != shown
    live = first(3, SIZE, live=True)[1]
    for name, value in shown.items():
        assert live[name] == pytest.approx(value, rel=2e-2, abs=2e-2), name  # vectors are kept in 16 bits


def test_the_teacher_is_the_ranking_by_the_encoders_vectors(made: TrainingSetup) -> None:
    """Nothing is added where the model's vectors are the encoder's own; elsewhere something above 0 is."""
    plain, taught = (step_of(made, all_documents=True, teacher=weight, taught_by="dense") for weight in (0.0, 2.0))
    losses_ = [float(step(0, SIZE, live=False)[0].detach()) for step in (plain, taught)]
    batch = taught.pairs.batch(0, SIZE)
    candidates = taught._candidates(batch, 0)
    assert made.data.vectors is not None
    asked, known = (made.data.vectors[i].astype(np.float32) for i in (batch.inputs, candidates.docids))
    scores = torch.from_numpy(20 * asked @ known.T)[:, torch.from_numpy(candidates.member)]
    scores = scores.masked_fill(taught._itself(batch, candidates), -1e4)
    same = taught._documents(scores, candidates).masked_fill(taught._also_right(batch, candidates), -1e4)
    everything = torch.ones(SIZE, dtype=torch.bool)
    same_for_both = torch.randn(SIZE, len(candidates.documents))
    distance = taught._divergence(same + same_for_both, batch, candidates, everything, same_for_both)
    assert float(distance) == pytest.approx(0, abs=1e-5)
    assert losses_[1] > losses_[0] + 1e-3


def test_the_hybrid_teacher_adds_bm25_of_the_docids(made: TrainingSetup) -> None:
    """Its scores are the dense teacher's plus a weight times what the index's own BM25 says."""
    data = made.data
    inputs = np.arange(len(data.inputs))
    docids = np.array([5, 0, 7, 3])
    dense, hybrid = (Teacher.of(data, kind).scores(inputs, docids) for kind in ("dense", "hybrid"))
    bm25 = Bm25.build(data.docids)
    distinct = [" ".join(dict.fromkeys(words(text))) for text in data.inputs]  # a repeated word counts once
    wanted = np.stack([bm25.score(text)[docids] for text in distinct])
    assert np.count_nonzero(wanted) > 4
    np.testing.assert_allclose(hybrid - dense, 0.8 * wanted, atol=2e-4)
    wordless = replace(
        data, queries=["!!!"], query_index=np.array([0]), query_document=np.array([0]), query_docid=np.array([-1])
    )
    asked = np.array([len(data.docids)])
    assert not Teacher.of(wordless, "hybrid").words.scores(asked, docids).any()  # type: ignore[union-attr]
    step = step_of(made, all_documents=True, teacher=1.0, taught_by="hybrid")
    assert (
        step(0, SIZE, live=False)[0]
        != step_of(made, all_documents=True, teacher=1.0, taught_by="dense")(0, SIZE, live=False)[0]
    )


# Gradients


def in_double(model: Nar) -> Nar:
    model.head.double()
    return model


@pytest.fixture
def dense_embedding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradcheck takes no sparse gradients."""
    plain = F.embedding

    def dense(ids: Tensor, rows: Tensor, sparse: bool = False) -> Tensor:
        return plain(ids, rows)

    monkeypatch.setattr(F, "embedding", dense)


@pytest.mark.usefixtures("dense_embedding")
def test_gradients_of_composed_docids(made: TrainingSetup) -> None:
    model, docids = in_double(model_of(made)), np.array([0, 3, 7])
    head = model.head
    assert head.pieces is not None
    own, shared = head.rows.detach().clone(), head.pieces.rows.detach().clone()
    tokens = torch.from_numpy(np.unique(made.data.rows(docids, SLOTS)[0]))
    pieces = np.unique(np.concatenate([head.pieces.of_tokens.row(int(t)) for t in tokens])).astype(np.int64)
    del head.rows, head.pieces.rows  # plain tensors take their place

    def composed(some: Tensor, others: Tensor) -> Tensor:
        assert head.pieces is not None
        head.rows = own.index_put((tokens,), some)  # type: ignore[assignment]
        head.pieces.rows = shared.index_put((torch.from_numpy(pieces),), others)  # type: ignore[assignment]
        return compose(head, made.data, docids, SLOTS)[:, :6]

    some, others = own[tokens].requires_grad_(), shared[pieces].requires_grad_()
    assert torch.autograd.gradcheck(composed, (some, others))
    np.testing.assert_allclose(compose(head, made.data, docids, SLOTS).norm(dim=1).detach(), 1)


def test_sparse_gradients_equal_dense_ones(made: TrainingSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    grads: list[list[Tensor]] = []
    plain = F.embedding
    for sparse in (True, False):
        if not sparse:
            monkeypatch.setattr(F, "embedding", lambda ids, rows, sparse=False: plain(ids, rows))
        step = step_of(made, docids=2)
        step(1, SIZE, live=False)[0].backward()  # type: ignore[no-untyped-call]
        assert step.model.head.pieces is not None
        found = [step.model.head.rows.grad, step.model.head.pieces.rows.grad]
        assert all(grad is not None and grad.is_sparse == sparse for grad in found)
        grads.append([grad.to_dense() for grad in found if grad is not None])
    for one, other in zip(*grads, strict=True):
        assert one.any()
        torch.testing.assert_close(one, other)


@pytest.mark.usefixtures("dense_embedding")
@pytest.mark.parametrize("changes", [{"all_documents": True}, {"docids": 2}, {"docids": 2, "teacher": 0.7}])
def test_gradients_of_the_loss(made: TrainingSetup, changes: dict[str, Any]) -> None:
    step = step_of(made, in_double(model_of(made)), **changes)
    batch = step.pairs.batch(0, 4)
    step._mine(0, 4)
    candidates = step._candidates(batch, 0)
    x0 = first_of(step, batch.inputs).detach().double().mul_(0.2).requires_grad_()
    loss: Callable[[Tensor], Tensor] = lambda x: step._ranking(x, batch, candidates)[0]  # noqa: E731
    assert torch.autograd.gradcheck(loss, (x0,), atol=1e-6)
    assert torch.autograd.grad(loss(x0), x0)[0].abs().max() > 1e-4


def test_slots_leave_the_rows_alone(made: TrainingSetup) -> None:
    """Predicting tokens trains slots and bias; rows, piece rows and the encoder only learn by ranking."""
    step = step_of(made, weights=Weights(1.0, 0.25, 1.0), slot_examples=5)
    model, batch = step.model, step.pairs.batch(0, SIZE)
    pooled = step.pooled(batch.inputs, True)
    assert pooled.requires_grad
    loss, shown = step._slots(batch, 0, pooled, True)
    loss.backward()  # type: ignore[no-untyped-call]
    assert shown.keys() == {"l1", "l2", "l3", "log_z"}
    assert model.head.pieces is not None
    assert model.head.rows.grad is None
    assert model.head.pieces.rows.grad is None
    assert all(parameter.grad is None for parameter in model.encoder.parameters())
    assert model.head.bias is not None
    assert model.head.bias.grad is not None
    assert all(p.grad is not None and p.grad.any() for p in model.slots.parameters())
    whole, plain = (step_of(made, model_of(made), weights=w) for w in (Weights(1.0, 0.25, 1.0), ONLY))
    grads = []
    for one in (whole, plain):
        one(0, SIZE, live=False)[0].backward()  # type: ignore[no-untyped-call]
        grad = one.model.head.rows.grad
        assert grad is not None
        grads.append(grad.to_dense())
    assert torch.equal(grads[0], grads[1])


def test_slot_losses_by_hand(made: TrainingSetup) -> None:
    """A sample of all tokens: l1, l2 and l3 are those of the whole softmax, and the total is per place."""
    weights = Weights(1.0, 0.5, 2.0)
    step = step_of(made, weights=weights, slot_examples=SIZE, sample=10**6)
    model, data, batch = step.model, step.data, step.pairs.batch(2, SIZE)
    step._sampler = Sampler(data.token_counts(), 200 * model.head.total, 0, power=0.0)
    loss, shown = step._slots(batch, 2, step.pooled(batch.inputs, False), False)
    x = model.from_vectors(step.pooled(batch.inputs, False))
    log_p = model.head.written().logits(x.flatten(0, 1)).log_softmax(1).view(SIZE, SLOTS + 1, -1).detach()
    l1 = l2 = 0.0
    for i, docid in enumerate(batch.targets):
        tokens = [*data.tokens.row(int(docid)).tolist(), len(data.vocabulary)][:SLOTS]
        l1 -= sum(float(log_p[i, t + 1, v]) for t, v in enumerate(tokens)) / SIZE
        l2 -= sum(float(log_p[i, 0, v]) for v in tokens) / SIZE
    assert shown["l1"] == pytest.approx(l1, rel=1e-3)
    assert shown["l2"] == pytest.approx(l2, rel=1e-3)
    total = shown["l1"] + 0.5 * shown["l2"] + 2 * shown["l3"]
    assert float(loss.detach()) == pytest.approx(total / SLOTS, rel=1e-4)


# Search


@pytest.mark.parametrize("positive", [True, False])
def test_training_and_search_score_alike(made: TrainingSetup, positive: bool) -> None:
    """Search gives no token less than 0, training does not cut them: equal where no product is below 0.

    Elsewhere search equals training with the floor. Factors of docids are rounded to classes, hence the tolerance.
    """
    model = model_of(made)
    if positive:
        with torch.no_grad():
            model.head.rows.abs_()
            assert model.head.pieces is not None
            model.head.pieces.rows.abs_()
    step = step_of(made, model, all_documents=True)
    batch = step.pairs.batch(0, SIZE)
    candidates = step._candidates(batch, 0)
    assert candidates.documents.tolist() == list(range(len(made.data.doc_ids)))
    with torch.no_grad():
        x0 = first_of(step, batch.inputs)
        x0 = x0.abs() if positive else x0
        composed = compose(model.head, made.data, candidates.docids, SLOTS)
        docids = (x0 @ composed.t())[:, torch.from_numpy(candidates.member)]
        trained = step._documents(docids + torch.from_numpy(candidates.log_weight), candidates).numpy()
    rows = model.head.arrays()[0]
    if not positive:
        floored = np.zeros((SIZE, len(made.data.docids)))
        for docid in range(len(made.data.docids)):
            tokens = made.data.tokens.row(docid)[:SLOTS]
            products = x0.numpy() @ rows[tokens].T
            floored[:, docid] = np.maximum(products, 0).sum(1) / np.linalg.norm(rows[tokens].sum(0))
        by_document = [floored[:, made.data.pair_docid[made.data.pair_document == d]] for d in range(9)]
        cut = np.stack([np.log(np.exp(scores).sum(1)) for scores in by_document], 1)
        assert np.abs(cut - trained).max() > 0.5  # the floor counts here
        trained = cut
    table: dict[tuple[int, ...], list[str]] = {}
    for docid, document in zip(made.data.pair_docid, made.data.pair_document, strict=True):
        tokens = made.data.tokens.row(int(docid))
        table.setdefault(tuple(tokens.tolist()), []).append(made.data.doc_ids[document])
    ranker = Ranker(
        DocidTable.in_memory(table, len(made.data.vocabulary)),
        scorer_of(model, made.priors, COMPOSED_RULE),
        Ngrams(made.data.vocabulary),
    )
    x = np.zeros((SIZE, SLOTS + 1, model.head.width), np.float32)
    x[:, 0] = x0.numpy()
    for i, scores in enumerate(ranker.scorer.batch(x, [np.zeros(0, np.uint32)] * SIZE)):
        found = {hit.doc_id: hit.score for hit in ranker.decode(scores, 99)}
        wanted = dict(zip(made.data.doc_ids, trained[i].tolist(), strict=True))
        assert found == pytest.approx(wanted, rel=0.005, abs=0.01)


def test_docid_vectors_are_those_of_compose(made: TrainingSetup) -> None:
    step = step_of(made)
    docids = np.array([5, 0, 11, 3])
    wanted = compose(step.model.head, made.data, docids, SLOTS).detach().numpy()
    np.testing.assert_allclose(step.docid_vectors(docids), wanted, atol=1e-5)
    np.testing.assert_allclose(step.docid_vectors(docids, at_once=3), wanted, atol=1e-5)
