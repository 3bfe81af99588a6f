"""Perturbed queries: how far they are from the originals, the same on every machine, and what they cost."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixnar.base.errors import PixnarError
from pixnar.corpus.queries import neighbours
from pixnar.evaluation import Perturbation, evaluate, paired_difference
from pixnar.search import Hit
from tests.helpers.fit_corpora import write_small

TEXTS = st.text(max_size=25) | st.lists(st.text("abcdé12,'ж漢", min_size=1, max_size=6), max_size=6).map(" ".join)
IDS = st.text(max_size=5)
SEEDS = st.integers(0, 2**63 - 1)


def distance(first: str, second: str) -> int:
    """The Damerau-Levenshtein distance, a metric: transposed characters may be edited further."""
    last_row: dict[str, int] = {}
    most = len(first) + len(second)
    d = {(-1, -1): most}
    for i in range(len(first) + 1):
        d[i, -1], d[i, 0] = most, i
    for j in range(len(second) + 1):
        d[-1, j], d[0, j] = most, j
    for i, a in enumerate(first, 1):
        last_match = 0
        for j, b in enumerate(second, 1):
            k, m = last_row.get(b, 0), last_match
            same = a == b
            last_match = j if same else last_match
            d[i, j] = min(
                d[i - 1, j - 1] + (not same),
                d[i, j - 1] + 1,
                d[i - 1, j] + 1,
                d[k - 1, m - 1] + (i - k - 1) + 1 + (j - m - 1),
            )
        last_row[a] = i
    return d[len(first), len(second)]


def test_the_distance_itself() -> None:
    pairs = (("ca", "abc"), ("", "ab"), ("ab", "ba"), ("kitten", "sitting"))
    assert [distance(*pair) for pair in pairs] == [2, 2, 1, 3]


@given(TEXTS, st.integers(0, 5), SEEDS, IDS)
def test_edits_stay_near_and_inside_words(text: str, typos: int, seed: int, query_id: str) -> None:
    found = Perturbation(typos=typos, seed=seed).apply(text, query_id)
    assert distance(text, found) <= typos
    assert len(found.split()) == len(text.split())
    assert [part.isspace() for part in found if not part.isalnum()] == [c.isspace() for c in text if not c.isalnum()]
    for before, after in zip(text.split(), found.split(), strict=True):
        assert any(map(str.isalnum, before)) == any(map(str.isalnum, after))


@given(TEXTS, SEEDS, IDS)
def test_one_typo_is_one_edit(text: str, seed: int, query_id: str) -> None:
    assert distance(text, Perturbation(typos=1, seed=seed).apply(text, query_id)) == any(map(str.isalnum, text))


@given(TEXTS, st.integers(0, 8), st.integers(0, 3), SEEDS, IDS)
def test_words_dropped_and_shuffled(text: str, drop: int, typos: int, seed: int, query_id: str) -> None:
    words = text.split()
    dropped = Perturbation(drop_words=drop, seed=seed).apply(text, query_id)
    left = dropped.split()
    assert len(left) == min(len(words), max(1, len(words) - drop))
    rest = iter(words)
    assert all(word in rest for word in left)  # in their order
    shuffled = Perturbation(drop_words=drop, shuffle_words=True, seed=seed).apply(text, query_id)
    assert Counter(shuffled.split()) == Counter(left)
    both = Perturbation(typos=typos, drop_words=drop, shuffle_words=True, seed=seed).apply(text, query_id)
    assert distance(shuffled, both) <= typos
    only = Perturbation(shuffle_words=True, seed=seed).apply(text, query_id)
    assert Counter(only.split()) == Counter(words)


@given(TEXTS, st.integers(0, 3), st.integers(0, 3), st.booleans(), SEEDS, IDS)
def test_the_same_call_gives_the_same_text(
    text: str, typos: int, drop: int, shuffle: bool, seed: int, query_id: str
) -> None:
    def ask() -> str:
        return Perturbation(typos=typos, drop_words=drop, shuffle_words=shuffle, seed=seed).apply(text, query_id)

    assert ask() == ask()
    if not typos and not drop and not shuffle:
        assert ask() == text


GOLDEN = (
    (Perturbation(typos=1), "q1", "cheap night flightxs to rome"),
    (Perturbation(typos=3, seed=7), "q1", "cheap ni8ght flihgts to roms"),
    (Perturbation(drop_words=2), "q1", "cheap to rome"),
    (Perturbation(shuffle_words=True), "q2", "flights night rome cheap to"),
    (Perturbation(typos=1, drop_words=1, shuffle_words=True), "ж", "rome to cheap nignt"),
)


@pytest.mark.parametrize(("how", "query_id", "wanted"), GOLDEN)
def test_texts_that_every_machine_must_give(how: Perturbation, query_id: str, wanted: str) -> None:
    assert how.apply("cheap night flights to rome", query_id) == wanted


def test_another_process_gives_the_same() -> None:
    """Python's own hash of a text changes from process to process."""
    code = "from pixnar.evaluation import Perturbation; print(Perturbation(typos=4).apply('cheap night flights', 'x'))"
    told = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert told == {Perturbation(typos=4).apply("cheap night flights", "x") + "\n"}


def test_seeds_and_ids_matter_and_kinds_of_edits_are_about_as_frequent() -> None:
    text = "cheap night flights to rome"
    by_id = [Perturbation(typos=1).apply(text, f"q{i}") for i in range(400)]
    assert len(set(by_id)) > 100
    assert len({Perturbation(typos=1, seed=seed).apply(text, "q") for seed in range(50)}) > 20
    assert Perturbation(typos=2).apply(text, "q5") != Perturbation(typos=1).apply(text, "q5")
    kinds = Counter("swap" if sorted(one) == sorted(text) else str(len(one) - len(text)) for one in by_id)
    assert kinds.keys() == {"swap", "-1", "0", "1"}
    assert min(kinds.values()) > 60


def test_neighbours() -> None:
    assert set(neighbours("a")) == set("qwsz")
    assert set(neighbours("A")) == set("QWSZ")
    assert set(neighbours("5")) == set("46rt")
    for character in "azé漢жßªⅷ१":
        near = neighbours(character)
        assert near
        assert character not in near
        assert all(len(one) == 1 and one.isalnum() for one in near)


def test_what_cannot_be_perturbed() -> None:
    everything = Perturbation(typos=3, drop_words=5, shuffle_words=True)
    assert everything.apply("", "q") == ""
    assert everything.apply("?!", "q") == "?!"
    assert Perturbation(drop_words=5, shuffle_words=True).apply("rome", "q") == "rome"
    assert not Perturbation(seed=3)
    assert str(Perturbation(typos=1, drop_words=2, shuffle_words=True)) == "1 typo, 2 words dropped, words shuffled"


@pytest.mark.parametrize("wrong", [{"typos": -1}, {"drop_words": -2}, {"typos": 1001}, {"seed": -1}, {"seed": 2**63}])
def test_bad_settings(wrong: dict[str, Any]) -> None:
    with pytest.raises(PixnarError, match=r"^perturbation: \w+ = -?\d+: give a whole number from 0 to [\d,]+$"):
        Perturbation(**wrong)


class Words:
    """A retriever by exact words in common with made-up documents, which notes what it was asked."""

    def __init__(self, names: dict[str, set[str]]) -> None:
        self.names, self.asked = names, list[str]()

    def search(self, query: str, k: int = 10) -> list[Hit]:
        self.asked.append(query)
        scores: dict[str, float] = {}
        for docid, documents in self.names.items():
            for document in documents:
                shared = len(set(docid.split()) & set(query.split()))
                scores[document] = max(scores.get(document, 0.0), float(shared))
        ranked = sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:k]
        return [Hit(document, score, "") for document, score in ranked if score]

    def search_batch(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        return [self.search(query, k) for query in queries]


def test_evaluate_asks_both_and_tells_the_change(tmp_path: Path) -> None:
    retriever = Words(write_small(tmp_path / "corpus"))
    plain = evaluate(retriever, str(tmp_path / "corpus"), "dev")
    assert (plain.changes(), plain.queries_changed, plain.unperturbed) == ({}, 0, None)
    retriever.asked.clear()
    how = Perturbation(typos=2, seed=1)
    found = evaluate(retriever, str(tmp_path / "corpus"), "dev", perturbation=how, timed=3)
    assert found.unperturbed is not None
    assert found.unperturbed.run == plain.run
    assert found.unperturbed.figures == plain.figures
    assert retriever.asked[:50] == list(found.unperturbed.texts.values()) == list(plain.texts.values())
    assert retriever.asked[50:100] == list(found.texts.values())
    assert set(retriever.asked[100:]) == set(list(found.texts.values())[:3])  # those that are timed
    assert found.texts == {query_id: how.apply(text, query_id) for query_id, text in plain.texts.items()}
    assert found.queries_changed == sum(found.texts[one] != plain.texts[one] for one in plain.texts) > 40
    change = found.changes()["MRR@10"]
    assert change.difference == pytest.approx(found.figures["MRR@10"] - plain.figures["MRR@10"])
    assert change.relative == pytest.approx(change.difference / plain.figures["MRR@10"])
    assert change.difference < 0
    assert change.interval.low < change.difference < change.interval.high
    wanted = paired_difference(found.per_query["MRR@10"], plain.per_query["MRR@10"])
    assert change.p_value == wanted.p_value < 0.05
    shuffled = evaluate(
        retriever, str(tmp_path / "corpus"), "dev", perturbation=Perturbation(shuffle_words=True), measures=["R@5"]
    )
    assert shuffled.queries_changed > 20
    assert shuffled.changes()["R@5"][:2] == (0.0, 0.0)  # words in any order are the same to it
    assert shuffled.changes()["R@5"].p_value == 1.0


def test_nothing_found_has_no_relative_change(tmp_path: Path) -> None:
    write_small(tmp_path / "corpus")
    found = evaluate(Words({}), str(tmp_path / "corpus"), "dev", perturbation=Perturbation(typos=1))
    assert found.changes()["MRR@10"].relative is None
    assert np.isfinite(found.changes()["MRR@10"].p_value)
