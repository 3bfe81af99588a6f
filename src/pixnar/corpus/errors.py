"""Bad rows: they stop the reading, or are skipped and counted."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from pixnar.base.errors import CorpusError


class BadRow(NamedTuple):
    """A row that cannot be used: its line, the kind of fault, and the fault with the value that is wrong."""

    number: int
    reason: str
    detail: str


class BadValueError(ValueError):
    """Raised by the parser of one row; the reader turns it into a `BadRow`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.reason = reason
        self.detail = detail or reason


class Skipped(Counter[tuple[str, str]]):
    """How many bad rows were skipped, by (file, reason); `total()` is their number.

    >>> skipped = Skipped({("docids.jsonl", "unknown document id"): 2, ("corpus.jsonl", "not valid JSON"): 1})
    >>> skipped.summary()
    'skipped 3 bad rows: 1 not valid JSON (corpus.jsonl), 2 unknown document id (docids.jsonl)'
    """

    def summary(self) -> str:
        """One line for people."""
        total = self.total()
        if not total:
            return "skipped no rows"
        parts = (f"{count:,} {reason} ({file})" for (file, reason), count in sorted(self.items()))
        return f"skipped {total:,} bad {'row' if total == 1 else 'rows'}: {', '.join(parts)}"


class BadRows:
    """What becomes of the bad rows of one pass over some files."""

    def __init__(self, skip: bool, skipped: Skipped) -> None:
        self._skip = skip
        self._skipped = skipped
        self._pass: Counter[tuple[str, str]] = Counter()

    def settle(self, file: str, bad: list[BadRow]) -> None:
        """Raise for the first of them, or count them all."""
        if not bad:
            return
        if not self._skip:
            first = min(bad)
            raise CorpusError(
                f"{file}:{first.number}: {first.detail}; correct the row, or leave out such rows with --skip-bad-rows"
            )
        for row in bad:
            key = file, row.reason
            self._pass[key] += 1
            # A file may be read twice (its ids alone, then its rows): the same bad rows must not count twice.
            self._skipped[key] = max(self._skipped[key], self._pass[key])


def shown(value: object) -> str:
    r"""A value as it may stand in a one-line message: quoted, escaped, cut short.

    >>> print(shown("two\nlines"))
    'two\nlines'
    """
    if isinstance(value, str) and len(value) > 80:
        return repr(value[:77]) + "…"
    text = repr(value)
    return text if len(text) <= 90 else text[:87] + "…"
