"""pixnar bench, demo, reproduce and shortlist: benchmarks, the demo index, the paper's tables, the sizes of lists."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from pixnar.base.progress import show_progress
from pixnar.cli.common import (
    STANDARD_OUTPUT,
    Cache,
    Command,
    JsonFile,
    SearchThreads,
    Settings,
    SkipBadRows,
    Threads,
    app,
    command_of,
    group,
    numbers,
    write_json,
)
from pixnar.cli.search import IndexPath

commands = group("bench", "Run a benchmark against the usual alternatives.")

_BENCHMARKS = {  # the first line of each one's help, so that listing them imports none
    "vocab": "Compare vocabulary builders: time, memory, tokens per docid, encoding speed.",
    "ray-build": "Vocabulary and docid table by Ray beside the plain path: same bytes, time, workers that are killed.",
    "decode": "Exact decoding and beams on generated tables: latency, recall, bytes per docid.",
    "ranking": "Measure what each element of the ranking is worth, beside BM25 and dense retrieval.",
    "softmax": "The paper's Table 4: full softmax, SVD-softmax, HiRE, clusters and the learned shortlist.",
    "search": "Whole searches: where the time goes, queries a second, memory, and baselines.",
    "serve": "Requests over HTTP: how many a second at 1, 4 and 16 clients, and what an overload does.",
    "opening": "Opening a large index: how long it takes, cold and warm, and how much memory.",
    "slopes": "How time, memory and disk of a build grow with docids, tokens and documents.",
}


class Benchmark(Command):
    """A benchmark that is imported when it is called: its command is `run` of its module."""

    def load(self) -> Any:
        """The command with its parameters."""
        name = str(self.name)
        return command_of(import_module(f"pixnar.benchmarks.{name.replace('-', '_')}").run, name)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the arguments as the benchmark declares them."""
        context = self.load().make_context(info_name, args, parent, **extra)
        if context.params.get("json_file") == STANDARD_OUTPUT:
            raise typer.BadParameter("a benchmark writes --json after every measurement: give it a file, not -")
        return context


def _stub() -> None:
    raise AssertionError("a benchmark is loaded before it is called")


for _name, _help in _BENCHMARKS.items():
    commands.command(_name, cls=Benchmark, help=_help)(_stub)


@app.command("reproduce")
def reproduce(
    tables: Annotated[
        str,
        typer.Argument(
            help="table1, table2, table3, table4, table6, phrases, examples, sponsored, several with commas, or all."
        ),
    ],
    corpus: Annotated[str, typer.Argument(help="Corpus folder, or irds:ID, with docids and a dev split.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the tables and what they are made of.")],
    budget: Annotated[
        float,
        typer.Option(
            help="Minutes of training a model; a table trains two to nine, and each is trained once for all.", min=0.01
        ),
    ] = 2.0,
    steps: Annotated[
        int,
        typer.Option(
            help="Steps a model instead of minutes: the same figures again (but for the shortlist, learned for two "
            "minutes).",
            min=0,
        ),
    ] = 0,
    split: Annotated[str, typer.Option(help="The split that is reported; choices are made on dev.")] = "dev",
    queries: Annotated[int, typer.Option(help="A sample of so many queries; 0 = all.", min=0)] = 2000,
    size: Annotated[int, typer.Option(help="Tokens of the largest phrase vocabulary.", min=514)] = 131072,
    timed: Annotated[int, typer.Option(help="Queries that are timed, one by one.", min=1)] = 200,
    tuned: Annotated[
        bool, typer.Option(help="Fine-tune dense retrieval for table1, too: encodes all docids once more.")
    ] = True,
    own_ngrams: Annotated[
        bool,
        typer.Option(
            help="Give every method of table4 the query's own n-grams, exactly scored and copied, as an index does."
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="Of training, and of docids and examples that are drawn.", min=0)] = 0,
    encoder: Annotated[str | None, typer.Option(help="Hugging Face encoder by name or folder.")] = None,
    settings: Settings = None,
    cache: Cache = None,
    skip_bad_rows: SkipBadRows = False,
    threads: SearchThreads = 2,
) -> None:
    """Make the paper's tables on your corpus: Markdown, JSON and pictures.

    Every model takes as many steps as the slowest, CLOVERv2, takes in the budget. Models and figures are kept in
    OUTPUT/work: what is there is not made again, and an interrupted run resumes.

    [bold]pixnar reproduce table2,table3 CORPUS -o tables --budget 2[/bold]   in a quarter of an hour

    [bold]pixnar reproduce all CORPUS -o tables --budget 60 --split test[/bold]   overnight
    """
    from pixnar.research.reproduce import TABLES, StudyPlan
    from pixnar.research.reproduce import reproduce as run

    names = [name.strip() for name in tables.split(",") if name.strip()]
    names = list(TABLES) if "all" in names else names
    plan = StudyPlan(
        corpus=corpus,
        out=output,
        minutes=budget,
        steps=steps,
        split=split,
        queries=queries,
        size=size,
        timed=timed,
        tuned=tuned,
        own_ngrams=own_ngrams,
        seed=seed,
        cache=cache,
        threads=threads,
        skip_bad_rows=skip_bad_rows,
        settings=tuple(settings or ()),
        **({"encoder": encoder} if encoder else {}),
    )
    with show_progress() as progress:
        made = run(names, plan, progress=progress, say=lambda line: print(line, flush=True))
    for report in made:
        print(f"\n# {report.title}\n")
        for grid in report.grids[:1]:
            print(grid.markdown())
        for note in report.notes:
            print(f"- {note}")


@app.command("shortlist")
def shortlist(
    index: IndexPath,
    corpus: Annotated[str, typer.Argument(help="The corpus it was built from: dev judges.")],
    m: Annotated[Sequence[int], numbers("Numbers of lists to make, separated by commas; none: by size.")] = (),
    r: Annotated[Sequence[int], numbers("Lengths of lists to try; none: whole, or by size.")] = (),
    k: Annotated[Sequence[int], numbers("Numbers of lists a query takes; none: those that fit tries.")] = (),
    learned: Annotated[bool, typer.Option(help="Composed score: learned lists as in the paper, too.")] = False,
    minutes: Annotated[float, typer.Option(help="Time for learning the lists of each m.")] = 2.0,
    queries: Annotated[int, typer.Option(help="Dev queries to ask.", min=1)] = 300,
    plot: Annotated[Path | None, typer.Option(help="Also draw recall and MRR against size to this PNG.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Sweep m, r and k: recall of needed tokens, MRR@10 against the full softmax, mean size of the shortlist.

    With the composed score the lists are cells of docids, as fit makes them; with the other score they are learned.
    The index needs its torch model: fit it with --set serve.keep_model=true.

    [bold]pixnar shortlist INDEX CORPUS --m 1024,4096 --plot shortlist.png[/bold]
    """
    from pixnar.pipeline.shortlist_sweep import sweep_index

    with show_progress() as progress:
        rows = sweep_index(
            index,
            corpus,
            ms=m,
            rs=r,
            ks=k,
            learned=learned,
            minutes=minutes,
            queries=queries,
            plot=plot,
            progress=progress,
        )
    print(rows.text())
    write_json(json_file, rows.to_dict())


@app.command("demo")
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to work in.")] = Path("demo"),
    minutes: Annotated[float, typer.Option(help="Most time for training the model.", min=0.01)] = 1.5,
    queries: Annotated[int, typer.Option(help="Held-out terms that are asked for the figures.", min=1)] = 500,
    threads: Threads = 0,
) -> None:
    """Build a demo index of ICD-10-CM codes, search it, and compare it with BM25, dense retrieval and hybrids.

    A second run reuses what the first one built.

    [bold]pixnar demo[/bold]   then pixnar search demo/index heart attack
    """
    from pixnar.research.demo import run_demo

    with show_progress(transient=True) as progress:
        run_demo(output, minutes=minutes, queries=queries, threads=threads, progress=progress)
