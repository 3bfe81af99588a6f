r"""The filter language: ``country = "de" and price < 10`` says which documents a search may find.

- A comparison is a key, one of ``= != < <= > >=``, and a value: text in single or double quotes, a number, true or
  false. ``key in ("de", "fr")`` and ``key not in (...)`` take several values.
- ``has key`` and ``missing key`` ask whether there is any value. Null, objects and empty lists are no values.
- ``and``, ``or``, ``not`` and parentheses join conditions; ``not`` binds tightest, ``or`` loosest. Upper and lower case
  of these words do not matter.
- Keys are bare words of letters, digits, ``_ - .``; anything else stands in backquotes. ``\"``, ``\\``, ``\n``, ``\t``,
  ``\r`` and ``\u00e9`` may be used inside quotes.

What matches: text compares with text, by code point and up to its 256th character, numbers with numbers, true and false
with each other by ``=`` and ``!=`` only; values of different types never match. A document without the key matches no
comparison. Of a list, one matching element is enough. ``!=`` and ``not in`` are exactly the opposite of ``=`` and
``in``, so they do match documents without the key, and a list only if none of its elements is equal.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NoReturn, Protocol

import numpy as np

from pixnar.base.errors import PixnarError
from pixnar.corpus.records import shown
from pixnar.documents.columns import LONGEST_TEXT, MOST_KEYS, ORDERS, Column, Columns, Mask, Order, Scalar, elements

_DEEPEST = 100
_SHOWN_KEYS = 8
_EXAMPLE = 'write e.g. country = "de" and price < 10'
_KEYWORDS = frozenset({"and", "or", "not", "in", "has", "missing", "true", "false", "null", "none"})
_TOKEN = re.compile(
    r"""(?P<blank>\s+)
    | (?P<text>"(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*')
    | (?P<quoted>`(?:[^`\\]|\\.)*`)
    | (?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.-]))
    | (?P<word>[\w.-]+)
    | (?P<sign><=|>=|!=|==|[=<>(),])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "`": "`", "/": "/"}


class FilterError(PixnarError):
    """A filter cannot be read, or names a key that it cannot ask for."""


def parse(text: str) -> Filter:
    """Read a filter.

    >>> cheap = parse('country in ("de", "fr") and price < 10')
    >>> cheap.matches({"country": "fr", "price": 9.5}), cheap.matches({"country": "fr"})
    (True, False)
    """
    return Filter(text, _Parser(text).whole())


@dataclass(frozen=True)
class Filter:
    """A condition on the metadata of documents; made by `parse`."""

    text: str
    condition: _Condition

    @property
    def keys(self) -> list[str]:
        """The keys it asks about, sorted."""
        return sorted(set(self.condition.keys()))

    def matches(self, metadata: Mapping[str, Any]) -> bool:
        """Whether one document's metadata meets it."""
        return self.condition.matches(metadata)

    def mask(self, columns: Columns, n: int, *, strict: bool = True, known: Container[str] = ()) -> Mask:
        """Which of the n documents that `columns` are about meet it.

        A key that has no column is an error or, if not `strict` or `known` from elsewhere, one that every document
        lacks.
        """
        found = {key: columns.column(key) for key in self.keys}
        for key, column in found.items():
            if column is None and strict and key not in known:
                raise self.no_column(key, columns)
        return self.condition.mask(found.get, n)

    def no_column(self, key: str, columns: Keys) -> FilterError:
        """What to raise where it asks about a key that it cannot ask about."""
        why = columns.why_not(key)
        if why == "nested":
            what = f"the values of {shown(key)} are objects, which are shown but cannot be filtered by"
        elif why == "rare":
            what = f"{shown(key)} is not among the {MOST_KEYS:,} most used keys, which are those one can filter by"
        else:
            what = f"no document has the key {shown(key)}"
        near = difflib.get_close_matches(key, columns.keys, _SHOWN_KEYS)
        known = near + [each for each in columns.keys if each not in near]
        if not known:
            return FilterError(f"filter {shown(self.text)}: {what}: leave the filter out, there are no other keys")
        names = ", ".join(map(shown, known[:_SHOWN_KEYS])) + (", …" if len(known) > _SHOWN_KEYS else "")
        return FilterError(f"filter {shown(self.text)}: {what}: use one of {names}")


class Keys(Protocol):
    """The keys that a filter may name, and why it may not name another."""

    @property
    def keys(self) -> list[str]:
        """Sorted."""
        ...

    def why_not(self, key: str) -> Literal["nested", "rare", "unknown"]:
        """It holds objects only, too many keys are more frequent, or no document has it."""
        ...


_Columns = Callable[[str], Column | None]


class _Condition(Protocol):
    """A node of a parsed filter."""

    def keys(self) -> Iterator[str]: ...
    def matches(self, metadata: Mapping[str, Any]) -> bool: ...
    def mask(self, column: _Columns, n: int) -> Mask: ...


@dataclass(frozen=True)
class _Has:
    key: str

    def keys(self) -> Iterator[str]:
        yield self.key

    def matches(self, metadata: Mapping[str, Any]) -> bool:
        return bool(elements(metadata.get(self.key)))

    def mask(self, column: _Columns, n: int) -> Mask:
        found = column(self.key)
        return np.zeros(n, np.bool_) if found is None else found.has(n)


@dataclass(frozen=True)
class _AnyOf:
    key: str
    wanted: frozenset[tuple[type, Scalar]]  # with the type, since True == 1.0

    def keys(self) -> Iterator[str]:
        yield self.key

    def matches(self, metadata: Mapping[str, Any]) -> bool:
        return any((type(each), each) in self.wanted for each in elements(metadata.get(self.key)))

    def mask(self, column: _Columns, n: int) -> Mask:
        found = column(self.key)
        return np.zeros(n, np.bool_) if found is None else found.any_of([value for _, value in self.wanted], n)


@dataclass(frozen=True)
class _Ordered:
    key: str
    order: Order
    border: str | float

    def keys(self) -> Iterator[str]:
        yield self.key

    def matches(self, metadata: Mapping[str, Any]) -> bool:
        kind, compare = type(self.border), ORDERS[self.order]
        return any(type(each) is kind and compare(each, self.border) for each in elements(metadata.get(self.key)))

    def mask(self, column: _Columns, n: int) -> Mask:
        found = column(self.key)
        return np.zeros(n, np.bool_) if found is None else found.ordered(self.order, self.border, n)


@dataclass(frozen=True)
class _Not:
    inner: _Condition

    def keys(self) -> Iterator[str]:
        return self.inner.keys()

    def matches(self, metadata: Mapping[str, Any]) -> bool:
        return not self.inner.matches(metadata)

    def mask(self, column: _Columns, n: int) -> Mask:
        mask = self.inner.mask(column, n)
        return np.logical_not(mask, out=mask)


@dataclass(frozen=True)
class _Joined:
    every: bool
    parts: tuple[_Condition, ...]

    def keys(self) -> Iterator[str]:
        for part in self.parts:
            yield from part.keys()

    def matches(self, metadata: Mapping[str, Any]) -> bool:
        return (all if self.every else any)(part.matches(metadata) for part in self.parts)

    def mask(self, column: _Columns, n: int) -> Mask:
        mask = self.parts[0].mask(column, n)
        for part in self.parts[1:]:
            if self.every:
                mask &= part.mask(column, n)
            else:
                mask |= part.mask(column, n)
        return mask


class _FilterToken(NamedTuple):
    kind: str  # "text", "quoted", "number", "word", "keyword", "sign", "end"
    value: str  # a keyword in lower case; a text or quoted key without quotes and escapes
    raw: str
    at: int  # counted from 1, as people do


class _Parser:
    """Recursive descent, no deeper than `_DEEPEST`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split()
        self._next = 0

    def whole(self) -> _Condition:
        if self._token.kind == "end":
            self._fail("it is empty", _EXAMPLE)
        condition = self._either(0)
        token = self._token
        if token.kind == "end":
            return condition
        if token.raw == ")":
            self._fail(f"')' at character {token.at} closes nothing", "remove it")
        return self._fail(
            f"{shown(token.raw)} at character {token.at} is one too many", "join conditions with and or or"
        )

    def _either(self, depth: int) -> _Condition:
        parts = [self._both(depth)]
        while self._took("keyword", "or"):
            parts.append(self._both(depth))
        return parts[0] if len(parts) == 1 else _Joined(False, tuple(parts))

    def _both(self, depth: int) -> _Condition:
        parts = [self._single(depth)]
        while self._took("keyword", "and"):
            parts.append(self._single(depth))
        return parts[0] if len(parts) == 1 else _Joined(True, tuple(parts))

    def _single(self, depth: int) -> _Condition:
        token = self._token
        if depth == _DEEPEST:
            self._fail(f"it nests more than {_DEEPEST} deep at character {token.at}", "use fewer parentheses and nots")
        if self._took("keyword", "not"):
            return _Not(self._single(depth + 1))
        if self._took("sign", "("):
            condition = self._either(depth + 1)
            if not self._took("sign", ")"):
                self._fail(f"'(' at character {token.at} is not closed", "write a ) where its conditions end")
            return condition
        if self._took("keyword", "has"):
            return _Has(self._key())
        if self._took("keyword", "missing"):
            return _Not(_Has(self._key()))
        return self._comparison(self._key())

    def _comparison(self, key: str) -> _Condition:
        token = self._advance()
        if token.kind == "keyword" and token.value in ("in", "not"):
            if token.value == "not" and not self._took("keyword", "in"):
                self._fail(
                    f"'not' at character {token.at} is not followed by in",
                    f'write e.g. {_spelled(key)} not in ("a", "b")',
                )
            wanted = _AnyOf(key, self._values(key))
            return wanted if token.value == "in" else _Not(wanted)
        if token.kind != "sign" or token.value not in ("=", "==", "!=", *ORDERS):
            what = f"{shown(token.raw)} at character {token.at} is no comparison"
            if token.kind == "end":
                what = f"a comparison is missing after {shown(key)} at character {token.at}"
            self._fail(what, "use = != < <= > >= in or not in")
        value = self._value(token, key)
        if token.value in ("=", "=="):
            return _AnyOf(key, frozenset({(type(value), value)}))
        if token.value == "!=":
            return _Not(_AnyOf(key, frozenset({(type(value), value)})))
        if isinstance(value, bool):
            self._fail(f"{shown(token.raw)} at character {token.at} cannot order true and false", "use = or !=")
        order = next(order for order in ORDERS if order == token.value)
        return _Ordered(key, order, value)

    def _values(self, key: str) -> frozenset[tuple[type, Scalar]]:
        before = self._tokens[self._next - 1]
        remedy = f'write e.g. {_spelled(key)} in ("a", "b")'
        if not self._took("sign", "("):
            self._fail(f"the values after {shown(before.raw)} at character {self._token.at} need parentheses", remedy)
        values = set()
        while True:
            value = self._value(self._tokens[self._next - 1], key)
            values.add((type(value), value))
            if self._took("sign", ")"):
                return frozenset(values)
            if not self._took("sign", ","):
                self._fail(f"a comma or ) is missing at character {self._token.at}", remedy)

    def _key(self) -> str:
        token = self._advance()
        if token.kind in ("word", "quoted"):
            return token.value
        if token.kind == "end":
            before = self._tokens[self._next - 1]
            self._fail(f"a condition is missing after {shown(before.raw)} at character {token.at}", _EXAMPLE)
        if token.kind in ("text", "number"):
            remedy = f"a key comes first, in backquotes if it is no plain word; {_EXAMPLE}"
            self._fail(f"{shown(token.raw)} at character {token.at} is a value where a key should be", remedy)
        remedy = "put it in backquotes if it is a key" if token.kind == "keyword" else _EXAMPLE
        return self._fail(f"{shown(token.raw)} at character {token.at} stands where a key should be", remedy)

    def _value(self, before: _FilterToken, key: str) -> Scalar:
        token = self._advance()
        if token.kind == "text":
            return token.value[:LONGEST_TEXT]
        if token.kind == "number":
            return float(token.value)
        if token.kind == "keyword" and token.value in ("true", "false"):
            return token.value == "true"
        if token.kind == "keyword" and token.value in ("null", "none"):
            self._fail(f"{shown(token.raw)} at character {token.at} is no value", f"write missing {_spelled(key)}")
        if token.kind in ("word", "quoted"):
            self._fail(
                f"{shown(token.raw)} at character {token.at} needs quotes", f"write {shown(token.value)} if it is text"
            )
        example = f"{before.raw} 10" if before.value in ("=", "==", "!=", *ORDERS) else 'in ("a", "b")'
        where = f"after {shown(before.raw)} at character {token.at}"
        return self._fail(f"a value is missing {where}", f"write e.g. {_spelled(key)} {example}")

    @property
    def _token(self) -> _FilterToken:
        return self._tokens[self._next]

    def _advance(self) -> _FilterToken:
        token = self._token
        self._next += token.kind != "end"
        return token

    def _took(self, kind: str, value: str) -> bool:
        took = (self._token.kind, self._token.value) == (kind, value)
        self._next += took
        return took

    def _split(self) -> list[_FilterToken]:
        tokens = []
        at = 0
        while at < len(self._text):
            match = _TOKEN.match(self._text, at)
            if match is None:
                self._fail_at(at)
            kind, raw, value = str(match.lastgroup), match.group(), match.group()
            if kind in ("text", "quoted"):
                value = self._unescaped(raw[1:-1], at)
            elif kind == "word" and raw.lower() in _KEYWORDS:
                kind, value = "keyword", raw.lower()
            if kind != "blank":
                tokens.append(_FilterToken(kind, value, raw, at + 1))
            at = match.end()
        return [*tokens, _FilterToken("end", "", "", len(self._text.rstrip()) + 1)]

    def _unescaped(self, raw: str, at: int) -> str:
        if "\\" not in raw:
            return raw

        def plain(match: re.Match[str]) -> str:
            code = match[1]
            if len(code) == 5:
                return chr(int(code[1:], 16))
            if code not in _ESCAPES:
                place = at + 2 + match.start()
                self._fail(f"{shown(match[0])} at character {place} means nothing", r"write \\ for a backslash")
            return _ESCAPES[code]

        # Two \u escapes may spell the halves of one character.
        return _ESCAPE.sub(plain, raw).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")

    def _fail_at(self, at: int) -> NoReturn:
        sign = self._text[at]
        if sign in "\"'`":
            self._fail(f"the quote at character {at + 1} is not closed", f"write another {sign} where the text ends")
        remedy = {"&": "write and", "|": "write or", "!": "write not, or != to compare", "~": "write not"}
        self._fail(
            f"{shown(sign)} at character {at + 1} means nothing here",
            remedy.get(sign, "put keys in backquotes, text in quotes"),
        )

    def _fail(self, what: str, remedy: str) -> NoReturn:
        raise FilterError(f"filter {shown(self._text)}: {what}: {remedy}")


def _spelled(key: str) -> str:
    """A key as it may stand in a filter, and in a one-line message."""
    plain = key.lower() not in _KEYWORDS and re.fullmatch(r"[^\W\d][\w.-]{0,40}", key)
    return key if plain else f"`{shown(key)[1:-1]}`"
