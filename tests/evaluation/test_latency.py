"""Times of retrievers: who is asked when, and what is counted."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from pixnar.base.errors import PixnarError
from pixnar.evaluation import latencies, latency
from pixnar.search import Hit


class Slow:
    """A retriever that takes a given time, more the first time a query comes, and writes down who was asked what."""

    def __init__(self, name: str, seconds: float, asked: list[tuple[str, str]], first: float = 0.0) -> None:
        self.name, self.seconds, self.asked, self.first = name, seconds, asked, first

    def search(self, query: str, k: int = 10) -> list[Hit]:
        known = (self.name, query) in self.asked
        self.asked.append((self.name, query))
        time.sleep(self.seconds + (0.0 if known else self.first))
        return []

    def search_batch(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        return [self.search(query, k) for query in queries]


def test_systems_take_turns() -> None:
    asked: list[tuple[str, str]] = []
    systems = {"a": Slow("a", 0.001, asked), "b": Slow("b", 0.02, asked)}
    found = latencies(systems, ["x", "y", "z"], repeats=2, warm_up=1)
    assert asked[:2] == [("a", "x"), ("b", "x")]  # to warm up
    assert asked[2:] == 2 * [(name, text) for text in "xyz" for name in "ab"]
    assert found["a"].mean < found["b"].mean
    assert found["b"].p50 >= 20
    assert found["a"].queries == 3


def test_the_better_time_counts() -> None:
    one = latency(Slow("a", 0.001, [], first=0.2), ["x", "y"], warm_up=0)
    assert 1 <= one.p50 <= one.p99 < 200
    assert latency(Slow("a", 0.001, [], first=0.2), ["x", "y"], warm_up=0, repeats=1).p50 > 200


def test_without_queries() -> None:
    with pytest.raises(PixnarError, match="no queries to time"):
        latencies({"a": Slow("a", 0, [])}, [])
