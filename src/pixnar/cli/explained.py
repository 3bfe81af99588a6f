"""Explanation of a search, printed for a terminal of 80 columns or more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

_SLOTS = 8  # shown; the others are in the JSON form
_TOKENS = 4
_CLUSTERS = 5
_PATHS = 5
_PLACED = {"equal": "first, because the query is one of its docids"}


def show(explanation: dict[str, Any], console: Console | None = None) -> None:
    """Print an explanation of `Index.explain`, in the order of the search."""
    console = console or Console(highlight=False)
    share = explanation["shortlist"] / max(1, explanation["vocabulary"])
    console.print(f"[bold]{escape(explanation['query'])}[/bold]")
    if explanation["corrected_from"]:
        console.print(f"corrected from: {escape(explanation['corrected_from'])}")
    console.print(f"phrases that stand in the query: {_tokens(explanation['own']) or 'none'}")
    console.print(f"\nshortlist: {explanation['shortlist']:,} of {explanation['vocabulary']:,} tokens ({share:.1%})")
    if clusters := explanation["clusters"][:_CLUSTERS]:
        console.print(
            _lines(
                (f"  cluster {cluster['cluster']:>5}", f"{cluster['inner_product']:7.2f}", _tokens(cluster["tokens"]))
                for cluster in clusters
            )
        )
    console.print("\nlikeliest tokens (slot 0 speaks for the whole docid, slot t for its t-th token):")
    slots = explanation["slots"]
    console.print(_lines((f"  slot {t:>2} ", _chances(slot)) for t, slot in enumerate(slots[: _SLOTS + 1])))
    if len(slots) > _SLOTS + 1:
        console.print(f"  … {len(slots) - _SLOTS - 1} more in --json")
    gains = ", ".join(f"{escape(token)} {gain:+.1f}" for token, gain in explanation["expected"][:8])
    console.print("\nfar likelier than usual:")
    console.print(_lines([(" ", gains)]))
    console.print("\nbest docids of all, and how many documents each names:")
    console.print(
        _lines(
            (f"  {path['score']:8.3f} =", f"{_docid_sum(path['parts'])}  → {path['documents']:,}")
            for path in explanation["paths"][:_PATHS]
        )
    )
    fused = ", value × weight / scale" if explanation["weights"] else ""
    console.print(f"\ndocuments; each score is the sum of its sources{fused}:")
    for place, hit in enumerate(explanation["hits"], 1):
        _show_hit(console, place, hit)
    spent = explanation["microseconds"]
    stages = ", ".join(f"{stage} {time:,.0f}" for stage, time in spent.items())
    console.print(f"\nmicroseconds: [bold]{sum(spent.values()):,.0f}[/bold]")
    console.print(_lines([(" ", stages)]))


def _show_hit(console: Console, place: int, hit: dict[str, Any]) -> None:
    """A document: its score, what every source adds to it, and its best docids token by token."""
    console.print(f"{place:>3}  [bold]{hit['score']:8.3f}  {escape(hit['doc_id'])}[/bold]")
    sums = Table.grid(padding=(0, 1))
    for justify in ("left", "right", "right", "right", "right", "left"):
        sums.add_column(justify=justify, no_wrap=True)
    alone = len(hit["parts"]) == 1 and hit["parts"][0]["weight"] == hit["parts"][0]["scale"] == 1
    for part in [] if alone else hit["parts"]:
        note = "" if part["known"] else "[dim]not found: the lowest value[/dim]"
        sums.add_row(
            f"       {part['source']}",
            f"{part['value']:.3f}",
            f"× {part['weight']:.3f}",
            f"/ {part['scale']:.3f}",
            f"= {part['score']:.3f}",
            note,
        )
    if len(hit["parts"]) > 1:
        sums.add_row("       sum", "", "", "", f"= {sum(part['score'] for part in hit['parts']):.3f}")
    if sums.row_count:
        console.print(sums)
    if hit["placed"]:
        console.print(f"       [dim]{_PLACED[hit['placed']]}[/dim]")
    document = hit["document"]
    if document and document["others"]:
        others = document["docids"] - 1
        console.print(
            f"       docids {document['score']:.3f} = best {document['best']:.3f} + {document['others']:.3f} "
            f"from {others:,} other{'s' * (others != 1)}"
        )
    console.print(_lines((f"       {one['score']:8.3f} =", _docid_sum(one["parts"])) for one in hit["docids"]))


def _lines(rows: Iterable[tuple[str, ...]]) -> Table:
    """Rows of a grid whose last column takes what is left of the line and wraps inside it."""
    grid = Table.grid(padding=(0, 1))
    for cells in rows:
        if not grid.columns:
            for _ in cells[:-1]:
                grid.add_column(no_wrap=True)
            grid.add_column(overflow="fold")
        grid.add_row(*cells)
    return grid


def _tokens(tokens: Iterable[str]) -> str:
    return ", ".join(escape(token) for token in tokens)


def _chances(slot: list[list[Any]]) -> str:
    """The likeliest tokens of a slot with their probabilities; of those that round to nothing only the first."""
    likely = [part for part in slot[:_TOKENS] if part[1] >= 0.005] or slot[:1]
    return ", ".join(f"{escape(token)} {chance:.2f}" for token, chance in likely)


def _docid_sum(parts: dict[str, Any]) -> str:
    """A docid's score as the sum that it is."""
    terms = [f"{escape(token['token'])} {token['score']:.3f}" for token in parts["tokens"] if token["counts"]]
    terms += [f"end {parts['end']:.3f}"] if parts["end"] else []
    factor = "" if parts["factor"] == 1 else f" × {parts['factor']:.4f}"
    divisor = "" if parts["divisor"] == 1 else f" / {parts['divisor']:.3f}"
    return f"({' + '.join(terms)}){factor}{divisor}"
