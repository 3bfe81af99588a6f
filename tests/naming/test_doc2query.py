from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pixnar.errors import PixnarError
from pixnar.naming import Asking
from pixnar.naming.doc2query import Doc2Query
from tests.fit.corpora import WORDS
from tests.model.tiny import save_encoder
from tests.naming.corpora import passages
from tests.naming.models import save_t5


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Asking:
    folder = save_t5(tmp_path_factory.mktemp("t5"), [" ".join(WORDS)])
    return Asking(model=str(folder), per_document=4, batch=3, longest=6, device="cpu")


def test_what_a_model_asks(asking: Asking) -> None:
    model = Doc2Query.load(asking, threads=1)
    texts = [document.text for document in passages(8)]
    texts[2] = "  "
    before = torch.get_rng_state()
    done: list[int] = []
    found = model.queries(texts, 0, done.append)
    assert torch.equal(before, torch.get_rng_state())
    assert done == [3, 6, 7]
    assert found[2] == []
    for queries in found[:2] + found[3:]:
        assert 1 <= len(queries) == len(set(queries)) <= 4
        assert all(len(query.split()) <= 6 and query == " ".join(query.split()) for query in queries)
        assert {word for query in queries for word in query.split()} <= {*WORDS, "."}
    assert model.queries(texts, 0) == found  # whatever was asked in between
    assert model.queries(texts, 3) != found
    assert Doc2Query.load(replace(asking, seed=1)).queries(texts, 0) != found
    assert Doc2Query.load(replace(asking, top_k=1)).queries(texts, 0) != found


def test_one_choice_is_one_query(asking: Asking) -> None:
    """With top_k 1 all samples are the same, and the same again is no other query."""
    texts = [document.text for document in passages(6)]
    found = Doc2Query.load(replace(asking, top_k=1)).queries(texts, 0)
    assert all(len(queries) <= 1 for queries in found)  # an untrained model may say nothing at all
    assert max(len(queries) for queries in Doc2Query.load(asking).queries(texts, 0)) == 4


def test_models_that_cannot_ask(tmp_path: Path, asking: Asking) -> None:
    encoder = save_encoder(tmp_path / "encoder")
    for name, device in ((str(tmp_path / "none"), "cpu"), (str(encoder), "cpu"), (asking.model, "abacus")):
        with pytest.raises(
            PixnarError, match=r"cannot load the model .*; give the name or folder of a seq2seq"
        ) as caught:
            Doc2Query.load(replace(asking, model=name, device=device))
        assert "\n" not in str(caught.value)
