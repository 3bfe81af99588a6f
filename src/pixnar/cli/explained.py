"""An explanation of a search, for people."""

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


def show(told: dict[str, Any], console: Console | None = None) -> None:
    """What `Index.explain` tells, in the order in which it came about."""
    console = console or Console(highlight=False)
    share = told["shortlist"] / max(1, told["vocabulary"])
    console.print(f"[bold]{escape(told['query'])}[/bold]")
    if told["corrected_from"]:
        console.print(f"corrected from: {escape(told['corrected_from'])}")
    own = ", ".join(escape(token) for token in told["own"]) or "none"
    console.print(f"phrases that stand in the query: {own}")
    console.print(f"\nshortlist: {told['shortlist']:,} of {told['vocabulary']:,} tokens ({share:.1%})")
    for one in told["clusters"][:_CLUSTERS]:
        tokens = ", ".join(escape(token) for token in one["tokens"])
        console.print(f"  cluster {one['cluster']:>5}  {one['inner_product']:7.2f}  {tokens}")
    console.print("\nlikeliest tokens (slot 0 speaks for the whole docid, slot t for its t-th token):")
    for t, slot in enumerate(told["slots"][: _SLOTS + 1]):
        best = "   ".join(f"{escape(token)} {chance:.2f}" for token, chance in slot[:_TOKENS])
        console.print(f"  slot {t:>2}  {best}")
    if len(told["slots"]) > _SLOTS + 1:
        console.print(f"  … {len(told['slots']) - _SLOTS - 1} more in --json")
    expected = ", ".join(f"{escape(token)} {gain:+.1f}" for token, gain in told["expected"][:8])
    console.print(f"\nfar likelier than usual: {expected}")
    console.print("\nbest docids of all, and how many documents each names:")
    for path in told["paths"][:_PATHS]:
        console.print(f"  {path['score']:7.2f}  {_added_up(path['parts'])}  → {path['documents']:,}")
    console.print()
    console.print(_hits(told))
    spent = told["microseconds"]
    stages = "   ".join(f"{stage} {time:,.0f}" for stage, time in spent.items())
    console.print(f"\nmicroseconds: {stages}   [bold]all {sum(spent.values()):,.0f}[/bold]")


def _added_up(parts: dict[str, Any]) -> str:
    """A docid's score as the sum that it is."""
    terms = [f"{escape(token['token'])} {token['score']:.1f}" for token in parts["tokens"] if token["counts"]]
    terms += [f"end {parts['end']:.1f}"] if parts["end"] else []
    factor = "" if parts["factor"] == 1 else f" × {parts['factor']:.3f}"
    divisor = "" if parts["divisor"] == 1 else f" / {parts['divisor']:.2f}"
    return f"({' + '.join(terms)}){factor}{divisor}"


def _hits(told: dict[str, Any]) -> Table:
    sources = list(dict.fromkeys(name for hit in told["hits"] for name in hit["sources"]))
    table = Table("", "score", "document", "best docids; each token with its best score", *sources, box=None)
    for place, hit in enumerate(told["hits"], 1):
        docids = "\n".join(
            f"{one['score']:.2f}  " + " | ".join(f"{escape(token)} {score:.1f}" for token, score in one["tokens"])
            for one in hit["docids"]
        )
        docids += f"\n[dim]{_PLACED[hit['placed']]}[/dim]" if hit["placed"] else ""
        added = {part["source"]: f" → {part['score']:.2f}" for part in hit["parts"]} if told["weights"] else {}
        columns = [
            f"{hit['sources'][name]:.2f}{added.get(name, '')}" if name in hit["sources"] else "" for name in sources
        ]
        table.add_row(str(place), f"{hit['score']:.3f}", escape(hit["doc_id"]), docids, *columns)
    if told["weights"]:
        shown = [f"× {told['weights'][name]:.2f}" if name in told["weights"] else "× 0" for name in sources]
        table.add_row("", "", "", "[dim]weights, after each source is brought to one scale[/dim]", *shown)
    return table
