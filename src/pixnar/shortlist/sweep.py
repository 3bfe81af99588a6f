"""What m, r and k cost and bring: which needed tokens a shortlist holds, how long it is, how well it ranks."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pixnar.errors import MissingExtraError
from pixnar.progress import Progress
from pixnar.shortlist.lists import Floats, Ids, Shortlist, token_lists
from pixnar.storage import atomic_write

DIRECT = "direct top-K by x_0"
KMEANS = "k-means only"
LEARNED = "learned"


class Chooser(Protocol):
    """Whatever gives the tokens to score for a query."""

    def tokens(self, x0: ArrayLike, extra: ArrayLike | None = None) -> Ids:
        """The tokens, sorted, each once."""
        ...


Quality = Callable[[Chooser], float]
Cost = Callable[[Chooser], float]


@dataclass(frozen=True)
class Row:
    """One way to choose tokens; what is not known or does not apply is None."""

    kind: str
    m: int | None
    r: int | None
    k: int | None
    recall: float  # mean share of a query's needed tokens that are in its shortlist
    size: float  # mean number of tokens
    share: float  # of the vocabulary
    quality: float | None = None
    lost: float | None = None  # quality of the full softmax minus this one
    ms: float | None = None  # mean time to choose the tokens of a query and score them


@dataclass(frozen=True)
class Direct:
    """The exact best tokens of the whole vocabulary by x_0·w + b: what lists try to reach, at the price of all rows."""

    rows: Any
    bias: Any
    size: int

    def tokens(self, x0: ArrayLike, extra: ArrayLike | None = None) -> Ids:
        """The `size` best tokens, without the end token, and `extra`."""
        found = token_lists(np.asarray(x0)[None], self.rows, self.bias, self.size)[0]
        return np.unique(found if extra is None else np.concatenate([found, np.asarray(extra, dtype=np.uint32)]))


def sweep(
    x0: Floats,
    needed: Sequence[ArrayLike],
    vectors: Iterable[tuple[str, Floats]],
    rows: Any,
    bias: Any,
    *,
    r: Sequence[int],
    k: Sequence[int],
    direct: Sequence[int] | None = None,
    extra: Sequence[ArrayLike] | None = None,
    quality: Quality | None = None,
    full: float | None = None,
    cost: Cost | None = None,
    progress: Progress | None = None,
) -> list[Row]:
    """A row for each of `vectors` (a kind, e.g. `LEARNED`, and its c [m, d]; several m are several entries), r and k.

    `needed` are the tokens each query x_0 should find and `extra` those it brings itself. `rows` and `bias` are the
    head's, the end token last. `direct` are the sizes to show the exact top-K at; without it, those the lists came to.
    `quality` measures a shortlist (MRR@10, say), `full` is what scoring every token reaches; `cost` takes its time.
    """
    queries = _Queries(x0, needed, extra, len(rows) - 1)
    found: list[Row] = []
    for number, (kind, c) in enumerate(vectors):
        for one in _cuts(c, rows, bias, r, k):
            made = (kind, len(c), one.lists.shape[1], one.k)
            found.append(_judged(queries.row(one, *made), one, quality, full, cost))
            if progress is not None:
                progress("sweep", len(found), (number + 1) * len(r) * len(k))
    for size in sorted({round(row.size) for row in found} if direct is None else set(direct)):
        exact = Direct(rows, bias, max(1, size))
        found.append(_judged(queries.row(exact, DIRECT, None, None, None), exact, quality, full, None))
    return found


def _cuts(c: Floats, rows: Any, bias: Any, rs: Sequence[int], ks: Sequence[int]) -> Iterator[Shortlist]:
    """A shortlist for each different r and k that fit; the lists, best token first, are made once."""
    longest = Shortlist(c, token_lists(c, rows, bias, max(rs)), 1)
    for r in sorted({min(r, longest.lists.shape[1]) for r in rs}):
        for k in sorted({min(k, len(c)) for k in ks}):
            yield longest.cut(r, k)


class _Queries:
    """The queries and what each needs; the end token, always scored, is not counted."""

    def __init__(
        self, x0: Floats, needed: Sequence[ArrayLike], extra: Sequence[ArrayLike] | None, vocabulary: int
    ) -> None:
        if len(x0) != len(needed) or not len(x0) or (extra is not None and len(extra) != len(x0)):
            raise ValueError(f"a sweep needs tokens for each of its {len(x0)} queries, at least one")
        ids = [np.unique(np.asarray(tokens, dtype=np.int64)) for tokens in needed]
        self._needed = [tokens[(tokens >= 0) & (tokens < vocabulary)] for tokens in ids]
        self._x0, self._extra, self._vocabulary = x0, extra, vocabulary

    def row(self, chooser: Chooser, kind: str, m: int | None, r: int | None, k: int | None) -> Row:
        shares: list[float] = []
        sizes: list[int] = []
        for number, (x0, needed) in enumerate(zip(self._x0, self._needed, strict=True)):
            tokens = chooser.tokens(x0, None if self._extra is None else self._extra[number])
            sizes.append(len(tokens))
            if len(needed):
                shares.append(float(_inside(needed, tokens).mean()))
        size = float(np.mean(sizes))
        recall = float(np.mean(shares)) if shares else 1.0
        return Row(kind, m, r, k, recall, size, size / self._vocabulary)


def _inside(needed: NDArray[np.int64], tokens: Ids) -> NDArray[np.bool_]:
    places = np.minimum(np.searchsorted(tokens, needed.astype(np.uint32)), len(tokens) - 1)
    inside: NDArray[np.bool_] = tokens[places] == needed
    return inside


def _judged(row: Row, chooser: Chooser, quality: Quality | None, full: float | None, cost: Cost | None) -> Row:
    if cost is not None:
        row = dataclasses.replace(row, ms=cost(chooser))
    if quality is None:
        return row
    value = float(quality(chooser))
    return dataclasses.replace(row, quality=value, lost=None if full is None else full - value)


def table(rows: Sequence[Row]) -> str:
    """The rows as text, one line each."""
    names = f"{'recall':>7} {'size':>9} {'of V':>7} {'quality':>8} {'lost':>7} {'ms':>7}"
    lines = [f"{'':20} {'m':>6} {'r':>7} {'k':>3} {names}"]
    for row in rows:
        made = " ".join(f"{_shown(value):>{width}}" for value, width in ((row.m, 6), (row.r, 7), (row.k, 3)))
        gains = f"{_shown(row.quality):>8} {_shown(row.lost):>7} {'-' if row.ms is None else f'{row.ms:.2f}':>7}"
        lines.append(f"{row.kind:20} {made} {row.recall:7.1%} {row.size:9,.0f} {row.share:7.2%} {gains}")
    return "\n".join(lines)


def plot(rows: Sequence[Row], path: str | os.PathLike[str], full: float | None = None) -> None:
    """Recall and quality against the mean length of the shortlist, and quality against time, as a PNG picture."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("a plot", "plot") from error
    ranked = [row for row in rows if row.quality is not None]
    timed = [row for row in ranked if row.ms is not None]
    panels = 1 + bool(ranked) + bool(timed)
    figure = Figure(figsize=(5.2 * panels, 4), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    _curves(axes[0], [(row, row.recall) for row in rows], "recall of needed tokens")
    if ranked:
        _curves(axes[1], [(row, row.quality or 0.0) for row in ranked], "quality")
    if timed:
        _curves(axes[2], [(row, row.quality or 0.0) for row in timed], "quality", "ms to choose and score", "ms")
    for axis in axes[1:] if full is not None else ():
        axis.axhline(full, color="black", lw=1, ls=":", label="every token")
    for axis in axes:
        axis.legend(fontsize=7)
    with atomic_write(path) as file:
        figure.savefig(file, dpi=150, format="png")


def _curves(
    axis: Any,
    points: Sequence[tuple[Row, float]],
    what: str,
    against: str = "mean tokens in the shortlist",
    by: str = "size",
) -> None:
    """One line for each kind, m and k."""
    groups: dict[tuple[str, int | None, int | None], list[tuple[float, float]]] = {}
    for row, value in points:
        groups.setdefault((row.kind, row.m, row.k), []).append((getattr(row, by), value))
    for (kind, m, k), values in groups.items():
        label = kind if m is None else f"{kind}, m = {m:,}, k = {k}"
        style = {"color": "black"} if kind == DIRECT else {"ls": "--"} if kind == KMEANS else {}
        axis.plot(*zip(*sorted(values), strict=True), marker="o", ms=3, lw=1, label=label, **style)
    axis.set(xlabel=against, ylabel=what, xscale="log")
    axis.spines[["top", "right"]].set_visible(False)


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
