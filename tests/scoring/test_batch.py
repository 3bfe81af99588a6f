"""The scores that training ranks with are those that decoding finds documents with."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pixnar.scoring import ScoreRule
from pixnar.search import Decoder, SlotScores
from pixnar.table import DocidTable
from pixnar.train.step import docid_scores, document_scores

VOCABULARY = 9
NAMES = "abcdef"

TABLES = st.dictionaries(
    st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=6).map(tuple),
    st.sets(st.sampled_from(NAMES), min_size=1, max_size=3),
    min_size=1,
    max_size=12,
)
SCORES = st.lists(st.floats(-4, 4, width=32), min_size=VOCABULARY, max_size=VOCABULARY)


def batch_scores(
    table: dict[tuple[int, ...], set[str]], scores: torch.Tensor, rule: ScoreRule, slots: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores [B, docids] and [B, names] of a table, the way a training step makes them."""
    docids = list(table)
    cut = [tokens[:slots] for tokens in docids]
    tokens = torch.tensor([v for row in cut for v in row])
    owner = torch.repeat_interleave(torch.arange(len(cut)), torch.tensor([len(row) for row in cut]))
    ids, places = torch.unique(tokens, return_inverse=True)
    by_docid = docid_scores(scores[:, ids], places, owner, len(docids), rule, slots)
    pairs = [(i, NAMES.index(name)) for i, tokens in enumerate(docids) for name in table[tokens]]
    which, named = (torch.tensor(column) for column in zip(*pairs, strict=True))
    return by_docid, document_scores(by_docid[:, which], named, len(NAMES), rule)


@given(
    TABLES,
    st.lists(SCORES, min_size=1, max_size=3),
    st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    st.sampled_from(["max", "logsumexp"]),
    st.sampled_from([1, 3, 4, 8]),
    st.sampled_from([0.0, -0.5]),
)
def test_as_decoding(
    table: dict[tuple[int, ...], set[str]],
    rows: list[list[float]],
    length_norm: float,
    aggregate: str,
    slots: int,
    floor: float,
) -> None:
    rule = ScoreRule(length_norm=length_norm, aggregate=aggregate)  # type: ignore[arg-type]
    given_scores = torch.tensor(rows, dtype=torch.float64)
    by_docid, by_document = batch_scores(table, given_scores.clamp(min=floor), rule, slots)
    decoder = Decoder(
        DocidTable.in_memory(table, VOCABULARY), slots=slots, floor=np.full(VOCABULARY, floor, np.float32), threads=1
    )
    for i, row in enumerate(rows):
        above = [v for v in range(VOCABULARY) if row[v] > floor]
        none: tuple[list[int], list[float]] = ([], [])
        scores = SlotScores.sparse([(above, [row[v] for v in above])] + [none] * (slots - 1), np.zeros(slots))
        found = decoder.docids(scores, 100, order="any", length_norm=length_norm)
        assert {hit.tokens: hit.score for hit in found.hits} == pytest.approx(
            dict(zip(table, by_docid[i].tolist(), strict=True)), abs=1e-6
        )
        documents = decoder.documents(scores, 100, order="any", length_norm=length_norm, aggregate=rule.aggregate)
        wanted = {name: value for name, value in zip(NAMES, by_document[i].tolist(), strict=True) if value > -np.inf}
        assert {hit.doc_id: hit.score for hit in documents.hits} == pytest.approx(wanted, abs=1e-6)


def test_by_hand() -> None:
    table = {(0, 1): {"a"}, (1, 1, 2): {"a", "b"}, (2,): {"c"}}
    scores = torch.tensor([[1.0, 2.0, 4.0] + [0.0] * 6])
    by_docid, by_document = batch_scores(table, scores, ScoreRule(length_norm=1.0, aggregate="max"), 8)
    assert by_docid[0].tolist() == pytest.approx([3 / 3, 8 / 4, 4 / 2])
    assert by_document[0, :3].tolist() == pytest.approx([2, 2, 2])
    assert by_document[0, 3:].tolist() == [-np.inf] * 3
    _, summed = batch_scores(table, scores, ScoreRule(length_norm=1.0, aggregate="logsumexp"), 8)
    assert summed[0, :3].tolist() == pytest.approx([np.logaddexp(1, 2), 2, 2])


def test_gradients_are_those_of_the_formula() -> None:
    scores = torch.tensor([[0.5, -0.25, 2.0]], dtype=torch.float64, requires_grad=True)
    documents = torch.tensor([0, 0, 1])

    def summed(values: torch.Tensor) -> torch.Tensor:
        return document_scores(values, documents, 2, ScoreRule(aggregate="logsumexp"))

    assert torch.autograd.gradcheck(summed, (scores,))
    hidden = scores.masked_fill(torch.tensor([[False, True, False]]), -torch.inf)
    summed(hidden).sum().backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert scores.grad.tolist() == [[1.0, 0.0, 1.0]]  # what is masked out gets none, and no nan


def test_large_scores_do_not_overflow() -> None:
    scores = torch.tensor([[800.0, 801.0, -900.0]])
    got = document_scores(scores, torch.tensor([0, 0, 1]), 2, ScoreRule(aggregate="logsumexp"))
    assert got[0].tolist() == pytest.approx([801 + np.log1p(np.exp(-1)), -900])
