"""pixnar corpus and pixnar docids: check and convert corpora, write the demo corpus, and generate docids."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pixnar.base.progress import show_progress
from pixnar.cli.common import JsonFile, Overwrite, SkipBadRows, Threads, app, group, tell_skipped, write_json

commands = group("corpus", "Check and convert corpora, and write the demo corpus.")


@commands.command("demo")
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write.")],
    seed: Annotated[int, typer.Option(help="Chooses which terms are held out as queries.")] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Write the demo corpus: ICD-10-CM codes and the terms that name them. Not for clinical use.

    [bold]pixnar corpus demo -o icd10[/bold]
    """
    from pixnar.corpus import write_demo

    stats = write_demo(output, seed=seed, overwrite=overwrite)
    print(
        f"{output}: {stats.documents:,} documents, {stats.docids:,} docids, "
        f"{stats.dev_queries:,} dev and {stats.test_queries:,} test queries"
    )
    print(stats.notice)


@commands.command("check")
def check(
    source: Annotated[str, typer.Argument(help="Corpus folder, or irds:ID.")],
    skip_bad_rows: SkipBadRows = False,
    json_file: JsonFile = None,
) -> None:
    """Check every row of a corpus and count documents, docids and queries.

    [bold]pixnar corpus check CORPUS[/bold]
    """
    from pixnar.corpus import check_corpus, open_corpus

    with show_progress() as progress:
        counts, skipped = check_corpus(open_corpus(source, skip_bad_rows=skip_bad_rows), progress)
    for name, count in counts.items():
        print(f"{name:>16} {count:>12,}")
    tell_skipped(skipped)
    write_json(json_file, {"source": source, "counts": counts, "skipped": skipped.total()})


@commands.command("convert")
def convert(
    source: Annotated[str, typer.Argument(help="MS MARCO or Parquet folder, corpus folder, or irds:ID.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write in the corpus layout.")],
    docids: Annotated[Path | None, typer.Option(help="Docids from this file or folder.")] = None,
    gzip: Annotated[bool, typer.Option("--gzip", help="Compress the files.")] = False,
    skip_bad_rows: SkipBadRows = False,
    overwrite: Overwrite = False,
) -> None:
    """Convert a corpus to a corpus folder (docs/corpus.md describes the layout).

    [bold]pixnar corpus convert irds:beir/scifact -o scifact[/bold]
    """
    from pixnar.corpus import copy_corpus, open_corpus

    corpus = open_corpus(source, skip_bad_rows=skip_bad_rows, docids=docids)
    with show_progress() as progress:
        copy_corpus(corpus, output, gzip=gzip, overwrite=overwrite, progress=progress)
    print(f"{output} written")
    tell_skipped(corpus.skipped)


@app.command("docids")
def docids(
    corpus: Annotated[str, typer.Argument(help="Corpus folder, or irds:ID. Its documents need titles or text.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="File (.jsonl, .tsv, or .gz of these) or folder; default: the corpus' own."
        ),
    ] = None,
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            help="titles (and headings), sentences, phrases, model, or a file of queries (MINDER's .pkl, .json, "
            ".jsonl, .tsv); separated by commas, or repeated. Default: titles,sentences,phrases.",
        ),
    ] = None,
    headings: Annotated[int, typer.Option(help="Headings of a document, at most.", min=0)] = 10,
    sentences: Annotated[int, typer.Option(help="Key sentences of a document, at most.", min=0)] = 8,
    phrases: Annotated[int, typer.Option(help="Key phrases of a document, at most.", min=0)] = 5,
    model: Annotated[
        str | None, typer.Option(help="Hugging Face seq2seq model by name or folder; the same as --from …,model.")
    ] = None,
    queries_per_document: Annotated[int, typer.Option(help="Queries that the model writes for each.", min=1)] = 5,
    batch: Annotated[int, typer.Option(help="Documents that go through the model together.", min=1)] = 16,
    top_k: Annotated[int, typer.Option(help="Word pieces that the model draws each next one from.", min=1)] = 10,
    max_length: Annotated[int, typer.Option(help="Word pieces of a query, at most.", min=1)] = 64,
    max_input: Annotated[int, typer.Option(help="Word pieces of a document that the model reads.", min=8)] = 384,
    seed: Annotated[int, typer.Option(help="The same seed gives the same queries.", min=0)] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …, of the model.")] = "auto",
    keep_only_finding: Annotated[
        int,
        typer.Option(
            help="Keep a query of the model or of a file only if BM25 over the text finds its document among so many; "
            "0 keeps all.",
            min=0,
        ),
    ] = 0,
    skip_bad_rows: SkipBadRows = False,
    overwrite: Overwrite = False,
    threads: Threads = 0,
    json_file: JsonFile = None,
) -> None:
    """Make docids for a corpus that has text but no docids.jsonl.

    A docid is a short text that names a document; search finds documents by them. An interrupted run resumes when
    started again with the same arguments.

    [bold]pixnar docids CORPUS[/bold]

    [bold]pixnar docids CORPUS --from titles,model --model doc2query/msmarco-t5-base-v1 --keep-only-finding 10[/bold]
    """
    from pixnar.corpus import open_corpus
    from pixnar.docid_generation import DEFAULT, MODEL, Doc2QueryOptions, DocidOptions, make_docids
    from pixnar.docid_generation.options import target_of

    given = [name.strip() for text in sources or [] for name in text.split(",") if name.strip()]
    if model and MODEL not in given:
        given = [*(given or DEFAULT), MODEL]
    options = DocidOptions(
        sources=tuple(given or DEFAULT),
        headings=headings,
        sentences=sentences,
        phrases=phrases,
        doc2query=Doc2QueryOptions(
            model=model or "",
            per_document=queries_per_document,
            batch=batch,
            top_k=top_k,
            longest=max_length,
            reads=max_input,
            seed=seed,
            device=device,
        ),
        roundtrip=keep_only_finding,
    )
    source = open_corpus(corpus, skip_bad_rows=skip_bad_rows)
    target = target_of(corpus, output)
    with show_progress() as progress:
        summary = make_docids(source, target, options, overwrite=overwrite, threads=threads, progress=progress)
    count, named = sum(summary.made.values()), summary.documents - summary.unnamed
    by_source = ", ".join(f"{Path(name).name} {summary.made.get(name, 0):,}" for name in options.sources)
    print(f"{target}: {count:,} docids for {named:,} of {summary.documents:,} documents ({by_source})")
    tell_skipped(source.skipped)
    if output is None:
        print(f"try: pixnar fit {corpus} -o INDEX")
    write_json(
        json_file,
        {"file": str(target), "docids": count, "named": named, "documents": summary.documents, "sources": summary.made},
    )
