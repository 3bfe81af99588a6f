"""Vectors that are remembered are those that the encoder gave, and only of the last texts."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from pixnar.runtime import CachedEncoder


class Counting:
    """Gives vectors that follow from the text, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def query_vectors(self, texts: Sequence[str], batch: int = 64) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        self.asked += texts
        made = [np.random.default_rng(list(text.encode())).random((3, 4), np.float32) for text in texts]
        x = np.array(made, np.float32).reshape(len(texts), 3, 4)
        return x, x[:, 0]


def test_known_texts_are_not_encoded_again() -> None:
    inner = Counting()
    cached, plain = CachedEncoder(inner, 2), Counting()
    for texts in (["a", "b"], ["b", "a", "b"], ["c"], ["b"], []):
        for mine, theirs in zip(cached.query_vectors(texts), plain.query_vectors(texts), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert inner.asked == ["a", "b", "c"]  # b was asked for after a, so a went when c came
    cached.query_vectors(["a"])
    assert inner.asked == ["a", "b", "c", "a"]


def test_many_threads() -> None:
    cached, plain = CachedEncoder(Counting(), 5), Counting()
    texts = [str(i % 11) for i in range(2000)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: cached.query_vectors([text])[0], texts))
    for text, x in zip(texts, found, strict=True):
        np.testing.assert_array_equal(x, plain.query_vectors([text])[0])
