"""Filters: columns and single records agree; any text is a filter or one line about what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.strings import TextBlocks
from pixnar.corpus.records import Document
from pixnar.documents.columns import Columns, ColumnWriter, elements
from pixnar.documents.filters import FilterError, parse
from pixnar.table import DocidTable

KEYS = ["a", "b", "price-2.x", "in", "two words", "`", "ü"]
WORDS = ["", "a", "de", "De", "é", "z" * 255, "z" * 256, "z" * 257, "\ud800", "\uffff", "😀", "'", '"', "\\", "\n"]
NUMBERS = [0, -1, 1, 2, 0.5, 1e300, -1e-9, float("inf"), 2**53 + 1, 10**400, -(10**400)]

words = st.sampled_from(WORDS) | st.text(max_size=3)
numbers = st.sampled_from(NUMBERS) | st.floats() | st.integers(-3, 3)
scalars = words | numbers | st.booleans()
values = (
    st.none()
    | scalars
    | st.lists(scalars | st.none() | st.just([1]), max_size=3)
    | st.dictionaries(words, scalars, max_size=1)
)
rows = st.dictionaries(st.sampled_from(KEYS), values, max_size=4)


def columns_of(documents: Sequence[dict[str, Any]]) -> Columns:
    writer = ColumnWriter()
    for number, metadata in enumerate(documents):
        writer.add(number, metadata)
    return Columns(writer.arrays(len(documents)))


def quoted(text: str, quote: str) -> str:
    for raw, escaped in (("\\", "\\\\"), (quote, "\\" + quote), ("\n", "\\n")):
        text = text.replace(raw, escaped)
    return quote + text + quote


def literal(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value, "'" if len(value) % 2 else '"')
    if isinstance(value, bool):
        return "TRUE" if value else "false"
    number = float(max(min(value, 10**308), -(10**308))) if isinstance(value, int) else value
    return repr(number).replace("inf", "1e999")


def spelled(key: str) -> str:
    return key if key in ("a", "b", "price-2.x", "ü") else quoted(key, "`")


keys = st.sampled_from(KEYS).map(spelled)
literals = scalars.filter(lambda value: value == value).map(literal)
orderable = (words | numbers.filter(lambda value: value == value)).map(literal)
lists = st.lists(literals, min_size=1, max_size=4).map(lambda each: f"({', '.join(each)})")
leaves = st.one_of(
    st.builds("{} {} {}".format, keys, st.sampled_from(["=", "!=", "=="]), literals),
    st.builds("{}{}{}".format, keys, st.sampled_from(["<", "<=", ">", ">="]), orderable),
    st.builds("{} {} {}".format, keys, st.sampled_from(["in", "NOT  in"]), lists),
    st.builds("{} {}".format, st.sampled_from(["has", "Missing"]), keys),
)
filters = st.recursive(
    leaves,
    lambda inner: (
        st.builds("({}) {} {}".format, inner, st.sampled_from(["and", "Or", "and not"]), inner)
        | st.builds("not ({})".format, inner)
    ),
    max_leaves=6,
)


@settings(max_examples=400)
@given(st.lists(rows, max_size=12), st.lists(filters, min_size=1, max_size=4))
def test_columns_and_records_agree(documents: list[dict[str, Any]], texts: list[str]) -> None:
    columns = columns_of(documents)
    for text in texts:
        wanted = parse(text)
        mask = wanted.mask(columns, len(documents), strict=False)
        assert mask.dtype == np.bool_
        assert mask.tolist() == [wanted.matches(metadata) for metadata in documents]


@pytest.mark.parametrize("key", ["n", "s", "f", "m", "rare"])
def test_dense_and_sparse_columns_agree_with_records(key: str) -> None:
    documents: list[dict[str, Any]] = [
        {"n": n % 9, "s": f"w{n % 300:03}", "f": n % 2 == 0, "m": [n % 5, f"w{n % 7}", True]} for n in range(1_000)
    ]
    documents[500] |= {"rare": "w003"}
    documents[700] |= {"rare": 5, "n": float("nan") if key == "m" else None}
    columns = columns_of(documents)
    for condition in (
        "= 5",
        "= 'w003'",
        "= true",
        "in ('w003', 'w1', 4, false)",
        "< 4",
        ">= 'w2'",
        "<= 'w003'",
        "> ''",
    ):
        for text in (f"{key} {condition}", f"not {key} {condition}", f"has {key}", f"missing {key}"):
            wanted = parse(text)
            assert wanted.mask(columns, 1_000).tolist() == [wanted.matches(metadata) for metadata in documents], text


@pytest.mark.parametrize(
    ("text", "metadata", "matches"),
    [
        ('country = "de" and price < 10', {"country": "de", "price": 9}, True),
        ('country = "de" and price < 10', {"country": "de"}, False),
        ('country != "de"', {}, True),
        ('country not in ("de", "fr")', {"country": "it"}, True),
        ("a = 1 or a = 2 and b = 3", {"a": 1}, True),
        ("(a = 1 or a = 2) and b = 3", {"a": 1}, False),
        ("not a = 1 and b = 1", {"b": 1}, True),
        ("NOT NOT HAS a", {"a": 0}, True),
        ("has a", {"a": None}, False),
        ("has a", {"a": []}, False),
        ("missing a", {"a": {"b": 1}}, True),
        ("a = 1", {"a": True}, False),
        ("a = true", {"a": 1}, False),
        ("a = '1'", {"a": 1}, False),
        ("a < 'b'", {"a": 1}, False),
        ("tags = 'x'", {"tags": ["y", "x"]}, True),
        ("tags != 'x'", {"tags": ["y", "x"]}, False),
        ("size > 3 and size < 2", {"size": [1, 4]}, True),
        ("a > -1.5e-3", {"a": 0}, True),
        ("a = .5 or a = 5. or a = +1", {"a": 5}, True),
        (r"a = 'it\'s \\ \"\n\u00e9'", {"a": "it's \\ \"\né"}, True),
        (r"a = '\ud83d\ude00'", {"a": "😀"}, True),
        ("`in` = 1 and `a b` = 2", {"in": 1, "a b": 2}, True),
        ("2nd.place-x = 1", {"2nd.place-x": 1}, True),
        ("Ä > 'Z'", {"Ä": "a"}, True),
        ("a < 'é'", {"a": "z"}, True),
        ("  a=1and2  =\n3", {}, None),
    ],
)
def test_meaning(text: str, metadata: dict[str, Any], matches: bool | None) -> None:
    if matches is None:
        with pytest.raises(FilterError):
            parse(text)
        return
    wanted = parse(text)
    assert wanted.matches(metadata) is matches
    assert wanted.mask(columns_of([metadata]), 1, strict=False).tolist() == [matches]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("price <", "filter 'price <': a value is missing after '<' at character 8: write e.g. price < 10"),
        (" ", "filter ' ': it is empty: write e.g. country = \"de\" and price < 10"),
        ("price", "a comparison is missing after 'price' at character 6: use = != < <= > >= in or not in"),
        ("price is 5", "'is' at character 7 is no comparison: use"),
        ("c = de", "'de' at character 5 needs quotes: write 'de' if it is text"),
        ("c = 'de", "the quote at character 5 is not closed: write another ' where the text ends"),
        (r"c = 'C:\dir'", r"'\\d' at character 8 means nothing: write \\ for a backslash"),
        ("(a = 1", "'(' at character 1 is not closed"),
        ("a = 1)", "')' at character 6 closes nothing: remove it"),
        ("a = 1 b = 2", "'b' at character 7 is one too many: join conditions with and or or"),
        ("a in 'x'", 'the values after \'in\' at character 6 need parentheses: write e.g. a in ("a", "b")'),
        ("a in ('x' 'y')", "a comma or ) is missing at character 11"),
        ("a in ()", 'a value is missing after \'(\' at character 7: write e.g. a in ("a", "b")'),
        ("a = null", "'null' at character 5 is no value: write missing a"),
        ("a < true", "'<' at character 3 cannot order true and false: use = or !="),
        ("in = 1", "'in' at character 1 stands where a key should be: put it in backquotes if it is a key"),
        ("5 < a", "'5' at character 1 is a value where a key should be"),
        ("a = 1 and", "a condition is missing after 'and' at character 10"),
        ("a not b", "'not' at character 3 is not followed by in"),
        ("a = 1 && b = 2", "'&' at character 7 means nothing here: write and"),
    ],
)
def test_errors_say_what_where_and_how(text: str, error: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse(text)
    assert error in str(caught.value)
    assert str(caught.value).startswith("filter ")


pieces = st.lists(
    st.sampled_from([*"()\"'`\\,<>=!-+. \n", *"a1éu", "and ", " or ", "not ", " in ", "has ", "1e5", "null"])
)


@settings(max_examples=500)
@given(st.text() | pieces.map("".join) | filters)
@example("(" * 100_000)
@example("not " * 100_000)
@example("(" * 99 + "a=1" + ")" * 99)
@example("`\n\u2028` <")
@example("'" + "\\" * 100_001)
def test_any_text_is_a_filter_or_one_line(text: str) -> None:
    message = "fine"
    try:
        wanted = parse(text)
    except PixnarError as error:
        message = str(error)
    else:
        assert wanted.matches({"a": 1}) in (True, False)
    assert len(message.splitlines()) == 1
    assert len(message) < 600


def test_long_chains_are_fine() -> None:
    wanted = parse(" or ".join(f"a = {n}" for n in range(5_000)))
    assert wanted.matches({"a": 4_999})
    assert wanted.mask(columns_of([{"a": 7}, {"a": -1}]), 2).tolist() == [True, False]
    assert parse(f"a in ({', '.join(map(str, range(5_000)))})").matches({"a": 4_999})


def test_nesting_has_an_end() -> None:
    for text in ("(" * 200 + "a = 1" + ")" * 200, "not " * 101 + "a = 1"):
        with pytest.raises(FilterError, match="nests more than 100 deep at character"):
            parse(text)


def test_unknown_keys_are_named_with_those_that_are_near() -> None:
    columns = columns_of(
        [{"country": "de", "price": 3, "zip": "1", "nothing": None, **{f"k{n}": 1 for n in range(20)}}]
    )
    wanted = parse("contry = 'de'")
    with pytest.raises(FilterError, match=r"no document has the key 'contry': use one of 'country', .*, …$"):
        wanted.mask(columns, 1)
    assert wanted.mask(columns, 1, strict=False).tolist() == [False]
    assert parse("missing contry").mask(columns, 1, strict=False).tolist() == [True]
    assert parse("missing nothing").mask(columns, 1).tolist() == [True]
    with pytest.raises(FilterError, match="there are no other keys"):
        wanted.mask(columns_of([{}]), 1)


def test_a_mistyped_key_is_an_error_wherever_it_stands() -> None:
    with pytest.raises(FilterError, match="'nope'"):
        parse("a = 2 and (b = 1 or nope = 1)").mask(columns_of([{"a": 1, "b": 1}]), 1)


def test_objects_are_for_display_only() -> None:
    columns = columns_of([{"o": {"x": 1}, "l": [[1], {"y": 2}], "mixed": {"x": 1}}, {"mixed": 5}])
    for key in ("o", "l"):
        with pytest.raises(FilterError, match=f"the values of '{key}' are objects, .*: use one of 'mixed'"):
            parse(f"has {key}").mask(columns, 2)
    assert parse("has mixed").mask(columns, 2).tolist() == [False, True]


def test_the_rarest_of_too_many_keys_are_for_display_only() -> None:
    documents: list[dict[str, Any]] = [{f"k{n:04}": n, "all": "x"} for n in range(1_200)]
    documents.append({"k1199": 5})
    columns = columns_of(documents)
    assert len(columns.keys) == 1_000
    assert np.flatnonzero(parse("k1199 > 0").mask(columns, 1_201)).tolist() == [1_199, 1_200]
    assert parse("all = 'x' and k0000 = 0").mask(columns, 1_201).sum() == 1
    with pytest.raises(FilterError, match="'k1198' is not among the 1,000 most used keys"):
        parse("k1198 = 1198").mask(columns, 1_201)


def test_rare_keys_cost_nothing_and_codes_are_narrow() -> None:
    documents: list[dict[str, Any]] = [{"country": f"c{n % 200}"} for n in range(10_000)]
    plain = sum(part.nbytes for part in _arrays(documents).values())
    for n in range(900):
        documents[n * 3][f"key {n}"] = n
    assert plain < 13_000
    assert sum(part.nbytes for part in _arrays(documents).values()) < plain + 900 * 60


def _arrays(documents: Sequence[dict[str, Any]]) -> dict[str, NDArray[Any]]:
    writer = ColumnWriter()
    for number, metadata in enumerate(documents):
        writer.add(number, metadata)
    return writer.arrays(len(documents))


@pytest.mark.parametrize("words_count", [255, 256, 65_535, 65_536])
def test_codes_of_every_width(words_count: int) -> None:
    documents: list[dict[str, Any]] = [{"w": f"{n:06}"} for n in range(words_count)] + [{}]
    columns, n = columns_of(documents), words_count + 1
    last = f"{words_count - 1:06}"
    assert np.flatnonzero(parse(f"w = '{last}'").mask(columns, n)).tolist() == [words_count - 1]
    assert np.flatnonzero(parse(f"w >= '{last}'").mask(columns, n)).tolist() == [words_count - 1]
    assert parse("has w").mask(columns, n).sum() == words_count
    assert np.flatnonzero(parse("missing w").mask(columns, n)).tolist() == [words_count]
    assert parse("w < 'x'").mask(columns, n).sum() == words_count
    assert parse(f"w in ('000000', '{last}', 'x')").mask(columns, n).sum() == 2


def test_elements() -> None:
    assert elements([1, "a", None, [2], {"b": 3}, False]) == [1.0, "a", False]
    assert elements("x" * 300) == ["x" * 256]
    assert elements(10**400) == [float("inf")]
    assert elements(None) == elements({}) == elements([]) == elements(b"bytes") == []


@pytest.mark.parametrize(
    "directory",
    [
        b"[]",
        b"nonsense",
        b'{"a": 5}',
        b'{"a": [[]]}',
        b'{"a": [["text", 0, 99, ["u8", 0, 2]]]}',
        b'{"a": [["text", 0, 1, ["u8", 0, 99]]]}',
        b'{"a": [["text", 0, 1, ["u7", 0, 2]]]}',
        b'{"a": [["text", 0, 1, ["u8", "0", 2]]]}',
    ],
)
def test_a_list_of_columns_that_makes_no_sense(directory: bytes) -> None:
    arrays = _arrays([{"a": "x"}, {"a": "x"}])
    words = TextBlocks.pack([b"x", directory, b"{}"])
    broken = Columns({**arrays, **{f"words.{name}": part for name, part in words.items()}}, "x.docs")
    with pytest.raises(FileFormatError, match=r"x\.docs is damaged or incomplete"):
        parse("a = 'x'").mask(broken, 2)


def test_codes_and_documents_that_are_not_there() -> None:
    arrays = _arrays([{"a": "x", "b": 1.5 if n == 9 else None} for n in range(10)] + [{"a": "y"}])
    with pytest.raises(FileFormatError, match="outside its dictionary"):
        parse("a in ('x', 'y')").mask(Columns({**arrays, "u8": arrays["u8"] + np.uint8(9)}), 11)
    with pytest.raises(FileFormatError, match="documents that are not there"):
        parse("b = 1.5").mask(Columns({**arrays, "u32": arrays["u32"] + np.uint32(9)}), 11)
    with pytest.raises(FileFormatError, match="11 values for 12 documents"):
        parse("a = 'x'").mask(Columns(arrays), 12)


def test_an_empty_table() -> None:
    assert parse("a = 1").mask(columns_of([]), 0, strict=False).tolist() == []
    with pytest.raises(FileFormatError, match="damaged or incomplete"):
        parse("a = 1").mask(Columns({}), 0)


def test_keys_with_examples() -> None:
    table = DocidTable.in_memory({(1,): ["a"], (2,): ["b"]}, vocab_size=5)
    assert table.snapshot().keys() == {}
    some: list[dict[str, Any]] = [
        {"country": f"c{i:02}", "price": float(i), "mixed": i % 2 == 0, "rare": {"x": 1}} for i in range(20)
    ]
    some[3] |= {"price": float("nan"), "mixed": "text"}
    found = columns_of(some)
    assert found.column("country").examples(3) == ["c00", "c10", "c19"]  # type: ignore[union-attr]
    assert found.column("price").examples() == [0.0, 19.0]  # type: ignore[union-attr]
    assert found.column("mixed").examples() == ["text", False, True]  # type: ignore[union-attr]
    table.change(documents=[Document("a", "", "", {"size": [3, "x", 3], "nothing": None})])
    assert table.snapshot().keys() == {"size": [3.0, "x"]}
