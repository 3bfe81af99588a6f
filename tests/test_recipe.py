from __future__ import annotations

import math
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from pixnar.base.errors import PixnarError
from pixnar.recipe import CLOVER, PAPER, Recipe, Train, Vocab, dumps, from_dict, load, override, to_dict

SHIPPED = sorted((Path(__file__).parents[1] / "recipes").glob("*.toml"))


def shipped(name: str) -> Path:
    return next(path for path in SHIPPED if path.stem == name)


def test_the_recipes_we_ship() -> None:
    assert [path.stem for path in SHIPPED] == ["clover", "default", "msmarco", "nq", "paper", "quick"]
    found = {path.stem: load(path) for path in SHIPPED}
    assert found["default"] == Recipe()
    assert found["clover"] == CLOVER
    assert found["paper"] == PAPER
    paper_vocab = Vocab(size=5_000_000, min_count=20)
    for name, epochs in (("msmarco", 5), ("nq", 10)):
        train = replace(PAPER.train, minutes=0.0, epochs=epochs, patience=0)
        assert found[name] == replace(PAPER, vocab=paper_vocab, train=train)
    assert found["quick"].train.minutes == 2.0


def test_the_default_file_says_all_there_is() -> None:
    text = shipped("default").read_text()
    assert text[text.index("# The output vocabulary") :] == dumps(Recipe())


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_lines_fit_on_a_screen(path: Path) -> None:
    assert max(map(len, path.read_text().splitlines())) <= 120


def test_what_the_paper_does() -> None:
    train = PAPER.train
    assert train.batch * train.accumulate == 6400
    assert {train.learning_rate, train.head_learning_rate, train.encoder_learning_rate} == {5e-5}
    assert (PAPER.shortlist.m, PAPER.shortlist.r, PAPER.shortlist.k) == (4096, 20000, 5)
    assert not any((PAPER.lexical.docids, PAPER.lexical.text, PAPER.fuse.dense))


def test_scoring_has_the_settings_of_a_score_rule() -> None:
    from pixnar.scoring import PAPER_RULE, ScoreRule

    def rule(recipe: Recipe) -> ScoreRule:
        settings = to_dict(recipe)["scoring"]
        del settings["tune"], settings["tune_queries"]
        return ScoreRule.from_dict(settings)

    assert rule(PAPER) == PAPER_RULE
    assert rule(override(Recipe(), ["scoring.order=bag"])) == ScoreRule(score="composed", copy=0.2)
    former = override(Recipe(), ["scoring.order=bag", "scoring.score=probability", "scoring.copy=0.3"])
    assert rule(former) == ScoreRule()


def test_round_trip() -> None:
    odd = from_dict(
        {
            "model": {"encoder": 'a "folder"\\with\ttricks\x7f, é'},
            "train": {"learning_rate": 3e-7, "seed": 2**60, "minutes": 7},
            "scoring": {"aggregate": 5, "ends": True, "score": "probability", "order": "slots"},
        }
    )
    for recipe in (Recipe(), PAPER, CLOVER, odd):
        assert from_dict(tomllib.loads(dumps(recipe))) == recipe
        assert from_dict(to_dict(recipe)) == recipe


def test_a_whole_number_will_do_where_a_number_is_asked() -> None:
    minutes = from_dict({"train": {"minutes": 3}}).train.minutes
    assert (minutes, type(minutes)) == (3.0, float)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"trian": {}}, "r.toml: unknown section [trian]; did you mean [train]?"),
    ({"zzz": {}}, "r.toml: unknown section [zzz]; there are [vocab], [model], [train]"),
    ({"minutes": 3}, "r.toml: minutes = 3 stands outside all sections; it belongs under [train]"),
    ({"qqq": 3}, "every key belongs under a section such as [train]"),
    ({"train": 3}, "r.toml: train = 3 is not a section; write [train] and its keys below"),
    ({"train": {"bacth": 3}}, "r.toml: unknown key train.bacth = 3; did you mean train.batch?"),
    ({"train": {"copy": 0.3}}, "r.toml: unknown key train.copy = 0.3; it belongs under [scoring]"),
    (
        {"fuse": {"zzz": "x"}},
        'r.toml: unknown key fuse.zzz = "x"; [fuse] has dense, text_vectors, margin, depth, nearest, dev_queries',
    ),
    ({"train": {"batch": -1}}, "r.toml: train.batch = -1 is not possible; give a whole number from 1 to 1,048,576"),
    ({"train": {"batch": "big"}}, 'r.toml: train.batch = "big" is a text; give a whole number from 1 to'),
    ({"train": {"batch": 2.5}}, "r.toml: train.batch = 2.5 is a number; give a whole number from 1 to"),
    ({"train": {"batch": True}}, "r.toml: train.batch = true is a yes or no (true, false); give a whole number"),
    ({"train": {"batch": [1]}}, "r.toml: train.batch = [1] is a list; give"),
    ({"train": {"batch": {"a": 1}}}, "is a section; give a whole number"),
    ({"train": {"steps": -1}}, "train.steps = -1 is not possible; give a whole number from 0 up"),
    ({"train": {"learning_rate": 0}}, "train.learning_rate = 0 is not possible; give a number above 0 to 1"),
    ({"train": {"l1": math.nan}}, "train.l1 = nan is not possible"),
    ({"train": {"l1": math.inf}}, "train.l1 = inf is not possible"),
    ({"train": {"fine_tune": 1.5}}, "train.fine_tune = 1.5 is not possible; give a number from 0 to 1"),
    ({"train": {"softmax": "ful"}}, 'train.softmax = "ful" is not possible; give "auto" or "full" or "sampled"'),
    ({"train": {"device": "gpu"}}, 'train.device = "gpu" is not possible; give "auto", "cpu", "cuda"'),
    ({"model": {"encoder": " "}}, 'model.encoder = " " is not possible; give the name or folder of a Hugging Face'),
    ({"model": {"bias": 1}}, "model.bias = 1 is a whole number; give a yes or no (true, false)"),
    (
        {"scoring": {"aggregate": 0}},
        'aggregate = 0 is not possible; give "max" or "logsumexp" or a whole number from 1',
    ),
    ({"scoring": {"aggregate": "mean"}}, 'scoring.aggregate = "mean" is not possible; give "max" or'),
    ({"scoring": {"aggregate": True}}, "scoring.aggregate = true is"),
    (
        {"scoring": {"ends": True}},
        'r.toml: scoring.ends = true does nothing with score = "composed" and order = "auto"; set score = ',
    ),
    ({"scoring": {"ends": True, "score": "probability", "order": "any"}}, 'order = "slots", or ends = false'),
    ({"scoring": {"ends": True, "order": "slots"}}, 'does nothing with score = "composed" and order = "slots"'),
    ({"model": {"encoder": "x\n" * 100}}, "x… is not possible; give the name or folder of a Hugging Face encoder"),
]


@pytest.mark.parametrize(("content", "message"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_said_in_one_line(content: dict[str, Any], message: str) -> None:
    with pytest.raises(PixnarError) as caught:
        from_dict(content, "r.toml")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    with pytest.raises(PixnarError, match=r"cannot read the recipe .*r\.toml: No such file"):
        load(path)
    path.write_text("[train]\nbatch = \n")
    with pytest.raises(PixnarError, match=r"r\.toml is not valid TOML: .*line 2"):
        load(path)
    path.write_bytes(b"[train]\n# \xff\n")
    with pytest.raises(PixnarError, match=r"r\.toml is not valid TOML"):
        load(path)
    path.write_text("[train]\nbatch = 0\n")
    with pytest.raises(PixnarError, match=r"r\.toml: train\.batch = 0 is not possible"):
        load(path)


def test_settings_on_a_command_line() -> None:
    recipe = override(
        PAPER,
        ["train.minutes=0", "train.steps = 70", "model.head=encoder", 'scoring.order="any"', "scoring.ends=false"],
    )
    assert (recipe.train.steps, recipe.model.head, recipe.scoring.order) == (70, "encoder", "any")
    assert recipe.shortlist == PAPER.shortlist
    for setting, message in (
        ("minutes=2", "write section.key=value"),
        ("train.minutes", "write section.key=value"),
        ("train.minuts=2", "did you mean train.minutes"),
        ("trian.minutes=2", "did you mean \\[train\\]"),
        ("train.batch=many", 'train.batch = "many" is a text'),
    ):
        with pytest.raises(PixnarError, match=message):
            override(Recipe(), [setting])


def test_every_setting_has_words() -> None:
    for section in fields(Recipe):
        for setting in fields(getattr(Recipe(), section.name)):
            assert len(setting.metadata["allowed"].about) > 10
    assert Train.__doc__
