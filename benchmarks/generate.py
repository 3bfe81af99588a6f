"""Synthetic docids by the million: query-like, Zipf-distributed, with recurring phrases; the same for ever.

A docid is put together from *units*: an opening ("how to", "best"), words, phrases, numbers and punctuation. Words
follow a Zipf-Mandelbrot law over 1.6 million pronounceable types, phrases one over 300,000 collocations of those words.
Docid i depends on (seed, i) alone, so neither the number asked for nor the way they are consumed changes any of them;
the language (words, phrases, openings) is the same for every seed.

``python -m benchmarks.generate 20000000 docids.txt`` writes one docid per line.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from pixnar.base.errors import PixnarError
from pixnar.base.storage import atomic_write

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]

_BLOCK = 1 << 15
_WORDS = 1_600_000
_PHRASES = 300_000
_PHRASE_WORDS = 60_000  # the ranks that phrases draw on
_DUPLICATES = 0.03
_UNITS = 5
_GOLDEN = 0x9E3779B97F4A7C15

# Joints between syllables and endings of words: mostly nothing, now and then what real queries have.
_JOINTS = ("", "-", "'")
_ENDINGS = ("", "é", "ö", "ñ", "ção", "ş", "ый", "ος", "の", "市", "’s", "ß")
_ONSETS = (*"bcdfghjklmnprstvw", "st", "tr", "pl", "gr", "sh")
_VOWELS = tuple("aeiou")
_CODAS = ("", "n", "r", "s")
_SHORT_TEXT = (
    "the of in to and for a is on with my near best free new from by vs at how it you online home one what can i not "
    "do be or your as are car buy uk usa was get this that make does if will up out no when all cost time"
)
_SHORT = tuple(_SHORT_TEXT.split())
_OPENING_TEXT = (
    "how to|what is|what is the|how much does|how many|where to buy|where can i find|can you|is it safe to|why do|"
    "how do i|when is|who is|best|cheap|used|free|list of|definition of|meaning of|what does|how long does it take to|"
    "difference between|how much is a|what are the symptoms of|average cost of|near me|reviews of|what's the best|"
    "how far is it from|why is my|do i need a|which is better|what time does|don't|top 10|phone number for|is there a"
)
_OPENINGS = tuple(_OPENING_TEXT.split("|"))
_QUESTIONS = ("how", "what", "where", "can", "is", "why", "when", "who", "which", "do")


class _Units(NamedTuple):
    """Every unit's bytes in one array, blank first; unit u is ``text[starts[u]:starts[u] + lengths[u]]``.

    Unit 0 is empty. The other fields are the first unit of each kind.
    """

    text: NDArray[np.uint8]
    starts: I64
    lengths: I64
    words: int
    phrases: int
    numbers: int
    openings: int
    asks: NDArray[np.bool_]  # by opening: whether a question mark fits
    marks: int  # "'s" "," "?" "."


def generate_docids(n: int, seed: int = 0) -> Iterator[str]:
    """Yield the first `n` docids of a seed.

    >>> list(generate_docids(3)) == list(generate_docids(1000))[:3]
    True
    """
    for block in _blocks(n, seed):
        yield from block.decode().split("\n")


def write_docids(path: str | os.PathLike[str], n: int, seed: int = 0) -> None:
    """Write the first `n` docids of a seed to a file, one per line."""
    with atomic_write(path) as file:
        for block in _blocks(n, seed):
            file.write(block + b"\n")


def _blocks(n: int, seed: int) -> Iterator[bytes]:
    if n < 0:
        raise PixnarError(f"cannot generate {n} docids: ask for zero or more")
    for start in range(0, n, _BLOCK):
        yield _block(np.arange(start, min(start + _BLOCK, n), dtype=np.uint64), seed)


def _block(numbers: U64, seed: int) -> bytes:
    """The docids of these numbers, joined by line feeds."""
    units = _language()
    key = _key(seed)
    # A repeated docid takes the random numbers of an earlier one; early ones are repeated most, as popular ones are.
    fate = _mix(numbers + key)
    earlier = (numbers * _uniform(fate, 1) ** 3).astype(np.uint64)
    draws = _mix(np.where(_uniform(fate, 0) < _DUPLICATES, earlier, numbers) + key)

    opened = _uniform(draws, 2) < 0.38
    opening = _zipf(_uniform(draws, 3), len(_OPENINGS), 0.8, 2.0)
    count = 3 + np.searchsorted((0.45, 0.85), _uniform(draws, 4), side="right") - opened
    ids = np.zeros((len(numbers), 2 * _UNITS + 2), np.int64)
    ids[:, 0] = np.where(opened, units.openings + opening, 0)
    for i in range(_UNITS):
        present = i < count
        unit = _draw_unit(units, draws, 8 + 4 * i)
        suffix = _uniform(draws, 8 + 4 * i + 2)
        last = i + 1 == count
        mark = np.where(suffix < 0.02, units.marks, np.where((suffix < 0.05) & ~last, units.marks + 1, 0))
        ids[:, 1 + 2 * i] = np.where(present, unit, 0)
        ids[:, 2 + 2 * i] = np.where(present, mark, 0)
    end = _uniform(draws, 5)
    asks = opened & units.asks[opening] & (end < 0.4)
    ids[:, -1] = np.where(asks, units.marks + 2, np.where(end > 0.985, units.marks + 3, 0))

    text, lengths = _concatenate(units.text, units.starts, units.lengths, ids)
    # Every docid begins with the blank of its first unit: that is where the line feed goes.
    text[np.cumsum(lengths) - lengths] = ord("\n")
    return text[1:].tobytes()


def _draw_unit(units: _Units, draws: U64, slot: int) -> I64:
    kind = _uniform(draws, slot)
    rank = _uniform(draws, slot + 1)
    word = units.words + _zipf(rank, _WORDS, 1.22, 6.0)
    phrase = units.phrases + _zipf(rank, _PHRASES, 0.9, 8.0)
    number = units.numbers + _zipf(rank, units.openings - units.numbers, 0.7, 3.0)
    return np.where(kind < 0.38, phrase, np.where(kind < 0.96, word, number))


@functools.cache
def _language() -> _Units:
    words, word_lengths = _words()
    phrases, phrase_lengths = _phrases(words, word_lengths)
    years = [str(year) for year in range(2030, 1930, -1)]
    figures = [form.format(i) for i in range(1, 1000) for form in ("{}", "{}th", "{}/4", "{}.5", "${}", "{}mg", "{}00")]
    rest = [*dict.fromkeys([*years, *figures])]
    pieces = [*(f" {text}" for text in rest), *(f" {text}" for text in _OPENINGS), "'s", ",", "?", "."]
    encoded = [piece.encode() for piece in pieces]
    lengths = np.concatenate([[0], word_lengths, phrase_lengths, [len(piece) for piece in encoded]]).astype(np.int64)
    numbers = 1 + len(word_lengths) + len(phrase_lengths)
    return _Units(
        text=np.concatenate([words, phrases, np.frombuffer(b"".join(encoded), np.uint8)]),
        starts=np.cumsum(lengths) - lengths,
        lengths=lengths,
        words=1,
        phrases=1 + len(word_lengths),
        numbers=numbers,
        openings=numbers + len(rest),
        asks=np.array([text.startswith(_QUESTIONS) for text in _OPENINGS]),
        marks=numbers + len(rest) + len(_OPENINGS),
    )


def _words() -> tuple[NDArray[np.uint8], I64]:
    """All words by rank, each with a blank in front: real short ones first, then more and more syllables."""
    syllables = [onset + vowel + coda for coda in _CODAS for onset in _ONSETS for vowel in _VOWELS]
    pieces = ["", *syllables, *_JOINTS[1:], *_ENDINGS[1:], *(f" {word}" for word in _SHORT), " "]
    first_joint = 1 + len(syllables)
    first_ending = first_joint + len(_JOINTS) - 1
    first_short = first_ending + len(_ENDINGS) - 1
    blank = len(pieces) - 1

    rank = np.arange(_WORDS, dtype=np.uint64)
    draws = _mix(rank + _key("words"))
    base = len(syllables)
    made = (rank - np.uint64(len(_SHORT))).astype(np.int64)  # wraps for the real words, which are set below
    ids = np.zeros((_WORDS, 7), np.int64)
    ids[:, 0] = blank
    for size, start, stop in ((1, 0, base), (2, base, base + base**2), (3, base + base**2, base + base**2 + base**3)):
        chosen = (made >= start) & (made < stop)
        # A multiplier without common factor is a permutation: neighbours in rank do not look alike.
        code = (made[chosen] - start) * 7_368_787 % base**size
        for i in range(size):
            ids[chosen, 1 + 2 * i] = 1 + code // base**i % base
    odd = _uniform(draws, 0)
    ids[:, 2] = np.where((ids[:, 3] > 0) & (odd < 0.03), first_joint, 0)
    ids[:, 4] = np.where((ids[:, 5] > 0) & (odd > 0.99), first_joint + 1, 0)
    ending = first_ending + (_uniform(draws, 1) * (len(_ENDINGS) - 1)).astype(np.int64)
    ids[:, 6] = np.where((_uniform(draws, 2) < 0.012) & (made >= base), ending, 0)
    ids[: len(_SHORT)] = 0
    ids[: len(_SHORT), 0] = first_short + np.arange(len(_SHORT))
    return _concatenate(*_pack(pieces), ids)


def _phrases(words: NDArray[np.uint8], lengths: I64) -> tuple[NDArray[np.uint8], I64]:
    """All phrases by rank: two to five words each."""
    rank = np.arange(_PHRASES, dtype=np.uint64)
    draws = _mix(rank + _key("phrases"))
    size = 2 + np.searchsorted((0.55, 0.82, 0.94), _uniform(draws, 0), side="right")
    ids = np.zeros((_PHRASES, 5), np.int64)
    for i in range(5):
        ids[:, i] = np.where(i < size, 1 + _zipf(_uniform(draws, 1 + i), _PHRASE_WORDS, 0.85, 20.0), 0)
    with_empty = np.concatenate([[0], lengths])
    return _concatenate(words, np.cumsum(with_empty) - with_empty, with_empty, ids)


def _pack(pieces: Sequence[str]) -> tuple[NDArray[np.uint8], I64, I64]:
    encoded = [piece.encode() for piece in pieces]
    lengths = np.array([len(piece) for piece in encoded], np.int64)
    return np.frombuffer(b"".join(encoded), np.uint8), np.cumsum(lengths) - lengths, lengths


def _concatenate(text: NDArray[np.uint8], starts: I64, lengths: I64, ids: I64) -> tuple[NDArray[np.uint8], I64]:
    """The bytes of all pieces of all rows, one after the other, and the length of each row."""
    sizes = lengths[ids]
    flat = sizes.ravel()
    shift = starts[ids].ravel() - (np.cumsum(flat) - flat)
    return text[np.repeat(shift, flat) + np.arange(flat.sum())], sizes.sum(axis=1)


def _zipf(uniform: NDArray[np.float64], n: int, exponent: float, shift: float) -> I64:
    """Ranks below `n` with density (rank + shift) ** -exponent, by inverting the continuous distribution."""
    power = 1.0 - exponent
    low, high = shift**power, (n + shift) ** power
    rank = (low + uniform * (high - low)) ** (1.0 / power) - shift
    ranks: I64 = np.minimum(rank.astype(np.int64), n - 1)  # rounding may reach n
    return ranks


def _key(seed: int | str) -> np.uint64:
    return np.uint64(xxhash.xxh3_64_intdigest(str(seed).encode()))


def _uniform(draws: U64, slot: int) -> NDArray[np.float64]:
    """A random number in [0, 1) for each row and slot: a hash of both, so there is no state that blocks could share."""
    bits = _mix(draws + np.uint64((slot + 1) * _GOLDEN & 0xFFFFFFFFFFFFFFFF))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(bits: U64) -> U64:
    """The finaliser of SplitMix64: every input bit moves every output bit."""
    mixed = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of ``python -m benchmarks.generate``."""
    parser = argparse.ArgumentParser(description="Write synthetic docids, one per line.")
    parser.add_argument("n", type=int, help="how many")
    parser.add_argument("path", help="file to write")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    write_docids(given.path, given.n, given.seed)


if __name__ == "__main__":
    main()
