"""Lists of the composed score: cells of docids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pixnar.model.nar import Nar
from pixnar.pipeline.shortlist import cells_of_docids, make_shortlist
from pixnar.recipe import ShortlistSettings as Settings
from pixnar.runtime import Shortlist
from pixnar.scoring import COMPOSED_RULE
from pixnar.train.data import TrainingData
from tests.helpers.training_runs import SLOTS, training_setup


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Nar, TrainingData]:
    made = training_setup(tmp_path_factory.mktemp("cells"))
    return made.model().eval(), made.data


def test_a_cell_lists_the_tokens_of_its_docids(trained: tuple[Nar, TrainingData]) -> None:
    model, data = trained
    shortlist = cells_of_docids(model, data, Settings(m=6))
    lists = [set(shortlist.list_of(i).tolist()) for i in range(len(shortlist.c))]
    for docid in range(len(data.docids)):
        tokens = set(data.tokens.row(docid)[:SLOTS].tolist())
        assert any(tokens <= one for one in lists)
    listed = np.unique(shortlist.lists)
    assert listed.tolist() == list(range(len(data.vocabulary)))  # every token is in some list, the end in none


def test_the_same_seed_makes_the_same_lists(trained: tuple[Nar, TrainingData], tmp_path: Path) -> None:
    for name in ("one", "again"):
        make_shortlist(*trained, Settings(), COMPOSED_RULE, 3).save(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "again").read_bytes()
    assert Shortlist.load(tmp_path / "one").offsets is not None


def test_the_recipe_sets_sizes(trained: tuple[Nar, TrainingData]) -> None:
    shortlist = cells_of_docids(*trained, Settings(m=5, r=2, k=3))
    assert shortlist.k == 3
    assert 1 <= len(shortlist.c) <= 6
    assert max(len(shortlist.list_of(i)) for i in range(len(shortlist.c))) <= 2
