"""The folder that a fit takes: who may go on in it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pixnar.base.errors import PixnarError
from pixnar.corpus import open_corpus
from pixnar.pipeline.context import claim
from pixnar.recipe import Recipe
from tests.helpers.fit_corpora import write_small


def test_a_recipe_from_before_a_setting_existed_goes_on(tmp_path: Path) -> None:
    write_small(tmp_path / "corpus", 4, 2)
    corpus, place = open_corpus(tmp_path / "corpus"), tmp_path / "index"
    claim(place, corpus, Recipe(), overwrite=False)
    note = place / "work" / "fit.json"
    noted = json.loads(note.read_bytes())
    del noted["recipe"]["naming"]
    note.write_text(json.dumps(noted))
    assert claim(place, corpus, Recipe(), overwrite=False) == place
    assert json.loads(note.read_bytes())["recipe"].keys() == {*noted["recipe"], "naming"}
    other = replace(Recipe(), train=replace(Recipe().train, seed=7))
    with pytest.raises(PixnarError, match=r"index was begun with another recipe\.train\.seed: use the same again"):
        claim(place, corpus, other, overwrite=False)
