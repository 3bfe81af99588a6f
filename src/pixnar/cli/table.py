"""pixnar table, add, remove and compact: build, show, check and change docid tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pixnar.base.errors import PixnarError
from pixnar.base.progress import show_progress
from pixnar.cli.common import (
    BuildByDefault,
    JsonFile,
    Ray,
    RayAddress,
    RayWorkers,
    SkipBadRows,
    TablePath,
    Threads,
    app,
    check_ray,
    group,
    tell_skipped,
    write_json,
)

if TYPE_CHECKING:
    from pixnar.corpus import Document
    from pixnar.table import DocidTable

commands = group(
    "table",
    "Make docids searchable: build, show and check a docid table.\n\n"
    "[bold]pixnar table CORPUS --vocab VOCAB -o TABLE[/bold] builds one "
    "([bold]pixnar table build --help[/bold] has all options). "
    "[bold]pixnar add[/bold], [bold]remove[/bold] and [bold]compact[/bold] change it.",
    BuildByDefault,
)
Slots = Annotated[
    int | None, typer.Option(help="Count docids with more tokens than this; default 8, 16 and 32.", min=1)
]


@commands.command("build")
def build(
    source: Annotated[str, typer.Argument(help="Corpus with docids: a folder, or irds:ID.")],
    vocab: Annotated[Path, typer.Option(help="Vocabulary file, from pixnar vocab.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write the table to.")],
    docids: Annotated[Path | None, typer.Option(help="Docids from this file or folder.")] = None,
    no_index: Annotated[
        bool, typer.Option("--no-index", help="Half the size; slower searches, and documents cannot be removed.")
    ] = False,
    no_spellings: Annotated[
        bool, typer.Option("--no-spellings", help="Do not keep docids as they were written, only their normal form.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a table that is there, in one step, when the new one is done.")
    ] = False,
    slots: Slots = None,
    threads: Threads = 0,
    skip_bad_rows: SkipBadRows = False,
    ray: Ray = False,
    workers: RayWorkers = None,
    ray_address: RayAddress = None,
    scratch: Annotated[
        Path | None, typer.Option(help="With --ray: folder for files between jobs; default the output's.")
    ] = None,
) -> None:
    """Build a docid table: every docid as tokens, whom it names, and what is known about documents.

    [bold]pixnar table build icd10 --vocab icd10.vocab -o icd10.table[/bold]

    [bold]pixnar table build big --vocab big.vocab -o big.table --ray --workers 8[/bold]  the same table, made in shards
    """
    from pixnar.corpus import open_corpus
    from pixnar.table import build_table
    from pixnar.table import inspect as inspection
    from pixnar.vocab import load_vocabulary

    check_ray(ray, workers, ray_address)
    if scratch is not None and not ray:
        raise typer.BadParameter("--scratch means nothing without --ray: add it, or leave --scratch out")
    corpus = open_corpus(source, skip_bad_rows=skip_bad_rows, docids=docids)
    settings: dict[str, Any] = {
        "index": not no_index,
        "spellings": not no_spellings,
        "overwrite": overwrite,
        "threads": threads,
    }
    with show_progress() as progress:
        loaded = load_vocabulary(vocab)
        if ray:
            from pixnar.distributed import table as in_shards
            from pixnar.distributed.cluster import connected

            with connected(workers, ray_address) as executor:
                between = scratch or output.resolve().parent
                table = in_shards.build_table(corpus, loaded, output, executor, between, progress=progress, **settings)
        else:
            table = build_table(corpus, loaded, output, progress=progress, **settings)
    tell_skipped(corpus.skipped)
    inspection.show(inspection.inspect(table, slots=[slots] if slots else inspection.SLOTS))
    print(f"\n{output} written; see: pixnar table show {output}")


@commands.command("show")
def show(
    table: TablePath,
    top: Annotated[int, typer.Option(help="How many docids to show.", min=0)] = 5,
    slots: Slots = None,
    json_file: JsonFile = None,
) -> None:
    """Show size, lengths, pending changes and some docids of a table.

    [bold]pixnar table show icd10.table --top 10 --slots 12[/bold]
    """
    from pixnar.table import DocidTable
    from pixnar.table import inspect as inspection

    found = inspection.inspect(DocidTable.open(table), slots=[slots] if slots else inspection.SLOTS, top=top)
    inspection.show(found)
    write_json(json_file, inspection.as_json(found))


@commands.command("check")
def check(table: TablePath) -> None:
    """Verify the checksums of a table, byte by byte.

    [bold]pixnar table check icd10.table[/bold]
    """
    from pixnar.table import DocidTable

    found = DocidTable.check(table)
    print(f"{table} is sound: {found.pairs:,} pairs of docid and document, {found.documents:,} documents")


@app.command("add")
def add(
    table: TablePath,
    doc_id: Annotated[str | None, typer.Argument(help="Document, new or known.")] = None,
    docids: Annotated[list[str] | None, typer.Argument(help="Docids that are to name it.")] = None,
    title: Annotated[str | None, typer.Option(help="Title of the document.")] = None,
    metadata: Annotated[str | None, typer.Option(help="What to filter by, as JSON; replaces what there was.")] = None,
    rows: Annotated[
        Path | None, typer.Option("--from", help='File of rows {"_id": "d1", "docid": "…"}, like docids.jsonl.')
    ] = None,
    documents: Annotated[
        Path | None, typer.Option(help="File of titles and metadata for documents, like corpus.jsonl.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Rows of a file that are added in one step.", min=1)] = 10_000,
    skip_bad_rows: SkipBadRows = False,
) -> None:
    """Add docids, and documents, to a table that is in use.

    [bold]pixnar add icd10.table X99 "sunburn of the nose" "red nose" --title Sunburn --metadata '{"year": 9}'[/bold]

    [bold]pixnar add icd10.table --from new-docids.jsonl --documents new-corpus.jsonl[/bold]

    What is there already is not added twice, so a command that was stopped may be run again.
    """
    from pixnar.corpus import Skipped
    from pixnar.table import DocidTable, add_files

    opened = DocidTable.open(table)
    if rows is not None or documents is not None:
        if doc_id is not None or title is not None or metadata is not None:
            raise typer.BadParameter(
                "--from and --documents name documents themselves: give no DOC_ID, --title or --metadata"
            )
        skipped = Skipped()
        with show_progress() as progress:
            added = add_files(
                opened,
                docids=rows,
                documents=documents,
                batch=batch,
                skip_bad_rows=skip_bad_rows,
                skipped=skipped,
                progress=progress,
            )
        tell_skipped(skipped)
        print(f"{table}: {added.docids:,} docids added, {added.documents:,} documents described")
        return
    if doc_id is None:
        raise typer.BadParameter("give a DOC_ID with docids, or --from FILE")
    if not docids and title is None and metadata is None:
        raise typer.BadParameter(f"give docids that are to name {doc_id}, or a --title, or --metadata")
    opened.add(doc_id, docids or [], _described(opened, doc_id, title, metadata))
    pending, _ = opened.changes
    print(f"{table}: {doc_id} is named by {len(docids or []):,} docids given; {pending:,} pairs wait to be compacted")


@app.command("remove")
def remove(
    table: TablePath,
    doc_ids: Annotated[list[str] | None, typer.Argument(help="Documents.")] = None,
    docids: Annotated[
        list[str] | None, typer.Option("--docid", help="A docid, written in any way; may be given again.")
    ] = None,
) -> None:
    """Remove documents or docids from a table that is in use.

    [bold]pixnar remove icd10.table X99 X98[/bold]  both documents, and the docids that name nothing else

    [bold]pixnar remove icd10.table --docid "red nose"[/bold]  a docid, whatever it names

    [bold]pixnar remove icd10.table X99 --docid "red nose"[/bold]  the docid does not name X99 any more
    """
    from pixnar.table import DocidTable

    if not doc_ids and not docids:
        raise typer.BadParameter("give document ids, or --docid, or both")
    opened = DocidTable.open(table)
    ids = list(dict.fromkeys(doc_ids or []))
    for doc_id in ids:
        opened.document(doc_id)  # an error if it is not there
    encoded = {docid: opened.encode(docid) for docid in docids or []}
    for docid, tokens in encoded.items():
        named = opened.named(tokens)
        if not named:
            raise PixnarError(f"no docid {docid!r} in {table}: nothing is removed")
        for doc_id in ids:
            if doc_id not in named:
                raise PixnarError(f"the docid {docid!r} does not name {doc_id!r} in {table}: nothing is removed")
    before = opened.pairs
    if ids and encoded:
        opened.change(remove_pairs=[(doc_id, tokens) for doc_id in ids for tokens in encoded.values()])
    else:
        opened.change(remove_documents=ids, remove_docids=list(encoded.values()))
    print(f"{table}: {before - opened.pairs:,} pairs of docid and document removed, {opened.pairs:,} are left")


@app.command("compact")
def compact(table: TablePath, threads: Threads = 0) -> None:
    """Rewrite a table with its additions and without removed rows, so that searches are fast again.

    [bold]pixnar compact icd10.table[/bold]

    Searches continue meanwhile; if it is interrupted, the table is unchanged.
    """
    from pixnar.table import DocidTable

    opened = DocidTable.open(table)
    added, removed = opened.changes
    with show_progress() as progress:
        opened.compact(threads=threads, progress=progress)
    print(
        f"{table}: {added:,} pairs more, {removed:,} less; now {opened.pairs:,} pairs, {opened.documents:,} documents"
    )


def _described(table: DocidTable, doc_id: str, title: str | None, metadata: str | None) -> Document | None:
    """A document with a new title or new metadata; what is not given stays as it was."""
    from pixnar.corpus import Document

    if title is None and metadata is None:
        return None
    try:
        old = table.document(doc_id)
    except PixnarError:
        old = Document(doc_id, "", "", {})
    try:
        found = old.metadata if metadata is None else json.loads(metadata)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f'--metadata is no JSON ({error}): write e.g. \'{{"country": "de"}}\'') from error
    if not isinstance(found, dict):
        raise typer.BadParameter('--metadata is no JSON object: write e.g. \'{"country": "de"}\'')
    return Document(doc_id, old.title if title is None else title, "", found)
