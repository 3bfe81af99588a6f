"""Table 5: what the two models say, token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pixnar.evaluation.queries import read_queries
from pixnar.research.reproduce.report import Grid, Report
from pixnar.research.reproduce.study import Study
from pixnar.search.hits import Generated

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EXAMPLES = 8
DOCIDS = 4
_COLORS = ("#cfe3ff", "#ffe0c2")
_WIDE = 92  # letters of 8 points that fit into half of a picture of 13 inches


def examples(study: Study) -> Report:
    """The best docids of some dev queries by PIXNAR and by CLOVERv2, with the borders of their tokens."""
    study.expect(2)
    pieces, phrases = study.opened(study.word_pieces()), study.opened(study.phrases(study.plan.size))
    dev = read_queries(study.corpus, "dev", study.plan.queries)
    picked = np.random.default_rng(study.plan.seed).permutation(len(dev))[:EXAMPLES]
    texts = [dev.texts[i] for i in sorted(picked.tolist())]
    made = {text: (phrases.generate(text, DOCIDS), pieces.generate(text, DOCIDS)) for text in texts}
    grid = Grid(["query", "PIXNAR", "CLOVERv2"])
    for text, columns in made.items():
        grid.rows.append((_escaped(text), *("<br>".join(map(_borders, column)) for column in columns)))

    def plot(axes: Axes) -> None:
        axes.figure.set_size_inches(13, 0.27 * sum(DOCIDS + 2 for _ in made) + 0.5)  # type: ignore[union-attr]
        axes.set_axis_off()
        axes.set(xlim=(0, 2 * _WIDE + 2), ylim=(-len(made) * (DOCIDS + 2), 1))
        line = 0
        for text, columns in made.items():
            axes.text(0, -line, text, fontsize=9, fontweight="bold", family="monospace", parse_math=False)
            for side, column in enumerate(columns):
                for row, one in enumerate(column, 1):
                    _draw(axes, one, side * (_WIDE + 2), -line - row)
            line += DOCIDS + 2
        axes.text(0, 0.9, "PIXNAR", fontsize=9, color="grey")
        axes.text(_WIDE + 2, 0.9, "CLOVERv2", fontsize=9, color="grey")

    told = {text: [[one._asdict() for one in column] for column in columns] for text, columns in made.items()}
    return Report(
        "examples",
        "Table 5: docids that are generated, and the tokens they are made of",
        [grid],
        [f"{EXAMPLES} dev queries drawn with seed {study.plan.seed}, not chosen; borders are where tokens end."],
        plot,
        {"examples": told},
    )


def _borders(one: Generated) -> str:
    return " ".join(f"`{token.replace('`', chr(0x2BC)).replace('|', '∣')}`" for token in one.tokens)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _draw(axes: Axes, one: Generated, x: float, y: float) -> None:
    end = x + _WIDE
    for i, token in enumerate(one.tokens):
        shown = token if x + len(token) <= end else token[: max(0, int(end - x) - 1)] + "…"
        axes.text(
            x, y, shown, fontsize=8, family="monospace", parse_math=False,
            bbox={"facecolor": _COLORS[i % 2], "edgecolor": "none", "pad": 1.2},
        )  # fmt: skip
        x += len(shown) + 1.2
        if x >= end:
            break
