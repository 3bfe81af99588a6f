"""What a table looks like: how much there is, what it takes on disk, how long docids are, a few to look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from pixnar.table.journal import Tokens
from pixnar.table.table import DocidTable

SLOTS = (8, 16, 32)
_SHOWN_DOCUMENTS = 3
_PARTS = {
    "docids": "docids and whom they name",
    "index": "index",
    "spellings": "spellings",
    "documents": "documents",
}


class Sample(NamedTuple):
    """A docid to look at."""

    text: str  # as it was written, or else in its normal form
    tokens: list[str]
    documents: list[str]


class TableInspection(NamedTuple):
    """Figures of one table; docids, pairs by length and bytes as it was built, documents and pairs as they are now."""

    path: str
    docids: int
    pairs: int
    documents: int
    vocabulary: int
    mean_tokens: float
    p99_tokens: int
    longest: int
    longer: dict[int, int]  # by number of slots: docids with more tokens
    bytes: dict[str, int]
    added: int
    removed: int
    samples: list[Sample]


def inspect(table: DocidTable, *, slots: Sequence[int] = SLOTS, top: int = 0) -> TableInspection:
    """Collect the figures of a table, with `top` docids from all over it."""
    lengths = table.lengths
    docids = sum(count for _, count in lengths)
    added, removed = table.changes
    below, p99 = 0, 0
    for tokens, count in lengths:
        if below < 0.99 * docids:
            p99 = tokens
        below += count
    return TableInspection(
        path=str(table.path or ""),
        docids=docids,
        pairs=table.pairs,
        documents=table.documents,
        vocabulary=table.vocab_size,
        mean_tokens=sum(tokens * count for tokens, count in lengths) / max(docids, 1),
        p99_tokens=p99,
        longest=lengths[-1].tokens if lengths else 0,
        longer={n: sum(count for tokens, count in lengths if tokens > n) for n in slots},
        bytes=table.sizes,
        added=added,
        removed=removed,
        samples=[_sample(table, tokens) for tokens in _spread(table, top)],
    )


def render(found: TableInspection) -> RenderableType:
    """The figures for a terminal."""
    facts = Table(show_header=False, box=None, pad_edge=False)
    facts.add_row("docids", f"{found.docids:,}" + (" before the changes" if found.added or found.removed else ""))
    facts.add_row("pairs", f"{found.pairs:,} of a docid and a document that it names")
    facts.add_row("documents", f"{found.documents:,}")
    facts.add_row("vocabulary", f"{found.vocabulary:,} tokens")
    facts.add_row(
        "tokens per docid", f"mean {found.mean_tokens:.2f}, p99 {found.p99_tokens}, longest {found.longest:,}"
    )
    for slots, count in found.longer.items():
        only = f" ({_percent(count, found.docids)}), with {slots} slots matched on their first {slots} only"
        facts.add_row(f"more than {slots} tokens", f"{count:,}{only if count else ''}")
    if found.added or found.removed:
        facts.add_row(
            "changes", f"{found.added:,} pairs added, {found.removed:,} removed; fold them in: pixnar compact"
        )
    sizes = Table("on disk", "bytes", "per docid", box=None, pad_edge=False)
    for column in sizes.columns[1:]:
        column.justify = "right"
    for part, size in [*found.bytes.items(), ("sum", sum(found.bytes.values()))]:
        sizes.add_row(_PARTS.get(part, part), f"{size:,}", f"{size / max(found.docids, 1):.1f}")
    parts: list[RenderableType] = [facts, Text(), sizes]
    if found.samples:
        parts.append(Text("\nsome docids, their tokens, and whom they name"))
    for sample in found.samples:
        names = ", ".join(sample.documents[:_SHOWN_DOCUMENTS])
        more = len(sample.documents) - _SHOWN_DOCUMENTS
        line = Text("  ").append(sample.text, style="bold")
        line.append("  ").append("".join(f"[{token}]" for token in sample.tokens), style="cyan")
        parts.append(line.append(f"  {names}" + (f" and {more:,} more" if more > 0 else "")))
    return Group(*parts)


def show(found: TableInspection) -> None:
    """Print the figures to standard output."""
    Console(highlight=False, soft_wrap=True).print(render(found))


def as_json(found: TableInspection) -> dict[str, Any]:
    """The figures for a file."""
    return found._asdict() | {"samples": [sample._asdict() for sample in found.samples]}


def _spread(table: DocidTable, top: int) -> list[Tokens]:
    """Docids of equal distance from each other; removed ones are left out."""
    large = table.snapshot().table
    step = max(large.rows // top, 1) if top else large.rows + 1
    rows = list(range(step // 2, large.rows, step))[:top]
    found = [tuple(large.tokens(row).tolist()) for row in rows]
    return [tokens for tokens in found if table.named(tokens)]


def _sample(table: DocidTable, tokens: Tokens) -> Sample:
    vocabulary = table.vocabulary
    text = table.spelling(tokens) or vocabulary.decode(list(tokens))
    return Sample(text, [vocabulary.token(v) for v in tokens], table.named(tokens))


def _percent(part: int, whole: int) -> str:
    share = 100 * part / max(whole, 1)
    return f"{share:.1f} %" if share >= 0.1 else "less than 0.1 %"
