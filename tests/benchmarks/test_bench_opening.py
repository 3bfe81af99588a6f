"""The opening benchmark writes a sound index and opens it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pixnar.benchmarks import opening

from pixnar.index import manifest
from pixnar.search import SlotScores
from pixnar.vocab import Vocabulary


def test_opening(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"tokens": 3_000, "docids": 4_000, "documents": 300, "dimensions": 8, "lists": 4, "list_length": 50}
    results = opening.run(**sizes, repeats=1, folder=tmp_path, json_file=tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text()) == results
    assert results["warm"]["open s"] > 0
    assert results["bytes"] > 100_000
    assert "warm_up" in capsys.readouterr().out
    where = tmp_path / "opening-3000-4000-300-8-4-50-6-0"
    assert manifest.verify(where) == 4  # head, priors, shortlist and lexical index
    engine = opening.opened(where, warm_up=True)
    vocabulary = engine.table.vocabulary
    assert isinstance(vocabulary, Vocabulary)
    assert len({vocabulary.token(v) for v in range(514, len(vocabulary))}) == len(vocabulary) - 514
    assert len(Vocabulary.load(next((where / "docids").glob("vocabulary*")))) == 3_000  # all of it is sound
    scores = SlotScores.sparse([([5, 600], [1.0, 2.0])] + [([], [])] * (engine.decoder.slots - 1), [0.0] * 6)
    assert engine.decode(scores, 3)
