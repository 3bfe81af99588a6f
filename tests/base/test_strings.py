"""The packed store of byte strings: what goes in comes out, and damage is one clear line."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pixnar.base import strings
from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.storage import read_container, write_container
from pixnar.base.strings import TextBlocks

any_records = st.lists(st.binary(max_size=40) | st.sampled_from([b"", b"x" * 9_000, b"y" * 20_000]), max_size=200)
ONE_LINE = re.compile(r"x\.docs is damaged or incomplete \(.*\): copy or build it again")
MANY = [b"record %d " % n * (n % 7) for n in range(1_000)]


@given(any_records, st.data())
def test_round_trip(records: list[bytes], data: st.DataObject) -> None:
    store = TextBlocks(TextBlocks.pack(iter(records), threads=1))
    assert len(store) == len(records)
    assert list(store) == records
    assert [store[n] for n in range(len(records))] == records
    if records:
        asked = data.draw(st.lists(st.integers(0, len(records) - 1), max_size=50))
        assert store.many(asked) == [records[n] for n in asked]
        assert store.many(np.array(asked, np.uint32)) == [records[n] for n in asked]


def test_blocks_are_small_but_never_split_a_record() -> None:
    short = TextBlocks.pack([b"x"] * 130)["firsts"].tolist()
    assert short == [0, 64, 128, 130]
    long = TextBlocks.pack([b"x" * 6_000] * 3 + [b"y" * 50_000, b"", b"z"])["firsts"].tolist()
    assert long == [0, 2, 3, 4, 6]


def test_any_number_of_threads_and_a_folder_give_the_same_bytes(tmp_path: Path) -> None:
    records = [*MANY, *(b"long %d" % n * 1_000 for n in range(200))]
    first = TextBlocks.pack(records, threads=1)
    for again in (TextBlocks.pack(records), TextBlocks.pack(iter(records), threads=3, folder=tmp_path)):
        assert {name: part.tobytes() for name, part in again.items()} == {n: p.tobytes() for n, p in first.items()}
    assert not list(tmp_path.iterdir())
    assert len(TextBlocks(TextBlocks.pack([], folder=tmp_path))) == 0


def test_in_a_container(tmp_path: Path) -> None:
    path = tmp_path / "store"
    write_container(path, "texts", 1, {}, TextBlocks.pack(MANY, folder=tmp_path))
    assert list(TextBlocks(read_container(path, "texts", 1, verify=False).arrays)) == MANY


def test_a_failing_source_fails_the_packing() -> None:
    with pytest.raises(ZeroDivisionError):
        TextBlocks.pack((b"%d" % (1 // (500 - n)) for n in range(1_000)), threads=2)


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(PixnarError, match=r"cannot write to .*nowhere: No such file"):
        TextBlocks.pack(MANY, folder=tmp_path / "nowhere")


def test_progress_counts_records() -> None:
    seen: list[tuple[str, int, int]] = []
    TextBlocks.pack(MANY, progress=lambda *now: seen.append(now))
    assert seen[-1] == ("packing", 1_000, 0)


@pytest.mark.parametrize("index", [-1, 1_000, 2**64, -(2**70)])
def test_outside(index: int) -> None:
    store = TextBlocks(TextBlocks.pack(MANY))
    with pytest.raises(IndexError, match=f"no record {index} "):
        store[index]
    with pytest.raises(IndexError, match=f"no record {index} "):
        store.many([3, index])


def test_few_blocks_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strings, "_KEPT_BYTES", 5_000)
    store = TextBlocks(TextBlocks.pack([*MANY, b"x" * 6_000]))
    for n in (*range(0, 1_000, 7), 1_000, 1_000):
        assert store[n] == [*MANY, b"x" * 6_000][n]
        assert store._kept_bytes == sum(len(block.raw) for block in store._kept.values()) <= 5_000


def test_threads_may_share_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strings, "_KEPT_BYTES", 10_000)
    store = TextBlocks(TextBlocks.pack(MANY))
    with ThreadPoolExecutor(4) as pool:
        rounds = [pool.submit(lambda step: [store[n * step % 1_000] for n in range(2_000)], s) for s in (7, 11, 13, 17)]
        for step, found in zip((7, 11, 13, 17), rounds, strict=True):
            assert found.result() == [MANY[n * step % 1_000] for n in range(2_000)]


@settings(max_examples=300)
@given(st.data())
def test_damage_is_noticed_or_harmless(data: st.DataObject) -> None:
    records = MANY[:150]
    arrays = TextBlocks.pack(records, threads=1)
    name = data.draw(st.sampled_from(["blocks", "starts", "firsts"]))
    raw = bytearray(arrays[name].tobytes())
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    broken: dict[str, NDArray[Any]] = {**arrays, name: np.frombuffer(bytes(raw), arrays[name].dtype)}
    for read in (lambda store: list(store), lambda store: store.many(range(150)), lambda store: [store[77]]):
        message = ""
        try:
            found = read(TextBlocks(broken, "x.docs"))
        except FileFormatError as error:
            message = str(error)
        assert found in (records, [records[77]]) if not message else ONE_LINE.fullmatch(message)


def test_missing_cut_or_mistyped_arrays_are_noticed() -> None:
    arrays = TextBlocks.pack(MANY)
    for name, part in arrays.items():
        for wrong in (part[:-1], part[:0], part.astype(np.uint32)):
            with pytest.raises(FileFormatError, match="damaged or incomplete"):
                TextBlocks({**arrays, name: wrong})
        with pytest.raises(FileFormatError, match=f"array {name} is not there"):
            TextBlocks({other: each for other, each in arrays.items() if other != name})
