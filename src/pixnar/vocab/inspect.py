"""What a vocabulary looks like: sizes, lengths, the longest and most used phrases, a segmentation to look at."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from pixnar.base.errors import MissingExtraError
from pixnar.vocab.protocol import Counts, TargetVocabulary, mean_length

_COLORS = ("on blue", "on dark_green", "on dark_magenta", "on grey37", "on dark_red")
_BARS = " ▏▎▍▌▋▊▉█"


class VocabularyInspection(NamedTuple):
    """Figures of one vocabulary. Lengths are tokens per docid of the build; None where they are not known."""

    kind: str
    size: int
    meta: dict[str, Any]
    mean_length: float | None
    p50_length: int | None
    p99_length: int | None
    lengths: list[int]  # docids with 0, 1, 2 … tokens
    words_per_token: list[int]  # tokens with 0 (pieces, markers), 1, 2 … words
    top: list[tuple[str, int]]  # most used phrases of two and more words
    top_tokens: list[tuple[str, int]]


def inspect(vocabulary: TargetVocabulary, *, top: int = 20) -> VocabularyInspection:
    """Collect the figures of `vocabulary`, with the `top` most used tokens and phrases.

    >>> from pixnar import Vocabulary
    >>> inspect(Vocabulary.build(["new york", "new york pizza"], min_count=2)).top
    [('new york', 2)]
    """
    tokens = [vocabulary.token(v) for v in range(len(vocabulary))]
    words = [_words(token) for token in tokens]
    counts = vocabulary.token_counts
    order = np.argsort(counts, kind="stable")[::-1].tolist()
    used = [v for v in order if counts[v] > 0]
    lengths = vocabulary.docid_lengths
    known = bool(lengths.any())
    return VocabularyInspection(
        kind=vocabulary.kind,
        size=len(vocabulary),
        meta=dict(getattr(vocabulary, "meta", {})),
        mean_length=mean_length(lengths) if known else None,
        p50_length=_quantile(lengths, 0.5) if known else None,
        p99_length=_quantile(lengths, 0.99) if known else None,
        lengths=lengths.tolist(),
        words_per_token=np.bincount(words).tolist() if words else [],
        top=[(tokens[v], int(counts[v])) for v in used if words[v] > 1][:top],
        top_tokens=[(tokens[v], int(counts[v])) for v in used[:top]],
    )


def render(found: VocabularyInspection, vocabulary: TargetVocabulary, samples: Sequence[str]) -> RenderableType:
    """The figures as tables and bars for a terminal, with `samples` cut into their tokens."""
    facts = Table(show_header=False, box=None)
    facts.add_row("kind", found.kind)
    facts.add_row("tokens", f"{found.size:,}")
    for key in ("docids", "words", "min_count", "max_words", "weighted", "punctuation"):
        if key in found.meta:
            value = found.meta[key]
            facts.add_row(key.replace("_", "-"), f"{value:,}" if type(value) is int else str(value))
    if found.mean_length is not None:
        facts.add_row(
            "tokens per docid", f"mean {found.mean_length:.2f}, p50 {found.p50_length}, p99 {found.p99_length}"
        )
    parts: list[RenderableType] = [facts]
    parts += [Text("\nwords per token (0 = pieces, bytes, markers)"), _bar_table(found.words_per_token)]
    if found.mean_length is not None:
        parts += [Text("\ndocids by number of tokens"), _bar_table(found.lengths[: (found.p99_length or 0) + 1])]
    if found.top:
        phrases = Table("phrase", "uses", title="most used phrases", title_justify="left", box=None)
        for phrase, uses in found.top:
            phrases.add_row(Text(phrase), f"{uses:,}")
        parts += [Text(), phrases]
    if samples:
        parts.append(Text("\nsegmentation"))
        parts += [segmentation(vocabulary, sample) for sample in samples]
    return Group(*parts)


def segmentation(vocabulary: TargetVocabulary, text: str) -> Text:
    """A text with its token borders shown: ``[free night][s]``, coloured where colours are."""
    out = Text("  ")
    for i, v in enumerate(vocabulary.encode(text)):
        out.append(f"[{vocabulary.token(int(v))}]", style=_COLORS[i % len(_COLORS)])
    return out


def show(found: VocabularyInspection, vocabulary: TargetVocabulary, samples: Sequence[str]) -> None:
    """Print the figures to standard output."""
    Console(highlight=False).print(render(found, vocabulary, samples))


def plot(found: VocabularyInspection, path: str | os.PathLike[str]) -> None:
    """Draw words per token and tokens per docid side by side and save the picture."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("a plot", "plot") from error
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    bars = left.bar(range(len(found.words_per_token)), found.words_per_token, color="#3b6ea8")
    left.bar_label(bars, fmt="{:,.0f}", fontsize=7)
    left.set(xlabel="words per token (0: pieces and bytes)", ylabel="tokens", title=f"{found.size:,} tokens by length")
    left.set_xticks(range(len(found.words_per_token)))
    if found.mean_length is not None and found.p99_length is not None:
        shown = found.lengths[: found.p99_length + 4]
        right.bar(range(len(shown)), shown, color="#b8643c")
        right.axvline(found.mean_length, color="black", lw=1, label=f"mean {found.mean_length:.2f}")
        right.axvline(found.p99_length, color="black", lw=1, ls=":", label=f"p99 {found.p99_length}")
        right.legend()
    right.set(xlabel="tokens per docid", ylabel="docids", title="Docids by number of tokens")
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(os.fspath(path), dpi=150, format="png")


def _words(token: str) -> int:
    if token.startswith("##") or not any(c.isalnum() for c in token) or (token[0] == "<" and token[-1] == ">"):
        return 0
    return len(token.replace("▁", " ").replace("Ġ", " ").split())


def _quantile(histogram: Counts, q: float) -> int:
    return int(np.searchsorted(np.cumsum(histogram), q * float(histogram.sum())))


def _bar_table(values: Sequence[int], width: int = 40) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    most = max(values, default=0) or 1
    for i, value in enumerate(values):
        eighths = round(8 * width * value / most)
        bar = "█" * (eighths // 8) + _BARS[eighths % 8].strip()
        table.add_row(f"{i:>4}", f"{value:>12,}", bar)
    return table
