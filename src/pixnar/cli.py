"""The command line: one thin command per stage. What a command does lives in its stage's folder."""

from __future__ import annotations

import json
import os
import re
import sys
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from pixnar.errors import PixnarError
from pixnar.progress import show_progress
from pixnar.storage import atomic_write, check_writable, container_kind

if TYPE_CHECKING:
    from pixnar.corpus import Document, Skipped
    from pixnar.docids import DocidTable
    from pixnar.vocab import TargetVocabulary


_STOPPED = 130  # what a shell calls the end by Ctrl-C; typer turns Ctrl-C into an exit with this code


class _BuildByDefault(TyperGroup):
    """``pixnar vocab CORPUS …`` means ``pixnar vocab build CORPUS …``, and so does ``pixnar table``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["build", *args]
        return super().parse_args(ctx, args)


_settings: dict[str, Any] = {
    "no_args_is_help": True,
    "add_completion": False,
    "rich_markup_mode": "rich",
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
app = typer.Typer(help="Generative retrieval in one transformer pass.", **_settings)
corpus_app = typer.Typer(help="Look at, check, convert and make corpora.", **_settings)
vocab_app = typer.Typer(
    help="Learn a vocabulary of phrases from docids.\n\n"
    "[bold]pixnar vocab CORPUS -o VOCAB[/bold] builds one ([bold]pixnar vocab build --help[/bold] has all options).",
    cls=_BuildByDefault,
    **_settings,
)
table_app = typer.Typer(
    help="Make docids searchable: build, show and check a docid table.\n\n"
    "[bold]pixnar table CORPUS --vocab VOCAB -o TABLE[/bold] builds one "
    "([bold]pixnar table build --help[/bold] has all options). "
    "[bold]pixnar add[/bold], [bold]remove[/bold] and [bold]compact[/bold] change it.",
    cls=_BuildByDefault,
    **_settings,
)
bench_app = typer.Typer(help="Measure, side by side with what one would use instead.", **_settings)
app.add_typer(corpus_app, name="corpus")
app.add_typer(vocab_app, name="vocab")
app.add_typer(table_app, name="table")
app.add_typer(bench_app, name="bench")


class Kind(StrEnum):
    """Ways to make a target vocabulary."""

    phrase = "phrase"
    bpe = "bpe"
    unigram = "unigram"
    wordpiece = "wordpiece"


class Where(StrEnum):
    """Where punctuation may stand in a phrase."""

    inside = "inside"
    leading = "leading"
    anywhere = "anywhere"


Threads = Annotated[int, typer.Option(help="Worker threads; 0 = all cores.", min=0)]
SkipBadRows = Annotated[bool, typer.Option("--skip-bad-rows", help="Leave bad rows out and count them.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Also write the figures to this file.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
TablePath = Annotated[Path, typer.Argument(help="Docid table: the folder that pixnar table wrote.")]
Slots = Annotated[
    int | None, typer.Option(help="Count docids with more tokens than this; default 8, 16 and 32.", min=1)
]


def _memory(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not match:
        raise typer.BadParameter(f"{text!r} is no amount of memory: write e.g. 800M or 12G")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


@corpus_app.command("demo")
def corpus_demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write.")],
    seed: Annotated[int, typer.Option(help="Chooses which terms are held out as queries.")] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Write the demo corpus: ICD-10-CM codes and the terms that name them. Not for clinical use."""
    from pixnar.corpus import write_demo

    stats = write_demo(output, seed=seed, overwrite=overwrite)
    print(
        f"{output}: {stats.documents:,} documents, {stats.docids:,} docids, "
        f"{stats.dev_queries:,} dev and {stats.test_queries:,} test queries"
    )
    print(stats.notice)


@corpus_app.command("check")
def corpus_check(
    source: Annotated[str, typer.Argument(help="Corpus folder, or irds:ID.")],
    skip_bad_rows: SkipBadRows = False,
    json_file: JsonFile = None,
) -> None:
    """Read a whole corpus, check every row, and count."""
    from pixnar.corpus import check_corpus, open_corpus

    with show_progress() as progress:
        counts, skipped = check_corpus(open_corpus(source, skip_bad_rows=skip_bad_rows), progress)
    for name, count in counts.items():
        print(f"{name:>16} {count:>12,}")
    _tell_skipped(skipped)
    _write_json(json_file, {"source": source, "counts": counts, "skipped": skipped.total()})


@corpus_app.command("convert")
def corpus_convert(
    source: Annotated[str, typer.Argument(help="MS MARCO or Parquet folder, corpus folder, or irds:ID.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write in the corpus layout.")],
    docids: Annotated[Path | None, typer.Option(help="Docids from this file or folder.")] = None,
    gzip: Annotated[bool, typer.Option("--gzip", help="Compress the files.")] = False,
    skip_bad_rows: SkipBadRows = False,
    overwrite: Overwrite = False,
) -> None:
    """Turn any corpus that can be read into a corpus folder (docs/corpus.md has the layout)."""
    from pixnar.corpus import copy_corpus, open_corpus

    corpus = open_corpus(source, skip_bad_rows=skip_bad_rows, docids=docids)
    with show_progress() as progress:
        copy_corpus(corpus, output, gzip=gzip, overwrite=overwrite, progress=progress)
    print(f"{output} written")
    _tell_skipped(corpus.skipped)


@vocab_app.command("build")
def vocab_build(
    sources: Annotated[
        list[str], typer.Argument(help="A corpus (folder or irds:ID), or .txt/.jsonl/.parquet files, or -.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Vocabulary file to write.")],
    size: Annotated[int, typer.Option(help="Most tokens to have.")] = 131_072,
    min_count: Annotated[
        int | None, typer.Option(help="Fewest uses of a token; default by corpus size, 2 to 20.")
    ] = None,
    max_words: Annotated[int, typer.Option(help="Most words in a phrase.")] = 8,
    weighted: Annotated[bool, typer.Option("--weighted", help="A repeated docid counts every time, not once.")] = False,
    punctuation: Annotated[
        Where, typer.Option(help="Where it may stand in a phrase: inside only, also leading it, or anywhere.")
    ] = Where.leading,
    kind: Annotated[Kind, typer.Option(help="phrase, or a baseline to compare with.")] = Kind.phrase,
    tokenizer: Annotated[
        str | None, typer.Option(help="With --kind wordpiece: Hugging Face name, folder or file.")
    ] = None,
    max_memory: Annotated[
        str | None, typer.Option(help="Spill to disk beyond this, e.g. 4G; default 60 % of what is free.")
    ] = None,
    scratch: Annotated[Path | None, typer.Option(help="Folder for what is spilled; default the system's.")] = None,
    threads: Threads = 0,
    skip_bad_rows: SkipBadRows = False,
) -> None:
    """Learn a vocabulary from docids.

    [bold]pixnar vocab build icd10 -o icd10.vocab --size 16384[/bold]
    """
    from pixnar.corpus import docid_texts
    from pixnar.vocab import TokenizerVocabulary, Vocabulary, mean_length

    _check_target(output)
    for option, given, kinds in (
        ("--max-words", max_words != 8, [Kind.phrase]),
        ("--punctuation", punctuation is not Where.leading, [Kind.phrase]),
        ("--max-memory", max_memory is not None, [Kind.phrase]),
        ("--scratch", scratch is not None, [Kind.phrase]),
        ("--min-count", min_count is not None, [Kind.phrase, Kind.bpe]),
        ("--size", size != 131_072, [Kind.phrase, Kind.bpe, Kind.unigram]),
        ("--tokenizer", tokenizer is not None, [Kind.wordpiece]),
    ):
        if given and kind not in kinds:
            raise typer.BadParameter(f"{option} means nothing with --kind {kind}: leave it out")
    with show_progress() as progress:
        texts, skipped = docid_texts(sources, skip_bad_rows=skip_bad_rows, progress=progress)
        vocabulary: TargetVocabulary
        if kind is Kind.phrase:
            vocabulary = Vocabulary.build(
                texts,
                size,
                min_count=min_count,
                max_words=max_words,
                weighted=weighted,
                punctuation=punctuation.value,
                threads=threads,
                max_memory=_memory(max_memory) if max_memory else None,
                scratch=scratch,
                progress=progress,
            )
        elif kind is Kind.wordpiece:
            if tokenizer is None:
                raise typer.BadParameter("--kind wordpiece needs --tokenizer NAME")
            vocabulary = TokenizerVocabulary.from_pretrained(tokenizer, texts, weighted=weighted, progress=progress)
        elif kind is Kind.bpe:
            vocabulary = TokenizerVocabulary.train_bpe(
                texts, size, min_count=min_count or 2, weighted=weighted, progress=progress
            )
        else:
            vocabulary = TokenizerVocabulary.train_unigram(texts, size, weighted=weighted, progress=progress)
        vocabulary.save(output)
    _tell_skipped(skipped)
    print(f"{output}: {len(vocabulary):,} tokens")
    if isinstance(vocabulary, Vocabulary) and len(vocabulary) < size:
        least = vocabulary.meta["min_count"]
        print(f"fewer than the {size:,} wanted: no more candidates are used {least} times (--min-count)")
    print(f"mean tokens per docid {mean_length(vocabulary.docid_lengths):.2f}; see: pixnar vocab inspect {output}")


@vocab_app.command("inspect")
def vocab_inspect(
    vocabulary: Annotated[Path, typer.Argument(help="Vocabulary file.")],
    text: Annotated[
        list[str] | None, typer.Option(help="Show how this is cut into tokens; may be given again.")
    ] = None,
    top: Annotated[int, typer.Option(help="How many phrases to list.", min=0)] = 20,
    plot: Annotated[Path | None, typer.Option(help="Also draw a picture (PNG).")] = None,
    json_file: JsonFile = None,
) -> None:
    """Show size, lengths, the most used phrases and how text is cut into tokens."""
    from pixnar.vocab import inspect as inspection
    from pixnar.vocab import load_vocabulary

    loaded = load_vocabulary(vocabulary)
    found = inspection.inspect(loaded, top=top)
    inspection.show(found, loaded, text or [" ".join(token for token, _ in (found.top or found.top_tokens)[:4])])
    if plot:
        inspection.plot(found, plot)
        print(f"\n{plot} drawn")
    _write_json(json_file, found._asdict())


@vocab_app.command("encode")
def vocab_encode(
    vocabulary: Annotated[Path, typer.Argument(help="Vocabulary file.")],
    texts: Annotated[list[str] | None, typer.Argument(help="Texts; without any, lines of standard input.")] = None,
    ids: Annotated[bool, typer.Option("--ids", help="Print token ids instead of tokens.")] = False,
) -> None:
    """Cut texts into tokens, one line each."""
    from pixnar.vocab import load_vocabulary

    loaded = load_vocabulary(vocabulary)
    for text in texts or map(_utf8, sys.stdin.buffer):
        encoded = loaded.encode(text).tolist()
        print(*encoded) if ids else print("".join(f"[{loaded.token(v)}]" for v in encoded))


@table_app.command("build")
def table_build(
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
) -> None:
    """Build a docid table: every docid as tokens, whom it names, and what is known about documents.

    [bold]pixnar table build icd10 --vocab icd10.vocab -o icd10.table[/bold]
    """
    from pixnar.corpus import open_corpus
    from pixnar.docids import build_table
    from pixnar.docids import inspect as inspection
    from pixnar.vocab import load_vocabulary

    corpus = open_corpus(source, skip_bad_rows=skip_bad_rows, docids=docids)
    with show_progress() as progress:
        table = build_table(
            corpus,
            load_vocabulary(vocab),
            output,
            index=not no_index,
            spellings=not no_spellings,
            overwrite=overwrite,
            threads=threads,
            progress=progress,
        )
    _tell_skipped(corpus.skipped)
    inspection.show(inspection.inspect(table, slots=[slots] if slots else inspection.SLOTS))
    print(f"\n{output} written; see: pixnar table show {output}")


@table_app.command("show")
def table_show(
    table: TablePath,
    top: Annotated[int, typer.Option(help="How many docids to show.", min=0)] = 5,
    slots: Slots = None,
    json_file: JsonFile = None,
) -> None:
    """Show size, lengths, pending changes and some docids of a table.

    [bold]pixnar table show icd10.table --top 10 --slots 12[/bold]
    """
    from pixnar.docids import DocidTable
    from pixnar.docids import inspect as inspection

    found = inspection.inspect(DocidTable.open(table), slots=[slots] if slots else inspection.SLOTS, top=top)
    inspection.show(found)
    _write_json(json_file, inspection.as_json(found))


@table_app.command("check")
def table_check(table: TablePath) -> None:
    """Read a whole table and compare every byte with its checksum.

    [bold]pixnar table check icd10.table[/bold]
    """
    from pixnar.docids import DocidTable

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
    from pixnar.docids import DocidTable, add_files

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
        _tell_skipped(skipped)
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
    from pixnar.docids import DocidTable

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
    """Fold what was added and removed into the table, so that searches are as fast as on the first day.

    [bold]pixnar compact icd10.table[/bold]

    Whoever is searching the table goes on; if it is stopped half-way through, the table is as it was before.
    """
    from pixnar.docids import DocidTable

    opened = DocidTable.open(table)
    added, removed = opened.changes
    with show_progress() as progress:
        opened.compact(threads=threads, progress=progress)
    print(
        f"{table}: {added:,} pairs more, {removed:,} less; now {opened.pairs:,} pairs, {opened.documents:,} documents"
    )


@bench_app.command("vocab")
def bench_vocab(
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
    """Vocabulary builders side by side: time, memory, tokens per docid, encoding speed."""
    from pixnar.benchmarks import vocab
    from pixnar.vocab.phrases import PUNCTUATION

    forms = [form for form in PUNCTUATION if form in punctuation.split(",")]
    if len(forms) != len(punctuation.split(",")):
        raise typer.BadParameter(f"--punctuation {punctuation!r} is no list of {', '.join(PUNCTUATION)}")
    results = vocab.run(
        corpora or [],
        sizes=_numbers(sizes, "--sizes"),
        min_counts=[n or None for n in _numbers(min_counts, "--min-counts")],
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
            file.write(vocab.markdown(results).encode())


@bench_app.command("decode")
def bench_decode(
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
    from pixnar.benchmarks import decode

    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    decode.run(
        _sizes(docids, "--docids"),
        queries=queries,
        slots=slots,
        candidates=candidates,
        ks=_numbers(k, "--k"),
        beams=_numbers(beams, "--beams"),
        repeats=repeats,
        seed=seed,
        folder=folder,
        out=json_file,
    )


@app.command("demo")
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to work in.")] = Path("demo"),
    threads: Threads = 0,
) -> None:
    """Run everything there is on the demo corpus; what is there from an earlier run is reused."""
    from pixnar.demo import run_demo

    with show_progress() as progress:
        run_demo(output, threads=threads, progress=progress)


@app.command("version")
def version() -> None:
    """Print the version."""
    print(metadata.version("pixnar"))


def _check_target(path: Path) -> None:
    """Do not let a typing slip replace somebody's data, and say so before the work rather than after it."""
    check_writable(path)
    if path.exists() and path.stat().st_size:
        try:
            container_kind(path, "vocabulary")
        except PixnarError as error:
            raise PixnarError(f"{path} exists and is no vocabulary: choose another name or remove it") from error


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


def _utf8(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise PixnarError(f"standard input is not UTF-8 at {line[:40]!r}: convert it first") from error


def _numbers(text: str, option: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(f"{option} {text!r} is no list of numbers: write e.g. 32768,131072") from error


def _sizes(text: str, option: str) -> list[int]:
    try:
        sizes = [int(float(part)) for part in text.split(",")]
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(f"{option} {text!r} is no list of sizes: write e.g. 1e6,1e7") from error
    if min(sizes) < 1:
        raise typer.BadParameter(f"{option} {text!r}: sizes are 1 or more")
    return sizes


def _tell_skipped(skipped: Skipped) -> None:
    if skipped.total():
        print(skipped.summary(), file=sys.stderr)


def _write_json(path: Path | None, content: dict[str, Any]) -> None:
    if path is not None:
        with atomic_write(path) as file:
            file.write(json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n")


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command line; user errors end with one line and exit code 2, Ctrl-C with 130."""
    try:
        code = app(arguments, standalone_mode=False, prog_name="pixnar")
    except PixnarError as error:
        _fail(str(error))
    except (typer.Abort, KeyboardInterrupt):
        code = _STOPPED
    except typer.Exit as exit_:
        code = exit_.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader of our output has gone
        sys.exit(0)
    except (OSError, MemoryError) as error:
        _fail(f"{error.__class__.__name__}: {error}")
    except Exception as error:
        if not hasattr(error, "format_message"):  # everything typer raises about wrong usage has it
            raise
        command = getattr(getattr(error, "ctx", None), "command_path", "pixnar")
        if not error.format_message():  # no arguments at all: the help was shown
            sys.exit(2)
        _fail(f"{error.format_message()} (see {command} --help)")
    if code == _STOPPED:
        print("pixnar: stopped; no half-written file is left", file=sys.stderr)
    sys.exit(code or 0)


def _fail(message: str) -> NoReturn:
    print("pixnar: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
