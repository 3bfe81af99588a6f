"""Logits and best tokens against numpy, on every path this machine can run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pixnar.runtime import HeadRows, head_path, head_paths
from pixnar.runtime.formats import FORMATS, Format
from tests.helpers.head_cases import head, random_rows, slow_logits, slow_top

PATHS = head_paths()
dims = st.one_of(st.integers(1, 200), st.sampled_from([63, 64, 65, 128, 384, 768]))
some_ids = st.one_of(st.none(), st.lists(st.integers(0, 10**6), max_size=600))


def test_the_portable_path_is_always_there() -> None:
    assert PATHS[-1] == "portable"
    with pytest.raises(ValueError, match="does not run the path 'abacus'"), head_path("abacus"):
        pass


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("format", ["int8", "int4"])
@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 700),
    dim=dims,
    slots=st.integers(1, 33),
    ids=some_ids,
    seed=st.integers(0, 10**6),
    bias=st.booleans(),
    places=st.booleans(),
)
def test_whole_numbers_bit_for_bit(
    path: str,
    format: Format,
    count: int,
    dim: int,
    slots: int,
    ids: list[int] | None,
    seed: int,
    bias: bool,
    places: bool,
) -> None:
    rows = head(count, dim, format, seed, bias=bias, places=places)
    x = random_rows(slots, dim, seed + 2)
    chosen = np.arange(count, dtype=np.uint32) if ids is None else np.array(ids, np.int64).astype(np.uint32) % count
    wanted = slow_logits(random_rows(count, dim, seed + 1), rows.bias, format, x, chosen.astype(np.uint32))
    with head_path(path):
        for threads in (1, 2):
            found = rows.logits(x, None if ids is None else chosen, threads=threads)
            assert found.shape == wanted.shape
            assert np.array_equal(found.view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("format", ["float32", "float16", "bfloat16"])
@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 300), dim=dims, slots=st.integers(1, 33), seed=st.integers(0, 10**6), bias=st.booleans())
def test_floats_are_near_numpy(
    path: str, format: Format, count: int, dim: int, slots: int, seed: int, bias: bool
) -> None:
    random = np.random.default_rng(seed)
    dense = (random.normal(size=(count, dim)) / np.sqrt(dim)).astype(np.float32)
    rows = HeadRows.build(dense, random.normal(size=count).astype(np.float32) if bias else None, format)
    x = random.normal(size=(slots, dim)).astype(np.float32)
    wanted = x.astype(np.float64) @ rows.decoded(slice(None)).T.astype(np.float64) + (
        0 if rows.bias is None else rows.bias
    )
    with head_path(path):
        found = rows.logits(x)
        assert np.allclose(found, wanted, rtol=1e-5, atol=1e-5)
        assert np.array_equal(found, rows.logits(x, threads=2))
    with head_path("portable"):
        assert np.array_equal(found.view(np.uint32), rows.logits(x).view(np.uint32))


@pytest.mark.parametrize("format", FORMATS)
def test_rows_come_back(format: Format) -> None:
    given_rows = random_rows(50, 130, 3)
    rows = HeadRows.build(given_rows, format=format, places=np.random.default_rng(0).permutation(50))
    most = np.abs(given_rows).max(1, keepdims=True)
    error = {"int8": 0.5 / 127, "int4": 0.5 / 7, "float32": 0, "float16": 2**-11, "bfloat16": 2**-8}[format]
    assert (np.abs(rows.decoded(slice(None)) - given_rows) <= error * most * 1.001 + 1e-7).all()
    assert np.array_equal(rows.decoded([7, 3, 7]), rows.decoded(np.arange(50))[[7, 3, 7]])


def test_every_16_bit_float_is_read_right() -> None:
    bits = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    bits = bits[np.isfinite(bits.view(np.float16))]
    rows = HeadRows.build(bits.view(np.float16).astype(np.float32)[:, None], format="float16")
    for path in PATHS:
        with head_path(path):
            found = rows.logits(np.ones((1, 1), np.float32))[0]
            assert np.array_equal(found, bits.view(np.float16).astype(np.float32))


def few_values(count: int, dim: int, seed: int) -> np.ndarray:
    """Whole numbers between -2 and 2: many logits are equal."""
    return np.random.default_rng(seed).integers(-2, 3, (count, dim)).astype(np.float32)


@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 400),
    slots=st.integers(1, 5),
    n=st.integers(0, 500),
    ids=some_ids,
    seed=st.integers(0, 10**6),
    large=st.booleans(),
)
def test_top(path: str, count: int, slots: int, n: int, ids: list[int] | None, seed: int, large: bool) -> None:
    rows = HeadRows.build(few_values(count, 3, seed), few_values(1, count, seed)[0])
    x = few_values(slots, 3, seed + 1)
    chosen = np.arange(count) if ids is None else np.array(ids, np.int64) % count
    if large and ids:
        chosen = np.tile(chosen, 7000 // len(chosen) + 1)
    with head_path(path):
        wanted = rows.logits(x, chosen)
        for threads in (1, 2):
            found = rows.top(x, n, None if ids is None else chosen, threads=threads)
            each = rows.top_each(x, n, [chosen] * slots, threads=threads)
            assert len(found) == len(each) == slots
            for t in range(slots):
                best = slow_top(wanted[t], chosen.astype(np.uint32), n)
                for tokens, logits in (found[t], each[t]):
                    assert tokens.tolist() == best.tolist()
                    assert np.array_equal(logits, rows.logits(x[t : t + 1], best)[0])


def test_every_slot_with_its_own_tokens() -> None:
    rows = head(500, 40, "int8", 1, bias=True, places=True)
    x = random_rows(4, 40, 2)
    lists = [np.random.default_rng(t).integers(0, 500, size) for t, size in enumerate((300, 0, 1, 5000))]
    for threads in (1, 2, 5):
        for t, (tokens, logits) in enumerate(rows.top_each(x, 20, lists, threads=threads)):
            wanted = slow_top(rows.logits(x[t : t + 1], lists[t])[0], lists[t].astype(np.uint32), 20)
            assert tokens.tolist() == wanted.tolist()
            assert np.array_equal(logits, rows.logits(x[t : t + 1], wanted)[0])


def test_many_tokens_and_a_long_answer() -> None:
    rows = head(20_000, 24, "int8", 4, bias=True, places=False)
    x = random_rows(3, 24, 5)
    logits = rows.logits(x)
    for n in (1, 700, 19_999, 20_000, 30_000):
        for threads in (1, 2):
            for t, (tokens, values) in enumerate(rows.top(x, n, threads=threads)):
                order = np.lexsort((np.arange(20_000), -logits[t]))[:n]
                assert np.array_equal(tokens, order)
                assert np.array_equal(values, logits[t][order])


def test_vectors_of_zeros_and_of_tiny_numbers() -> None:
    rows = HeadRows.build(random_rows(9, 5, 0), np.arange(9, dtype=np.float32))
    for value in (0, 1e-45, -1e-45):
        for path in PATHS:
            with head_path(path):
                assert np.array_equal(rows.logits(np.full((2, 5), value, np.float32)), [np.arange(9)] * 2)
