"""A few searches in plain words, and in two lines why the first hit was found."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape

from pixnar.index import Index
from pixnar.search.ranker import BM25, DENSE, DOCIDS, EXPANSION, OWN

QUERIES = (
    "sugar disease with kidney trouble",
    "stone in the kidney",
    "bitten by a dog",
    "broken wrist",
)
_SOURCES = {
    DOCIDS: "its docids",
    OWN: "words of the query",
    EXPANSION: "expected phrases",
    DENSE: "dense vectors",
    BM25: "BM25",
}
_WIDTH = 60  # of a title


def show_examples(console: Console, index: Index) -> None:
    """Ask, and tell: the two best codes of each query, the docid that speaks for the first, and what ranked it."""
    index.search(QUERIES[0], 1)  # the first query warms the encoder up
    for query in QUERIES:
        told = index.explain(query, 2)
        milliseconds = sum(told["microseconds"].values()) / 1e3
        console.print(f"  [bold]{escape(query)}[/bold]  [dim]{milliseconds:.0f} ms[/dim]")
        for place, hit in enumerate(told["hits"], 1):
            title = index.table.document(hit["doc_id"]).title
            short = title if len(title) <= _WIDTH else title[: _WIDTH - 1].rstrip() + "…"
            console.print(f"    {place}  {hit['score']:5.1f}  {escape(hit['doc_id']):<8} {escape(short)}")
            if place == 1:
                for line in why(index, hit):
                    console.print(f"              [dim]{escape(line)}[/dim]", soft_wrap=True)


def why(index: Index, hit: dict[str, Any]) -> list[str]:
    """Why a hit was found: its best docid, token by token with what each scores, and what every source adds."""
    best = hit["docids"][0]
    tokens = "".join(f"[{token} {score:.1f}]" for token, score in best["tokens"])
    lines = [f"named by {tokens}"]
    fusion = index.ranker.fusion
    if fusion is not None:
        parts = {
            source: weight * hit["sources"][source] / fusion.scales.get(source, 1.0)
            for source, weight in fusion.weights.items()
            if source in hit["sources"]
        }
        ranked = sorted(parts.items(), key=lambda part: -part[1])
        lines.append("ranked by " + " + ".join(f"{_SOURCES.get(name, name)} {part:.1f}" for name, part in ranked))
    return lines
