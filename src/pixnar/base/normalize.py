"""The one normaliser: docids at build time and queries at search time pass through the same function."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from pixnar import _native


def normalize(text: str) -> str:
    r"""NFKC, lower case, white space squeezed to single blanks; lone surrogates become U+FFFD.

    Idempotent: ``normalize(normalize(x)) == normalize(x)`` for every string.

    >>> normalize("  The Ｆｉｒｓｔ\tFLIGHT\n")
    'the first flight'
    """
    if text.isascii():
        return " ".join(text.lower().split())
    text = _without_surrogates(text)
    # Lower-casing can undo the normal form and the other way round (U+1E9E, U+0130, U+03F4 …). Two rounds settle all
    # of Unicode 14; the loop is there so that idempotence does not hang on that fact.
    while True:
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower())
        if folded == text:
            return " ".join(folded.split())
        text = folded


def normalize_lines(texts: Sequence[str]) -> bytes:
    r"""`normalize` for many texts, one per line, as UTF-8; ASCII texts take a native path, many times faster.

    >>> normalize_lines(["One ", "TWO\nthree"])
    b'one\ntwo three'
    """
    return _native.normalize_lines(texts, normalize)


def _without_surrogates(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        # Joins pairs that JSON escapes left apart, and replaces what has no partner.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
