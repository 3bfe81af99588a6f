"""Draw how a search goes, with the real numbers of one query: docs/images/pipeline.png and .svg, from a demo index.

python tools/make_pipeline_picture.py demo/index docs/images/pipeline --query "bitten by a dog"
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.transforms import Bbox
from tokenizers import Tokenizer

from pixnar.fusion.fuse import DENSE, DOCIDS, EXPANSION, LEXICAL, TEXT
from pixnar.index import Index

INK, PALE, BLUE, ORANGE, GREEN, VIOLET = "#222222", "#8a8a8a", "#3b6ea8", "#b8643c", "#4c8c4a", "#8a5a9e"
PANEL, LINE = "#f6f5f2", "#d9d6ce"
SOURCES = {
    DOCIDS: ("docids", GREEN),
    LEXICAL: ("words of the query", ORANGE),
    EXPANSION: ("expected phrases", VIOLET),
    DENSE: ("dense vectors of docids", BLUE),
    TEXT: ("vectors of the text", "#6aa6c8"),
}
WIDTH, HEIGHT = 15.0, 8.8
_TOKENS, _CLUSTERS, _HITS, _SLOTS = 9, 4, 4, 5
_GENERATED = 9
_TIMES = 20  # asked, for the time it takes when nothing else is going on


def main() -> None:
    """Ask one query and draw what happens to it."""
    mpl.rcParams |= {"font.family": "DejaVu Sans", "font.size": 9.5, "text.color": INK, "svg.hashsalt": "pixnar"}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("output", type=Path, help="without .png or .svg")
    parser.add_argument("--query", default="bitten by a dog")
    given = parser.parse_args()
    figure = draw(Index.load(given.index, threads=1), given.query)
    figure.savefig(given.output.with_suffix(".png"), dpi=130, metadata={"Software": None})
    figure.savefig(given.output.with_suffix(".svg"), metadata={"Date": None})


def draw(index: Index, query: str) -> Figure:
    """The whole picture."""
    told = min((index.explain(query, _HITS) for _ in range(_TIMES)), key=lambda one: sum(one["microseconds"].values()))
    figure = Figure(figsize=(WIDTH, HEIGHT), facecolor="white")
    page = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(0, HEIGHT))
    page.axis("off")
    page.text(0.3, HEIGHT - 0.42, f"How “{query}” is found", size=17, weight="bold", va="center")
    spent = sum(told["microseconds"].values()) / 1e3
    facts = f"{len(index):,} documents, {told['vocabulary']:,} phrases, {spent:.0f} ms on one thread"
    page.text(WIDTH - 0.3, HEIGHT - 0.42, facts, size=10, ha="right", va="center", color=PALE)
    top, low, tall = 4.5, 0.3, 3.6
    boxes = {
        "query": (0.3, top, 2.25),
        "encoder": (2.95, top, 2.2),
        "slots": (5.55, top, 4.35),
        "shortlist": (10.3, top, 4.4),
        "scores": (10.3, low, 4.4),
        "trie": (4.9, low, 5.0),
        "documents": (0.3, low, 4.2),
    }
    panels = {name: _panel(page, x, y, wide, tall) for name, (x, y, wide) in boxes.items()}
    asked = index.queries([query])[0]
    _query(panels["query"], index, query)
    _encoder(figure, panels["encoder"], asked.pooled)
    _slots(figure, panels["slots"], asked.x, told)
    _shortlist(panels["shortlist"], told)
    _scores(figure, panels["scores"], told, _worth(index, asked))
    _trie(panels["trie"], index, query)
    _documents(figure, panels["documents"], index, told)
    for start, end in (("query", "encoder"), ("encoder", "slots"), ("slots", "shortlist")):
        _arrow(page, (panels[start].x1, top + 1.8), (panels[end].x0, top + 1.8))
    _arrow(page, (panels["shortlist"].x0 + 2.2, top), (panels["scores"].x0 + 2.2, low + tall))
    for start, end in (("scores", "trie"), ("trie", "documents")):
        _arrow(page, (panels[start].x0, low + 1.8), (panels[end].x1, low + 1.8))
    return figure


class Panel:
    """A part of the page, in inches."""

    def __init__(self, page: Axes, box: Bbox) -> None:
        self.page, self.box = page, box
        self.x0, self.x1, self.y0, self.y1 = box.x0, box.x1, box.y0, box.y1

    def title(self, number: int, name: str, line: str) -> None:
        """What happens here, in a word and in a line or two."""
        self.page.text(self.x0 + 0.15, self.y1 - 0.26, f"{number}  {name}", size=12, weight="bold", va="center")
        self.text(0.15, 0.47, line, color="#555555", va="top", linespacing=1.35, size=9)

    def text(self, x: float, down: float, text: str, **style: Any) -> None:
        """A text, so many inches from the left and from above."""
        self.page.text(self.x0 + x, self.y1 - down, text, **style)

    def inside(self, figure: Figure, left: float, down: float, wide: float, tall: float) -> Axes:
        """Axes within, without a frame."""
        place = ((self.x0 + left) / WIDTH, (self.y1 - down - tall) / HEIGHT, wide / WIDTH, tall / HEIGHT)
        axes = figure.add_axes(place)
        axes.set_facecolor("none")
        axes.tick_params(length=0)
        for side in axes.spines.values():
            side.set_visible(False)
        return axes


def _panel(page: Axes, x: float, y: float, wide: float, tall: float) -> Panel:
    shape = FancyBboxPatch(
        (x, y), wide, tall, boxstyle="round,pad=0,rounding_size=0.12", facecolor=PANEL, edgecolor=LINE, lw=1
    )
    page.add_patch(shape)
    return Panel(page, Bbox.from_bounds(x, y, wide, tall))


def _arrow(page: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    page.add_patch(
        FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=18, lw=2.2, color=INK, shrinkA=2, shrinkB=2)
    )


def _chip(panel: Panel, x: float, down: float, text: str, color: str, **style: Any) -> None:
    box = {"boxstyle": "round,pad=0.28", "facecolor": "white", "edgecolor": color, "lw": 1.1}
    panel.text(x, down, text, bbox=box, va="center", **({"size": 9.5} | style))


def _query(panel: Panel, index: Index, query: str) -> None:
    panel.title(1, "query", "spelling corrected, then cut into\nthe encoder's word pieces")
    pieces = Tokenizer.from_file(str(index.folder / "encoder" / "tokenizer.json")).encode(query).tokens
    panel.text(panel.box.width / 2, 1.25, f"“{query}”", ha="center", va="center", size=11.5, weight="bold")
    for i, piece in enumerate(pieces[:7]):
        special = piece.startswith("[")
        _chip(panel, panel.box.width / 2, 1.66 + 0.29 * i, piece, PALE if special else BLUE, ha="center", size=8.5)


def _encoder(figure: Figure, panel: Panel, pooled: np.ndarray[Any, Any]) -> None:
    panel.title(2, "encoder", "a transformer, asked once:\nthe query becomes one\nvector")
    size = len(pooled)
    columns = 16
    axes = panel.inside(figure, 0.3, 1.25, panel.box.width - 0.6, 1.85)
    axes.set(xticks=[], yticks=[])
    grid = np.full(-(-size // columns) * columns, np.nan)
    grid[:size] = pooled
    far = float(np.abs(pooled).max()) * 0.7
    axes.imshow(grid.reshape(-1, columns).T, aspect="auto", cmap="RdBu_r", vmin=-far, vmax=far, interpolation="nearest")
    panel.text(panel.box.width / 2, 3.3, f"h: {size} numbers", ha="center", va="center", size=9.5)


def _slots(figure: Figure, panel: Panel, x: np.ndarray[Any, Any], told: dict[str, Any]) -> None:
    last = len(x) - 1
    panel.title(
        3,
        "slots",
        f"a small network makes {last + 1} vectors of h, all at once: $x_0$ for the\n"
        f"docid as a whole, $x_1$ … $x_{{{last}}}$ for its 1st … {last}th token",
    )
    shown = [*range(_SLOTS - 1), last]
    far = float(np.abs(x).max()) * 0.5
    panel.text(panel.box.width - 0.15, 1.2, "likeliest phrases", ha="right", color="#555555", size=8.5, style="italic")
    for i, t in enumerate(shown):
        down = 1.36 + 0.42 * i + (0.12 if t == last else 0.0)
        panel.text(0.15, down + 0.14, f"$x_{{{t}}}$", va="center", size=11)
        axes = panel.inside(figure, 0.5, down, 1.25, 0.28)
        axes.set(xticks=[], yticks=[])
        axes.imshow(x[t][None, :96], aspect="auto", cmap="RdBu_r", vmin=-far, vmax=far, interpolation="nearest")
        likely = "   ".join(
            f"{_short(token.replace('⏹', '(end)'), 19)} {chance:.2f}" for token, chance in told["slots"][t][:2]
        )
        panel.text(panel.box.width - 0.15, down + 0.14, likely, va="center", ha="right", size=8.5)
    panel.text(0.26, 1.36 + 0.42 * (_SLOTS - 1) + 0.02, "⋮", ha="center", va="center", size=10)


def _shortlist(panel: Panel, told: dict[str, Any]) -> None:
    used = len(told["clusters"])
    panel.title(
        4,
        "cells → shortlist",
        f"$x_0$ picks the {used} nearest cells of similar docids; only their\n"
        "phrases, and those of the query, are scored",
    )
    for i, cluster in enumerate(told["clusters"][:_CLUSTERS]):
        down = 1.3 + 0.34 * i
        _chip(panel, 0.25, down, f"{cluster['cluster']}", GREEN, size=8.5)
        panel.text(0.85, down, _joined(cluster["tokens"], 54), va="center", size=8.5)
    if used > _CLUSTERS:
        panel.text(
            0.85, 1.3 + 0.34 * _CLUSTERS - 0.05, f"… and {used - _CLUSTERS} more", va="center", size=8.5, color=PALE
        )
    wide, share = panel.box.width - 0.5, told["shortlist"] / told["vocabulary"]
    bottom = panel.y0 + 0.36
    for length, color in ((wide, LINE), (wide * share, GREEN)):
        panel.page.add_patch(
            FancyBboxPatch(
                (panel.x0 + 0.25, bottom), length, 0.14, boxstyle="round,pad=0,rounding_size=0.05", color=color, lw=0
            )
        )
    text = f"{told['shortlist']:,} of {told['vocabulary']:,} phrases ({share:.0%})"
    panel.text(0.25, panel.box.height - 0.62, text, size=9, va="center")


def _worth(index: Index, asked: Any) -> dict[str, float]:
    """What each token of the shortlist scores at its best slot."""
    scores = index.ranker.scored(asked)
    worth: dict[str, float] = {}
    for v, score in zip(scores.tokens.tolist(), scores.scores.tolist(), strict=True):
        name = index.table.vocabulary.token(v)
        worth[name] = max(score, worth.get(name, score))
    return worth


def _scores(figure: Figure, panel: Panel, told: dict[str, Any], worth: dict[str, float]) -> None:
    panel.title(
        5,
        "scores",
        "how much better $x_0$ fits a phrase than an average query does;\n"
        "phrases in the query get a bonus. All others: the floor, 0",
    )
    best = sorted(worth.items(), key=lambda item: -item[1])[:_TOKENS]
    axes = panel.inside(figure, 2.0, 1.1, panel.box.width - 2.5, 2.15)
    own = set(told["own"])
    colors = [ORANGE if token in own else BLUE for token, _ in best]
    axes.barh(range(len(best)), [score for _, score in best], color=colors, height=0.68)
    axes.set(xticks=[], ylim=(len(best) - 0.5, -0.5))
    axes.set_yticks(range(len(best)), [_short(token, 26) for token, _ in best], size=8.5)
    for i, (_, score) in enumerate(best):
        axes.text(score + 0.1, i, f"{score:.1f}", va="center", size=8.5)
    for i, (color, name) in enumerate(((ORANGE, "stands in the query"), (BLUE, "expected by the model"))):
        panel.text(0.2 + 1.75 * i, 3.42, "■", color=color, va="center", size=9)
        panel.text(0.37 + 1.75 * i, 3.42, name, va="center", size=8.5)


def _trie(panel: Panel, index: Index, query: str) -> None:
    panel.title(
        6,
        "decoding",
        "only docids that exist can come out; the best of them are found\n"
        "exactly. Scores of tokens add up, divided by the length of the\ndocid's vector",
    )
    found = index.generate(query, _GENERATED)
    best = found[0].score
    rows = sorted(
        found, key=lambda one: (-max(o.score for o in found if o.tokens[0] == one.tokens[0]), one.tokens[0], -one.score)
    )
    deep = 3
    step = 2.25 / len(rows)
    columns = [0.8, 2.6]
    parents: dict[str, float] = {}
    panel.page.plot(panel.x0 + 0.2, panel.y1 - 1.22 - step * (len(rows) - 1) / 2, "o", color=INK, ms=6, zorder=4)
    for i, one in enumerate(rows):
        down = 1.22 + step * i
        strong = one.score == best
        color = GREEN if strong else PALE
        first, *rest = one.tokens
        ink = {
            "color": INK if strong else "#666666",
            "size": 8.5,
            "va": "center",
            "weight": "bold" if strong else "normal",
        }
        if first not in parents:
            parents[first] = down
            panel.text(columns[0], down, _short(first, 22), **ink)
            _edge(panel, (0.2, 1.22 + step * (len(rows) - 1) / 2), (columns[0] - 0.04, down), color, strong)
        x = columns[1]
        _edge(
            panel,
            (columns[0] + (0.074 if strong else 0.066) * min(len(first), 22) + 0.05, parents[first]),
            (x - 0.04, down),
            color,
            strong,
        )
        shown = rest if len(rest) < deep else [*rest[: deep - 1], "…"]
        panel.text(x, down, _short(" → ".join(shown), 22) or "(end)", **ink)
        named = ", ".join(one.documents[:2]) + (" …" if len(one.documents) > 2 else "")
        panel.text(panel.box.width - 0.55, down, named, ha="right", **ink)
        panel.text(panel.box.width - 0.15, down, f"{one.score:.1f}", ha="right", **ink)


def _edge(panel: Panel, start: tuple[float, float], end: tuple[float, float], color: str, strong: bool) -> None:
    (x, down), (to, below) = start, end
    middle = (x + to) / 2
    ts = np.linspace(0, 1, 30)
    across = (1 - ts) ** 3 * x + 3 * (1 - ts) ** 2 * ts * middle + 3 * (1 - ts) * ts**2 * middle + ts**3 * to
    along = (1 - ts) ** 3 * down + 3 * (1 - ts) ** 2 * ts * down + 3 * (1 - ts) * ts**2 * below + ts**3 * below
    panel.page.plot(
        panel.x0 + across,
        panel.y1 - along,
        color=color,
        lw=2.0 if strong else 0.9,
        solid_capstyle="round",
        zorder=1 + strong,
    )


def _documents(figure: Figure, panel: Panel, index: Index, told: dict[str, Any]) -> None:
    hits, fusion = told["hits"], index.ranker.fusion
    panel.title(7, "documents", "ranked by a weighted sum of the sources;\nweights are selected on the dev split")
    axes = panel.inside(figure, 0.15, 1.05, panel.box.width - 0.65, 2.05)
    axes.set(xticks=[], yticks=[], ylim=(len(hits) - 0.4, -0.6))
    parts: dict[str, float] = {DOCIDS: 1.0} if fusion is None else dict(fusion.weights)
    order = [name for name in SOURCES if name in parts]
    for i, hit in enumerate(hits):
        left = 0.0
        for name in order:
            scale = 1.0 if fusion is None else fusion.scales.get(name, 1.0)
            value = parts[name] * hit["sources"].get(name, 0.0) / scale
            axes.barh(i + 0.18, value, left=left, color=SOURCES[name][1], height=0.3)
            left += value
        axes.text(left + 0.1, i + 0.18, f"{hit['score']:.1f}", va="center", size=9)
        title = _short(index.table.document(hit["doc_id"]).title, 48)
        axes.text(0, i - 0.2, hit["doc_id"], size=9, weight="bold", va="center")
        axes.text(0.62 / (panel.box.width - 0.65) * axes.get_xlim()[1], i - 0.2, title, size=9, va="center")
    x = 0.15
    for name in order:
        label, color = SOURCES[name]
        panel.text(x, 3.38, "■", color=color, va="center", size=9)
        panel.text(x + 0.16, 3.38, label, va="center", size=8.5)
        x += 0.3 + 0.078 * len(label)


def _joined(tokens: list[str], most: int) -> str:
    """As many as there is room for."""
    kept = [tokens[0]]
    for token in tokens[1:]:
        if len(", ".join([*kept, token])) > most:
            break
        kept.append(token)
    return _short(", ".join(kept), most) + (" …" if len(kept) < len(tokens) else "")


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


if __name__ == "__main__":
    main()
