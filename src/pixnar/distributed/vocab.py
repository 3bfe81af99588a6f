"""A vocabulary from docids in shards: the bytes that `Vocabulary.build` gives, counted by many workers.

    deal      every shard of the input     texts, normalised, dealt out by hash: equal docids come together
    gather    every shard of docids        distinct docids as word numbers; its words; how blanks are used
    count     every shard, level by level  extend n-grams by what survived, count pairs; then bucket by bucket: add up
    segment   every shard, round by round  how often each candidate is used

Shards of docids and of distinct words lie in the scratch folder and are never changed, only written anew under the next
number; jobs are functions of files and arguments, so that a job may be run again anywhere. What travels are the
candidates and their counts. The driver adds whole numbers and decides, with the code that decides on one machine.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixnar import _native
from pixnar.base.errors import CorpusError
from pixnar.base.progress import Progress
from pixnar.base.workdir import scratch_folder
from pixnar.corpus import Corpus, Skipped
from pixnar.corpus.records import IdSet
from pixnar.corpus.texts import LEAST_BYTES, Shard, check_path, cut_files, docid_source, shard_docids, shard_texts
from pixnar.distributed.cluster import Executor, LocalExecutor, load, remove, save, written
from pixnar.vocab.phrases import LEAST_MEMORY, BuildOptions, Vocabulary, as_vocabulary_errors, normal_lines

Layer = Literal["words", "docids"]
_LAYERS: dict[Layer, int] = {"words": 0, "docids": 1}
_SHARD_BYTES = 128 << 20  # of text: what a worker holds at a time is a few times that
_FEW_PAIRS = 1 << 18  # added up where they are rather than by a job
_FEW_WORDS = 2  # blocks; so few words are cut into pieces here


class Input(NamedTuple):
    """Where docids come from: shards of a corpus's docids, with the ids of its documents, or of files of texts."""

    shards: list[Shard]
    known: IdSet | None
    of_corpus: bool


def find_input(
    sources: Sequence[str | os.PathLike[str]], parts: int, *, least: int = LEAST_BYTES, progress: Progress | None = None
) -> Input:
    """The docids that `docid_texts` would read, in about `parts` shards."""
    found = docid_source(sources)
    if isinstance(found, Corpus):
        files = found.docid_files()
        known = found.known_documents(progress)
        if known is not None:
            known.contains([])  # sorts them, once for all
        return Input(cut_files([Path(os.path.abspath(file)) for file in files], parts, least), known, True)
    for name in found:
        if name == "-":
            raise CorpusError("standard input cannot be cut into shards: give files or a folder, or leave out --ray")
        check_path(Path(name))
    return Input(cut_files([Path(os.path.abspath(name)) for name in found], parts, least), None, False)


def build_vocabulary(
    sources: Sequence[str | os.PathLike[str]],
    executor: Executor,
    scratch: Path,
    options: BuildOptions | None = None,
    *,
    shards: int | None = None,
    least: int = LEAST_BYTES,
    skip_bad_rows: bool = False,
    skipped: Skipped | None = None,
    progress: Progress | None = None,
) -> Vocabulary:
    """Learn the vocabulary that `Vocabulary.build` learns from the same docids, with the workers of an executor.

    Files between the jobs go to a folder in `scratch`, which all workers must see. How many `shards` there are
    (default: one for each worker, more if they would be large) changes nothing but the time.
    """
    options = options or BuildOptions()
    given = find_input(sources, executor.workers * 2, least=least, progress=progress)
    size = sum(shard.end - shard.begin for shard in given.shards)
    count = shards or max(executor.workers, math.ceil(size / _SHARD_BYTES))
    memory = max((options.max_memory or options.memory) // (executor.workers + 1), LEAST_MEMORY)
    with scratch_folder(scratch) as folder, as_vocabulary_errors(os.fspath(scratch)):
        build = _Build(executor, folder, options, count, memory, progress)
        build.deal(given, skip_bad_rows, Skipped() if skipped is None else skipped)
        build.gather()
        build.number_words()
        build.count("words")
        build.count("docids")
        return Vocabulary.from_built(build.select(), options)


class _Build:
    """What the driver knows of a build."""

    def __init__(
        self,
        executor: Executor,
        folder: Path,
        options: BuildOptions,
        shards: int,
        memory: int,
        progress: Progress | None,
    ) -> None:
        self.executor, self.folder, self.shards, self.memory, self.progress = executor, folder, shards, memory, progress
        self.options = options
        native = options.native() | {"max_memory": memory, "scratch_folder": os.fspath(folder)}
        self.builder = _native.ShardedBuilder(**native)
        self.inputs = self.rows = 0
        self.version: dict[Layer, int] = {"words": 0, "docids": 0}  # of the shards that are in force
        self.parts: dict[Layer, int] = {"words": 0, "docids": shards}
        self.numbers: list[NDArray[np.uint32]] = []
        self.first_words: list[int] = []

    def deal(self, given: Input, skip: bool, skipped: Skipped) -> None:
        known = self.executor.share(given.known)
        jobs = [
            (self.folder, number, shard, given.of_corpus, skip, self.shards, known)
            for number, shard in enumerate(given.shards)
        ]
        for rows, bad in self.executor.run("reading docids", _deal, jobs, self.progress):
            self.rows += rows
            skipped.update(bad)
        self.inputs = len(jobs)

    def gather(self) -> None:
        jobs = [(self.folder, part, self.inputs, self.options.weighted, self.memory) for part in range(self.shards)]
        for part, (docids, text_bytes, votes) in enumerate(
            self.executor.run("telling docids apart", _gather, jobs, self.progress)
        ):
            self.builder.add_shard(self.rows if part == 0 else 0, docids, text_bytes, votes)
        remove(self.folder, "lines-*")

    def number_words(self) -> None:
        names = ("bytes", "offsets", "counts")
        listed = [
            [load(_path(self.folder, f"list-{name}", part), mapped=True) for part in range(self.shards)]
            for name in names
        ]
        self.numbers = self.builder.number_words(*listed)
        blocks = self.builder.word_blocks()
        self.parts["words"] = max(min(self.shards, blocks), 1)
        borders = [blocks * part // self.parts["words"] for part in range(self.parts["words"] + 1)]
        self.first_words = [self.builder.first_word(block) for block in borders]
        for part, block in enumerate(borders[:-1]):
            save(_path(self.folder, "words-0", part), self.builder.words(block, borders[part + 1]))

    def executor_for(self, layer: Layer) -> Executor:
        few = layer == "words" and self.builder.word_blocks() <= _FEW_WORDS
        return LocalExecutor() if few else self.executor

    def count(self, layer: Layer) -> None:
        """Level by level: shards are extended by what survived the level before, and count their pairs of this one."""
        number, parts, executor = _LAYERS[layer], self.parts[layer], self.executor_for(layer)
        stage = "counting pieces" if layer == "words" else "counting phrases"
        extension: Any = None
        own = [(_Numbers(numbers, *self.builder.rule()),) for numbers in self.numbers] if layer == "docids" else []
        self.numbers = [] if own else self.numbers
        while True:
            level = self.builder.level(number)
            version, buckets = self.version[layer], min(executor.workers, parts)
            jobs: list[tuple[Any, ...]] = [
                (self.folder, layer, version, part, level, buckets, self.memory, own[part][0] if own else extension)
                for part in range(parts)
            ]
            words = f"{stage}, {level[2]} units" if level else stage
            if level or own or extension is not None:
                pairs = sum(executor.run(words, _count, jobs, self.progress))
                if own or extension is not None:
                    self.version[layer] += 1
                    remove(self.folder, f"{layer}-{version}.*")
            own = []
            if level is None:
                return
            adders = executor if pairs > _FEW_PAIRS else LocalExecutor()
            jobs = [
                (self.folder, layer, level[2], bucket, parts, self.builder.min_count()) for bucket in range(buckets)
            ]
            kept = list(adders.run(words, _add, jobs))
            remove(self.folder, f"pairs-{layer}-{level[2]}-*")
            keys, first = self.builder.take(number, [keys for keys, _ in kept], [counts for _, counts in kept])
            if not keys.size:
                return
            extension = executor.share(_Extension(level[0], level[1], keys, first))

    def select(self) -> dict[str, Any]:
        """Round by round: shards say how often each candidate is used, the builder drops what is worth least."""
        self.builder.start()
        fixed: dict[Layer, Any] = {
            layer: self.executor_for(layer).share(_Fixed(*self.builder.candidates(number)))
            for layer, number in _LAYERS.items()
        }
        more = True
        while more:
            self._segment(fixed, f"selecting: {self.builder.left()} left", lengths=False)
            more = self.builder.advance(self.options.threads)
        self._segment(fixed, "counting uses", lengths=True)
        return self.builder.finish()

    def _segment(self, fixed: dict[Layer, Any], stage: str, *, lengths: bool) -> None:
        builder = self.builder
        builder.refresh()
        first = self.first_words
        found = self._uses("words", fixed, "", [None] * self.parts["words"], costs=True, lengths=False)
        for part, (_, _, costs, _) in enumerate(found):
            builder.set_word_costs(first[part], costs)
        found = self._uses("docids", fixed, stage, [None] * self.parts["docids"], costs=False, lengths=lengths)
        for ids, counts, _, histogram in found:
            builder.add_uses(1, ids, counts)
            builder.add_lengths(histogram)
        weights = builder.word_weights()
        cut = [weights[begin:end] for begin, end in pairwise(first)]
        for ids, counts, _, _ in self._uses("words", fixed, "", cut, costs=False, lengths=False):
            builder.add_uses(0, ids, counts)

    def _uses(
        self, layer: Layer, fixed: dict[Layer, Any], stage: str, weights: Sequence[Any], *, costs: bool, lengths: bool
    ) -> Iterator[Any]:
        executor, number = self.executor_for(layer), _LAYERS[layer]
        alive, unit_costs = executor.share(self.builder.alive(number)), executor.share(self.builder.unit_costs(number))
        jobs = [
            (self.folder, layer, self.version[layer], part, fixed[layer], alive, unit_costs, own, costs, lengths)
            for part, own in enumerate(weights)
        ]
        return executor.run(stage or "words", _segment, jobs, self.progress if stage else None)


class _Numbers(NamedTuple):
    numbers: NDArray[np.uint32]
    spacing_chars: NDArray[np.uint32]
    spacing_rule: NDArray[np.uint8]


class _Extension(NamedTuple):
    lo: int
    hi: int
    keys: NDArray[np.uint64]
    first: int


class _Fixed(NamedTuple):
    units: int
    prefixes: NDArray[np.uint32]
    lengths: NDArray[np.uint16]
    scores: NDArray[np.uint16]


def _path(folder: Path, name: str, part: int) -> Path:
    return folder / f"{name}.{part:05}"


def _deal(
    folder: Path, number: int, shard: Shard, of_corpus: bool, skip: bool, shards: int, known: IdSet | None
) -> tuple[int, Skipped]:
    """Texts of one shard of the input to files, one for each shard of docids; how many there were, and bad rows."""
    skipped = Skipped()
    rows = 0
    texts = (
        (row.docid for rows in shard_docids(shard, known, skip_bad_rows=skip, skipped=skipped) for row in rows)
        if of_corpus
        else shard_texts(shard, skip_bad_rows=skip, skipped=skipped)
    )
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(written(_path(folder, f"lines-{number}", part))) for part in range(shards)]
        for lines in normal_lines(texts):
            rows += lines.count(b"\n")
            for file, dealt in zip(files, _native.deal_lines(lines, shards), strict=True):
                file.write(dealt)
    return rows, skipped


def _gather(folder: Path, part: int, inputs: int, weighted: bool, memory: int) -> tuple[int, int, NDArray[np.uint64]]:
    """One shard of docids: the distinct ones, and their words."""
    with as_vocabulary_errors(os.fspath(folder)):
        reader = _native.ShardReader(weighted, memory, os.fspath(folder))
        for number in range(inputs):
            with open(_path(folder, f"lines-{number}", part), "rb") as file:
                while lines := file.readlines(1 << 24):
                    reader.add_lines(b"".join(lines))
        found = reader.finish()
    save(_path(folder, "docids-0", part), found["values"])
    for name in ("bytes", "offsets", "counts"):
        save(_path(folder, f"list-{name}", part), found[f"word_{name}"])
    return found["docids"], found["text_bytes"], found["spacing_votes"]


def _count(
    folder: Path,
    layer: Layer,
    version: int,
    part: int,
    level: tuple[int, int, int] | None,
    buckets: int,
    memory: int,
    change: _Numbers | _Extension | None,
) -> int:
    """Give a shard the numbers, or the n-grams, that were settled; then count the pairs of a level, if there is one."""
    shard = _native.Shard(load(_path(folder, f"{layer}-{version}", part)))
    if isinstance(change, _Numbers):
        words, offsets = (load(_path(folder, f"list-{name}", part)) for name in ("bytes", "offsets"))
        shard.number_words(words, offsets, change.numbers, change.spacing_chars, change.spacing_rule)
    elif change is not None:
        shard.extend(*change)
    if change is not None:
        save(_path(folder, f"{layer}-{version + 1}", part), shard.values())
    if level is None:
        return 0
    lo, hi, length = level
    pairs = shard.count(lo, hi, buckets, memory)
    for name, array in zip(("keys", "counts", "borders"), pairs, strict=True):
        save(_path(folder, f"pairs-{layer}-{length}-{name}", part), array)
    return int(pairs[0].size)


def _add(
    folder: Path, layer: Layer, length: int, bucket: int, parts: int, floor: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The pairs of one bucket that all shards together have often enough."""
    keys: list[NDArray[np.uint64]] = []
    counts: list[NDArray[np.uint64]] = []
    for part in range(parts):
        begin, end = load(_path(folder, f"pairs-{layer}-{length}-borders", part))[bucket : bucket + 2]
        for name, into in (("keys", keys), ("counts", counts)):
            array = load(_path(folder, f"pairs-{layer}-{length}-{name}", part), mapped=True)
            into.append(np.asarray(array[int(begin) : int(end)]))
    return _native.add_pairs(keys, counts, floor)


def _segment(
    folder: Path,
    layer: Layer,
    version: int,
    part: int,
    fixed: _Fixed,
    alive: NDArray[np.uint8],
    unit_costs: NDArray[np.uint64],
    weights: NDArray[np.uint64] | None,
    costs: bool,
    lengths: bool,
) -> tuple[NDArray[Any], ...]:
    """How a shard uses the candidates that are in: tokens, how often; what each sequence costs; lengths."""
    shard = _native.Shard(load(_path(folder, f"{layer}-{version}", part)))
    return shard.segment(*fixed, alive, unit_costs, weights, costs, lengths)
