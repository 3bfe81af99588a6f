from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pixnar.model import features
from pixnar.model.encoder import Encoder
from pixnar.model.features import FeatureCache
from tests.model.tiny import TEXTS, save_encoder


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
