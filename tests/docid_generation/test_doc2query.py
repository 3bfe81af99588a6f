from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pixnar.base.errors import PixnarError
from pixnar.docid_generation import Doc2QueryOptions
from pixnar.docid_generation.doc2query import Doc2Query
from tests.helpers.fit_corpora import WORDS
from tests.helpers.query_models import save_bart, save_t5
from tests.helpers.text_corpora import passages
from tests.helpers.tiny_model import save_encoder


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Doc2QueryOptions:
    folder = save_t5(tmp_path_factory.mktemp("t5"), [" ".join(WORDS)])
    return Doc2QueryOptions(model=str(folder), per_document=4, batch=3, longest=6, device="cpu")


def test_what_a_model_asks(options: Doc2QueryOptions) -> None:
    model = Doc2Query.load(options, threads=1)
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
    assert Doc2Query.load(replace(options, seed=1)).queries(texts, 0) != found
    assert Doc2Query.load(replace(options, top_k=1)).queries(texts, 0) != found


def test_one_choice_is_one_query(options: Doc2QueryOptions) -> None:
    """With top_k 1 all samples are the same, and the same again is no other query."""
    texts = [document.text for document in passages(6)]
    found = Doc2Query.load(replace(options, top_k=1)).queries(texts, 0)
    assert all(len(queries) <= 1 for queries in found)  # an untrained model may say nothing at all
    assert max(len(queries) for queries in Doc2Query.load(options).queries(texts, 0)) == 4


def test_models_that_cannot_ask(tmp_path: Path, options: Doc2QueryOptions) -> None:
    encoder = save_encoder(tmp_path / "encoder")
    for name, device in ((str(tmp_path / "none"), "cpu"), (str(encoder), "cpu"), (options.model, "abacus")):
        with pytest.raises(
            PixnarError, match=r"cannot load the model .*; give the name or folder of a seq2seq"
        ) as caught:
            Doc2Query.load(replace(options, model=name, device=device))
        assert "\n" not in str(caught.value)


def test_models_and_tokenizers_that_do_not_belong_together(tmp_path: Path, options: Doc2QueryOptions) -> None:
    small = save_t5(tmp_path / "small", ["one two"])
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(options.model) / name, small / name)
    with pytest.raises(PixnarError, match=r"knows \d+ word pieces and its tokenizer \d+: they do not belong together"):
        Doc2Query.load(replace(options, model=str(small)))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (small / name).unlink()
    with pytest.raises(PixnarError, match=r"has no tokenizer|cannot load the model"):
        Doc2Query.load(replace(options, model=str(small)))


def test_a_model_with_few_places(tmp_path: Path, options: Doc2QueryOptions) -> None:
    """BART has a vector for each place: texts are cut to what it has, and so are queries."""
    folder = save_bart(tmp_path / "bart", [" ".join(WORDS)], places=16)
    model = Doc2Query.load(replace(options, model=str(folder), reads=400, longest=64), threads=1)
    found = model.queries([" ".join(WORDS[:50]), WORDS[0]], 0)
    assert all(len(query.split()) < 16 for queries in found for query in queries)


def test_a_model_that_breaks_down_says_where(options: Doc2QueryOptions) -> None:
    model = Doc2Query.load(options, threads=1)
    model._model.lm_head = torch.nn.Linear(3, 3)
    with pytest.raises(PixnarError, match=r"failed at some of the documents 21 to 22: .*; if memory ran out, lower"):
        model.queries(["a text", "another"], 20)
