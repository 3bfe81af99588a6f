"""Put the tables of several corpora together: a page of results, from what `pixnar reproduce` wrote.

    python tools/make_results.py benchmarks/results/reproduce docs/results-probability.md

The folder has one folder per corpus with the JSON files of its tables. What stands in the page outside the marked
parts, the reading of the tables, is left as it is.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

Tables = dict[str, dict[str, Any]]  # by corpus


def main(folder: Path, page: Path) -> None:
    """Write each part between its markers."""
    text = page.read_text()
    for name, make in PARTS.items():
        tables = {path.parent.name: json.loads(path.read_bytes()) for path in sorted(folder.glob(f"*/{name}.json"))}
        if tables:
            marked = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
            parts = re.split(marked, text, flags=re.DOTALL)  # before, first marker, last marker, after
            found = (len(parts) - 1) // 3
            if found != 1:
                sys.exit(f"{page} has {found} parts for {name}: there must be one, <!-- {name} --> … <!-- end -->")
            text = parts[0] + parts[1] + make(tables) + "\n" + parts[2] + parts[3]
    page.write_text(text)


def grid(columns: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(columns)} |", f"|---|{'---:|' * (len(columns) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def made_by(tables: Tables) -> str:
    """How long the models trained, and where."""
    steps = {corpus: one["study"]["steps"] for corpus, one in tables.items()}
    told = ", ".join(f"{corpus} {count:,}" for corpus, count in steps.items())
    first = next(iter(tables.values()))
    split = ", ".join(sorted({one["study"]["split"] for one in tables.values()}))
    machines: dict[str, list[str]] = {}
    for corpus, one in tables.items():
        machines.setdefault(one["environment"]["cpu"], []).append(corpus)
    where = "; ".join(cpu if len(machines) == 1 else f"{cpu}: {', '.join(names)}" for cpu, names in machines.items())
    return f"Split {split}; steps of training: {told}; seed {first['study']['seed']}; {where}."


def percents(value: float) -> str:
    """As the tables show it."""
    return f"{100 * value:.1f}"


def by_label(tables: Tables, cell: Any) -> str:
    """Rows of `data` against corpora."""
    labels: dict[str, None] = {}
    for one in tables.values():
        labels |= dict.fromkeys(one["data"])
    rows = [
        [label, *(cell(one["data"][label]) if label in one["data"] else "–" for one in tables.values())]
        for label in labels
    ]
    return grid(["", *tables], rows)


def quality(row: dict[str, Any]) -> str:
    """MRR@10 and R@100."""
    return f"{percents(row['figures']['MRR@10'])} / {percents(row['figures']['R@100'])}"


def table1(tables: Tables) -> str:
    """All systems: quality, then latency."""
    times = by_label(tables, lambda row: f"{row['latency_ms']['mean']:.1f} / {row['latency_ms']['p99']:.1f}")
    return "\n\n".join(
        [made_by(tables), "MRR@10 / R@100:", by_label(tables, quality), "Milliseconds, mean / p99:", times]
    )


def table2(tables: Tables) -> str:
    """Kinds of vocabulary."""
    sizes = by_label(tables, lambda row: f"{row['facts']['vocabulary']:,} / {row['facts']['tokens_per_docid']:.2f}")
    return "\n\n".join(
        [made_by(tables), "MRR@10 / R@100:", by_label(tables, quality), "Tokens / tokens per docid:", sizes]
    )


def table3(tables: Tables) -> str:
    """Sizes: a row each, corpus by corpus."""
    rows = []
    for corpus, one in tables.items():
        for size, row in one["data"].items():
            facts, kind = row["facts"], "" if size.isdigit() else " (word-pieces)"
            told = [percents(row["figures"][name]) for name in ("MRR@10", "R@5", "R@20", "R@100")]
            rows.append([corpus, f"{facts['vocabulary']:,}{kind}", f"{facts['tokens_per_docid']:.2f}", *told])
    columns = ["", "tokens", "tokens per docid", "MRR@10", "R@5", "R@20", "R@100"]
    return f"{made_by(tables)}\n\n{grid(columns, rows)}"


def table4(tables: Tables) -> str:
    """Ways to a large softmax."""
    whole = {corpus: {**one, "data": one["data"]["methods"]} for corpus, one in tables.items()}

    def cell(row: dict[str, Any]) -> str:
        return (
            f"{percents(row['MRR@10'])} / {percents(row['R@100'])} / {row['ms']['mean']:.2f} / {row['ms']['p99']:.2f}"
        )

    return "\n\n".join([made_by(tables), "MRR@10 / R@100 / mean ms / p99 ms:", by_label(whole, cell)])


def table6(tables: Tables) -> str:
    """Lengths in tokens, corpus by corpus, and words of what is generated."""
    rows, words = [], []
    for corpus, one in tables.items():
        counts = one["data"].pop("words")
        rows += [
            [corpus, label, f"{row['tokens']:,}", f"{row['mean']:.2f}", str(row["p99"])]
            for label, row in one["data"].items()
        ]
        for model, histogram in counts.items():
            mean = sum(n * count for n, count in enumerate(histogram)) / sum(histogram)
            words.append([corpus, model, f"{mean:.2f}", percents(sum(histogram[:3]) / sum(histogram))])
    lengths = grid(["", "vocabulary", "tokens", "mean tokens per docid", "p99"], rows)
    return f"{lengths}\n\n{grid(['', 'model', 'words of a generated docid', 'one or two words, %'], words)}"


def phrases(tables: Tables) -> str:
    """Phrases against word pieces, under either score: quality, then cost."""
    spent = by_label(
        tables,
        lambda row: (
            f"{row['cost']['tokens_per_docid']:.2f} / {row['cost']['postings']:,.0f} / {row['cost']['decode_ms']:.2f}"
        ),
    )
    costs = "Tokens per docid / postings of a query / ms of exact decoding:"
    return "\n\n".join([made_by(tables), "MRR@10 / R@100:", by_label(tables, quality), costs, spent])


def sponsored(tables: Tables) -> str:
    """Query to keyword."""

    def cell(row: dict[str, Any]) -> str:
        return f"{100 * row['figures']['P@100']:.2f} / {percents(row['figures']['R@100'])}"

    return "\n\n".join([made_by(tables), "P@100 / R@100:", by_label(tables, cell)])


PARTS = {
    "table1": table1, "table2": table2, "table3": table3, "table4": table4, "table6": table6, "phrases": phrases,
    "sponsored": sponsored
}  # fmt: skip

if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
