"""A plan: what every stage of a fit needs, bytes by formula and seconds by what was measured, and a table of it."""

from __future__ import annotations

import math
import shlex
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from pixnar.research import scale as k
from pixnar.research.scale import ENCODER_NAMES, Scale
from pixnar.runtime.formats import stride_of

_TRIES = 24  # rules that are compared on dev
_DEV = 1000  # queries
_SEARCH_SECONDS = 0.008  # of a whole search: benchmarks/results/search.json …
_SEARCH_SECONDS_PER_DOCID = 2.5e-10  # … and what decoding adds: benchmarks/results/decode-100m.json
_ROUNDS = 20  # of learning the vectors c_i
_KEPT = 3  # checkpoints: the last two and the best
_MOST_GPUS = 4096
_EXAMPLES, _TARGETS = 64, 64  # for each c_i in a round, and of each example


@dataclass
class Stage:
    """One stage: bytes in the memory of the machine and of each GPU, bytes it leaves on disk, seconds."""

    name: str
    memory: float = 0.0
    gpu: float = 0.0
    disk: float = 0.0
    seconds: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)  # what the largest of these is made of, in bytes
    on_gpu: dict[str, float] = field(default_factory=dict)  # and what `gpu` is made of, where that is something else


@dataclass
class Plan:
    """All stages, and what does not fit."""

    scale: Scale
    stages: list[Stage]
    warnings: list[str]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "scale": asdict(self.scale) | {"documents": self.scale.n_documents, "steps": self.scale.n_steps},
            "stages": [asdict(stage) for stage in self.stages],
            "hours": sum(stage.seconds for stage in self.stages) / 3600,
            "warnings": self.warnings,
        }


def plan(scale: Scale) -> Plan:
    """What a fit of that size needs."""
    stages = [
        _vocabulary(scale),
        _table(scale),
        _features(scale),
        _training(scale),
        _shortlist(scale),
        _tuning(scale),
        _index(scale),
        _serving(scale),
    ]
    return Plan(scale, stages, _warnings(scale, stages))


def head_bytes(scale: Scale) -> dict[str, float]:
    """Bytes of the largest shard of the head in training: rows and bias, what the optimizer keeps, the gradient."""
    numbers = scale.rows * (scale.width + 1)
    state = k.ADAM_STATE * numbers if scale.optimizer == "adam" else 2 * k.ROW_STATE * scale.rows
    gradient = numbers
    if scale.softmax == "sampled" and scale.optimizer == "rows":
        gathered = scale.sample + scale.batch * scale.slots * (1 + scale.tokens_per_docid)  # drawn, targets, candidates
        gradient = min(numbers, math.ceil(gathered / scale.shards) * (scale.width + 1))
    return {"rows": k.FLOAT * numbers, "optimizer": state, "gradient": k.FLOAT * gradient}


def table_bytes(scale: Scale) -> dict[str, float]:
    """Bytes of the files of a docid table."""
    tokens, docids = scale.tokens_per_docid, scale.docids
    rows = docids * (tokens * _bits(scale.vocab) / 8 + k.TABLE_BYTES)
    lists = docids * (tokens * _bits(docids) / 8 + k.INDEX_BYTES) + k.LIST_BYTES * scale.vocab
    return {
        "docids": rows + lists,
        "spellings": k.SPELLING_BYTES_PER_TEXT_BYTE * scale.text_bytes * docids,
        "documents": k.DOCUMENT_BYTES * scale.n_documents,
        "vocabulary": k.VOCABULARY_BYTES_PER_TOKEN * scale.vocab,
    }


def index_bytes(scale: Scale) -> dict[str, float]:
    """Bytes of the files of an index, the docid table left out."""
    m, r = scale.shortlist
    parameters = scale.encoder[0]
    return {
        "head.pixnar": (scale.vocab + 1) * (stride_of("int8", scale.width) + 2 * k.FLOAT),
        "model": k.FLOAT * ((scale.vocab + 1) * (scale.width + 1) + parameters),
        "encoder": k.ONNX_BYTES_PER_PARAMETER * parameters,
        "shortlist.pixnar": k.FLOAT * m * (scale.width + r),
        "priors.pixnar": k.FLOAT * scale.vocab,
        "vectors.pixnar": scale.docids * (k.HALF * scale.width + 8),
        "lexical.pixnar": k.LEXICAL_BYTES * scale.docids + k.LEXICAL_BYTES_PER_TEXT_BYTE * scale.text,
    }


def step_seconds(scale: Scale) -> dict[str, float]:
    """Seconds of one step of training: the head's products, moving its rows, the encoder, what processes exchange."""
    pairs, width = scale.batch * (scale.slots + 1), scale.width
    tokens = scale.vocab + 1 if scale.softmax == "full" else scale.sample + scale.batch * scale.slots
    ranked = scale.batch if scale.ranking else 0  # x_0's log Z once more
    products = 8 * (pairs + ranked) * tokens * width  # twice forward and backward: logits are made again
    moved = sum(head_bytes(scale).values())
    encoder = scale.fine_tune * 6 * scale.batch * scale.pieces * scale.encoder[1]
    sent = 0.0
    if scale.shards > 1:
        sent = 4 * k.FLOAT * pairs * width + 2 * scale.fine_tune * k.FLOAT * scale.encoder[0]
    cores = scale.cores
    host = k.COPY_SECONDS_PER_CELL * scale.batch * scale.candidates  # every process does this for the whole batch
    if scale.softmax == "sampled":
        host += k.DRAW_SECONDS_PER_TOKEN * (scale.sample + scale.batch * scale.slots + scale.candidates)
    host *= max(1.0, scale.shards / cores)
    if scale.gpus:
        speed, bandwidth, link = k.GPU_SHARE * scale.gpu_flops * scale.gpus, k.GPU_BANDWIDTH, k.GPU_LINK
        on_gpu = {"head": products / speed, "rows": moved / bandwidth, "encoder": encoder / speed}
        return on_gpu | {"sent": sent / link, "processor": host}
    fixed = k.SAMPLED_SECONDS_PER_STEP if scale.softmax == "sampled" else 0.0
    return {
        "head": products / (k.CORE_FLOPS_HEAD * cores) + fixed,
        "rows": moved * scale.shards / (k.HOST_BANDWIDTH * cores),
        "encoder": encoder / (k.CORE_FLOPS_ENCODER * cores),
        "sent": sent * scale.shards / k.HOST_BANDWIDTH,
        "processor": host,
    }


def _vocabulary(scale: Scale) -> Stage:
    text = scale.docids * scale.text_bytes
    seconds = k.VOCABULARY_CORE_SECONDS_PER_MB * text / 1e6 / min(scale.cores, 8)
    parts = {"counts and texts": k.VOCABULARY_MEMORY_PER_TEXT_BYTE * text}
    disk = k.VOCABULARY_BYTES_PER_TOKEN * scale.vocab
    return Stage("vocabulary", sum(parts.values()), 0.0, disk, seconds, parts)


def _table(scale: Scale) -> Stage:
    parts = table_bytes(scale)
    memory = k.TABLE_MEMORY + k.TABLE_MEMORY_PER_DOCID * scale.docids
    return Stage("docid table", memory, 0.0, sum(parts.values()), k.TABLE_CORE_SECONDS * scale.docids, parts)


def _reading(scale: Scale) -> float:
    """Bytes of all processes of a run with what they have read; what they map is there once."""
    each = k.PROCESS_BYTES + k.PAIRS_MEMORY_PER_DOCID * scale.docids
    mapped = k.READING_FILE_PER_DOCID if scale.shards > 1 else k.HALF * scale.width  # one process holds the vectors
    return scale.shards * each + (k.READING_MEMORY_PER_DOCID + mapped) * scale.docids


def _features(scale: Scale) -> Stage:
    products = 2 * scale.docids * scale.pieces * scale.encoder[1]
    speed = k.GPU_SHARE * scale.gpu_flops * scale.gpus if scale.gpus else k.CORE_FLOPS_ENCODER * scale.cores
    seconds = products / speed + k.READING_CORE_SECONDS * scale.docids
    kept = k.HALF * scale.width * scale.docids
    copies = 2 if scale.shards > 1 else 1  # the cache, and the file that all processes map
    gpu = k.GPU_OTHER + k.FLOAT * scale.encoder[0] if scale.gpus else 0.0
    return Stage("encoder features", _reading(scale), gpu, copies * kept, seconds, {"vectors": kept})


def _training(scale: Scale) -> Stage:
    parameters, _, layers = scale.encoder
    each = -(-scale.batch // scale.shards)
    parts = dict(head_bytes(scale))
    parts["encoder"] = k.FLOAT * parameters * (4 if scale.fine_tune else 1)
    if scale.fine_tune:  # what a layer keeps for its backward pass: some 34 bytes for each number in half precision
        kept = 34 if scale.gpus else 68
        parts["activations"] = kept * each * scale.pieces * scale.width * layers
    parts["slots' vectors"] = 6 * k.FLOAT * scale.batch * (scale.slots + 1) * scale.width
    parts["ranking"] = 4 * k.FLOAT * scale.batch * scale.candidates
    if scale.ranking and scale.softmax == "full":  # log Z and the candidates' rows bring gradients of their own
        parts["ranking"] += k.RANKING_GRADIENTS * parts["gradient"]
    parts["pieces of logits"] = k.CHUNK_BYTES if scale.gpus else k.CHUNK_BYTES_CPU
    device = sum(parts.values())
    one = sum(step_seconds(scale).values())
    saved = scale.shards * (parts["rows"] + parts["optimizer"]) + parts["encoder"]
    rows_file = k.FLOAT * (scale.vocab + 1) * scale.width if scale.shards > 1 else 0.0
    memory = _reading(scale) + (0.0 if scale.gpus else scale.shards * device)
    gpu = k.GPU_OTHER + device if scale.gpus else 0.0
    return Stage("training", memory, gpu, _KEPT * saved + rows_file, one * scale.n_steps, parts)


def _shortlist(scale: Scale) -> Stage:
    m, r = scale.shortlist
    looked_at = scale.vocab if scale.vocab <= 70_000 else max(16_384, scale.vocab // 50)
    learning = _ROUNDS * scale.width * m * (6 * looked_at + 2 * _EXAMPLES * m + 6 * _EXAMPLES * _TARGETS)
    listing = 2 * m * scale.vocab * scale.width
    whole = k.FLOAT * (scale.vocab + 1) * (scale.width + 1)
    speed = k.GPU_SHARE * scale.gpu_flops * scale.gpus if scale.gpus else k.CORE_FLOPS_HEAD * scale.cores
    merged = m * r * math.ceil(scale.vocab / k.LIST_PIECE)
    seconds = learning / speed + listing / (k.CORE_FLOPS_HEAD * scale.cores)
    seconds += k.LIST_SECONDS_PER_MERGED * merged + k.LIST_SECONDS_PER_SCORE * m * scale.vocab
    parts: dict[str, float] = {"whole head": whole, "lists": k.FLOAT * m * (scale.width + r)}
    rows = k.FLOAT * scale.rows * (scale.width + 1)
    memory = _reading(scale) + sum(parts.values()) + (0.0 if scale.gpus else scale.shards * rows)
    gpu = k.GPU_OTHER + rows + k.FLOAT * scale.encoder[0] if scale.gpus else 0.0
    return Stage("shortlist", memory, gpu, parts["lists"], seconds, parts, {"rows": rows})


def _tuning(scale: Scale) -> Stage:
    files = index_bytes(scale)
    parts = {"whole head": k.FLOAT * (scale.vocab + 1) * (scale.width + 1), "docid table": table_bytes(scale)["docids"]}
    parts |= {name: files[f"{name}.pixnar"] for name in ("lexical", "vectors")}
    full = 2 * 400 * (scale.slots + 1) * scale.vocab * scale.width / (k.CORE_FLOPS_HEAD * scale.cores)
    search = _SEARCH_SECONDS + _SEARCH_SECONDS_PER_DOCID * scale.docids
    searches = search * (400 * _TRIES + _DEV) / scale.cores
    seconds = k.LEXICAL_CORE_SECONDS * scale.docids + k.LEXICAL_CORE_SECONDS_PER_TEXT_BYTE * scale.text
    seconds += full + searches
    built = k.LEXICAL_MEMORY_PER_DOCID * scale.docids + k.LEXICAL_MEMORY_PER_TEXT_BYTE * scale.text
    held = max(sum(parts.values()), built)  # it is built before dev is searched
    memory, disk = _reading(scale) + held, parts["lexical"]
    return Stage("lexical index, choices on dev", memory, 0.0, disk, seconds, parts)


def _index(scale: Scale) -> Stage:
    parts = index_bytes(scale) | {"docids": sum(table_bytes(scale).values())}
    return Stage("the index", 0.0, 0.0, sum(parts.values()), 0.0, parts)


def _serving(scale: Scale) -> Stage:
    """Mapped files: as much of them is in memory as is touched, and all of it in the long run."""
    parts = index_bytes(scale) | {"docids": sum(table_bytes(scale).values())}
    del parts["model"]
    return Stage("serving", sum(parts.values()), 0.0, 0.0, 0.0, parts)


def _warnings(scale: Scale, stages: list[Stage]) -> list[str]:
    out = []
    if scale.gpus:
        for stage in stages:
            if stage.gpu <= scale.gpu_memory:
                continue
            needed = _least_gpus(scale, stage.name)
            smaller = "make the batch smaller" if stage.name == "training" else "take larger ones"
            remedy = f"use {needed} GPUs or more" if needed else f"more GPUs do not help: {smaller}"
            parts = stage.on_gpu or stage.parts
            largest = max(parts, key=lambda name: parts[name])
            out.append(
                f"{stage.name} needs {stage.gpu / 1e9:.0f} GB per GPU, which has {scale.gpu_memory / 1e9:.0f} "
                f"({largest}: {parts[largest] / 1e9:.0f}): {remedy}"
            )
    if scale.memory:
        out += [
            f"{stage.name} needs {stage.memory / 1e9:.0f} GB of memory, the machine has {scale.memory / 1e9:.0f}: "
            "take a larger one, or more machines"
            for stage in stages
            if stage.memory > scale.memory
        ]
    return out


def _least_gpus(scale: Scale, name: str) -> int:
    """With how many GPUs a stage fits; 0 if with no number of them."""
    stage = {"encoder features": _features, "training": _training, "shortlist": _shortlist}[name]
    count = scale.gpus
    while count < max(_MOST_GPUS, 4 * scale.gpus):
        count += 1 if count < 16 else count // 4
        if stage(replace(scale, gpus=count)).gpu <= scale.gpu_memory:
            return count
    return 0


def _bits(count: float) -> int:
    return max(1, math.ceil(math.log2(max(2.0, count))))


def show(made: Plan, corpus: str = "CORPUS", console: Console | None = None) -> None:
    """Print the stages, what training is made of, the command for a fit of that corpus, and what does not fit."""
    out = console or Console(soft_wrap=True)
    scale = made.scale
    where = f"{scale.gpus} GPUs" if scale.gpus else f"{scale.processes} processes on {scale.cores} cores"
    sizes = f"{scale.docids:,} docids of {scale.n_documents:,} documents"
    out.print(f"{sizes}, {scale.vocab:,} tokens, width {scale.width}, {where}")
    table = Table("stage", *("memory", "per GPU", "disk", "time"), title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for stage in made.stages:
        table.add_row(stage.name, size(stage.memory), size(stage.gpu), size(stage.disk), duration(stage.seconds))
    total = sum(stage.seconds for stage in made.stages)
    table.add_row("all", size(max(stage.memory for stage in made.stages)), "", "", duration(total), style="bold")
    out.print(table)
    training = next(stage for stage in made.stages if stage.name == "training")
    out.print(f"training, each process: {parts(training)}")
    each = step_seconds(scale)
    slowest = ", ".join(f"{name} {value * 1e3:,.1f}" for name, value in each.items() if value)
    out.print(f"training, {scale.n_steps:,} steps of {scale.batch:,} pairs; milliseconds of a step: {slowest}")
    out.print(f"to fit so: {command(scale, corpus)}", highlight=False)
    for warning in made.warnings:
        out.print(f"does not fit: {warning}", style="bold red", highlight=False)


def command(scale: Scale, corpus: str = "CORPUS") -> str:
    """The fit that a plan is about: its settings are not the recipe's own.

    >>> command(Scale(docids=10, vocab=9, gpus=2, steps=5))
    'torchrun --nproc-per-node 2 -m pixnar fit CORPUS -o INDEX --minutes 0 --set vocab.size=9 --set model.slots=8 \
--set scoring.score=probability --set model.head=encoder --set train.batch=128 --set train.softmax=full \
--set train.optimizer=rows --set train.steps=5'
    """
    settings: dict[str, object] = {"vocab.size": scale.vocab, "model.slots": scale.slots}
    settings |= {"scoring.score": "probability", "model.head": "encoder"}  # whose training was measured
    settings |= {"train.batch": scale.batch, "train.softmax": scale.softmax}
    if scale.softmax == "sampled":
        settings["train.sample"] = scale.sample
    settings["train.optimizer"] = scale.optimizer
    settings["train.steps"] = scale.n_steps
    if scale.fine_tune:
        settings["train.fine_tune"] = scale.fine_tune
    if not scale.ranking:
        settings["train.ranking"] = 0
    start = f"torchrun --nproc-per-node {scale.shards} -m pixnar" if scale.shards > 1 else "pixnar"
    told = " ".join(f"--set {name}={value}" for name, value in settings.items())
    encoder = ENCODER_NAMES.get(scale.width, "ENCODER")  # one of that width, if we know none
    return f"{start} fit {shlex.quote(corpus)} -o INDEX{f' --encoder {encoder}' if encoder else ''} --minutes 0 {told}"


def parts(stage: Stage) -> str:
    """What a stage's memory is made of, largest first.

    >>> parts(Stage("x", parts={"rows": 2e9, "nothing": 0.0, "bias": 3e6}))
    'rows 2.0 GB, bias 3.0 MB'
    """
    largest = sorted(stage.parts.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {size(value)}" for name, value in largest if value)


def size(count: float) -> str:
    """Bytes for people.

    >>> [size(n) for n in (0, 999, 1.54e7, 2.3e11, 4e12)]
    ['', '1.0 KB', '15 MB', '230 GB', '4.0 TB']
    """
    if not count:
        return ""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= factor or unit == "KB":
            return f"{count / factor:.1f} {unit}" if count < 10 * factor else f"{count / factor:.0f} {unit}"
    raise AssertionError


def duration(seconds: float) -> str:
    """Seconds for people.

    >>> [duration(s) for s in (0, 0.4, 90, 3 * 3600, 5e6)]
    ['', '0.4 s', '1.5 min', '3.0 h', '58 days']
    """
    if not seconds:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 72 * 3600 else f"{seconds / 86400:.0f} days"
