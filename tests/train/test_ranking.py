"""Training by ranking: the loss against plain formulas, what is left out, and that it is what search ranks by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pixnar.docids import DocidTable
from pixnar.evidence.ngrams import Ngrams
from pixnar.index.engine import Engine, scorer_of
from pixnar.index.units import Units
from pixnar.model.losses import Weights
from pixnar.model.nar import Nar
from pixnar.model.slots import MlpSlots
from pixnar.scoring import COMPOSED_RULE
from pixnar.train import neighbours
from pixnar.train.neighbours import nearest
from pixnar.train.ranking import RankingOptions, RankingStep
from tests.train.runs import SLOTS, World, world

SIZE = 12
NOTHING = Weights(0.0, 0.0, 0.0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    return world(tmp_path_factory.mktemp("ranking"))


def shaken(made: World) -> Nar:
    model = made.model("solved")
    torch.manual_seed(4)
    with torch.no_grad():
        for parameter in model.slots.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model.eval()


def step_of(made: World, model: Nar | None = None, **wish: Any) -> RankingStep:
    start: dict[str, Any] = {"weights": NOTHING, "negatives": 0}
    options = RankingOptions(**(start | wish))
    return RankingStep(model or shaken(made), made.data, made.data.pairs(), options, 0)


def docid_vectors(made: World, model: Nar) -> NDArray[np.float64]:
    """Unit vectors of all docids, one by one."""
    rows, tokens = model.head.arrays()[0].astype(np.float64), made.data.tokens
    found = []
    for i in range(len(made.data.docids)):
        total = rows[tokens.ids[tokens.offsets[i] : tokens.offsets[i + 1]][:SLOTS].astype(int)].sum(0)
        found.append(total / np.linalg.norm(total))
    return np.array(found)


def first_vectors(made: World, model: Nar, inputs: NDArray[np.int64]) -> NDArray[np.float64]:
    assert isinstance(model.slots, MlpSlots)
    assert made.data.vectors is not None
    with torch.no_grad():
        pooled = torch.from_numpy(made.data.vectors[inputs].astype(np.float32))
        found: NDArray[np.float64] = model.slots.first(pooled).numpy().astype(np.float64)
    return found


def by_hand(made: World, model: Nar, inputs: NDArray[np.int64], right: NDArray[np.int64]) -> float:
    """The cross-entropy of the right documents among all, docid by docid."""
    data, docids = made.data, docid_vectors(made, model)
    names: dict[int, set[int]] = {}
    for one, document in zip(*data.names(), strict=True):
        names.setdefault(int(one), set()).add(int(document))
    losses = []
    for x, one, wanted in zip(first_vectors(made, model, inputs), inputs, right, strict=True):
        scores = {}
        for document in range(len(data.doc_ids)):
            own = data.pair_docid[data.pair_document == document]
            if len(own) > 1:
                own = own[own != one]  # never the input itself
            if document == wanted or document not in names.get(int(one), set()):  # others it names do not count
                scores[document] = np.log(np.exp(docids[own] @ x).sum())
        losses.append(np.log(np.exp(list(scores.values())).sum()) - scores[int(wanted)])
    return float(np.mean(losses))


def test_against_the_formulas(made: World) -> None:
    model = shaken(made)
    step = step_of(made, model, all_documents=True)
    for number in range(4):
        batch = step.pairs.batch(number, SIZE)
        loss, shown = step(number, SIZE, live=False)
        assert float(loss.detach()) == pytest.approx(by_hand(made, model, batch.inputs, batch.documents), rel=1e-4)
        assert shown["loss"] == shown["ranking"] == float(loss.detach())
        assert 0 <= shown["right"] <= 1


def test_few_docids_stand_for_all(made: World) -> None:
    """With docids drawn anew in every step, the mean of exp of a document's score is the whole sum's."""
    model = shaken(made)
    whole, some = step_of(made, model, all_documents=True), step_of(made, model, docids=2)
    batch = whole.pairs.batch(0, SIZE)
    candidates = whole._candidates(batch, 0)
    drawn = [some._candidates(batch, number) for number in range(200)]
    assert all(len(one.docids) <= len(candidates.docids) for one in drawn)
    assert all(set(batch.documents) <= set(one.documents.tolist()) for one in drawn)
    x, docids = first_vectors(made, model, batch.inputs[:1])[0], docid_vectors(made, model)
    document = int(batch.documents[0])
    estimates = []
    for one in drawn:
        mine = one.documents[one.owner] == document
        estimates.append(np.exp(docids[one.docids[one.member[mine]]] @ x + one.log_weight[mine]).sum())
    own = made.data.pair_docid[made.data.pair_document == document]
    assert np.mean(estimates) == pytest.approx(np.exp(docids[own] @ x).sum(), rel=0.1)


def test_negatives_are_documents_of_near_docids(made: World) -> None:
    step = step_of(made, negatives=2, mine_every=2)
    step(0, SIZE, live=False)
    assert step.mined is not None
    inputs, near = step.mined
    seen = np.unique(np.concatenate([step.pairs.batch(number, SIZE).inputs for number in (0, 1)]))
    assert np.array_equal(inputs, seen)  # those of the round
    assert made.data.vectors is not None
    vectors = made.data.vectors.astype(np.float32)
    k = near.shape[1]
    scores = vectors[inputs] @ vectors[: len(made.data.docids)].T
    for row, found in zip(scores, near, strict=True):
        assert row[found].min() >= np.sort(row)[-k] - 1e-3
    step(1, SIZE, live=False)
    assert step.mined[0] is inputs  # still the same round
    step(2, SIZE, live=False)
    assert step.mined[0] is not inputs


def test_docids_as_the_model_composes_them(made: World) -> None:
    model = shaken(made)
    docids = np.arange(len(made.data.docids))
    found = step_of(made, model).docid_vectors(docids, at_once=5)
    np.testing.assert_allclose(found, docid_vectors(made, model), atol=1e-5)


def test_training_ranks_by_what_search_ranks_by(made: World) -> None:
    """Documents by log-sum-exp over composed docids: the same numbers in both, but for the floor and the factors."""
    model, data = shaken(made), made.data
    names = {
        tuple(data.tokens.ids[data.tokens.offsets[i] : data.tokens.offsets[i + 1]].tolist()): [
            data.doc_ids[d] for d in data.pair_document[data.pair_docid == i]
        ]
        for i in range(len(data.docids))
    }
    table = DocidTable.in_memory(names, len(data.vocabulary))
    scorer = scorer_of(model.with_head(model.head.written()), made.priors, COMPOSED_RULE)
    engine = Engine(table, scorer, Ngrams(data.vocabulary), Units.of(data.doc_ids))
    inputs = np.arange(len(data.docids))[:6]
    docids = docid_vectors(made, model)
    with torch.no_grad():
        assert data.vectors is not None
        x = model.from_vectors(torch.from_numpy(data.vectors[inputs].astype(np.float32))).numpy()
    rows = model.head.arrays()[0]
    for vectors in x:
        products = rows @ vectors[0]
        found = {hit.doc_id: hit.score for hit in engine.decode(scorer.one(vectors, np.zeros(0, np.uint32)), 100)}
        for number, doc_id in enumerate(data.doc_ids):
            own = data.pair_docid[data.pair_document == number]
            tokens = [data.tokens.ids[data.tokens.offsets[i] : data.tokens.offsets[i + 1]][:SLOTS] for i in own]
            if all((products[one] > 0).all() for one in tokens):  # no token at its floor
                wanted = np.log(np.exp(docids[own] @ vectors[0]).sum())
                assert found[doc_id] == pytest.approx(wanted, rel=0.01)
            least = np.log(np.exp(docids[own] @ vectors[0]).sum())
            assert found[doc_id] >= least - 0.01 * abs(least)


def test_neighbours_by_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    centres = random.normal(size=(30, 16))
    docids = (centres[random.integers(0, 30, 2000)] + 0.2 * random.normal(size=(2000, 16))).astype(np.float32)
    docids /= np.linalg.norm(docids, axis=1, keepdims=True)
    inputs = docids[::20]
    exact = nearest(inputs, docids, 5)
    wanted = np.argsort(-(inputs @ docids.T), axis=1)[:, :5]
    assert np.array_equal(np.sort(exact, 1), np.sort(wanted, 1))
    monkeypatch.setattr(neighbours, "_EXACT", 0)
    some = nearest(inputs, docids, 5)
    shared = np.mean([len(set(a) & set(b)) / 5 for a, b in zip(exact.tolist(), some.tolist(), strict=True)])
    assert shared > 0.8
    assert nearest(inputs[:0], docids, 5).shape == (0, 5)
