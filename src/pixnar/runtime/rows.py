"""Phrase rows in a file or in memory, and what is computed with them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pixnar import _native
from pixnar.base.errors import FileFormatError
from pixnar.base.storage import read_container, write_container
from pixnar.runtime.formats import FORMATS, Floats, Format, decode, encode, has_scales, stride_of
from pixnar.scoring import Priors, ScoreRule, own_bonus
from pixnar.scoring.rule import MATCHINGS

Ids = NDArray[np.uint32]

KIND = "headrows"
VERSION = 1
_AT_ONCE = 1 << 16  # rows converted at a time


@dataclass(frozen=True)
class Scored:
    """What `HeadRows.score` finds: the arrays of SlotScores, and the tokens to expand the query with."""

    tokens: Ids
    scores: Floats
    offsets: NDArray[np.int64]
    ends: Floats
    is_dense: bool
    expansion: Ids
    gains: Floats


class HeadRows:
    """One row of numbers per token, and maybe a bias; tokens are numbered by `places` if they lie in another order.

    >>> rows = HeadRows.build(np.eye(3, dtype=np.float32))
    >>> rows.logits(np.array([[1, 2, 3]], np.float32)).round(1).tolist()
    [[1.0, 2.0, 3.0]]
    """

    def __init__(
        self,
        data: NDArray[np.uint8],
        format: Format,
        count: int,
        dim: int,
        scales: Floats | None,
        bias: Floats | None,
        places: Ids | None,
    ) -> None:
        if format not in FORMATS:
            raise ValueError(f"phrase rows: no format {format!r}: formats are {', '.join(FORMATS)}")
        self.count, self.dim, self.format = count, dim, format
        self.stride = stride_of(format, dim)
        self.places = places  # where each token's row lies; None if at its own number
        self._data, self._scales, self._bias = data, scales, bias
        self._native = _native.HeadRows(data, format, count, dim, self.stride, scales, bias, places)

    @classmethod
    def build(
        cls, rows: Any, bias: ArrayLike | None = None, format: Format = "int8", places: ArrayLike | None = None
    ) -> HeadRows:
        """From rows [n, d], which may be any array that can be sliced; token v is put at place `places[v]`."""
        count, dim = rows.shape
        data = np.zeros((count, stride_of(format, dim)), np.uint8)
        scales = np.zeros(count, np.float32) if has_scales(format) else None
        where = None if places is None else _permutation(places, count)
        for start in range(0, count, _AT_ONCE):
            raw, some = encode(np.asarray(rows[start : start + _AT_ONCE], np.float32), format)
            at = slice(start, start + _AT_ONCE) if where is None else where[start : start + _AT_ONCE]
            data[at] = raw
            if scales is not None and some is not None:
                scales[at] = some
        biases = None
        if bias is not None:
            given = np.asarray(bias, np.float32)
            if given.shape != (count,):
                raise ValueError(f"a bias of shape {given.shape} for {count} rows")
            biases = given.copy()
            if where is not None:
                biases[where] = given
        return cls(data.ravel(), format, count, dim, scales, biases, where)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one file."""
        arrays = {name: array for name, array in self._arrays().items() if array is not None}
        meta = {"format": self.format, "rows": self.count, "d": self.dim, "stride": self.stride}
        write_container(path, KIND, VERSION, meta, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, verify: bool = True) -> HeadRows:
        """Map a file that `save` wrote; `verify` checks every byte first."""
        found = read_container(path, KIND, VERSION, verify=verify)
        try:
            format, count, dim = found.meta["format"], found.meta["rows"], found.meta["d"]
            parts = [found.arrays.get(name) for name in ("scales", "bias", "places")]
            rows = cls(found.arrays["data"], format, count, dim, *parts)
            if rows.stride != found.meta["stride"]:
                raise ValueError(f"a stride of {found.meta['stride']} bytes, not {rows.stride}")
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            why = f"its parts do not fit together: {error}"
            raise FileFormatError(f"{Path(path)} has no usable phrase rows ({why}): build them again") from error
        return rows

    def __len__(self) -> int:
        return self.count

    @property
    def bias(self) -> Floats | None:
        """The bias of every token."""
        return self._bias if self._bias is None or self.places is None else self._bias[self.places]

    @property
    def scales(self) -> Floats | None:
        """What the whole numbers of every token are multiplied with; None if rows are floats."""
        return self._scales if self._scales is None or self.places is None else self._scales[self.places]

    def numbers(self) -> NDArray[Any]:
        """The rows of all tokens as they are kept: whole numbers [count, d] of int8 rows, else floats."""
        if self.format != "int8":
            return self.decoded(slice(None))
        whole = self._data.reshape(self.count, self.stride).view(np.int8)[:, : self.dim]
        return np.ascontiguousarray(whole if self.places is None else whole[self.places])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self._arrays().values() if array is not None)

    def decoded(self, ids: ArrayLike | slice) -> Floats:
        """The rows of some tokens as floats: what the kernels multiply with."""
        tokens = np.arange(self.count)[ids] if isinstance(ids, slice) else np.asarray(ids, np.int64)
        if tokens.size and not 0 <= int(tokens.min()) <= int(tokens.max()) < self.count:
            raise ValueError(f"tokens go from {tokens.min()} to {tokens.max()}, and there are {self.count}")
        at = tokens if self.places is None else self.places[tokens]
        raw = self._data.reshape(self.count, self.stride)[at]
        return decode(raw, None if self._scales is None else self._scales[at], self.format, self.dim)

    def logits(self, x: ArrayLike, ids: ArrayLike | None = None, *, threads: int = 1) -> Floats:
        """Logits [slots, tokens] of the vectors x [slots, d]; for some tokens, or for all."""
        flat, slots = self._vectors(x)
        tokens = _ids(ids)
        size = self.count if tokens is None else len(tokens)
        return self._native.logits(flat, slots, tokens, threads).reshape(slots, size)

    def top(self, x: ArrayLike, n: int, ids: ArrayLike | None = None, *, threads: int = 1) -> list[tuple[Ids, Floats]]:
        """For every vector of x [slots, d] the n tokens with the largest logits, best first, equal ones by token.

        A token that is listed twice counts once.
        """
        flat, slots = self._vectors(x)
        return _by_slot(self._native.top(flat, slots, _ids(ids), n, threads))

    def top_each(self, x: ArrayLike, n: int, ids: Sequence[ArrayLike], *, threads: int = 1) -> list[tuple[Ids, Floats]]:
        """The same, where every vector has its own tokens to look at."""
        flat, slots = self._vectors(x)
        lists = [np.asarray(some, np.uint32) for some in ids]
        offsets = np.zeros(len(lists) + 1, np.int64)
        np.cumsum([len(some) for some in lists], out=offsets[1:])
        joined = np.concatenate([*lists, np.zeros(0, np.uint32)])
        return _by_slot(self._native.top_each(flat, slots, joined, offsets, n, threads))

    def score(
        self,
        x: ArrayLike,
        ids: ArrayLike | None,
        own: ArrayLike,
        rule: ScoreRule,
        priors: Priors,
        log_z: Floats,
        floors: Floats | None,
        *,
        expansion: int = 0,
        threads: int = 1,
    ) -> Scored:
        """The scores of one query, as QueryScorer gives them: x [s + 1, d]; the last row is the end of a docid.

        `ids` are in order, each once; None takes all tokens. `floors` are those of `scoring.floors`.
        """
        flat, _ = self._vectors(x)
        mine = np.ascontiguousarray(own, np.uint32)
        token_priors, end_priors, bonus, zs = priors.tokens, priors.ends, None, np.ascontiguousarray(log_z, np.float32)
        copy, weight, normalize = rule.copy, rule.prior_weight, rule.normalize
        if rule.score == "composed":  # x·w_v alone: the bias is taken off again, and nothing else is
            token_priors, end_priors, zs = self._token_bias, np.zeros_like(end_priors), np.zeros_like(zs)
            copy, weight, normalize = 0.0, 1.0, False
            bonus = own_bonus(mine, priors, rule)
        found = self._native.score(
            flat,
            _ids(ids),
            mine,
            MATCHINGS.index(rule.order),
            normalize,
            copy,
            weight,
            rule.scale,
            rule.ends and rule.score != "composed",
            floors,
            token_priors,
            end_priors,
            zs,
            bonus,
            expansion,
            threads,
        )
        return Scored(*found)

    @cached_property
    def _token_bias(self) -> Floats:
        """The bias of every token but the end."""
        bias = np.zeros(self.count, np.float32) if self.bias is None else self.bias
        return np.ascontiguousarray(bias[:-1])

    def docid_norms(self, table: _native.DocidTable, slots: int, *, threads: int = 1) -> Floats:
        """By docid of a table: the Euclidean norm of the sum of the rows of its first `slots` tokens."""
        return _native.docid_norms(table, self._native, slots, threads)

    def _arrays(self) -> dict[str, NDArray[Any] | None]:
        return {"data": self._data, "scales": self._scales, "bias": self._bias, "places": self.places}

    def _vectors(self, x: ArrayLike) -> tuple[Floats, int]:
        vectors = np.ascontiguousarray(x, np.float32)
        if vectors.ndim != 2 or vectors.shape[1] != self.dim:
            raise ValueError(f"vectors of shape {vectors.shape}: give [slots, {self.dim}]")
        return vectors.ravel(), len(vectors)


def union_of_lists(
    lists: Ids, chosen: ArrayLike, extra: ArrayLike, vocabulary: int, offsets: NDArray[np.int64] | None = None
) -> Ids:
    """The tokens of the chosen ones of the lists and the extra tokens, sorted, each once.

    Lists of one length are an array [m, r]. Lists of any length lie in one array, list i at offsets[i] to
    offsets[i + 1].

    >>> union_of_lists(np.array([5, 1, 2], np.uint32), [1, 0], [], 9, offsets=np.array([0, 1, 3])).tolist()
    [1, 2, 5]
    """
    if lists.ndim != (2 if offsets is None else 1):
        wanted = "[m, r]" if offsets is None else "[tokens], with offsets"
        raise ValueError(f"lists of shape {lists.shape}: give {wanted}")
    some = np.ascontiguousarray(chosen, np.int64)
    if offsets is None:
        if not lists.flags.c_contiguous:  # cut lists: those that are chosen are copied, not all
            if some.size and not -1 < int(some.min()) <= int(some.max()) < len(lists):
                raise ValueError(f"lists {some.min()} to {some.max()} are not all in 0..{len(lists) - 1}")
            lists, some = np.ascontiguousarray(lists[some]), np.arange(len(some))
        offsets = np.arange(len(lists) + 1, dtype=np.int64) * lists.shape[1]
    return _native.union_of_lists(
        np.ascontiguousarray(lists, np.uint32).ravel(),
        np.ascontiguousarray(offsets, np.int64),
        some,
        np.ascontiguousarray(extra, np.uint32),
        vocabulary,
    )


def _ids(ids: ArrayLike | None) -> Ids | None:
    if ids is None:
        return None
    given = np.asarray(ids)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise ValueError(f"token ids should be a list of whole numbers, and are {given.ndim}-dimensional {given.dtype}")
    if given.dtype != np.uint32 and given.size and not 0 <= int(given.min()) <= int(given.max()) <= 0xFFFFFFFF:
        raise ValueError(f"token ids go from {given.min()} to {given.max()}: give ids of the vocabulary")
    return np.ascontiguousarray(given, np.uint32)


def _by_slot(found: tuple[Ids, Floats, NDArray[np.int64]]) -> list[tuple[Ids, Floats]]:
    tokens, logits, offsets = found
    return [(tokens[start:end], logits[start:end]) for start, end in pairwise(offsets)]


def _permutation(places: ArrayLike, count: int) -> Ids:
    given = np.ascontiguousarray(places, np.uint32)
    if given.shape != (count,) or not np.array_equal(np.sort(given), np.arange(count)):
        raise ValueError(f"places of shape {given.shape} do not put {count} rows each at a place of its own")
    return given
