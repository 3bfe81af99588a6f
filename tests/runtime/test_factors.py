"""Factors of docids: norms against numpy, classes, their file, and the same answers in every state of a table."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pixnar import _native
from pixnar.base.errors import FileFormatError
from pixnar.base.storage import read_container, write_container
from pixnar.runtime import FORMATS, DocidFactors, HeadRows
from pixnar.runtime.formats import Format
from pixnar.search import Decoder, SlotScores
from pixnar.table import DocidTable
from pixnar.table.overlay import table_of
from tests.helpers.head_cases import head

VOCAB_SIZE = 40


def some_docids(count: int, seed: int = 0, longest: int = 9) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(seed)
    drawn = {tuple(rng.integers(0, VOCAB_SIZE, rng.integers(1, longest + 1)).tolist()) for _ in range(count)}
    return sorted(drawn, key=lambda tokens: (len(tokens), tokens))


def native_table(docids: list[tuple[int, ...]], vocab_size: int = VOCAB_SIZE) -> _native.DocidTable:
    return _native.DocidTable(table_of([(tokens, i) for i, tokens in enumerate(docids)], vocab_size, len(docids)))


def slow_norms(rows: HeadRows, docids: list[tuple[int, ...]], slots: int) -> NDArray[np.float64]:
    norms = []
    for tokens in docids:
        total = np.zeros(rows.dim, np.float32)
        for row in rows.decoded(list(tokens[:slots])):
            total += row
        norms.append(float(np.sqrt((total.astype(np.float64) ** 2).sum())))
    return np.array(norms)


def slow_classes(factors: DocidFactors, norms: NDArray[np.floating[Any]]) -> list[int]:
    logs = np.log(factors.values.astype(np.float64))
    return [0 if norm == 0 else int(np.abs(logs + np.log(float(norm))).argmin()) for norm in norms]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("places", [True, False])
@pytest.mark.parametrize(("dim", "slots"), [(1, 3), (33, 1), (64, 32), (200, 4)])
def test_norms_equal_numpy(format: Format, places: bool, dim: int, slots: int) -> None:
    rows = head(VOCAB_SIZE + 1, dim, format, dim, bias=True, places=places)
    docids = some_docids(300, dim, longest=40 if slots == 32 else 9)
    table = native_table(docids)
    norms = rows.docid_norms(table, slots)
    assert norms.dtype == np.float32
    np.testing.assert_allclose(norms, slow_norms(rows, docids, slots), rtol=2e-7)


def test_norms_do_not_depend_on_threads_or_on_the_table() -> None:
    rows = head(VOCAB_SIZE + 1, 70, "int8", 3, bias=False, places=True)
    docids = some_docids(20_000, longest=6)
    table = native_table(docids)
    norms = rows.docid_norms(table, 4)
    for threads in (2, 3, 0):
        assert np.array_equal(rows.docid_norms(table, 4, threads=threads), norms)
    assert np.array_equal(rows.docid_norms(native_table(docids[7::11]), 4), norms[7::11])


def test_norms_need_a_row_for_every_token() -> None:
    with pytest.raises(ValueError, match="phrase rows: 39 for a vocabulary of 40 tokens"):
        head(39, 5, "int8", 1, bias=False, places=False).docid_norms(native_table(some_docids(5)), 4)
    assert len(head(39, 5, "int8", 1, bias=False, places=False).docid_norms(native_table([]), 4)) == 0


@pytest.mark.parametrize("format", FORMATS)
def test_classes_are_the_nearest(format: Format) -> None:
    rows, docids = head(VOCAB_SIZE + 1, 20, format, 5, bias=True, places=True), some_docids(2000)
    table = native_table(docids)
    factors = DocidFactors.build(rows, table, 4, threads=1)
    norms = rows.docid_norms(table, 4)
    assert factors.values.dtype == np.float32
    assert len(factors.values) == 256
    assert (np.diff(factors.values) > 0).all()
    ratios = factors.values[1:].astype(np.float64) / factors.values[:-1]
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-6)
    classes = factors.classes(table)
    assert classes.dtype == np.uint8
    assert classes.tolist() == slow_classes(factors, norms)
    assert classes is factors.classes(native_table(docids))  # the same docids: not computed again
    narrow = DocidFactors(rows, 4, low=0.5 / float(np.median(norms)), high=1 / float(np.median(norms)))
    found = narrow.classes(table)
    assert found.tolist() == slow_classes(narrow, norms)
    assert {0, 255} <= set(found.tolist())


@pytest.mark.parametrize("docids", [[], [(1,)], [(1,), (1, 0), (0, 0, 1)], [(0,), (0, 0)]])
def test_tables_with_few_norms(docids: list[tuple[int, ...]]) -> None:
    rows = HeadRows.build(np.array([[0, 0], [3, 4], [1, 1]], np.float32), format="float32")  # token 0 has no length
    table = native_table(docids, 2)
    factors = DocidFactors.build(rows, table, 3)
    assert factors.low < factors.high
    assert (factors.values > 0).all()
    assert np.isfinite(factors.values).all()
    for tokens, one in zip(docids, factors.classes(table), strict=True):
        if 1 in tokens:
            assert factors.values[one] == pytest.approx(0.2, rel=1e-3)
        else:
            assert one == 0


def test_norms_near_the_ends_of_floats() -> None:
    rows = HeadRows.build(np.array([[1e-42], [3e38], [1]], np.float32), format="float32")
    table = native_table([(0,), (1,), (1, 1)], 2)
    factors = DocidFactors.build(rows, table, 3)
    assert np.isfinite(factors.values).all()
    assert factors.values[0] > 0
    assert factors.classes(table).tolist() == [255, 0, 0]


def test_a_file_comes_back(tmp_path: Path) -> None:
    rows, docids = head(VOCAB_SIZE + 1, 20, "int8", 5, bias=True, places=True), some_docids(500)
    table, path = native_table(docids), tmp_path / "factors.pixnar"
    built = DocidFactors.build(rows, table, 4)
    built.save(path)
    for verify in (True, False):
        back = DocidFactors.load(path, rows, 4, verify=verify)
        assert (back.slots, back.low, back.high) == (4, built.low, built.high)
        assert np.array_equal(back.values, built.values)
        assert back.classes(table) is back._known.classes  # type: ignore[union-attr]  # mapped, not computed
        assert np.array_equal(back.classes(table), built.classes(table))
        other = native_table(docids[3::5])
        assert np.array_equal(back.classes(other), built.classes(table)[3::5])
    back.save(tmp_path / "again.pixnar")
    assert (tmp_path / "again.pixnar").read_bytes() == path.read_bytes()
    with pytest.raises(ValueError, match="belong to no table"):
        DocidFactors(rows, 4, 0.5, 2.0).save(path)


def test_a_table_of_the_same_shape_is_another_table(tmp_path: Path) -> None:
    rows = HeadRows.build(np.diag(np.arange(1, 6)).astype(np.float32), format="float32")
    one, other = native_table([(0,), (1,), (3,)], 4), native_table([(0,), (2,), (3,)], 4)
    factors = DocidFactors.build(rows, one, 2)
    factors.save(tmp_path / "factors.pixnar")
    for known in (factors, DocidFactors.load(tmp_path / "factors.pixnar", rows, 2)):
        found = known.values[known.classes(other)]
        np.testing.assert_allclose(found, [1, 1 / 3, 1 / 4], rtol=0.01)


def test_every_damaged_byte_is_found(tmp_path: Path) -> None:
    rows, path = head(VOCAB_SIZE + 1, 5, "int8", 5, bias=False, places=False), tmp_path / "factors.pixnar"
    DocidFactors.build(rows, native_table(some_docids(20)), 4).save(path)
    whole = path.read_bytes()
    for at in range(0, len(whole), 5):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            DocidFactors.load(path, rows, 4, verify=True)
        except FileFormatError:
            continue
        assert whole[at] == 0  # padding between arrays means nothing
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileFormatError, match="should have"):
        DocidFactors.load(path, rows, 4)


def test_a_sound_file_that_makes_no_sense(tmp_path: Path) -> None:
    rows, path = head(VOCAB_SIZE + 1, 5, "int8", 5, bias=False, places=False), tmp_path / "factors.pixnar"
    DocidFactors.build(rows, native_table(some_docids(20)), 4).save(path)
    found = read_container(path, "factors", 1)
    values = found.arrays["values"]
    wrong: list[tuple[dict[str, Any], dict[str, Any]]] = [
        *(({name: value}, {}) for name in ("low", "high") for value in (None, "x", -1.0, 0.0, 1e300)),
        *(
            ({name: value}, {})
            for name, value in (("slots", 5), ("rows", 7), ("d", 6), ("format", "int4"), ("table", 1))
        ),
        *(({}, {"values": bad}) for bad in (values[:-1], values[::-1], -values, values * np.float32(np.inf))),
        ({}, {"values": values.astype(np.float64)}),
        ({}, {"classes": found.arrays["classes"].astype(np.uint16)}),
    ]
    for meta, arrays in wrong:
        write_container(path, "factors", 1, found.meta | meta, found.arrays | arrays)
        with pytest.raises(FileFormatError, match="no usable factors"):
            DocidFactors.load(path, rows, 4)
    for name in ("values", "classes"):
        write_container(path, "factors", 1, found.meta, {k: v for k, v in found.arrays.items() if k != name})
        with pytest.raises(FileFormatError, match="no usable factors"):
            DocidFactors.load(path, rows, 4)


def test_a_file_without_some_classes_costs_time_and_nothing_else(tmp_path: Path) -> None:
    rows, path = head(VOCAB_SIZE + 1, 5, "int8", 5, bias=False, places=False), tmp_path / "factors.pixnar"
    table = native_table(some_docids(20))
    built = DocidFactors.build(rows, table, 4)
    built.save(path)
    found = read_container(path, "factors", 1)
    write_container(path, "factors", 1, found.meta, found.arrays | {"classes": found.arrays["classes"][1:]})
    assert np.array_equal(DocidFactors.load(path, rows, 4).classes(table), built.classes(table))


def test_arguments_that_do_not_fit() -> None:
    rows = head(VOCAB_SIZE + 1, 5, "int8", 5, bias=False, places=False)
    for slots in (0, 33):
        with pytest.raises(ValueError, match=f"{slots} slots: give 1 to 32"):
            DocidFactors(rows, slots, 0.5, 2.0)
    for low, high in ((0.0, 1.0), (-1.0, 1.0), (2.0, 1.0), (1.0, np.inf), (np.nan, 1.0)):
        with pytest.raises(ValueError, match="factors from"):
            DocidFactors(rows, 4, low, high)
    table = native_table([(1,), (2, 3)])
    classes, values = np.zeros(2, np.uint8), np.ones(256, np.float32)
    for few, some in ((classes[:1], values), (classes, values[:-1])):
        with pytest.raises(ValueError, match="give a class for each docid and 256 values"):
            _native.Factors(table, few, some)
    for bad in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="give finite numbers above 0"):
            _native.Factors(table, classes, np.full(256, bad, np.float32))
    with pytest.raises(ValueError, match="array classes has the wrong type"):
        _native.Factors(table, np.zeros(2, np.uint16), values)
    floor = _native.Floor(None)
    levels = _native.Levels(table, floor, 2, 1)
    factors = _native.Factors(table, classes, values)
    other = native_table([(1,), (2, 3)])
    with pytest.raises(ValueError, match="belong to another table"):
        _native.SearchSpace(table, levels, None, None, _native.Factors(other, classes, values))
    space = _native.SearchSpace(table, levels, None, None, factors)
    numbers, twins = np.arange(2, dtype=np.uint32), np.full(2, _native.NO_TWIN, np.uint32)
    more = _native.Levels(other, floor, 2, 1)
    for given in (None, _native.Factors(other, classes, values * 2)):
        with pytest.raises(ValueError, match="different factors"):
            space.add(other, more, numbers, twins, np.zeros(0, np.uint64), given)


def test_answers_stay_the_same_when_a_table_is_changed_and_compacted(tmp_path: Path) -> None:
    rows, docids = head(VOCAB_SIZE + 1, 12, "int8", 8, bias=False, places=False), some_docids(400, longest=6)
    first, later, gone = docids[::2], docids[1::2], docids[::6]
    named = {tokens: f"d{i % 50}" for i, tokens in enumerate(docids)}
    rng = np.random.default_rng(1)
    scores = SlotScores.dense(rng.normal(size=(4, VOCAB_SIZE)).astype(np.float32), np.zeros(4, np.float32))
    whole = DocidTable.in_memory({tokens: [named[tokens]] for tokens in docids if tokens not in gone}, VOCAB_SIZE)
    table = DocidTable.in_memory({tokens: [named[tokens]] for tokens in first}, VOCAB_SIZE)
    built = DocidFactors.build(rows, table.snapshot().table, 4)
    built.save(tmp_path / "factors.pixnar")
    loaded = DocidFactors.load(tmp_path / "factors.pixnar", rows, 4)
    decoders = [Decoder(table, slots=4, factors=factors, warm_up=False) for factors in (built, loaded)]
    assert decoders[0].docids(scores, 50).hits == decoders[1].docids(scores, 50).hits
    table.change(add=[(named[tokens], tokens) for tokens in later], remove_docids=list(gone))
    answers = []
    for compacted, decoder in itertools.product((False, True), decoders):
        if compacted:
            table.compact()
        answers.append((decoder.docids(scores, 500).hits, decoder.documents(scores, 50, aggregate="logsumexp").hits))
    fresh = Decoder(whole, slots=4, factors=loaded)
    answers.append((fresh.docids(scores, 500).hits, fresh.documents(scores, 50, aggregate="logsumexp").hits))
    assert len(answers[0][0]) == len(docids) - len(gone)
    for docid_hits, document_hits in answers[1:]:
        assert docid_hits == answers[0][0]
        assert [hit.doc_id for hit in document_hits] == [hit.doc_id for hit in answers[0][1]]
        np.testing.assert_allclose([h.score for h in document_hits], [h.score for h in answers[0][1]], rtol=1e-12)
    plain = Decoder(whole, slots=4).docids(scores, 500).hits
    factor = dict(zip(docids, loaded.values[loaded.classes(native_table(docids))].tolist(), strict=True))
    assert {hit.tokens: hit.score * factor[hit.tokens] for hit in plain} == {h.tokens: h.score for h in answers[0][0]}
