"""The synthetic docids never change, and look like queries."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest
from pixnar.benchmarks import generate

from pixnar.base.errors import PixnarError
from pixnar.base.normalize import normalize

generate_docids = generate.generate_docids

FIRST = [
    "free vanstar totrir was sen lun grannu forna dirsan",
    "shisjar rerwer gun tressur cost",
    "vs stun shigun carplos sepur in",
    "tur stastus sti best plo-ha genhes bis what trutrer",
]


def test_same_seed_same_docids() -> None:
    assert list(generate_docids(5000, 7)) == list(generate_docids(5000, 7))
    assert list(generate_docids(100, 7)) != list(generate_docids(100, 8))
    assert list(generate_docids(3, 2**70)) != list(generate_docids(3, -1))


def test_never_changes() -> None:
    assert list(generate_docids(4)) == FIRST


def test_independent_of_number_and_block(monkeypatch: pytest.MonkeyPatch) -> None:
    longer = list(generate_docids(5000))
    assert list(generate_docids(1000)) == longer[:1000]
    assert list(itertools.islice(generate_docids(10**12), 50)) == longer[:50]
    monkeypatch.setattr(generate, "_BLOCK", 77)
    assert list(generate_docids(5000)) == longer


def test_nothing_and_less() -> None:
    assert list(generate_docids(0)) == []
    with pytest.raises(PixnarError, match="cannot generate -1 docids"):
        next(generate_docids(-1))


def test_written_as_lines(tmp_path: Path) -> None:
    generate.write_docids(tmp_path / "a.txt", 1234, seed=3)
    assert (tmp_path / "a.txt").read_text("utf-8").split("\n") == [*generate_docids(1234, 3), ""]
    generate.main(["1234", str(tmp_path / "b.txt"), "--seed", "3"])
    assert (tmp_path / "a.txt").read_bytes() == (tmp_path / "b.txt").read_bytes()


def test_looks_like_queries() -> None:
    n = 60_000
    docids = list(generate_docids(n))
    assert all(docid == normalize(docid) and docid for docid in docids)
    words = [docid.split() for docid in docids]
    counts = sorted(map(len, words))
    assert 5.5 < sum(counts) / n < 7
    assert counts[0] >= 3
    assert counts[int(0.99 * n)] <= 14
    assert 33 < sum(len(docid.encode()) for docid in docids) / n < 45

    def share(test: str) -> float:
        return sum(any(char in docid for char in test) for docid in docids) / n

    assert 0.01 < 1 - len(set(docids)) / n < 0.06
    assert 0.05 < share("0123456789") < 0.25
    assert 0.02 < share("-") < 0.2
    assert 0.02 < share("'") < 0.2
    assert 0.05 < share("?") < 0.25
    assert 0.02 < share(",") < 0.2
    assert 0.005 < sum(not docid.isascii() for docid in docids) / n < 0.08


def test_words_and_phrases_have_long_tails() -> None:
    docids = list(generate_docids(60_000))
    words = Counter(word for docid in docids for word in docid.split())
    assert words.most_common(1)[0][1] > 5000
    assert sum(count == 1 for count in words.values()) > len(words) / 3
    few = len({word for docid in docids[:6000] for word in docid.split()})
    assert 3 < len(words) / few < 8  # Heaps: ten times the text, several times the words
    triples: Counter[tuple[str, ...]] = Counter()
    for docid in docids:
        parts = docid.split()
        triples.update(zip(parts, parts[1:], parts[2:], strict=False))
    synthetic = [triple for triple, count in triples.items() if count >= 5 and not {"is", "to", "of", "i"} & {*triple}]
    assert len(synthetic) > 300
