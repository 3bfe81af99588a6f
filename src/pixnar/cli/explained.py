"""Explanation of a search, printed for a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

_SLOTS = 8  # shown; the others are in the JSON form
_TOKENS = 4
_CLUSTERS = 5
_PATHS = 5
_PLACED = {"equal": "the query is its docid: first"}


def show(explanation: dict[str, Any], console: Console | None = None) -> None:
    """Print an explanation of `Index.explain`, in the order of the search."""
    console = console or Console(highlight=False)
    share = explanation["shortlist"] / max(1, explanation["vocabulary"])
    console.print(f"[bold]{escape(explanation['query'])}[/bold]")
    if explanation["corrected_from"]:
        console.print(f"corrected from: {escape(explanation['corrected_from'])}")
    own = ", ".join(escape(token) for token in explanation["own"]) or "none"
    console.print(f"phrases that stand in the query: {own}")
    console.print(f"\nshortlist: {explanation['shortlist']:,} of {explanation['vocabulary']:,} tokens ({share:.1%})")
    for one in explanation["clusters"][:_CLUSTERS]:
        tokens = ", ".join(escape(token) for token in one["tokens"])
        console.print(f"  cluster {one['cluster']:>5}  {one['inner_product']:7.2f}  {tokens}")
    console.print("\nlikeliest tokens (slot 0 speaks for the whole docid, slot t for its t-th token):")
    for t, slot in enumerate(explanation["slots"][: _SLOTS + 1]):
        best = "   ".join(f"{escape(token)} {chance:.2f}" for token, chance in slot[:_TOKENS])
        console.print(f"  slot {t:>2}  {best}")
    if len(explanation["slots"]) > _SLOTS + 1:
        console.print(f"  … {len(explanation['slots']) - _SLOTS - 1} more in --json")
    expected = ", ".join(f"{escape(token)} {gain:+.1f}" for token, gain in explanation["expected"][:8])
    console.print(f"\nfar likelier than usual: {expected}")
    console.print("\nbest docids of all, and how many documents each names:")
    for path in explanation["paths"][:_PATHS]:
        console.print(f"  {path['score']:7.2f}  {_added_up(path['parts'])}  → {path['documents']:,}")
    console.print()
    console.print(_hits(explanation))
    spent = explanation["microseconds"]
    stages = "   ".join(f"{stage} {time:,.0f}" for stage, time in spent.items())
    console.print(f"\nmicroseconds: {stages}   [bold]all {sum(spent.values()):,.0f}[/bold]")


def _added_up(parts: dict[str, Any]) -> str:
    """A docid's score as the sum that it is."""
    terms = [f"{escape(token['token'])} {token['score']:.1f}" for token in parts["tokens"] if token["counts"]]
    terms += [f"end {parts['end']:.1f}"] if parts["end"] else []
    factor = "" if parts["factor"] == 1 else f" × {parts['factor']:.3f}"
    divisor = "" if parts["divisor"] == 1 else f" / {parts['divisor']:.2f}"
    return f"({' + '.join(terms)}){factor}{divisor}"


def _hits(explanation: dict[str, Any]) -> Table:
    sources = list(dict.fromkeys(name for hit in explanation["hits"] for name in hit["sources"]))
    table = Table("", "score", "document", "best docids; each token with its best score", *sources, box=None)
    for place, hit in enumerate(explanation["hits"], 1):
        docids = "\n".join(
            f"{one['score']:.2f}  " + " | ".join(f"{escape(token)} {score:.1f}" for token, score in one["tokens"])
            for one in hit["docids"]
        )
        docids += f"\n[dim]{_PLACED[hit['placed']]}[/dim]" if hit["placed"] else ""
        added = {part["source"]: f" → {part['score']:.2f}" for part in hit["parts"]} if explanation["weights"] else {}
        columns = [
            f"{hit['sources'][name]:.2f}{added.get(name, '')}" if name in hit["sources"] else "" for name in sources
        ]
        table.add_row(str(place), f"{hit['score']:.3f}", escape(hit["doc_id"]), docids, *columns)
    if explanation["weights"]:
        shown = [
            f"× {explanation['weights'][name]:.2f}" if name in explanation["weights"] else "× 0" for name in sources
        ]
        table.add_row("", "", "", "[dim]weights, after each source is brought to one scale[/dim]", *shown)
    return table
