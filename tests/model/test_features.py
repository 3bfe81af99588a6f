from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pixnar.model import features
from pixnar.model.encoder import Encoder
from pixnar.model.features import FeatureCache, KnownVectors
from pixnar.model.process_group import SINGLE, ProcessGroup
from tests.helpers.tiny_model import TEXTS, save_encoder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return Encoder.load(save_encoder(tmp_path_factory.mktemp("encoder")))


@pytest.fixture
def calls(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What the encoder is asked for from here on."""
    seen: list[list[str]] = []
    embed = encoder.embed

    def watched(texts: Any, progress: Any = None) -> Any:
        seen.append(list(texts))
        return embed(texts, progress)

    monkeypatch.setattr(encoder, "embed", watched)
    return seen


def test_the_second_time_comes_from_disk(encoder: Encoder, calls: list[list[str]], tmp_path: Path) -> None:
    first = FeatureCache(encoder, tmp_path).vectors(TEXTS)
    assert calls == [list(TEXTS)]
    assert first.dtype == np.float16
    assert np.abs(first - encoder.embed(TEXTS)).max() < 1e-3
    calls.clear()
    cache = FeatureCache(encoder, tmp_path)
    assert np.array_equal(cache.vectors(TEXTS), first)
    assert calls == []
    assert np.array_equal(cache.vectors(TEXTS[::-1]), first[::-1])  # another order is another file
    assert calls == [list(TEXTS[::-1])]
    assert cache.vectors([]).shape == (0, encoder.width)


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "other"])
def test_a_damaged_file_is_made_again(encoder: Encoder, calls: list[list[str]], tmp_path: Path, damage: str) -> None:
    cache = FeatureCache(encoder, tmp_path)
    first = cache.vectors(TEXTS)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    if damage == "flip":
        path.write_bytes(whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:])
    elif damage == "other":  # a sound file of other texts
        other = FeatureCache(encoder, tmp_path / "other")
        other.vectors(TEXTS[:2])
        path.write_bytes(next((tmp_path / "other").iterdir()).read_bytes())
    else:
        path.write_bytes(whole[: len(whole) // 2] if damage == "cut" else b"")
    calls.clear()
    assert np.array_equal(cache.vectors(TEXTS), first)
    assert calls == [list(TEXTS)]
    assert path.read_bytes() == whole


def test_every_encoder_has_its_own_files(encoder: Encoder, calls: list[list[str]], tmp_path: Path) -> None:
    mine = FeatureCache(encoder, tmp_path / "cache").vectors(TEXTS)
    for i, other in enumerate(
        (
            Encoder.load(save_encoder(tmp_path / "seed", seed=1)),
            Encoder(encoder.body, encoder.tokenizer, name=encoder.name, max_pieces=3),
        )
    ):
        theirs = FeatureCache(other, tmp_path / "cache").vectors(TEXTS)
        assert not np.allclose(mine, theirs, atol=1e-2)
        assert len(list((tmp_path / "cache").iterdir())) == 2 + i
    calls.clear()
    assert np.array_equal(FeatureCache(encoder, tmp_path / "cache").vectors(TEXTS), mine)
    assert calls == []


def test_files_hold_a_chunk_each(
    encoder: Encoder, calls: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "_CHUNK", 4)
    seen: list[tuple[str, int, int]] = []
    cache = FeatureCache(encoder, tmp_path)
    first = cache.vectors(TEXTS, lambda stage, done, total: seen.append((stage, done, total or 0)), "reading")
    assert [len(texts) for texts in calls] == [4, 2]
    assert seen[-1] == ("reading", 6, 6)
    assert sorted(seen) == seen
    calls.clear()
    more = cache.vectors([*TEXTS[:4], "something new"])  # the first chunk is known
    assert calls == [["something new"]]
    assert np.array_equal(more[:4], first[:4])


def test_without_a_folder_nothing_is_kept(encoder: Encoder, calls: list[list[str]]) -> None:
    cache = FeatureCache(encoder, None)
    assert np.array_equal(cache.vectors(TEXTS), cache.vectors(TEXTS))
    assert len(calls) == 2


def test_equal_texts_are_encoded_once(
    encoder: Encoder, calls: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "_CHUNK", 4)
    apart = FeatureCache(encoder, None).vectors(TEXTS)
    calls.clear()
    rows = [0, 1, 0, 2, 3, 3, 4, 1, 5, 0]
    cache = FeatureCache(encoder, tmp_path)
    found = cache.vectors([TEXTS[i] for i in rows])
    assert calls == [list(TEXTS[:4]), list(TEXTS[4:])]
    assert np.array_equal(found, apart[rows])
    calls.clear()
    places, some = map(np.concatenate, zip(*cache.some([TEXTS[i] for i in rows], 3, 8), strict=True))
    assert sorted(places.tolist()) == [3, 4, 5, 6, 7]
    assert np.array_equal(some, found[places])
    assert not calls  # they are on disk
    monkeypatch.setattr(features, "_MOST_COMPARED", 5)
    assert np.abs(cache.vectors([TEXTS[i] for i in rows]) - found).max() < 1e-3
    assert sum(map(len, calls)) > len(TEXTS)  # too many to be compared


def test_known_texts_are_not_encoded(encoder: Encoder, calls: list[list[str]]) -> None:
    cache = FeatureCache(encoder, None)
    texts = sorted(TEXTS[:3])
    vectors = cache.vectors(texts)
    calls.clear()
    wanted = ["zebra", texts[2], "a", texts[0], texts[2], "zebra"]
    found = cache.vectors(wanted, known=KnownVectors(texts, vectors))
    assert calls == [["zebra", "a"]]
    assert np.array_equal(found[[1, 3, 4]], vectors[[2, 0, 2]])
    assert np.abs(found - encoder.embed(wanted)).max() < 1e-3
    assert np.array_equal(cache.vectors(texts[:2], known=KnownVectors(texts, vectors)), vectors[:2])


def test_shares_of_processes_are_the_whole(encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "_CHUNK", 2)
    monkeypatch.setattr(ProcessGroup, "wait", lambda self: None)
    kinds = ([*TEXTS, *TEXTS[::-1], "one more"], TEXTS[::-2])
    cache = FeatureCache(encoder, tmp_path / "cache")
    wanted = np.vstack([cache.vectors(texts) for texts in kinds])
    assert np.array_equal(FeatureCache(encoder, None).mapped(kinds, tmp_path / "alone", SINGLE), wanted)
    for rank in range(3):  # one after the other: the first makes the file
        found = FeatureCache(encoder, None).mapped(kinds, tmp_path / "shared", ProcessGroup(rank, 3))
    assert np.array_equal(found, wanted)
