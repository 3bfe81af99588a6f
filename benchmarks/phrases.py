"""Phrases against word pieces on several corpora: quality and cost at equal training, with corrected p-values.

    python -m pixnar.benchmarks.phrases CORPUS … -o FOLDER --steps 600 --json phrases.json

Makes the tables `phrases`, `table3` and `table4` of `pixnar reproduce` for each corpus. Models and figures are kept in
FOLDER, so an interrupted run resumes; corpora that the JSON file already has stay in it. Everything is selected on dev,
test is asked once by each model. p-values are corrected by Holm for all tests of a table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from pixnar.benchmarks.field import corrected

from pixnar.base.storage import atomic_write
from pixnar.evaluation.latency import environment
from pixnar.recipe import Recipe
from pixnar.research.reproduce import StudyPlan, reproduce
from pixnar.research.reproduce.vocabularies import COMPOSED, PIECES, SLOTS

TABLES = ("phrases", "table3", "table4")
Row = dict[str, Any]


def tests(corpora: dict[str, dict[str, Row]]) -> dict[str, list[Row]]:
    """Every comparison of each table, with its p-value and the one that is corrected for all of its table."""
    found: dict[str, list[Row]] = {name: [] for name in TABLES}
    for corpus, tables in corpora.items():
        if rows := tables.get("phrases"):
            for label, row in rows.items():
                if row["p"] is not None:
                    score = label.rpartition(", ")[2]
                    found["phrases"].append(_test(corpus, label, row, f"{PIECES}, {score}", rows))
        if rows := tables.get("table3"):
            smallest = next(label for label, row in rows.items() if row["p"] is None)
            found["table3"] += [
                _test(corpus, label, row, smallest, rows) for label, row in rows.items() if row["p"] is not None
            ]
        if tables.get("table4"):
            methods = tables["table4"]["methods"]
            full = next(iter(methods))
            for label, row in methods.items():
                for measure, p in row["p"].items():
                    if p is not None:
                        gain = 100 * (row[measure] / methods[full][measure] - 1) if methods[full][measure] else 0.0
                        test = {"corpus": corpus, "row": label, "against": full, "measure": measure}
                        found["table4"].append(test | {"gain": gain, "p": p})
    for rows_of_table in found.values():
        for test, p in zip(rows_of_table, corrected([test["p"] for test in rows_of_table]), strict=True):
            test["corrected p"] = p
    return found


def _test(corpus: str, label: str, row: Row, against: str, rows: dict[str, Row]) -> Row:
    base, own = rows[against]["figures"]["MRR@10"], row["figures"]["MRR@10"]
    gain = 100 * (own / base - 1) if base else 0.0
    return {
        "corpus": corpus, "row": label, "against": against, "measure": "MRR@10", "gain": gain, "p": row["p"],
    }  # fmt: skip


def markdown(corpora: dict[str, dict[str, Row]], found: dict[str, list[Row]]) -> str:
    """The tables: quality and cost of phrases and word pieces, sizes of the vocabulary, softmax methods."""
    parts = []
    sure = {name: {(t["corpus"], t["row"], t["measure"]): t for t in rows} for name, rows in found.items()}
    for score in (SLOTS, COMPOSED):
        lines = []
        for corpus, tables in corpora.items():
            rows = {label: row for label, row in tables.get("phrases", {}).items() if label.endswith(f", {score}")}
            for label, row in rows.items():
                test = sure["phrases"].get((corpus, label, "MRR@10"))
                name, base = label.removesuffix(f", {score}"), rows[f"{PIECES}, {score}"]["cost"]
                shown = [f"{row['facts']['vocabulary']:,}", *_quality(row), _gain(test)]
                lines.append([corpus, name, *shown, *_cost(row["cost"], base)])
        columns = ["", score, "tokens", "MRR@10", "R@100", "MRR@10 against word pieces", "slots", "tokens per docid"]
        columns += ["postings", "ms, decoding", "faster", "ms, scoring", "table, B per docid", "rows, B per docid"]
        parts.append(_grid(columns, lines))
    lines = []
    for corpus, tables in corpora.items():
        for label, row in tables.get("table3", {}).items():
            cost, test = row["cost"], sure["table3"].get((corpus, label, "MRR@10"))
            name = f"{row['facts']['vocabulary']:,}" + ("" if label.isdigit() else f" ({label})")
            lines.append(
                [corpus, name, f"{cost['slots']}", f"{cost['tokens_per_docid']:.2f}", *_quality(row), _gain(test),
                 f"{cost['postings']:,.0f}", f"{cost['decode_ms']:.2f}"]
            )  # fmt: skip
    columns = ["", "tokens", "slots", "tokens per docid", "MRR@10", "R@100", "MRR@10 against the smallest"]
    parts.append(_grid([*columns, "postings", "ms, decoding"], lines))
    lines = []
    for corpus, tables in corpora.items():
        for label, row in tables.get("table4", {}).get("methods", {}).items():
            both = [_gain(sure["table4"].get((corpus, label, measure))) for measure in ("MRR@10", "R@100")]
            shown = [*_quality({"figures": row, "interval": row["interval"]}), *both]
            spent = [f"{row['ms']['mean']:.2f}", f"{row['ms']['p99']:.2f}", f"{row['scored']:,.0f}"]
            lines.append([corpus, label, *shown, *spent])
    columns = ["", "method", "MRR@10", "R@100", "MRR@10 against full", "R@100 against full", "mean ms", "p99 ms"]
    parts.append(_grid([*columns, "rows a slot"], lines))
    return "\n\n".join(part for part in parts if part)


def _quality(row: Row) -> list[str]:
    low, high = row["interval"]
    return [
        f"{100 * row['figures']['MRR@10']:.1f} ({100 * low:.1f}–{100 * high:.1f})",
        f"{100 * row['figures']['R@100']:.1f}",
    ]


def _cost(cost: Row, base: Row) -> list[str]:
    return [
        f"{cost['slots']}",
        f"{cost['tokens_per_docid']:.2f}",
        f"{cost['postings']:,.0f}",
        f"{cost['decode_ms']:.2f}",
        f"{base['decode_ms'] / cost['decode_ms']:.2f} ×",
        f"{cost['score_ms']:.2f}",
        f"{cost['table_bytes_per_docid']:.1f}",
        f"{cost['row_bytes_per_docid']:,.0f}",
    ]


def _gain(test: Row | None) -> str:
    return "" if test is None else f"{test['gain']:+.1f} % (p {test['corrected p']:.4f})"


def _grid(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [f"| {' | '.join(columns)} |", f"|---|---|{'---:|' * (len(columns) - 2)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def main(
    corpora: list[str],
    out: Annotated[Path, typer.Option("-o", help="Where models and figures are kept.")],
    steps: Annotated[int, typer.Option(help="Steps of training of every model.")] = 600,
    tables: Annotated[str, typer.Option(help="Tables to make, with commas.")] = ",".join(TABLES),
    split: Annotated[str, typer.Option(help="The split that is asked.")] = "test",
    queries: Annotated[int, typer.Option(help="Queries of it, at most.")] = 2000,
    size: Annotated[int, typer.Option(help="Tokens of the largest phrase vocabulary.")] = 131072,
    timed: Annotated[int, typer.Option(help="Queries that are timed.")] = 200,
    encoder: Annotated[str | None, typer.Option(help="Hugging Face encoder by name or folder.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Where vectors of texts are kept.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Settings of every recipe.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures here.")] = None,
) -> None:
    """Make the tables of each corpus, and print them together."""
    torch.set_num_threads(1)
    known = json.loads(json_file.read_bytes()) if json_file is not None and json_file.exists() else {"corpora": {}}
    found: dict[str, dict[str, Row]] = known["corpora"]
    names = [name.strip() for name in tables.split(",") if name.strip()]
    for corpus in corpora:
        name = Path(corpus).name
        plan = StudyPlan(
            corpus=corpus, out=out / name, steps=steps, split=split, queries=queries, size=size, timed=timed,
            threads=1, settings=tuple(settings or ()), cache=cache, encoder=encoder or Recipe().model.encoder,
        )  # fmt: skip
        for report in reproduce(names, plan, say=lambda line: print(line, flush=True)):
            tables_of = found.setdefault(name, {"steps": {}})
            tables_of[report.name] = report.data
            tables_of["steps"][report.name] = steps
        if json_file is not None:
            content = {"environment": environment(), "split": split, "corpora": found, "tests": tests(found)}
            with atomic_write(json_file) as file:
                file.write(json.dumps(content, indent=1, ensure_ascii=False).encode())
    print(markdown(found, tests(found)))


if __name__ == "__main__":
    typer.run(main)
