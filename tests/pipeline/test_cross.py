"""Cross-validation: no query has a say in what it is measured with, and sources that do not help are told apart."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pixnar.corpus import Document
from pixnar.evaluation.queries import Queries
from pixnar.fusion.fuse import DENSE, DOCIDS, EXPANSION, LEXICAL, TEXT
from pixnar.pipeline.sources import pieces_of, unused
from pixnar.pipeline.tune import CrossValidation, folds
from pixnar.scoring import ScoreRule
from pixnar.search.ranker import Candidates

QUERIES, DOCUMENTS = 60, 30
IDS = [f"d{i:02}" for i in range(DOCUMENTS)]


def crossed(seed: int, wrong: tuple[int, ...] = ()) -> CrossValidation:
    """Docids know a little, text knows as much again, dense vectors know nothing; some judgements are `wrong`."""
    rng = np.random.default_rng(seed)
    answers = rng.integers(0, DOCUMENTS, QUERIES)
    tables, judged = [], []
    decoded: Any = [SimpleNamespace(snapshot=SimpleNamespace(doc_ids=lambda numbers: [IDS[n] for n in numbers]))]
    for number, answer in enumerate(answers.tolist()):
        columns = {name: rng.normal(size=DOCUMENTS).astype(np.float32) for name in (DOCIDS, DENSE, TEXT)}
        for name in (DOCIDS, TEXT):
            columns[name][answer] += 2.0
        tables.append(Candidates(np.arange(DOCUMENTS), columns, decoded, np.arange(DOCUMENTS), {}))
        judged.append({IDS[(answer + (number in wrong)) % DOCUMENTS]: 1})
    dev = Queries([f"q{i}" for i in range(QUERIES)], [""] * QUERIES, judged)
    ranker: Any = SimpleNamespace(place_of={doc_id: i for i, doc_id in enumerate(IDS)}, depth=DOCUMENTS)
    rule = ScoreRule()
    return CrossValidation(ranker, [], dev, [rule, rule], {rule: tables})


@pytest.mark.parametrize("seed", range(5))
def test_the_judgements_of_a_query_do_not_change_its_ranking(seed: int) -> None:
    sources = [DOCIDS, DENSE, TEXT]
    for half in folds(QUERIES):
        before, after = crossed(seed).run(sources), crossed(seed, tuple(half.measured.tolist())).run(sources)
        assert [after[i] for i in half.measured] == [before[i] for i in half.measured]


def test_what_each_source_is_worth() -> None:
    shares = [crossed(seed).worth([DOCIDS, DENSE, TEXT], 0.005) for seed in range(5)]
    assert all(share[TEXT] > 0.1 for share in shares)
    assert np.mean([share[DENSE] for share in shares]) < 0.005
    assert crossed(0).worth([DOCIDS, TEXT], 0.005).keys() == {TEXT}


def test_halves() -> None:
    for queries in (2, 3, 101):
        one, other = folds(queries)
        assert sorted([*one.measured, *other.measured]) == list(range(queries))
        assert one.chosen_on.tolist() == other.measured.tolist()
        assert other.chosen_on.tolist() == one.measured.tolist()


def test_files_that_nobody_needs() -> None:
    weights: dict[str, Any] = {"docids": None, "lexical": {"weights": {DOCIDS: 1, EXPANSION: 1}}}
    assert unused(weights | {"all": {"weights": {LEXICAL: 1, TEXT: 1}}}) == ["vectors.pixnar"]
    assert len(unused({"docids": None, "lexical": None, "all": None})) == 3


def test_pieces_of_a_text() -> None:
    words = [f"w{i}" for i in range(200)]
    made = pieces_of(Document("d", "The Title", " ".join(words), {}), 2)
    assert made == ["the title " + " ".join(words[:80]), "the title " + " ".join(words[80:160])]
    assert [len(piece.split()) for piece in pieces_of(Document("d", "", " ".join(words), {}), 9)] == [80, 80, 40]
    assert pieces_of(Document("d", "Only a title", " ", {}), 2) == []
