"""The slow twin of decoding against sums worked out by hand, and against the laws it has to obey."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixnar.search.reference import SlowQuery, beam, best_docids, best_documents, docid_score
from pixnar.search.types import DocidHit, DocumentHit, Order, Tokens
from tests.helpers.search_strategies import (
    DOCUMENTS,
    VOCAB_SIZE,
    Names,
    Settings,
    queries,
    settings_of_decoding,
    tables,
)

INF = math.inf
STRICT = [-INF] * 10


def named(*docids: Tokens) -> Names:
    """Docids that name one document each: d0, d1, …"""
    return {tokens: {f"d{i}"} for i, tokens in enumerate(docids)}


def found(hits: list[DocidHit]) -> list[tuple[Tokens, float]]:
    return [(hit.tokens, hit.score) for hit in hits]


# A token in a slot


def test_a_token_scores_its_score_or_its_floor_whichever_is_larger() -> None:
    query = SlowQuery([{0: -1.0, 1: -9.0, 2: -INF}], [0.0], [-4.0, -4.0, -4.0, -4.0, -INF])
    assert [query.score(0, v) for v in range(5)] == [-1.0, -4.0, -4.0, -4.0, -INF]


def test_without_a_floor_only_tokens_of_the_slot_are_found() -> None:
    query = SlowQuery([{0: -1.0, 2: -INF}], [0.0], STRICT)
    assert found(best_docids(named((0,), (1,), (2,)), query, 9)) == [((0,), -1.0)]


# A docid

THREE = SlowQuery([{1: -1.0}, {2: -0.25}, {3: -0.5}], [-90.0, -3.0, -7.0], STRICT)


def test_a_shorter_docid_has_the_end_score_of_the_next_slot() -> None:
    assert docid_score((1,), THREE) == -4.0  # -1 - 3
    assert docid_score((1, 2), THREE) == -8.25  # -1 - 1/4 - 7


def test_a_docid_that_fills_all_slots_has_no_end() -> None:
    assert docid_score((1, 2, 3), THREE) == -1.75


def test_a_longer_docid_is_matched_on_its_first_tokens() -> None:
    assert docid_score((1, 2, 3, 9, 9), THREE) == -1.75


@pytest.mark.parametrize(
    ("tokens", "length_norm", "score"),
    [
        ((1,), 1.0, -2.0),  # -4 / 2: the end is a term
        ((1, 2), 1.0, -2.75),  # -8.25 / 3
        ((1, 2, 3), 0.5, -1.75 / math.sqrt(3)),
        ((1, 2, 3, 9, 9), 1.0, -1.75 / 3),  # only the slots count
    ],
)
def test_length_norm_divides_by_a_power_of_the_number_of_terms(
    tokens: Tokens, length_norm: float, score: float
) -> None:
    assert docid_score(tokens, THREE, length_norm=length_norm) == pytest.approx(score, rel=1e-15)


def test_length_norm_changes_the_order() -> None:
    query = SlowQuery([{1: -1.0}, {2: -1.0}, {}], [0.0, -1.0, -0.5], STRICT)
    docids = named((1,), (1, 2))  # sums -2 of 2 terms and -2.5 of 3
    assert [hit.tokens for hit in best_docids(docids, query, 2)] == [(1,), (1, 2)]
    assert [hit.tokens for hit in best_docids(docids, query, 2, length_norm=1.0)] == [(1, 2), (1,)]


def test_additions_are_made_from_left_to_right() -> None:
    big = 2.0**53  # adding 1 to it is lost
    query = SlowQuery([{0: big, 1: big}, {0: 1.0, 1: -big}, {0: -big, 1: 1.0}], [0.0] * 3, STRICT)
    assert docid_score((0, 0, 0), query) == 0.0
    assert docid_score((1, 1, 1), query) == 1.0


def test_an_impossible_end_is_not_found() -> None:
    query = SlowQuery([{1: 0.0}, {2: 0.0}], [0.0, -INF], STRICT)
    assert found(best_docids(named((1,), (1, 2)), query, 9)) == [((1, 2), 0.0)]


def test_equal_scores_are_ordered_by_tokens_and_a_prefix_comes_first() -> None:
    query = SlowQuery([dict.fromkeys(range(10), 0.0)] * 2, [0.0, 0.0], STRICT)
    docids = named((3, 1, 2), (3, 1), (2, 9), (3,))
    assert [hit.tokens for hit in best_docids(docids, query, 9)] == [(2, 9), (3,), (3, 1), (3, 1, 2)]
    assert [hit.tokens for hit in best_docids(docids, query, 2)] == [(2, 9), (3,)]


# Order-free matching


def test_any_order_takes_the_best_slot_of_every_token() -> None:
    query = SlowQuery([{1: -1.0, 2: -5.0}, {1: -4.0, 2: -2.0}, {3: -0.5}], [0.0, -8.0, -16.0], STRICT)
    assert docid_score((2, 1), query) == -25.0  # -5 - 4 - 16
    assert docid_score((2, 1), query, order="any") == -19.0  # -2 - 1 - 16
    assert docid_score((3,), query, order="any") == -8.5
    assert docid_score((2, 1, 3, 7), query, order="any") == -3.5  # the fourth token does not count
    assert docid_score((2, 1), query, order="any", length_norm=1.0) == -19.0 / 3


def test_a_token_that_occurs_twice_counts_twice_in_any_order() -> None:
    query = SlowQuery([{1: -1.0}, {1: -4.0}, {}], [0.0, 0.0, -0.5], STRICT)
    assert docid_score((1, 1), query, order="any") == -2.5  # twice its best slot
    assert docid_score((1, 1), query, order="assigned") == -5.5  # both of its slots
    assert docid_score((1, 1, 1), query, order="assigned") == -INF  # and there is no third


def test_assigned_gives_up_the_best_slot_of_one_token_for_the_sum() -> None:
    query = SlowQuery([{1: -1.0, 2: -2.0}, {1: -1.5, 2: -9.0}, {}], [0.0, 0.0, -8.0], STRICT)
    # both want the first slot: 1 there and 2 second is -10, 2 there and 1 second is -3.5
    assert docid_score((1, 2), query, order="assigned") == -11.5
    assert docid_score((2, 1), query, order="assigned") == -11.5
    assert docid_score((1, 2), query, order="any") == -11.0


def test_assigned_may_use_slots_beyond_the_length_and_the_floor() -> None:
    query = SlowQuery([{}, {}, {1: -1.0}], [0.0, -2.0, 0.0], [-INF, -INF, -6.0])
    assert docid_score((1,), query, order="assigned") == -3.0
    assert docid_score((2, 1), query, order="assigned") == -7.0


# A document

ONE_SLOT = SlowQuery([{0: -1.0, 1: -1.0, 2: -2.0, 3: -3.0, 4: -0.5}], [0.0], STRICT)


def test_documents_by_their_best_docid() -> None:
    docids: Names = {(0,): {"x"}, (2,): {"x", "y"}, (3,): {"y"}, (9,): {"y", "z"}}
    assert best_documents(docids, ONE_SLOT, 9) == [DocumentHit("x", -1.0, (0,)), DocumentHit("y", -2.0, (2,))]
    assert best_documents(docids, ONE_SLOT, 1) == [DocumentHit("x", -1.0, (0,))]


def test_documents_by_the_sum_of_their_docids() -> None:
    docids: Names = {(0,): {"x"}, (1,): {"x"}, (2,): {"x"}, (9,): {"x", "z"}, (4,): {"y"}}
    both = -1.0 + math.log(2)  # log(e^-1 + e^-1) = -0.307
    three = math.log(2 * math.exp(-1) + math.exp(-2))  # 2 × 0.3679 + 0.1353 = 0.8711
    assert three == pytest.approx(-0.138, abs=1e-4)
    for top, score in [(2, both), (3, three), (None, three), (7, three)]:  # a docid that is not found does not count
        x, y = best_documents(docids, ONE_SLOT, 9, top=top)
        assert (x.doc_id, x.tokens, y) == ("x", (0,), DocumentHit("y", -0.5, (4,)))
        assert x.score == pytest.approx(score, rel=1e-14)
    assert [hit.doc_id for hit in best_documents(docids, ONE_SLOT, 9)] == ["y", "x"]


def test_equal_documents_are_ordered_by_their_best_docid_then_by_the_bytes_of_their_id() -> None:
    docids: Names = {(1,): {"a", "😀", "～", "é", "Z"}, (0,): {"x", "a"}}
    assert [(hit.doc_id, hit.tokens) for hit in best_documents(docids, ONE_SLOT, 9)] == [
        ("a", (0,)),
        ("x", (0,)),
        ("Z", (1,)),
        ("é", (1,)),
        ("～", (1,)),  # EF BD 9E
        ("😀", (1,)),  # F0 9F 98 80, but D83D in UTF-16
    ]


# Filters


def test_a_docid_needs_an_allowed_document_and_lists_only_those() -> None:
    docids: Names = {(0,): {"x"}, (1,): {"é", "x", "a", "Z"}, (2,): {"y"}}
    hits = best_docids(docids, ONE_SLOT, 9, allowed=lambda doc_id: doc_id not in ("x", "y"))
    assert hits == [DocidHit((1,), -1.0, ("Z", "a", "é"))]
    documents = best_documents(docids, ONE_SLOT, 9, allowed=lambda doc_id: doc_id in ("x", "y"))
    assert documents == [DocumentHit("x", -1.0, (0,)), DocumentHit("y", -2.0, (2,))]


def test_k_counts_what_passed_the_filter() -> None:
    docids: Names = {(4,): {"x"}, (0,): {"x"}, (2,): {"y"}}
    assert best_docids(docids, ONE_SLOT, 1, allowed="y".__eq__) == [DocidHit((2,), -2.0, ("y",))]


# Beam

FORK = SlowQuery([{1: -1.0, 2: -2.0}, {3: -5.0, 4: -1.0}], [0.0, -0.5], STRICT)


def test_a_narrow_beam_loses_the_best_docid() -> None:
    docids = named((1, 3), (2, 4))  # -6 and -3, but the first slot prefers 1
    assert found(beam(docids, FORK, 9, 1)) == [((1, 3), -6.0)]
    assert found(beam(docids, FORK, 9, 2)) == [((2, 4), -3.0), ((1, 3), -6.0)]
    assert found(beam(docids, FORK, 1, 2)) == [((2, 4), -3.0)]


def test_a_held_prefix_that_is_a_docid_is_a_result() -> None:
    assert found(beam(named((1,), (1, 3), (2,)), FORK, 9, 1)) == [((1,), -1.5), ((1, 3), -6.0)]  # (2,) is not held


def test_all_docids_below_a_full_prefix_are_results() -> None:
    docids = named((1, 4), (1, 4, 0), (1, 4, 7, 7), (1, 3, 0))
    assert found(beam(docids, FORK, 9, 1)) == [((1, 4), -2.0), ((1, 4, 0), -2.0), ((1, 4, 7, 7), -2.0)]


def test_the_beam_holds_the_smaller_of_equal_prefixes_and_none_that_is_impossible() -> None:
    query = SlowQuery([{2: -1.0, 5: -1.0}, {0: 0.0}], [0.0, 0.0], STRICT)
    assert found(beam(named((5, 0), (2, 0), (0, 0)), query, 9, 1)) == [((2, 0), -1.0)]
    assert found(beam(named((5, 0), (2, 9)), query, 9, 1)) == []  # (2) leads nowhere
    assert found(beam(named((5, 0), (2, 9)), query, 9, 3)) == [((5, 0), -1.0)]


def test_filters_do_not_steer_the_beam() -> None:
    docids: Names = {(1, 3): {"x"}, (2, 4): {"y"}}
    assert beam(docids, FORK, 9, 1, allowed="y".__eq__) == []
    assert beam(docids, FORK, 9, 2, allowed="y".__eq__) == [DocidHit((2, 4), -3.0, ("y",))]


def test_the_beam_is_chosen_by_sums_and_its_results_by_scores() -> None:
    query = SlowQuery([{1: -1.0}, {2: -1.0}, {}], [0.0, -1.0, -0.5], STRICT)  # sums -2 of 2 terms and -2.5 of 3
    assert found(beam(named((1,), (1, 2)), query, 1, 1, length_norm=1.0)) == [((1, 2), -2.5 / 3)]


def test_the_beam_in_any_order_takes_the_best_slots() -> None:
    docids = named((1, 3), (4, 2))  # in any order -6 and -3; (1) and (4) both begin with -1, and 1 is smaller
    assert found(beam(docids, FORK, 9, 2)) == [((1, 3), -6.0)]
    assert found(beam(docids, FORK, 9, 1, order="any")) == [((1, 3), -6.0)]
    assert found(beam(docids, FORK, 9, 2, order="any")) == [((4, 2), -3.0), ((1, 3), -6.0)]


# Laws


def permits(allowed: Collection[str] | None) -> Callable[[str], bool] | None:
    return None if allowed is None else allowed.__contains__


docid_tokens = st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=7).map(tuple)
norms = st.sampled_from([0.0, 0.5, 1.0, 0.3])
EVERY = 10**6


@given(docid_tokens, queries(), norms)
def test_slots_at_most_assigned_at_most_any(tokens: Tokens, query: SlowQuery, norm: float) -> None:
    slots, assigned, free = (
        docid_score(tokens, query, order=order, length_norm=norm) for order in ("slots", "assigned", "any")
    )
    assert slots <= assigned <= free


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=5).map(tuple), st.integers(1, 4).flatmap(lambda s: queries(4, s))
)
def test_assigned_is_the_best_of_all_injective_maps(tokens: Tokens, query: SlowQuery) -> None:
    s = len(query.slots)
    m = min(len(tokens), s)
    best = -INF
    for slots in permutations(range(s), m):
        total = 0.0
        for v, t in zip(tokens, slots, strict=False):
            total += max(query.floor[v], query.slots[t].get(v, -INF))
        best = max(best, total + query.ends[m] if m < s else total)
    assert docid_score(tokens, query, order="assigned") == best


@given(docid_tokens, queries(), st.data(), settings_of_decoding())
def test_a_higher_floor_never_lowers_a_score(
    tokens: Tokens, query: SlowQuery, data: st.DataObject, how: Settings
) -> None:
    other = data.draw(queries(slots=len(query.slots))).floor
    higher = query._replace(floor=[max(pair) for pair in zip(query.floor, other, strict=True)])
    low, high = (docid_score(tokens, q, order=how.order, length_norm=how.length_norm) for q in (query, higher))
    assert low <= high


@given(tables(), queries(), settings_of_decoding())
def test_results_are_sorted_and_a_smaller_k_is_a_prefix(docids: Names, query: SlowQuery, how: Settings) -> None:
    allowed = permits(how.allowed)
    every = best_docids(docids, query, EVERY, order=how.order, length_norm=how.length_norm, allowed=allowed)
    assert [(-hit.score, hit.tokens) for hit in every] == sorted((-hit.score, hit.tokens) for hit in every)
    assert all(hit.score > -INF and hit.documents for hit in every)
    for k in (how.k, how.k + 1):
        hits = best_docids(docids, query, k, order=how.order, length_norm=how.length_norm, allowed=allowed)
        assert hits == every[:k]


@given(tables(), queries(), settings_of_decoding(), st.sampled_from([1, 2, None]))
def test_documents_are_sorted_and_a_smaller_k_is_a_prefix(
    docids: Names, query: SlowQuery, how: Settings, top: int | None
) -> None:
    allowed = permits(how.allowed)

    def best(k: int) -> list[DocumentHit]:
        return best_documents(docids, query, k, top=top, order=how.order, length_norm=how.length_norm, allowed=allowed)

    every = best(EVERY)
    keys = [(-hit.score, hit.tokens, hit.doc_id.encode()) for hit in every]
    assert keys == sorted(keys)
    assert best(how.k) == every[: how.k]
    assert best(how.k + 1) == every[: how.k + 1]


@given(tables(), queries(), settings_of_decoding())
def test_the_best_docid_of_a_document_is_the_largest_of_its_docids(
    docids: Names, query: SlowQuery, how: Settings
) -> None:
    hits = best_documents(docids, query, EVERY, order=how.order, length_norm=how.length_norm)
    scores: dict[str, float] = {}
    for tokens, documents in docids.items():
        score = docid_score(tokens, query, order=how.order, length_norm=how.length_norm)
        scores |= {doc_id: max(score, scores.get(doc_id, -INF)) for doc_id in documents}
    assert {hit.doc_id: hit.score for hit in hits} == {d: score for d, score in scores.items() if score > -INF}
    for hit in hits:
        assert docid_score(hit.tokens, query, order=how.order, length_norm=how.length_norm) == hit.score
        assert hit.doc_id in docids[hit.tokens]


@given(tables(), queries(), settings_of_decoding())
def test_more_docids_never_lower_a_document(docids: Names, query: SlowQuery, how: Settings) -> None:
    before: dict[str, float] = {}
    for top in (1, 2, 3, None):
        hits = best_documents(docids, query, EVERY, top=top, order=how.order, length_norm=how.length_norm)
        after = {hit.doc_id: hit.score for hit in hits}
        assert top == 1 or before.keys() == after.keys()
        for doc_id, score in before.items():
            assert after[doc_id] >= score - 1e-12 * abs(score)  # the logarithm is rounded
        before = after


@given(tables(), queries(), settings_of_decoding("slots", "any"))
def test_a_wide_beam_finds_everything(docids: Names, query: SlowQuery, how: Settings) -> None:
    order: Order = how.order
    assert order != "assigned"
    allowed = permits(how.allowed)
    assert beam(docids, query, how.k, EVERY, order=order, length_norm=how.length_norm, allowed=allowed) == best_docids(
        docids, query, how.k, order=order, length_norm=how.length_norm, allowed=allowed
    )


@given(tables(), queries(), settings_of_decoding("slots", "any"), st.integers(1, 8))
def test_a_beam_finds_some_of_everything(docids: Names, query: SlowQuery, how: Settings, width: int) -> None:
    order: Order = how.order
    assert order != "assigned"
    hits = beam(docids, query, EVERY, width, order=order, length_norm=how.length_norm)
    every = best_docids(docids, query, EVERY, order=order, length_norm=how.length_norm)
    assert hits == [hit for hit in every if hit in hits]


@given(tables(), queries(), settings_of_decoding())
def test_to_allow_all_is_no_filter(docids: Names, query: SlowQuery, how: Settings) -> None:
    everyone = frozenset(DOCUMENTS)
    for best in (best_docids, best_documents):
        free = best(docids, query, how.k, order=how.order, length_norm=how.length_norm)
        assert free == best(
            docids, query, how.k, order=how.order, length_norm=how.length_norm, allowed=everyone.__contains__
        )
        assert best(docids, query, how.k, allowed=frozenset[str]().__contains__) == []
