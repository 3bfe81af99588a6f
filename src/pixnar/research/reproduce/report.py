"""A table as people read it (Markdown), as programs read it (JSON), and as a picture; the figures of the paper."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pixnar.base.errors import MissingExtraError
from pixnar.base.storage import atomic_write
from pixnar.evaluation.latency import environment
from pixnar.research.reproduce.study import Judged, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Cell = str | float | int | None
_LIBRARIES = ("pixnar", "torch", "transformers", "numpy", "onnxruntime", "bm25s", "faiss-cpu", "ir_measures")


@dataclass
class Grid:
    """Rows under columns."""

    columns: Sequence[str]
    rows: list[Sequence[Cell]] = field(default_factory=list)
    title: str = ""

    def markdown(self) -> str:
        """As Markdown."""
        lines = [f"| {' | '.join(self.columns)} |", f"|{'---|' * len(self.columns)}"]
        lines += [f"| {' | '.join(_shown(cell) for cell in row)} |" for row in self.rows]
        return "\n".join([*([f"**{self.title}**", ""] if self.title else []), *lines])


@dataclass
class StudyReport:
    """What a table says: grids, sentences, pictures, and whatever else a program may want to know."""

    name: str
    title: str
    grids: list[Grid] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    plot: Callable[[Axes], None] | None = None
    data: dict[str, Any] = field(default_factory=dict)

    def write(self, study: Study) -> None:
        """Write ``NAME.md``, ``NAME.json`` and, if there is something to see, ``NAME.png``."""
        plan, around = study.plan, environment(*_LIBRARIES)
        facts = {
            "corpus": study.name,
            "split": plan.split,
            "queries": plan.queries,
            "steps": study.steps,
            "minutes": plan.minutes if not plan.steps else None,
            "seed": plan.seed,
            "encoder": plan.encoder,
            "settings": list(plan.settings),
            "commits": sorted(study.commits),
        }
        most = f"at most {plan.queries:,} queries" if plan.queries else "all queries"
        own = f"; settings {', '.join(plan.settings)}" if plan.settings else ""
        others = ", ".join(sorted(study.commits - {around["commit"]}))
        older = f" (some figures are of {others})" if others else ""
        told = (
            f"Corpus *{study.name}*, split {plan.split}, {most}; every model of ours trained for {study.steps:,} "
            f"steps, seed {plan.seed}, encoder {plan.encoder}{own}. {around['cpu']}, {around['cores']} cores; commit "
            f"{around['commit']}{older}; {around['date'][:10]}."
        )
        notes = list(self.notes)
        if plan.split == "dev":
            notes.append(
                "Reported on dev, where settings, weights and the best step were chosen: our own rows are a little too "
                "good. `--split test` is the honest table."
            )
        parts = [f"# {self.title}", told, *(grid.markdown() for grid in self.grids)]
        if self.plot is not None:
            parts.append(f"![{self.title}]({self.name}.png)")
        parts += ["\n".join(f"- {note}" for note in notes)]
        parts.append(f"Made by `{around['command']}`.")
        with atomic_write(study.plan.out / f"{self.name}.md") as file:
            file.write(("\n\n".join(parts) + "\n").encode())
        grids = [{"title": grid.title, "columns": grid.columns, "rows": grid.rows} for grid in self.grids]
        content = {"table": self.name, "study": facts, "environment": around, "grids": grids, "notes": notes}
        with atomic_write(study.plan.out / f"{self.name}.json") as file:
            file.write(json.dumps(content | {"data": self.data}, indent=1, ensure_ascii=False).encode() + b"\n")
        if self.plot is not None:
            self._draw(study)

    def _draw(self, study: Study) -> None:
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise MissingExtraError("a plot", "plot") from error
        figure = Figure(figsize=(8.4, 4.6), layout="constrained")
        axes = figure.subplots()
        axes.spines[["top", "right"]].set_visible(False)
        assert self.plot is not None
        self.plot(axes)
        with atomic_write(study.plan.out / f"{self.name}.png") as file:
            figure.savefig(file, dpi=150, format="png")


def percent(value: float | None) -> str | None:
    """A share as the tables show it."""
    return None if value is None else f"{100 * value:.1f}"


def quality(one: Judged, names: Sequence[str]) -> list[Cell]:
    """The figures of a system, the first with its interval."""
    low, high = one.interval(names[0])
    first = f"{percent(one.figures[names[0]])} ({percent(low)}–{percent(high)})"
    return [first, *(percent(one.figures[name]) for name in names[1:])]


def better(one: Judged, than: Judged, name: str = "MRR@10") -> str:
    """How much better, in relative terms, and how sure that is."""
    base = than.figures[name]
    if not base:
        return "–"
    p = one.p_value(than, name)
    return f"{100 * (one.figures[name] / base - 1):+.1f} % (p {'< 0.001' if p < 0.001 else f'{p:.3f}'})"


def bars(axes: Axes, rows: Mapping[str, Judged], name: str, title: str) -> None:
    """A bar for each system, with its interval."""
    labels = list(rows)
    values = [100 * row.figures[name] for row in rows.values()]
    ends = [row.interval(name) for row in rows.values()]
    spread = [[abs(100 * end[side] - value) for end, value in zip(ends, values, strict=True)] for side in (0, 1)]
    axes.barh(labels, values, xerr=spread, color="#7aa6d8", error_kw={"lw": 1, "capsize": 3})
    for place, value in enumerate(values):
        axes.text(0.3, place, f"{value:.1f}", va="center", fontsize=8)
    axes.invert_yaxis()
    axes.set(xlabel=f"{name}, %", title=title)


def scatter(axes: Axes, points: Mapping[str, tuple[float, float, float]]) -> None:
    """Quality against time (mean, and a line to p99) for each system; the legend is in the order of quality."""
    marks = {"BM25": "s", "dense": "^", "hybrid": "v", "CLOVERv2": "D"}
    for place, (label, (mean, p99, value)) in enumerate(sorted(points.items(), key=lambda item: -item[1][2])):
        mark = next((mark for begin, mark in marks.items() if label.startswith(begin)), "o")
        axes.plot([mean, p99], [value, value], lw=1, color="grey", zorder=0)
        axes.plot(mean, value, mark, ms=7, color=f"C{place % 10}", label=f"{value:.1f}  {label}", ls="")
    axes.set_xscale("log")
    axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize=8, frameon=False)


def paper_grid(title: str, columns: Sequence[str], rows: dict[str, Any]) -> Grid:
    """The paper's own figures."""
    grid = Grid(columns, title=title)
    for name, values in rows.items():
        grid.rows.append((name, *(values if isinstance(values, tuple) else (values,))))
    return grid


def _shown(cell: Cell) -> str:
    if cell is None:
        return "–"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


PAPER_TABLE1 = {  # MS MARCO: R@5, R@20, R@100, MRR@10; latency on a GPU, in multiples of CLOVERv2's
    "DSI": (None, None, None, 17.3, None),
    "NCI": (None, None, None, 9.1, None),
    "SEAL": (19.8, 35.3, 57.2, 12.7, 84.3),
    "MINDER": (29.5, 53.5, 78.7, 18.6, 94.1),
    "LTRGR": (40.2, 64.5, 85.2, 25.5, 94.1),
    "CLOVERv2": (29.2, 47.7, 66.9, 18.3, 1.0),
    "PIXAR": (38.7, 61.0, 80.9, 24.0, 1.2),
}
PAPER_TABLE2 = {  # MS MARCO, 128 K tokens: MRR@10, R@5, R@20, R@100
    "word-pieces (DeBERTa)": (18.3, 29.2, 47.7, 66.9),
    "BPE": (18.7, 29.8, 48.5, 67.4),
    "Unigram": (19.0, 30.5, 49.7, 68.7),
    "phrases": (21.6, 34.7, 56.0, 77.5),
}
PAPER_TABLE3 = {  # MS MARCO: MRR@10, R@5, R@20, R@100
    "128K": (21.6, 34.7, 56.0, 77.5),
    "500K": (21.7, 34.9, 56.9, 78.6),
    "800K": (21.9, 35.2, 57.5, 79.2),
    "1M": (22.5, 35.7, 58.4, 79.6),
    "5M": (24.2, 38.5, 61.0, 81.6),
}
PAPER_TABLE4 = {  # MS MARCO, 5 M tokens, a GPU: MRR@10, R@100, mean and p99 milliseconds
    "full softmax": (24.2, 81.6, 47.9, 48.3),
    "SVD-softmax": (22.8, 78.6, 13.7, 14.3),
    "HiRE": (24.0, 81.3, 12.7, 13.2),
    "centroid clustering": (21.7, 78.2, 14.2, 17.4),
    "fast vocabulary projection": (22.6, 79.6, 9.5, 16.7),
    "PIXAR": (24.0, 80.9, 4.5, 5.0),
}
PAPER_TABLE6 = {  # MS MARCO: mean and p99 tokens per docid
    "CLOVERv2": (10.98, 18),
    "128K": (5.56, 12),
    "500K": (4.78, 11),
    "1M": (4.46, 10),
    "5M": (4.05, 9),
}
PAPER_SPONSORED = {"CLOVERv2": 23.5, "PIXAR": 29.1}  # P@100 of a billion keywords
