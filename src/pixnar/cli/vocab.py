"""pixnar vocab: build and inspect a vocabulary, and split text with it."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pixnar.base.errors import PixnarError
from pixnar.base.progress import show_progress
from pixnar.base.storage import check_writable, container_kind
from pixnar.cli.common import (
    BuildByDefault,
    JsonFile,
    Ray,
    RayAddress,
    RayWorkers,
    SkipBadRows,
    Threads,
    check_ray,
    group,
    tell_skipped,
    write_json,
)

if TYPE_CHECKING:
    from pixnar.vocab import TargetVocabulary

commands = group(
    "vocab",
    "Learn a vocabulary of phrases from docids.\n\n"
    "[bold]pixnar vocab CORPUS -o VOCAB[/bold] builds one ([bold]pixnar vocab build --help[/bold] has all options).",
    BuildByDefault,
)


VocabularyKind = StrEnum("VocabularyKind", "phrase bpe unigram wordpiece")  # ways to make a target vocabulary


class Where(StrEnum):
    """Where punctuation may stand in a phrase."""

    inside = "inside"
    leading = "leading"
    anywhere = "anywhere"


@commands.command("build")
def build(
    sources: Annotated[
        list[str],
        typer.Argument(help="A corpus (folder or irds:ID), .txt/.jsonl/.parquet files, a folder of such files, or -."),
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
    kind: Annotated[
        VocabularyKind, typer.Option(help="phrase, or a baseline to compare with.")
    ] = VocabularyKind.phrase,
    tokenizer: Annotated[
        str | None, typer.Option(help="With --kind wordpiece: Hugging Face name, folder or file.")
    ] = None,
    max_memory: Annotated[
        str | None, typer.Option(help="Spill to disk beyond this, e.g. 4G; default 60 % of what is free.")
    ] = None,
    scratch: Annotated[
        Path | None, typer.Option(help="Folder for what is spilled; default the system's, with --ray the output's.")
    ] = None,
    threads: Threads = 0,
    skip_bad_rows: SkipBadRows = False,
    ray: Ray = False,
    workers: RayWorkers = None,
    ray_address: RayAddress = None,
) -> None:
    """Learn a vocabulary from docids.

    [bold]pixnar vocab build icd10 -o icd10.vocab --size 16384[/bold]

    [bold]pixnar vocab build shards -o big.vocab --ray --workers 8[/bold]  the same file, made in shards
    """
    from pixnar.corpus import Skipped, docid_texts
    from pixnar.vocab import TokenizerVocabulary, Vocabulary, mean_length
    from pixnar.vocab.phrases import BuildOptions

    _check_target(output)
    for option, given, kinds in (
        ("--max-words", max_words != 8, [VocabularyKind.phrase]),
        ("--punctuation", punctuation is not Where.leading, [VocabularyKind.phrase]),
        ("--max-memory", max_memory is not None, [VocabularyKind.phrase]),
        ("--scratch", scratch is not None, [VocabularyKind.phrase]),
        ("--min-count", min_count is not None, [VocabularyKind.phrase, VocabularyKind.bpe]),
        ("--size", size != 131_072, [VocabularyKind.phrase, VocabularyKind.bpe, VocabularyKind.unigram]),
        ("--tokenizer", tokenizer is not None, [VocabularyKind.wordpiece]),
        ("--ray", ray, [VocabularyKind.phrase]),
    ):
        if given and kind not in kinds:
            raise typer.BadParameter(f"{option} means nothing with --kind {kind}: leave it out")
    check_ray(ray, workers, ray_address)
    if kind is VocabularyKind.phrase:
        memory = _memory(max_memory) if max_memory else None
        options = BuildOptions(
            size, min_count, max_words, weighted, punctuation.value, threads, memory, None if ray else scratch
        )
    vocabulary: TargetVocabulary
    skipped = Skipped()
    with show_progress() as progress:
        if not ray:
            texts, skipped = docid_texts(sources, skip_bad_rows=skip_bad_rows, progress=progress)
        if ray:
            from pixnar.distributed.cluster import connected
            from pixnar.distributed.vocab import build_vocabulary

            with connected(workers, ray_address) as executor:
                vocabulary = build_vocabulary(
                    sources,
                    executor,
                    scratch or output.resolve().parent,
                    options,
                    skip_bad_rows=skip_bad_rows,
                    skipped=skipped,
                    progress=progress,
                )
        elif kind is VocabularyKind.phrase:
            vocabulary = Vocabulary.build(texts, **asdict(options), progress=progress)
        elif kind is VocabularyKind.wordpiece:
            if tokenizer is None:
                raise typer.BadParameter("--kind wordpiece needs --tokenizer NAME")
            vocabulary = TokenizerVocabulary.from_pretrained(tokenizer, texts, weighted=weighted, progress=progress)
        elif kind is VocabularyKind.bpe:
            vocabulary = TokenizerVocabulary.train_bpe(
                texts, size, min_count=min_count or 2, weighted=weighted, progress=progress
            )
        else:
            vocabulary = TokenizerVocabulary.train_unigram(texts, size, weighted=weighted, progress=progress)
        vocabulary.save(output)
    tell_skipped(skipped)
    print(f"{output}: {len(vocabulary):,} tokens")
    if isinstance(vocabulary, Vocabulary) and len(vocabulary) < size:
        least = vocabulary.meta["min_count"]
        print(f"fewer than the {size:,} wanted: no more candidates are used {least} times (--min-count)")
    print(f"mean tokens per docid {mean_length(vocabulary.docid_lengths):.2f}; see: pixnar vocab inspect {output}")


@commands.command("inspect")
def inspect(
    vocabulary: Annotated[Path, typer.Argument(help="Vocabulary file.")],
    text: Annotated[
        list[str] | None, typer.Option(help="Show how this is cut into tokens; may be given again.")
    ] = None,
    top: Annotated[int, typer.Option(help="How many phrases to list.", min=0)] = 20,
    plot: Annotated[Path | None, typer.Option(help="Also draw a picture (PNG).")] = None,
    json_file: JsonFile = None,
) -> None:
    """Show size, lengths, the most frequent phrases, and how a text is split into tokens.

    [bold]pixnar vocab inspect icd10.vocab --text "acute kidney failure"[/bold]
    """
    from pixnar.vocab import inspect as inspection
    from pixnar.vocab import load_vocabulary

    loaded = load_vocabulary(vocabulary)
    found = inspection.inspect(loaded, top=top)
    inspection.show(found, loaded, text or [" ".join(token for token, _ in (found.top or found.top_tokens)[:4])])
    if plot:
        inspection.plot(found, plot)
        print(f"\n{plot} drawn")
    write_json(json_file, found._asdict())


@commands.command("encode")
def encode(
    vocabulary: Annotated[Path, typer.Argument(help="Vocabulary file.")],
    texts: Annotated[list[str] | None, typer.Argument(help="Texts; without any, lines of standard input.")] = None,
    ids: Annotated[bool, typer.Option("--ids", help="Print token ids instead of tokens.")] = False,
) -> None:
    """Split texts into tokens, one line each.

    [bold]pixnar vocab encode icd10.vocab "acute kidney failure"[/bold]
    """
    from pixnar.vocab import load_vocabulary

    loaded = load_vocabulary(vocabulary)
    for text in texts or map(_utf8, sys.stdin.buffer):
        encoded = loaded.encode(text).tolist()
        print(*encoded) if ids else print("".join(f"[{loaded.token(v)}]" for v in encoded))


def _check_target(path: Path) -> None:
    """Do not let a typing slip replace somebody's data, and say so before the work rather than after it."""
    check_writable(path)
    if path.exists() and path.stat().st_size:
        try:
            container_kind(path, "vocabulary")
        except PixnarError as error:
            raise PixnarError(f"{path} exists and is no vocabulary: choose another name or remove it") from error


def _memory(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not match:
        raise typer.BadParameter(f"{text!r} is no amount of memory: write e.g. 800M or 12G")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


def _utf8(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise PixnarError(f"standard input is not UTF-8 at {line[:40]!r}: convert it first") from error
