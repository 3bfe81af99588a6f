"""pixnar evaluate and pixnar compare: metrics of a retriever, and significance tests between runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pixnar.base.errors import PixnarError
from pixnar.base.progress import show_progress
from pixnar.base.storage import check_writable
from pixnar.cli.common import STANDARD_OUTPUT, JsonFile, SearchThreads, SkipBadRows, app, tell_skipped, write_json
from pixnar.cli.search import Beam, FullVocabulary, Sources, ranked_by, refuse

if TYPE_CHECKING:
    from pixnar.evaluation import ComparisonRow, Evaluation, Perturbation
    from pixnar.search import Retriever

Measures = Annotated[
    str, typer.Option("--measures", "-m", help="MRR@k, R@k, Hits@k, P@k, nDCG@k, separated by commas.")
]
_DEFAULT = "MRR@10,R@5,R@20,R@100"
_MISSING = {False: "they count as nothing found (--answered-only leaves them out)", True: "they are left out"}


@app.command("evaluate")
def evaluate(
    folder: Annotated[Path, typer.Argument(metavar="index", help="What pixnar fit or pixnar baseline wrote.")],
    corpus: Annotated[str, typer.Argument(help="Corpus folder, or irds:ID, with queries and qrels.")],
    split: Annotated[str, typer.Option(help="dev, test or train. Look at test once, when all is chosen.")] = "dev",
    measures: Measures = _DEFAULT,
    most: Annotated[int, typer.Option("--queries", help="A sample of so many queries; 0 = all.", min=0)] = 2000,
    k: Annotated[int, typer.Option("-k", help="Documents a query; at least what the measures need.", min=0)] = 0,
    timed: Annotated[
        int, typer.Option("--latency", help="Ask so many of the queries again, one by one, and time them.", min=0)
    ] = 0,
    run_file: Annotated[Path | None, typer.Option("--run", help="Also write the rankings in TREC form.")] = None,
    qrels_file: Annotated[
        Path | None, typer.Option("--qrels", help="Also write the judgements of these queries in TREC form.")
    ] = None,
    typos: Annotated[
        int, typer.Option(help="Character edits a query: insert, delete, replace or transpose.", min=0, max=1000)
    ] = 0,
    drop_words: Annotated[int, typer.Option(help="Words left out of a query, at random.", min=0, max=1000)] = 0,
    shuffle_words: Annotated[
        bool, typer.Option("--shuffle-words", help="Ask the words of a query in random order.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(help="Of --typos, --drop-words and --shuffle-words; default 0.", min=0)
    ] = None,
    full: FullVocabulary = False,
    sources: Sources = "all",
    beam: Beam = 0,
    spelling: Annotated[
        bool | None,
        typer.Option(
            "--spelling/--no-spelling",
            help="Correct query words by a lexicon: that of an index, else one made of the corpus, also for baselines. "
            "Default: as fit decided on dev; a baseline: no.",
            show_default=False,
        ),
    ] = None,
    skip_bad_rows: SkipBadRows = False,
    threads: SearchThreads = 2,
    json_file: JsonFile = None,
) -> None:
    """Measure an index or a baseline on the queries of a split, with 95 % intervals.

    With --typos, --drop-words or --shuffle-words queries are also asked perturbed: the figures, and the files of --run
    and --json, are then those of the perturbed queries, beside the figures without perturbation and the change.

    [bold]pixnar evaluate INDEX CORPUS --split dev --latency 200 --run dev.trec[/bold]
    [bold]pixnar evaluate INDEX CORPUS --typos 1[/bold]
    """
    from pixnar.corpus import open_corpus
    from pixnar.evaluation import Perturbation, check_ids, write_qrels, write_run
    from pixnar.evaluation import evaluate as measure
    from pixnar.evaluation.run import with_spelling

    for path in (run_file, qrels_file, json_file):
        if path is not None and path != STANDARD_OUTPUT:
            check_writable(path)
    perturbation = Perturbation(typos=typos, drop_words=drop_words, shuffle_words=shuffle_words, seed=seed or 0)
    if seed is not None and not perturbation:
        raise PixnarError("--seed means nothing without --typos, --drop-words or --shuffle-words: leave it out")
    retriever = _retriever(folder, full, sources, beam, threads)
    source = open_corpus(corpus, skip_bad_rows=skip_bad_rows)
    with show_progress() as progress:
        if spelling is not None:
            retriever = with_spelling(retriever, spelling, folder, source, progress)
        found = measure(
            retriever,
            source,
            split,
            measures=_names(measures),
            most=most,
            k=k,
            timed=timed,
            perturbation=perturbation,
            progress=progress,
        )
    _show_figures(found, perturbation)
    if found.latency:
        one = found.latency
        print(f"      ms {one.mean:.2f} mean, {one.p50:.2f} p50, {one.p99:.2f} p99 ({one.queries} queries, one by one)")
    tell_skipped(source.skipped)
    report: dict[str, Any] = {"index": str(folder), "split": split, "queries": len(found.run)}
    report |= {"beam": beam} if beam else {}
    report |= {} if spelling is None else {"spelling": spelling}
    report |= {"figures": found.figures, "intervals": found.intervals()}
    if found.unperturbed:
        report["perturbation"] = perturbation.to_dict() | {"queries_changed": found.queries_changed}
        report["unperturbed"] = {"figures": found.unperturbed.figures, "intervals": found.unperturbed.intervals()}
        report["changes"] = {name: change._asdict() for name, change in found.changes().items()}
    write_json(json_file, report | ({"latency_ms": found.latency._asdict()} if found.latency else {}))
    if run_file is not None:
        check_ids([*found.run, *(doc_id for hits in found.run.values() for doc_id, _ in hits)])
    if qrels_file is not None:
        check_ids([*found.judgements, *(doc_id for judged in found.judgements.values() for doc_id in judged)])
        write_qrels(qrels_file, found.judgements)
    if run_file is not None:
        write_run(run_file, found.run)


@app.command("compare")
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run files in TREC form; the others are held against the first.")],
    qrels: Annotated[Path, typer.Option(help="Judgements: TREC's four columns, or BEIR's three.")],
    measures: Measures = _DEFAULT,
    answered_only: Annotated[
        bool,
        typer.Option("--answered-only", help="Leave out queries that are in no run; else they count as nothing found."),
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the randomisation test and the bootstrap.", min=0)] = 0,
    json_file: JsonFile = None,
) -> None:
    """Compare runs: means, 95 % intervals, and the p-value of a paired randomisation test against the first.

    [bold]pixnar compare pixnar.trec bm25.trec --qrels dev.qrels[/bold]
    """
    from pixnar.evaluation import compare as measure
    from pixnar.evaluation import read_qrels, read_run

    if json_file is not None and json_file != STANDARD_OUTPUT:
        check_writable(json_file)
    if len(set(runs)) < len(runs):
        raise PixnarError("a run is given twice: give each once")
    short = len({path.stem for path in runs}) == len(runs)
    found = {path.stem if short else str(path): read_run(path) for path in runs}
    judged = read_qrels(qrels)
    rows = measure(found, judged, _names(measures), answered_only=answered_only, seed=seed)
    _show(rows)
    unasked = len(judged.keys() - set().union(*(run.keys() for run in found.values())))
    if unasked:
        print(f"{unasked:,} of {len(judged):,} judged queries are in no run: {_MISSING[answered_only]}")
    write_json(json_file, {"runs": [row._asdict() for row in rows]})


def _retriever(folder: Path, full: bool, sources: str, beam: int, threads: int) -> Retriever:
    """The index or baseline of a folder, opened as the options say."""
    from pixnar.evaluation.baselines import is_baseline, open_retriever
    from pixnar.index import BeamSearch, Index

    if is_baseline(folder):
        refuse(folder, {"--full": full, "--sources": None if sources == "all" else sources, "--beam": beam or None})
        return open_retriever(folder, threads=threads)
    index = Index.load(folder, shortlist=not full, sources=ranked_by(sources, beam), threads=threads)
    return BeamSearch(index, beam) if beam else index


def _show_figures(found: Evaluation, perturbation: Perturbation) -> None:
    """The mean of every measure, with its interval; of perturbed queries beside that without perturbation."""
    intervals, changes = found.intervals(), found.changes()
    if found.unperturbed:
        changed = f"{found.queries_changed:,} of {len(found.run):,} queries changed"
        print(f"with {perturbation} (seed {perturbation.seed}): {changed}")
        print(f"{'':>8} unperturbed  perturbed, 95 % interval    change")
    for name, value in found.figures.items():
        measured = f"{value:.4f}  [{intervals[name].low:.4f}, {intervals[name].high:.4f}]"
        if found.unperturbed is None:
            print(f"{name:>8} {measured}")
            continue
        change = changes[name]
        relative = "" if change.relative is None else f"{100 * change.relative:+.1f} %".replace("-", "−")
        print(f"{name:>8} {found.unperturbed.figures[name]:>11.4f}  {measured}  {relative:>9}  p {change.p_value:.4f}")


def _names(measures: str) -> list[str]:
    return [name for name in measures.split(",") if name.strip()] or _DEFAULT.split(",")


def _show(rows: list[ComparisonRow]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("run", *rows[0].figures)
    for row in rows:
        cells = []
        for name, value in row.figures.items():
            low, high = row.intervals[name]
            cell = f"{value:.4f} [dim]{low:.3f}–{high:.3f}[/dim]"
            if row.against_first is not None:
                mean, p_value = row.against_first[name]
                cell += f"\n{mean:+.4f} [dim]p {p_value:.4f}[/dim]"
            cells.append(cell)
        table.add_row(row.name, *cells)
    wide = None if sys.stdout.isatty() else 60 + 24 * len(rows[0].figures)  # a pipe has no width to keep to
    Console(width=wide).print(table)
