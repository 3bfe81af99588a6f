"""Building: what comes out holds what was promised, whatever the threads, the memory and the order of the input."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pixnar import _native
from pixnar.base.errors import VocabularyError
from pixnar.vocab import Vocabulary, mean_length, normalize
from pixnar.vocab.phrases import FIXED_TOKENS, PUNCTUATION, Punctuation
from pixnar.vocab.reference import atoms
from tests.helpers.vocab_strategies import nasty_text


def zipf_docids(n: int, seed: int = 0, words: int = 400) -> list[str]:
    """Docids with recurring phrases, punctuation and rare words."""
    rng = random.Random(seed)
    lexicon = ["".join(rng.choices("aeiou bcdfgé".replace(" ", ""), k=rng.randint(1, 9))) for _ in range(words)]
    phrases = [" ".join(rng.choices(lexicon, k=rng.randint(2, 4))) for _ in range(words // 4)]
    pool = lexicon + phrases
    weights = list(accumulate(1 / (1 + i % words) for i in range(len(pool))))
    return [
        " ".join(rng.choices(pool, cum_weights=weights, k=rng.randint(1, 4)))
        + rng.choice(["", "", "?", *(joint + rng.choice(lexicon) for joint in (", ", "-", " - "))])
        for _ in range(n)
    ]


def saved(vocabulary: Vocabulary, tmp_path: Path) -> bytes:
    vocabulary.save(tmp_path / "v")
    return (tmp_path / "v").read_bytes()


DOCIDS = zipf_docids(4_000)


def test_deterministic_for_any_threads_and_order(tmp_path: Path) -> None:
    first = saved(Vocabulary.build(DOCIDS, 1_500, threads=1), tmp_path)
    for threads in (2, 4):
        assert saved(Vocabulary.build(DOCIDS, 1_500, threads=threads), tmp_path) == first
    shuffled = random.Random(1).sample(DOCIDS, len(DOCIDS))
    assert saved(Vocabulary.build(shuffled, 1_500, threads=2), tmp_path) == first


@settings(max_examples=25, deadline=None)
@given(st.lists(nasty_text, min_size=1, max_size=30), st.integers(1, 3), st.integers(1, 4))
def test_deterministic_on_nasty_text(docids: list[str], min_count: int, max_words: int) -> None:
    if not any(map(normalize, docids)):
        docids.append("a")
    one, four = (
        Vocabulary.build(docids, 800, min_count=min_count, max_words=max_words, threads=n).arrays for n in (1, 4)
    )
    assert {name: array.tobytes() for name, array in one.items()} == {name: a.tobytes() for name, a in four.items()}


@pytest.mark.parametrize("punctuation", PUNCTUATION)
@pytest.mark.parametrize("min_count", [1, 2, 5, None])
def test_uses_are_exact_and_at_least_min_count(min_count: int | None, punctuation: Punctuation) -> None:
    vocabulary = Vocabulary.build(DOCIDS, 3_000, min_count=min_count, punctuation=punctuation)
    distinct = list({normalize(text) for text in DOCIDS})
    batch = vocabulary.encode_batch(distinct)
    uses = np.bincount(batch.ids, minlength=len(vocabulary))
    assert (uses == vocabulary.token_counts).all()
    assert uses[:2].sum() > 0  # hyphens stand with and without blanks: one of the two needs markers
    assert uses[FIXED_TOKENS:].min() >= vocabulary.meta["min_count"]
    lengths = np.bincount(batch.lengths)
    assert lengths.tolist() == vocabulary.docid_lengths.tolist()
    assert mean_length(vocabulary.docid_lengths) == pytest.approx(batch.lengths.mean())


@pytest.mark.parametrize("size", [FIXED_TOKENS, FIXED_TOKENS + 1, 700, 1_000])
def test_size_is_reached_exactly_when_candidates_suffice(size: int) -> None:
    assert len(Vocabulary.build(DOCIDS, size, min_count=2)) == size


def test_larger_vocabularies_need_fewer_tokens() -> None:
    means = [
        mean_length(Vocabulary.build(DOCIDS, size, min_count=2).docid_lengths) for size in (514, 600, 800, 1_200, 2_000)
    ]
    assert means == sorted(means, reverse=True)
    assert means[-1] < means[0] / 3


@pytest.mark.parametrize("punctuation", PUNCTUATION)
def test_phrases_are_whole_words_within_one_docid(punctuation: Punctuation) -> None:
    vocabulary = Vocabulary.build(DOCIDS, 5_000, min_count=2, max_words=3, punctuation=punctuation)
    grams: Counter[str] = Counter()
    for text in {normalize(text) for text in DOCIDS}:
        parts = atoms(text)
        for i in range(len(parts)):
            gram = ""
            for j in range(i, len(parts)):
                gram += " " * (parts[j].blank_before and j > i) + parts[j].text
                grams[gram] += 1
    checked = leading = ending = 0
    for v in range(FIXED_TOKENS, len(vocabulary)):
        token = vocabulary.token(v)
        if token.startswith("##") or len(atoms(token)) < 2:
            continue
        checked += 1
        assert len(token.split()) <= 3
        leads, ends = not token[0].isalnum(), not token[-1].isalnum()
        leading, ending = leading + leads, ending + ends
        # The score says how often the phrase was counted, so the counting is exact.
        assert vocabulary.arrays["scores"][v] == _native.score_of(grams[token])
    assert checked > 100
    assert (leading > 0) == (punctuation != "inside")
    assert (ending > 0) == (punctuation == "anywhere")


def test_punctuation_digits_hyphens_apostrophes_inside() -> None:
    docids = [f"{a} {b}" for a in ("rock-n-roll", "o'clock", "route 66", "yes, we can") for b in "abcdef"]
    tokens = Vocabulary.build(docids, min_count=2).tokens("o'clock rock-n-roll route 66 yes, we can")
    assert tokens == ["o'clock", "rock-n-roll", "route 66", "yes, we can"]


def test_duplicates_count_once_unless_weighted() -> None:
    docids = ["red car"] * 50 + ["blue car", "blue sky", "BLUE  sky"]
    once = Vocabulary.build(docids, min_count=2)
    assert once.meta["rows"] == 53
    assert once.meta["docids"] == 3
    assert "red car" not in {once.token(v) for v in range(len(once))}
    weighted = Vocabulary.build(docids, min_count=2, weighted=True)
    (red_car,) = weighted.encode("red car")
    assert weighted.token_counts[red_car] == 50
    assert int(weighted.docid_lengths.sum()) == 53


def test_spilling_changes_nothing(tmp_path: Path) -> None:
    docids = zipf_docids(150_000, words=20_000)
    plenty = Vocabulary.build(docids, 20_000, threads=2)
    tight = _native.Builder(20_000, 0, 8, False, 1, 2, 4 << 20, str(tmp_path))
    for i in range(0, len(docids), 10_000):
        tight.add_lines("\n".join(map(normalize, docids[i : i + 10_000])).encode())
    built = tight.build(None)
    assert built["facts"]["spilled_bytes"] > 1 << 20
    for name in ("kinds", "offsets", "bytes", "scores", "uses", "lengths", "spacing_chars", "spacing_rule"):
        assert (built[name] == plenty.arrays[name]).all(), name
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "docids",
    [
        ["x" * 2_000_000],
        ["word " * 400_000],
        ["same line"] * 1_000_000,
        ["a\0b", "\0\0", "a\0b c"],
        ["\ud800", "\udfff x"],
        ["שלום עולם", "שלום"],
        ["e" + "\u0301" * 100_000],
        ["", " ", "x"],
        [f"{i}" for i in range(20_000)],
    ],
    ids=["one word", "one line", "identical", "NUL", "surrogates", "right to left", "marks", "blank", "numbers"],
)
def test_adversarial_input(docids: list[str]) -> None:
    vocabulary = Vocabulary.build(docids, 2_000)
    for text in docids[:3]:
        assert vocabulary.decode(vocabulary.encode(text)) == normalize(text)


def test_rows_are_counted_whatever_their_order() -> None:
    assert Vocabulary.build(["a b", ""]).meta == Vocabulary.build(["", "a b"]).meta
    assert Vocabulary.build(["a b", ""]).meta["rows"] == 2


def test_a_docid_too_long_is_named() -> None:
    with pytest.raises(VocabularyError, match="docid 2 has 16 MiB or more"):
        Vocabulary.build(["a", "b " * (1 << 23) + "bb"])


def test_one_text_is_not_many() -> None:
    with pytest.raises(TypeError, match="many texts"):
        Vocabulary.build("new york")


def test_temporary_files_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match="there is no folder"):
        Vocabulary.build(["a"], scratch=tmp_path / "no")
    builder = _native.Builder(20_000, 0, 8, False, 1, 2, 1 << 20, str(tmp_path / "no"))
    lines = "\n".join(zipf_docids(100_000, words=20_000)).encode()
    with pytest.raises(OSError, match="cannot create a temporary file: No such file"):
        builder.add_lines(lines)


def test_very_long_docids_count_in_full() -> None:
    vocabulary = Vocabulary.build(["word " * 30_000, "x"])
    assert mean_length(vocabulary.docid_lengths) == pytest.approx((len(vocabulary.encode("word " * 30_000)) + 1) / 2)


def test_a_native_builder_builds_once() -> None:
    builder = _native.Builder(1_000, 1, 4, False, 0, 1, 1 << 30, "/tmp")
    builder.add_lines(b"a b")
    builder.build(None)
    for again in (lambda: builder.build(None), lambda: builder.add_lines(b"c")):
        with pytest.raises(RuntimeError, match="builds once"):
            again()


def test_nothing_to_build_from() -> None:
    for empty in ([], [" ", "\n"]):
        with pytest.raises(VocabularyError, match="no docids"):
            Vocabulary.build(empty)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"size": 513}, "size is 513; it must be between 514"),
        ({"max_words": 0}, "max_words is 0"),
        ({"min_count": 0}, "min_count is 0"),
        ({"max_memory": 1}, "max_memory is 1; it must be between 67,108,864"),
        ({"punctuation": "none"}, "punctuation is 'none'; it must be one of inside, leading, anywhere"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], why: str) -> None:
    with pytest.raises(VocabularyError, match=why):
        Vocabulary.build(["a"], **options)


@pytest.mark.parametrize(("docids", "least"), [(1, 2), (20_000, 2), (400_000, 5), (20_000_000, 20), (10**9, 20)])
def test_default_min_count_scales(docids: int, least: int) -> None:
    assert _native.default_min_count(docids) == least


def test_progress_reports_and_can_stop_the_work() -> None:
    stages: dict[str, tuple[int, int]] = {}
    Vocabulary.build(DOCIDS, 1_000, progress=lambda stage, done, total: stages.update({stage: (done, total)}))
    assert {"numbering words", "counting phrases, 2 units", "counting uses"} <= stages.keys()
    assert all(done == total for done, total in stages.values())

    def stop(stage: str, done: int, total: int) -> None:
        raise RuntimeError(stage)

    with pytest.raises(RuntimeError, match="numbering words"):
        Vocabulary.build(DOCIDS, 1_000, progress=stop)


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    texts = tmp_path / "docids.txt"
    texts.write_text("\n".join(zipf_docids(300_000, words=50_000)))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    arguments = [
        "vocab",
        str(texts),
        "-o",
        str(tmp_path / "out.vocab"),
        "--scratch",
        str(scratch),
        "--max-memory",
        "64M",
    ]
    eager = (
        "from pixnar import cli; from pixnar.base import progress; "
        "progress._PATIENCE = progress._PLAIN_SECONDS = 0.0; cli.main()"
    )
    process = subprocess.Popen([sys.executable, "-c", eager, *arguments], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:  # until the native part is at work
        if "numbering" in line or "counting" in line:
            break
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(20) == 130, rest
    assert time.monotonic() - started < 10
    assert "Traceback" not in rest
    assert rest.endswith("pixnar: stopped; no half-written file is left\n")
    assert sorted(os.listdir(tmp_path)) == ["docids.txt", "scratch"]
    assert os.listdir(scratch) == []
