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
    from pixnar.corpus import Skipped
    from pixnar.vocab import TargetVocabulary


_STOPPED = 130  # what a shell calls the end by Ctrl-C; typer turns Ctrl-C into an exit with this code


class _BuildByDefault(TyperGroup):
    """``pixnar vocab CORPUS …`` means ``pixnar vocab build CORPUS …``."""

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
bench_app = typer.Typer(help="Measure, side by side with what one would use instead.", **_settings)
app.add_typer(corpus_app, name="corpus")
app.add_typer(vocab_app, name="vocab")
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
