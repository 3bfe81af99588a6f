"""Sources after changes: each document scores by the docids it has now, with the statistics of the build."""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pixnar.fusion.lexical import LexicalIndex
from pixnar.fusion.postings import Changed
from pixnar.fusion.terms import words
from pixnar.fusion.vectors import ChangedVectors, DocidVectors, name_of
from pixnar.vocab import normalize

from .test_lexical import TEXT, VOCABULARY, spans

UNITS, NEW = 4, 2
QUERY = "new york hotels, bar zebra zebras okapi okapi"


class Story(NamedTuple):
    """Texts at the build, and what happened to the units; `now` are the texts of all units after it."""

    built: list[tuple[int, str]]
    now: list[tuple[int, str]]
    changed: Changed


@st.composite
def stories(draw: st.DrawFn) -> Story:
    built = draw(st.lists(st.tuples(st.integers(0, UNITS - 1), TEXT), max_size=10))
    units = sorted(draw(st.sets(st.integers(0, UNITS - 1))))
    cleared = [draw(st.booleans()) for _ in units]
    gone = {unit for unit, clear in zip(units, cleared, strict=True) if clear}
    kept = [(unit, text) for unit, text in built if unit not in gone]
    candidates = [i for i, (unit, _) in enumerate(kept) if unit in units]
    lost = draw(st.sets(st.sampled_from(candidates))) if candidates else set()
    places = [*units, *range(UNITS, UNITS + NEW)]
    extra = TEXT.map(lambda text: f"{text} okapi")  # a word that no text of the build has
    gained = draw(st.lists(st.tuples(st.integers(0, len(places) - 1), TEXT | extra), max_size=6))
    now = [row for i, row in enumerate(kept) if i not in lost] + [(places[i], text) for i, text in gained]
    taken = [(units.index(kept[i][0]), kept[i][1]) for i in sorted(lost)]
    names = [name_of(VOCABULARY.encode(text).tolist()) for _, text in taken]
    changed = Changed(np.array(units, np.int64), np.array(cleared, np.bool_), NEW, gained, taken, names)
    return Story(built, now, changed)


def counted(texts: list[tuple[int, str]], phrases: bool) -> tuple[list[Counter[str]], list[int]]:
    counts: list[Counter[str]] = [Counter() for _ in range(UNITS + NEW)]
    lengths = [0] * (UNITS + NEW)
    for unit, text in texts:
        counts[unit] += spans(text) if phrases else Counter(words(normalize(text)))
        lengths[unit] += len(words(normalize(text)))
    return counts, lengths


def naive(story: Story, k1: float, b: float, least: float, *, phrases: bool) -> list[float]:
    """BM25 of the texts as they are now; frequencies and the mean length are those of the build."""
    then, long = counted(story.built, phrases)
    counts, lengths = counted(story.now, phrases)
    mean = max(sum(long) / UNITS, least)
    scores = [0.0] * (UNITS + NEW)
    asked = spans(QUERY) if phrases else Counter(words(normalize(QUERY)))
    for term, times in asked.items():
        found_in = sum(term in unit for unit in then)
        idf = math.log(1 + (UNITS - found_in + 0.5) / (found_in + 0.5))
        factor = 1.0 if term.isalpha() else 0.1 if words(term) else 0.0
        for unit, length in enumerate(lengths):
            tf = counts[unit][term]
            part = tf / (tf + k1 * (1 - b + b * length / mean)) if tf else 0.0
            scores[unit] += times * factor * idf * part
    return scores


@settings(max_examples=80)
@given(stories())
def test_words_and_phrases(story: Story) -> None:
    lexical = LexicalIndex.build(VOCABULARY, story.built, UNITS)
    changed = lexical.changed(story.changed)
    expected = 1.9 * np.array(naive(story, 0.9, 0.4, 1e-9, phrases=True))
    assert changed.score(QUERY) == pytest.approx(expected, rel=1e-5, abs=1e-6)
    others = np.setdiff1d(np.arange(UNITS), story.changed.units)
    assert changed.score(QUERY)[others].tolist() == lexical.score(QUERY)[others].tolist()
    tokens = list(range(len(VOCABULARY)))
    anew = LexicalIndex.build(VOCABULARY, story.now, UNITS + NEW)
    seen = changed.expansion(tokens, [1.0] * len(tokens)) > 0
    assert seen.tolist() == (anew.expansion(tokens, [1.0] * len(tokens)) > 0).tolist()


@settings(max_examples=50)
@given(stories(), st.integers(0, 99))
def test_vectors(story: Story, seed: int) -> None:
    """As if they had been built with the docids that there are now."""
    rng = np.random.default_rng(seed)
    texts = sorted({text for _, text in [*story.built, *story.now]})
    vector = dict(zip(texts, rng.normal(size=(len(texts), 16)), strict=True))
    names = {text: name_of(VOCABULARY.encode(text).tolist()) for text in texts}

    def built(rows: list[tuple[int, str]], n_units: int) -> DocidVectors:
        matrix = np.array([vector[text] for _, text in rows]).reshape(-1, 16)
        owners = [unit for unit, _ in rows]
        return DocidVectors.build(matrix, range(len(rows)), owners, n_units, [names[text] for _, text in rows])

    lost = {(story.changed.units[i], names[text]) for i, text in story.changed.lost}
    gone = set(story.changed.units[story.changed.cleared].tolist())
    kept = [(u, text) for u, text in story.built if (u, names[text]) not in lost and u not in gone]
    places = story.changed.places(UNITS)
    now = kept + [(int(places[i]), text) for i, text in story.changed.gained]
    gained = np.array([vector[text] for _, text in story.changed.gained]).reshape(-1, 16).astype(np.float32)
    changed = ChangedVectors(built(story.built, UNITS), story.changed, gained)
    expected = built(now, UNITS + NEW)
    for query in rng.normal(size=(3, 16)):
        assert changed.every(query).tolist() == expected.every(query).tolist()
        some = [5, 0, 3, 0]
        assert changed.best(query, some).tolist() == expected.best(query, some).tolist()


def test_docids_that_only_repeat_the_text_count_when_they_are_added_and_not_when_they_are_lost() -> None:
    changed = Changed(np.array([0]), np.array([False]), 0, [(0, "okapi")], [(0, "hotels")], [0])
    texts = [(0, "new york hotels"), (1, "pizza")]
    echo = LexicalIndex.build(VOCABULARY, texts, 2, docids="added").changed(changed)
    assert echo.score("hotels")[0] > 0 < echo.score("okapi")[0]
    none = LexicalIndex.build(VOCABULARY, texts, 2, docids="none").changed(changed)
    assert none.score("okapi").tolist() == [0, 0]
