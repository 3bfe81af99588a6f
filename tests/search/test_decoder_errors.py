"""Bad input to the decoder: one line that says what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pixnar import _native
from pixnar.search import Decoder, SlotScores
from pixnar.table import DocidTable

TABLE = DocidTable.in_memory({(1, 2): ["a"], (1, 3): ["b"]}, vocab_size=5)
GOOD = SlotScores.sparse([([1], [0.0]), ([2, 3], [0.0, -1.0])], ends=[0, 0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"slots": 0}, "0 slots: give 1 to 32"),
        ({"slots": 33}, "33 slots"),
        ({"slots": 2, "floor": [0.0]}, "1 floors for 5 tokens"),
        ({"slots": 2, "floor": [-np.inf] * 4}, "4 floors for 5 tokens"),
        ({"slots": 2, "floor": np.zeros((5, 1))}, "2 dimensions"),
        ({"slots": 2, "floor": [-1e39] * 5}, "do not fit in 32-bit floats"),
        ({"slots": 2, "floor": [np.nan] * 5}, "a floor is NaN"),
        ({"slots": 2, "floor": ["x"] * 5}, "should be numbers"),
    ],
)
def test_decoders_that_cannot_be_made(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Decoder(TABLE, **arguments)


@pytest.mark.parametrize(
    ("slots", "ends", "message"),
    [
        ([([1], [0.0, 1.0])], [0], "slot 0 has 1 tokens and 2 scores"),
        ([([1], [0.0])], [0, 0], "2 end scores for 1 slots"),
        ([([-1], [0.0])], [0], "token ids go from -1"),
        ([([2**32 + 1], [0.0])], [0], "token ids go from"),
        ([([1.5], [0.0])], [0], "whole numbers"),
        ([([1], [-1e39])], [0], "do not fit in 32-bit floats"),
        ([([1], [[0.0]])], [0], "2 dimensions"),
    ],
)
def test_scores_that_cannot_be_taken(slots: Any, ends: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SlotScores.sparse(slots, ends)


@pytest.mark.parametrize(
    ("scores", "arguments", "message"),
    [
        (SlotScores.sparse([([1], [0.0])], [0]), {}, "the query has 1 slots, the decoder 2"),
        (SlotScores.sparse([([7], [0.0]), ([], [])], [0, 0]), {}, "token id 7 is not below the vocabulary size 5"),
        (SlotScores.dense(np.zeros((2, 4)), [0, 0]), {}, "dense scores of 4 tokens, the vocabulary has 5"),
        (SlotScores.sparse([([1], [np.nan]), ([], [])], [0, 0]), {}, "a score is NaN"),
        (SlotScores.sparse([([1], [np.inf]), ([], [])], [0, 0]), {}, r"a score is \+inf"),
        (SlotScores.sparse([([1], [0.0]), ([], [])], [0, np.nan]), {}, "an end score is NaN"),
        (GOOD, {"k": -1}, "k = -1"),
        (GOOD, {"engine": "beam"}, "engine 'beam'"),
        (GOOD, {"engine": "fast"}, "engine 'fast'"),
        (GOOD, {"order": "none"}, "order 'none'"),
        (GOOD, {"length_norm": -1.0}, "length_norm must be between 0 and 10"),
        (GOOD, {"engine": "enumerate"}, "give a filter"),
        (GOOD, {"allow": "a"}, "allow is one text"),
    ],
)
def test_queries_that_cannot_be_answered(scores: SlotScores, arguments: dict[str, Any], message: str) -> None:
    decoder = Decoder(TABLE, slots=2)
    with pytest.raises(ValueError, match=message):
        decoder.docids(scores, **arguments)


def test_aggregates() -> None:
    decoder = Decoder(TABLE, slots=2)
    for aggregate in ("mean", 0, -1, 2.5):
        with pytest.raises(ValueError, match="give max, logsumexp or a number"):
            decoder.documents(GOOD, aggregate=aggregate)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a beam of width 0"):
        decoder.beam(GOOD, width=0)


def test_levels_belong_to_their_table_floor_and_slots() -> None:
    one, other = TABLE.snapshot().table, DocidTable.in_memory({(1,): ["a"]}, vocab_size=5).snapshot().table
    floor = _native.Floor(None)
    levels = _native.Levels(one, floor, 2, 1)
    with pytest.raises(ValueError, match="belong to another table"):
        _native.SearchSpace(other, levels, None, None)
    space = _native.SearchSpace(one, levels, None, None)

    def found(of: _native.Floor) -> int:
        given = (GOOD.tokens, GOOD.scores, GOOD.offsets, GOOD.ends)
        return len(space.decode(of, *given, False, 1, 0, 0.0, 0, 0, False, 1, 0, None)[0])

    assert found(floor) == 1
    with pytest.raises(ValueError, match="not the one the levels were made for"):
        found(_native.Floor(None))


def test_the_first_query_warms_up_what_was_not() -> None:
    scores = SlotScores.sparse([([1], [2.0]), ([2], [1.0])], ends=[0, 0])
    warm, cold = Decoder(TABLE, slots=2), Decoder(TABLE, slots=2, warm_up=False)
    assert cold._ready is None
    assert cold.docids(scores).hits == warm.docids(scores).hits
    assert cold._ready is not None
    cold = Decoder(TABLE, slots=2, warm_up=False)
    cold.warm_up()
    assert cold._ready is not None
