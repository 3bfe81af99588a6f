"""Vocabulary builders side by side: time, memory, tokens per docid, encoding speed, each in its own process.

Behind ``pixnar bench vocab``. All methods get the same normalised, distinct docids. Finished cells go to the JSON file
at once and are not measured again while machine, text, settings and the method's version stay the same.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
import xxhash
from rich.console import Console
from rich.table import Table

from pixnar.base.errors import PixnarError
from pixnar.base.normalize import normalize
from pixnar.base.storage import atomic_write
from pixnar.cli.common import JsonFile, Threads, numbers
from pixnar.corpus import docid_texts
from pixnar.evaluation.latency import environment
from pixnar.vocab.phrases import PUNCTUATION

from .generate import generate_docids

RIVALS = ("bpe-ws", "bpe-super", "unigram-ws", "sentencepiece-unigram-super")
OPTIONAL_RIVALS = ("unigram-super",)  # half a minute per megabyte: only when asked for
_CHILD = Path(__file__).with_name("vocab_cell.py")
_TABLE_WIDTH = 125
_COLUMNS = ("corpus", "size", "method", "tokens", "build s", "CPU s", "peak MB", "mean", "p99", "encode MB/s")


@dataclasses.dataclass
class Cell:
    """One method at one size on one corpus. What could not be measured is None, and `reason` says why."""

    corpus: str
    docids: int
    text_mb: float
    text_xxh3: str
    size: int
    method: str
    threads: int
    version: str
    machine: str
    limit_seconds: float
    date: str
    status: str = "ok"  # or "timeout", "failed", "missing"
    reason: str = ""
    tokens: int | None = None
    build_seconds: float | None = None
    read_seconds: float | None = None  # until the last docid was taken in
    stages: dict[str, float] | None = None
    cpu_seconds: float | None = None
    peak_mb: float | None = None
    mean_tokens: float | None = None
    p99_tokens: int | None = None
    encode_mb_s: float | None = None
    encode_sample_mb: float | None = None
    load_seconds: float | None = None

    def replaces(self, other: Cell) -> bool:
        """Whether the two stand in the same place of the table."""
        return (self.corpus, self.size, self.method) == (other.corpus, other.size, other.method)

    def same_as(self, other: Cell) -> bool:
        """Whether measuring again could not teach anything but noise."""
        names = ("text_xxh3", "threads", "version", "machine")
        same = self.replaces(other) and all(getattr(self, name) == getattr(other, name) for name in names)
        return same and (
            self.status == "ok" or (self.status == "timeout" and self.limit_seconds >= other.limit_seconds)
        )


@dataclasses.dataclass
class Results:
    """All cells, and the circumstances of the last run that added to them."""

    environment: dict[str, Any]
    cells: list[Cell]

    def save(self, path: Path) -> None:
        """Write as JSON, atomically."""
        with atomic_write(path) as file:
            file.write(json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False).encode() + b"\n")

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read what `save` wrote."""
        try:
            stored = json.loads(path.read_text("utf-8"))
            return cls(stored["environment"], [Cell(**cell) for cell in stored["cells"]])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PixnarError(f"{path} is not a result file of this benchmark: move it away or name another") from error


@dataclasses.dataclass(frozen=True)
class Prepared:
    """Normalised, distinct docids in a file, one per line."""

    name: str
    path: Path
    docids: int
    text_bytes: int
    checksum: str


def run(
    corpora: Annotated[list[str] | None, typer.Argument(help="Corpus folders or docid files.")] = None,
    sizes: Annotated[Sequence[int], numbers("Vocabulary sizes, separated by commas.")] = (32_768, 131_072),
    min_counts: Annotated[
        Sequence[int], numbers("min-counts to try, separated by commas; 0 = the default.", least=0)
    ] = (0,),
    punctuation: Annotated[str, typer.Option(help="Forms of --punctuation to try, separated by commas.")] = "leading",
    generated: Annotated[int, typer.Option(help="Also this many generated docids.", min=0)] = 0,
    generated_size: Annotated[int, typer.Option(help="Vocabulary size for the generated docids.")] = 1_000_000,
    rivals: Annotated[bool, typer.Option(help="Also BPE, Unigram and sentencepiece, on the corpora.")] = True,
    methods: Annotated[str, typer.Option(help="Only these methods, separated by commas.")] = "",
    time_limit: Annotated[float, typer.Option(help="Seconds that building, or encoding, may take.")] = 1800.0,
    seed: Annotated[int, typer.Option(help="Chooses the generated docids.")] = 0,
    threads: Threads = 0,
    json_file: JsonFile = None,
    markdown: Annotated[Path | None, typer.Option(help="Also write the table as Markdown to this file.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again what the JSON file has already.")] = False,
) -> Results:
    """Compare vocabulary builders: time, memory, tokens per docid, encoding speed.

    The JSON file keeps every cell, and a cell that is there is reused; the version of our own builder is its commit,
    so after a change that is not committed ask for --fresh. On generated docids only our own builder runs.

    [bold]pixnar bench vocab CORPUS --sizes 32768,131072[/bold]
    """
    forms = [form for form in PUNCTUATION if form in punctuation.split(",")]
    if len(forms) != len(punctuation.split(",")):
        raise typer.BadParameter(f"--punctuation {punctuation!r} is not a list of {', '.join(PUNCTUATION)}")
    console = Console()
    results = Results(environment("pixnar", "tokenizers", "sentencepiece", "numpy"), [])
    if json_file is not None and json_file.exists() and not fresh:
        results.cells = Results.load(json_file).cells
    counts = [f"-mc{count}" if count else "" for count in min_counts]
    ours = [("pixnar" if form == "leading" else f"pixnar-{form}") + count for form in forms for count in counts]
    chosen = methods.split(",") if methods else [*ours, *(RIVALS if rivals else ())]
    for method in chosen:
        if not re.fullmatch("|".join([*RIVALS, *OPTIONAL_RIVALS, r"pixnar(-inside|-anywhere)?(-mc\d+)?"]), method):
            known = ", ".join([*RIVALS, *OPTIONAL_RIVALS])
            raise PixnarError(f"there is no method {method!r}: choose from pixnar[-inside|-anywhere][-mcN], {known}")
    with tempfile.TemporaryDirectory(prefix="pixnar-bench-") as folder:
        for prepared, wanted in _sources(corpora or [], sizes, generated, generated_size, seed, Path(folder)):
            console.print(f"{prepared.name}: {prepared.docids:,} docids, {prepared.text_bytes / 1e6:.1f} MB")
            on_generated = prepared.name.startswith("generated-")
            for size in wanted:
                for method in ours if on_generated and not methods else chosen:
                    _one(prepared, size, method, threads, time_limit, results, json_file, console)
            prepared.path.unlink()
    console.width = max(console.width, _TABLE_WIDTH)  # a table with cut-off figures is of no use
    console.print(table(results))
    if markdown is not None:
        with atomic_write(markdown) as file:
            file.write(as_markdown(results).encode())
    return results


def table(results: Results) -> Table:
    """The results for a terminal."""
    shown = Table(title=f"{results.environment['cpu']}, {results.environment['cores']} cores")
    for i, name in enumerate(_COLUMNS):
        shown.add_column(name, justify="left" if i in (0, 2) else "right")
    for cell in results.cells:
        shown.add_row(*_row(cell))
    return shown


def as_markdown(results: Results) -> str:
    """The results as a Markdown table with the circumstances above it."""
    facts = results.environment
    machines = sorted({cell.machine for cell in results.cells})
    versions = sorted({cell.version for cell in results.cells})
    days = sorted({cell.date[:10] for cell in results.cells})
    lines = [
        f"{'; '.join(machines)}, {facts['memory_gb']} GB; {facts['system']}; {', '.join(versions)}; "
        f"{' to '.join(sorted({days[0], days[-1]}))}. The last command was",
        "",
        f"`{facts['command']}`",
        "",
        "| " + " | ".join(_COLUMNS) + " |",
        "|---|---:|---|" + "---:|" * (len(_COLUMNS) - 3),
        *("| " + " | ".join(_row(cell)) + " |" for cell in results.cells),
    ]
    notes = [f"{cell.corpus}, {cell.size:,}, {cell.method}: {cell.reason}." for cell in results.cells if cell.reason]
    lines += ["", *(f"- {note}" for note in notes)] if notes else []
    return "\n".join(lines) + "\n"


def prepare(name: str, texts: Iterable[str], folder: Path) -> Prepared:
    """Normalise, drop empty and repeated docids (the first one stays), and write one per line."""
    raw = folder / "raw.txt"
    hashes = bytearray()
    with open(raw, "wb") as file:
        for text in texts:
            line = normalize(text).encode()
            if line:
                hashes += xxhash.xxh3_64_digest(line)
                file.write(line + b"\n")
    # Hashes instead of a set of strings: twenty million docids must not cost gigabytes here.
    keys = np.frombuffer(hashes, np.uint64)
    keep = np.zeros(len(keys), np.bool_)
    keep[np.unique(keys, return_index=True)[1]] = True
    path = folder / "docids.txt"
    size, digest = 0, xxhash.xxh3_64()
    with open(raw, "rb") as source, open(path, "wb") as kept:
        for line, wanted in zip(source, keep.tolist(), strict=True):
            if wanted:
                kept.write(line)
                digest.update(line)
                size += len(line) - 1
    raw.unlink()
    if not size:
        raise PixnarError(f"{name} has no docids: give a corpus folder with docids, or a file with one text per line")
    return Prepared(name, path, int(keep.sum()), size, digest.hexdigest())


def _sources(
    corpora: Sequence[str | os.PathLike[str]],
    sizes: Sequence[int],
    generated: int,
    generated_size: int,
    seed: int,
    folder: Path,
) -> Iterator[tuple[Prepared, Sequence[int]]]:
    for corpus in corpora:
        yield prepare(Path(corpus).name, docid_texts([corpus])[0], folder), sizes
    if generated:
        yield prepare(f"generated-{generated}", generate_docids(generated, seed), folder), [generated_size]


def _one(
    prepared: Prepared,
    size: int,
    method: str,
    threads: int,
    limit: float,
    results: Results,
    target: Path | None,
    console: Console,
) -> None:
    facts = results.environment
    library = "sentencepiece" if method.startswith("sentencepiece") else "tokenizers"
    own = method.split("-")[0] == "pixnar"
    cell = Cell(
        corpus=prepared.name,
        docids=prepared.docids,
        text_mb=round(prepared.text_bytes / 1e6, 3),
        text_xxh3=prepared.checksum,
        size=size,
        method=method,
        threads=threads,
        version=f"pixnar {facts['commit']}" if own else f"{library} {facts['versions'][library]}",
        machine=f"{facts['cpu']} x {facts['cores']}",
        limit_seconds=limit,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    if any(old.same_as(cell) for old in results.cells):
        return
    needed = "pixnar.vocab.phrases" if own else library
    if importlib.util.find_spec(needed) is None:
        cell.status, cell.reason = "missing", f"{needed} is not installed"
    else:
        _measure(cell, prepared.path, int(method.split("-mc")[1]) if "-mc" in method else None)
    places = [i for i, old in enumerate(results.cells) if cell.replaces(old)]
    if places:
        results.cells[places[0]] = cell
    else:
        results.cells.append(cell)
    if target is not None:
        results.save(target)
    console.print("  " + "  ".join([*_row(cell)[1:], cell.reason]), soft_wrap=True, highlight=False)


def _measure(cell: Cell, text: Path, min_count: int | None) -> None:
    vocab = text.with_name("vocab.model")
    spec = {"method": cell.method, "text": str(text), "vocab": str(vocab), "size": cell.size}
    argument = json.dumps({**spec, "threads": cell.threads, "min_count": min_count})
    for action in ("build", "encode"):
        # Thread pools take their size once, when the process starts: encoding on one core needs its own process.
        threads = 1 if action == "encode" else cell.threads
        env = {**os.environ, "TOKENIZERS_PARALLELISM": "false" if threads == 1 else "true"}
        if threads:
            env["RAYON_NUM_THREADS"] = str(threads)
        status, result = _child([sys.executable, "-P", str(_CHILD), action, argument], env, cell.limit_seconds)
        if status != "ok":
            cell.status, cell.reason = status, f"{action}: {result}"
            break
        for name, value in json.loads(result).items():
            setattr(cell, name, value)
    vocab.unlink(missing_ok=True)


def _child(command: Sequence[str], env: dict[str, str], limit: float) -> tuple[str, str]:
    """Run to the end or to the limit: ("ok", last line printed), or the kind of failure and one line on it."""
    child = subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        printed, complaints = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        return "timeout", f"stopped after {limit:.0f} s"
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
    if child.returncode < 0:
        return "failed", f"killed by {signal.Signals(-child.returncode).name} (out of memory?)"
    if child.returncode:
        return "failed", (complaints.strip().splitlines() or [f"exit status {child.returncode}"])[-1]
    return "ok", printed.strip().splitlines()[-1]


def _row(cell: Cell) -> list[str]:
    def show(value: float | None, form: str) -> str:
        return "–" if value is None else format(value, form)

    method = cell.method if cell.status == "ok" else f"{cell.method} ({cell.status})"
    return [
        cell.corpus,
        f"{cell.size:,}",
        method,
        show(cell.tokens, ","),
        show(cell.build_seconds, ".1f"),
        show(cell.cpu_seconds, ".1f"),
        show(cell.peak_mb, ",.0f"),
        show(cell.mean_tokens, ".3f"),
        show(cell.p99_tokens, "d"),
        show(cell.encode_mb_s, ".2f"),
    ]
