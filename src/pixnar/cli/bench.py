"""pixnar bench: benchmarks against the usual alternatives."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pixnar.base.storage import atomic_write
from pixnar.cli.common import JsonFile, Threads, group, numbers, write_json

commands = group("bench", "Run a benchmark against the usual alternatives.")


@commands.command("vocab")
def vocab(
    corpora: Annotated[list[str] | None, typer.Argument(help="Corpus folders or docid files.")] = None,
    sizes: Annotated[str, typer.Option(help="Vocabulary sizes, separated by commas.")] = "32768,131072",
    min_counts: Annotated[str, typer.Option(help="min-counts to try, separated by commas; 0 = the default.")] = "0",
    punctuation: Annotated[str, typer.Option(help="Forms of --punctuation to try, separated by commas.")] = "leading",
    generated: Annotated[int, typer.Option(help="Also this many generated docids.", min=0)] = 0,
    generated_size: Annotated[int, typer.Option(help="Vocabulary size for the generated docids.")] = 1_000_000,
    rivals: Annotated[bool, typer.Option(help="Also BPE, Unigram and sentencepiece, on the corpora.")] = True,
    time_limit: Annotated[float, typer.Option(help="Seconds a method may take.")] = 1800.0,
    threads: Threads = 0,
    json_file: JsonFile = None,
    markdown: Annotated[Path | None, typer.Option(help="Also write the table as Markdown to this file.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again what the JSON file has already.")] = False,
) -> None:
    """Compare vocabulary builders: time, memory, tokens per docid, encoding speed.

    [bold]pixnar bench vocab CORPUS --sizes 32768,131072[/bold]
    """
    from pixnar.benchmarks import vocab as benchmark
    from pixnar.vocab.phrases import PUNCTUATION

    forms = [form for form in PUNCTUATION if form in punctuation.split(",")]
    if len(forms) != len(punctuation.split(",")):
        raise typer.BadParameter(f"--punctuation {punctuation!r} is no list of {', '.join(PUNCTUATION)}")
    results = benchmark.run(
        corpora or [],
        sizes=numbers(sizes, "--sizes"),
        min_counts=[n or None for n in numbers(min_counts, "--min-counts")],
        punctuation=forms,
        generated=generated,
        generated_size=generated_size,
        rivals=rivals,
        time_limit=time_limit,
        threads=threads,
        out=json_file,
        fresh=fresh,
    )
    if markdown is not None:
        with atomic_write(markdown) as file:
            file.write(benchmark.markdown(results).encode())


@commands.command("ray-build")
def ray_build(
    docids: Annotated[int, typer.Option(help="Generated docids.", min=1)] = 300_000,
    size: Annotated[int, typer.Option(help="Vocabulary size.")] = 32_768,
    workers: Annotated[str, typer.Option(help="Numbers of workers, separated by commas.")] = "1,2,4",
    kills: Annotated[int, typer.Option(help="Workers to kill in the middle of their jobs.", min=0)] = 20,
    repeats: Annotated[int, typer.Option(help="Builds of each kind; the best time counts.", min=1)] = 2,
    seed: Annotated[int, typer.Option(help="Chooses docids, and when workers die.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Vocabulary and docid table by Ray beside the plain path: same bytes, time, workers that are killed.

    [bold]pixnar bench ray-build --docids 300000 --workers 1,2,4 --kills 20[/bold]
    """
    from pixnar.benchmarks import ray_build as benchmark

    benchmark.run(
        docids,
        size=size,
        workers=numbers(workers, "--workers"),
        kills=kills,
        repeats=repeats,
        seed=seed,
        out=json_file,
    )


@commands.command("decode")
def decode(
    docids: Annotated[str, typer.Option(help="Sizes of the generated tables, separated by commas.")] = "1e6,1e7",
    queries: Annotated[int, typer.Option(help="Queries of each kind.", min=1)] = 200,
    slots: Annotated[int, typer.Option(help="Slots of a query.", min=1, max=32)] = 8,
    candidates: Annotated[int, typer.Option(help="Tokens with a score in each slot.", min=1)] = 1000,
    k: Annotated[str, typer.Option("--k", help="Results wanted, separated by commas.")] = "10,100",
    beams: Annotated[str, typer.Option(help="Widths of the beam, separated by commas.")] = "10,100",
    repeats: Annotated[int, typer.Option(help="Times every query is asked; its best time counts.", min=1)] = 3,
    seed: Annotated[int, typer.Option(help="Chooses the queries.")] = 0,
    folder: Annotated[Path | None, typer.Option(help="Keep the generated tables here and reuse them.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Exact decoding and beams on generated tables: latency, recall, bytes per docid.

    [bold]pixnar bench decode --docids 1e6 --queries 50[/bold]
    """
    from pixnar.benchmarks import decode as benchmark

    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    benchmark.run(
        _sizes(docids, "--docids"),
        queries=queries,
        slots=slots,
        candidates=candidates,
        ks=numbers(k, "--k"),
        beams=numbers(beams, "--beams"),
        repeats=repeats,
        seed=seed,
        folder=folder,
        out=json_file,
    )


@commands.command("ranking")
def ranking(
    corpora: Annotated[list[str], typer.Argument(help="Corpus folders with a dev split.")],
    steps: Annotated[int, typer.Option(help="Steps of every training run.", min=1)] = 500,
    queries: Annotated[int, typer.Option(help="Dev queries: a sample of so many.", min=1)] = 1000,
    size: Annotated[int, typer.Option(help="Most tokens of the phrase vocabulary.", min=512)] = 131072,
    seed: Annotated[int, typer.Option(help="Of the training runs.")] = 0,
    cache: Annotated[Path | None, typer.Option(help="Where vectors of texts are kept between runs.")] = None,
    wordpiece: Annotated[bool, typer.Option(help="Also word-piece targets at equal steps.")] = True,
    json_file: JsonFile = None,
) -> None:
    """What each element of the ranking is worth, from the paper's recipe on, beside BM25 and dense retrieval.

    [bold]pixnar bench ranking CORPUS --steps 500 --json ranking.json[/bold]
    """
    from pixnar.benchmarks import ranking as benchmark
    from pixnar.pipeline.run import default_cache

    benchmark.run(
        corpora,
        steps=steps,
        queries=queries,
        cache=cache or default_cache(),
        size=size,
        seed=seed,
        out=json_file,
        wordpiece=wordpiece,
    )


@commands.command("softmax")
def softmax(
    index: Annotated[Path | None, typer.Option(help="A trained index, for quality; needs --corpus.")] = None,
    corpus: Annotated[str | None, typer.Option(help="The corpus of the index: its dev split judges.")] = None,
    tokens: Annotated[str, typer.Option(help="Sizes of synthetic heads, separated by commas, or none.")] = "128e3,1e6",
    widths: Annotated[str, typer.Option(help="Numbers per row of synthetic heads, separated by commas.")] = "384",
    best: Annotated[int, typer.Option(help="Best tokens wanted in each slot.", min=1)] = 1000,
    queries: Annotated[int, typer.Option(help="Queries.", min=1)] = 100,
    slots: Annotated[int, typer.Option(help="Slots of a query of a synthetic head.", min=1, max=32)] = 8,
    repeats: Annotated[int, typer.Option(help="Times every query is asked; its best time counts.", min=1)] = 3,
    seed: Annotated[int, typer.Option(help="Of synthetic heads and of clusters.")] = 0,
    json_file: JsonFile = None,
    plot: Annotated[Path | None, typer.Option(help="Draw quality or agreement against latency to this PNG.")] = None,
) -> None:
    """The paper's Table 4: full softmax, SVD-softmax, HiRE, clusters and the learned shortlist, side by side.

    [bold]pixnar bench softmax --index INDEX --corpus CORPUS --tokens ""[/bold]  quality and latency of a trained index

    [bold]pixnar bench softmax --tokens 5e6 --widths 768[/bold]  latency and memory, as large as the paper's
    """
    from pixnar.benchmarks import softmax as benchmark

    if (index is None) != (corpus is None):
        raise typer.BadParameter("--index and --corpus belong together: give both, or neither")
    sizes = _sizes(tokens, "--tokens") if tokens.strip() else []
    benchmark.run(
        [(str(index), corpus)] if index is not None and corpus is not None else [],
        [(size, width) for size in sizes for width in numbers(widths, "--widths")],
        best=best,
        queries=queries,
        slots=slots,
        repeats=repeats,
        seed=seed,
        out=json_file,
        plot=plot,
    )


@commands.command("search")
def search(
    index: Annotated[Path, typer.Argument(help="Index to measure.")],
    corpus: Annotated[str, typer.Argument(help="Its corpus, with a dev split.")],
    wordpiece: Annotated[
        Path | None, typer.Option(help="An index with word-piece targets (vocab.kind = wordpiece) to compare with.")
    ] = None,
    queries: Annotated[int, typer.Option(help="Dev queries.", min=1)] = 1000,
    repeats: Annotated[int, typer.Option(help="Times every query is asked; its best time counts.", min=1)] = 2,
    k: Annotated[int, typer.Option("-k", help="Documents wanted.", min=1)] = 10,
    seconds: Annotated[float, typer.Option(help="Seconds for each number of callers.", min=0.1)] = 3.0,
    rivals: Annotated[bool, typer.Option(help="Also BM25 (bm25s) and dense retrieval (faiss).")] = True,
    json_file: JsonFile = None,
) -> None:
    """Whole searches: where the time goes, queries a second, memory, and what one would use instead.

    [bold]pixnar bench search INDEX CORPUS --wordpiece INDEX2 --json search.json[/bold]
    """
    from pixnar.benchmarks import search as benchmark

    benchmark.run(
        str(index),
        corpus,
        wordpiece=None if wordpiece is None else str(wordpiece),
        queries=queries,
        repeats=repeats,
        k=k,
        seconds=seconds,
        rivals=rivals,
        out=json_file,
    )


@commands.command("serve")
def serve(
    index: Annotated[Path, typer.Argument(help="Index to serve.")],
    corpus: Annotated[str, typer.Argument(help="Its corpus, with a dev split.")],
    seconds: Annotated[float, typer.Option(help="Seconds for each number of clients.", min=0.1)] = 10.0,
    soak: Annotated[float, typer.Option(help="Seconds of twice what the machine can hold; 0 = none.", min=0)] = 30.0,
    queries: Annotated[int, typer.Option(help="Dev queries that are asked again and again.", min=1)] = 500,
    seed: Annotated[int, typer.Option(help="Of the order of requests.", min=0)] = 0,
    json_file: JsonFile = None,
) -> None:
    """Requests over HTTP: how many a second at 1, 4 and 16 clients, and what an overload does.

    [bold]pixnar bench serve INDEX CORPUS --soak 600 --json serve.json[/bold]
    """
    from pixnar.benchmarks import serve as benchmark

    write_json(json_file, benchmark.run(index, corpus, seconds=seconds, soak=soak, queries=queries, seed=seed))


@commands.command("opening")
def opening(
    tokens: Annotated[str, typer.Option(help="Tokens of the synthetic index.")] = "5e6",
    docids: Annotated[str, typer.Option(help="Docids of the synthetic index.")] = "1e7",
    documents: Annotated[str, typer.Option(help="Documents they name.")] = "1e6",
    dimensions: Annotated[int, typer.Option(help="Numbers per row.", min=1)] = 384,
    encoder_of: Annotated[Path | None, typer.Option(help="Lend the encoder of this index, to open all of one.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Keep the synthetic index here and reuse it.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Opening a large index: how long it takes, cold and warm, and how much memory.

    [bold]pixnar bench opening --tokens 5e6 --docids 1e7[/bold]
    """
    from pixnar.benchmarks import opening as benchmark

    benchmark.run(
        tokens=_sizes(tokens, "--tokens")[0],
        docids=_sizes(docids, "--docids")[0],
        documents=_sizes(documents, "--documents")[0],
        dimensions=dimensions,
        encoder_of=encoder_of,
        folder=folder,
        out=json_file,
    )


@commands.command("slopes")
def slopes(
    docids: Annotated[str, typer.Option(help="Numbers of docids, separated by commas.")] = "2.5e5,5e5,1e6,2e6",
    tokens: Annotated[str, typer.Option(help="Sizes of the vocabulary at the most docids.")] = "3e4,1e5,3e5",
    documents: Annotated[str, typer.Option(help="Numbers of documents with a text.")] = "5e4,1e5,2e5",
    repeats: Annotated[int, typer.Option(help="Times every cell is measured; the best counts.", min=1)] = 2,
    threads: Threads = 1,
    folder: Annotated[Path | None, typer.Option(help="Keep the generated corpora here and reuse them.")] = None,
    json_file: JsonFile = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the figures and their laws to this PNG.")] = None,
) -> None:
    """How time, memory and disk of a build grow with docids, tokens and documents.

    [bold]pixnar bench slopes --docids 1e6,2e6,4e6,8e6 --json slopes.json --plot slopes.png[/bold]
    """
    from pixnar.benchmarks import slopes as benchmark

    benchmark.run(
        _sizes(docids, "--docids"),
        _sizes(tokens, "--tokens"),
        _sizes(documents, "--documents"),
        threads=threads,
        repeats=repeats,
        folder=folder,
        out=json_file,
        plot=plot,
    )


def _sizes(text: str, option: str) -> list[int]:
    try:
        sizes = [int(float(part)) for part in text.split(",")]
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(f"{option} {text!r} is no list of sizes: write e.g. 1e6,1e7") from error
    if min(sizes) < 1:
        raise typer.BadParameter(f"{option} {text!r}: sizes are 1 or more")
    return sizes
