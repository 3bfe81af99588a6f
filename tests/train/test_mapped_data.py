from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pixnar.train.data import MappedTexts, TrainingData, _mapped, packed, write_inputs
from tests.helpers.training_runs import TrainingSetup, training_setup


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TrainingSetup:
    return training_setup(tmp_path_factory.mktemp("setup"))


def test_what_was_written_is_mapped(made: TrainingSetup, tmp_path: Path) -> None:
    write_inputs(made.data, tmp_path / "inputs")
    data = _mapped(tmp_path / "inputs", made.data.vocabulary)
    for name in ("doc_ids", "docids", "queries"):
        assert list(getattr(data, name)) == list(getattr(made.data, name))
    for name in ("pair_docid", "pair_document", "query_index", "query_document"):
        assert np.array_equal(getattr(data, name), getattr(made.data, name))
    assert data.inputs == made.data.inputs
    assert [data.text(i) for i in range(len(data.inputs))] == made.data.inputs
    assert data.default_slots() == made.data.default_slots()
    batch = made.data.pairs(seed=3).batch(2, 8)
    mine = data.pairs(seed=3).batch(2, 8)
    for one, other in zip(batch, mine, strict=True):
        assert np.array_equal(one, other)
    assert np.array_equal(data.targets(batch.targets, 5), made.data.targets(batch.targets, 5))


def test_ngrams_of_a_batch_are_those_of_all(made: TrainingSetup) -> None:
    later = TrainingData(
        **{name: value for name, value in vars(made.data).items() if name not in ("_ngrams", "keep_ngrams")},
        keep_ngrams=False,
    )
    some = np.array([5, 0, 5, len(made.data.inputs) - 1])
    for one, other in zip(made.data.ngrams_of(some), later.ngrams_of(some), strict=True):
        assert np.array_equal(one, other)
    assert later._ngrams is None


def test_mapped_texts() -> None:
    texts = MappedTexts(*packed(["a", "", "ö"]))
    assert list(texts) == ["a", "", "ö"]
    assert texts[1:] == ["", "ö"]
    with pytest.raises(IndexError):
        texts[3]
    assert len(MappedTexts(*packed([]))) == 0


def test_texts_that_are_no_unicode() -> None:
    odd = ["a\ud800", "\udfff", "plain"]
    assert list(MappedTexts(*packed(odd))) == odd
