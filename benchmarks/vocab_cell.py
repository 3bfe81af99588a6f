"""One cell of the vocabulary benchmark, run in its own process so that time and peak memory are the method's alone.

``python vocab_cell.py build SPEC`` trains on a file of normalised, distinct docids, one per line, and saves the
vocabulary; ``encode SPEC`` loads it and measures. SPEC is a JSON object; so is the last line printed.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypedDict

import numpy as np
from numpy.typing import NDArray

BATCH = 16_384
SPEED_BYTES = 8_000_000  # enough for a steady figure, little enough that slow encoders finish
SPEED_ROUNDS = 3
SENTENCEPIECE_MAX_PIECE = 40  # characters; its default of 16 would keep most phrases out
UNIGRAM_SUPER_MAX_PIECE = 40  # bytes, for the same reason


class Spec(TypedDict):
    """What the parent process asks for: paths of the docids and of the vocabulary, and the builder's settings."""

    method: str
    text: str
    vocab: str
    size: int
    threads: int
    min_count: int | None


class Method(Protocol):
    """How one builder is trained, saved, loaded and asked to encode."""

    def build(self, spec: Spec, note: Note) -> int:
        """Train, save to ``spec["vocab"]``, return the number of tokens."""
        ...

    def encoder(self, spec: Spec) -> Callable[[list[str]], Any]:
        """The library's own batch call on one thread, vocabulary already loaded."""
        ...

    def lengths(self, encoded: Any) -> NDArray[np.int64]:
        """Tokens per text in what the batch call returned."""
        ...


class Note:
    """Takes down when the last text was handed over, and when each stage of the builder began."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.read_seconds: float | None = None
        self._began: dict[str, float] = {}

    def texts(self, path: Path) -> Iterator[str]:
        """The docids of the file, streamed."""
        yield from lines(path)
        self.read_seconds = time.perf_counter() - self.start

    def progress(self, stage: str, done: int, total: int) -> None:
        """Progress callback of a builder."""
        from pixnar.base.progress import stage_name

        self._began.setdefault(stage_name(stage), time.perf_counter())

    def stages(self) -> dict[str, float]:
        """Seconds from the first word of each stage to the first word of the next."""
        ends = [*self._began.values(), time.perf_counter()][1:]
        return {stage: round(end - began, 3) for (stage, began), end in zip(self._began.items(), ends, strict=False)}


class Pixnar:
    """Our own builder."""

    def build(self, spec: Spec, note: Note) -> int:  # noqa: D102
        from pixnar.vocab.phrases import PUNCTUATION, Vocabulary

        vocabulary = Vocabulary.build(
            note.texts(Path(spec["text"])),
            spec["size"],
            min_count=spec["min_count"],
            punctuation=next((where for where in PUNCTUATION if where in spec["method"]), "leading"),
            threads=spec["threads"],
            progress=note.progress,
        )
        vocabulary.save(spec["vocab"])
        return len(vocabulary)

    def encoder(self, spec: Spec) -> Callable[[list[str]], Any]:  # noqa: D102
        from pixnar.vocab.phrases import Vocabulary

        vocabulary = Vocabulary.load(spec["vocab"])
        return lambda texts: vocabulary.encode_batch(texts, threads=1)

    def lengths(self, encoded: Any) -> NDArray[np.int64]:  # noqa: D102
        found: NDArray[np.int64] = encoded.lengths
        return found


class HuggingFace:
    """BPE and Unigram of `tokenizers`, as `pixnar.vocab.baselines` sets them up."""

    def __init__(self, model: str, *, whitespace: bool) -> None:
        self.model = model
        self.whitespace = whitespace

    def build(self, spec: Spec, note: Note) -> int:  # noqa: D102
        from pixnar.vocab.baselines import bpe_tokenizer, unigram_tokenizer

        source = note.texts(Path(spec["text"]))
        if self.model == "bpe":
            tokenizer = bpe_tokenizer(source, spec["size"], whitespace=self.whitespace)
        else:
            longest = 16 if self.whitespace else UNIGRAM_SUPER_MAX_PIECE
            tokenizer = unigram_tokenizer(source, spec["size"], whitespace=self.whitespace, max_piece_bytes=longest)
        tokenizer.save(spec["vocab"], pretty=False)
        return int(tokenizer.get_vocab_size())

    def encoder(self, spec: Spec) -> Callable[[list[str]], Any]:  # noqa: D102
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(spec["vocab"])
        return lambda texts: tokenizer.encode_batch_fast(texts, add_special_tokens=False)

    def lengths(self, encoded: Any) -> NDArray[np.int64]:  # noqa: D102
        return np.fromiter((len(encoding) for encoding in encoded), np.int64, len(encoded))


class SentencePiece:
    """Sentencepiece's Unigram with pieces that may cross blanks."""

    def build(self, spec: Spec, note: Note) -> int:  # noqa: D102
        import sentencepiece

        prefix = spec["vocab"].removesuffix(".model")
        sentencepiece.SentencePieceTrainer.train(
            input=spec["text"],
            model_prefix=prefix,
            model_type="unigram",
            vocab_size=spec["size"],
            split_by_whitespace=False,
            split_by_number=False,
            split_by_unicode_script=False,
            max_sentencepiece_length=SENTENCEPIECE_MAX_PIECE,
            max_sentence_length=1 << 24,
            byte_fallback=True,
            bos_id=-1,  # two more places for pieces
            eos_id=-1,
            hard_vocab_limit=False,
            character_coverage=0.9999,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            train_extremely_large_corpus=True,
            num_threads=spec["threads"] or os.cpu_count() or 1,
            minloglevel=1,
        )
        os.replace(f"{prefix}.model", spec["vocab"])
        return int(sentencepiece.SentencePieceProcessor(model_file=spec["vocab"]).get_piece_size())

    def encoder(self, spec: Spec) -> Callable[[list[str]], Any]:  # noqa: D102
        import sentencepiece

        processor = sentencepiece.SentencePieceProcessor(model_file=spec["vocab"])
        return lambda texts: processor.encode(texts, out_type=int, num_threads=1)

    def lengths(self, encoded: Any) -> NDArray[np.int64]:  # noqa: D102
        return np.fromiter(map(len, encoded), np.int64, len(encoded))


def method(name: str) -> Method:
    """The method of that name; "pixnar-inside-mc20" is ours with that punctuation and min_count."""
    known: dict[str, Method] = {
        "bpe-ws": HuggingFace("bpe", whitespace=True),
        "bpe-super": HuggingFace("bpe", whitespace=False),
        "unigram-ws": HuggingFace("unigram", whitespace=True),
        "unigram-super": HuggingFace("unigram", whitespace=False),
        "sentencepiece-unigram-super": SentencePiece(),
    }
    return Pixnar() if name.split("-")[0] == "pixnar" else known[name]


def lines(path: Path) -> Iterator[str]:
    """The lines of a text file; only a line feed ends one."""
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line.rstrip("\n")


def batches(texts: Iterable[str], size: int = BATCH) -> Iterator[list[str]]:
    """The texts in lists of `size`."""
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def peak_bytes() -> int:
    """Peak resident memory of this process.

    `VmHWM` where there is one: `ru_maxrss` survives exec, so a child would inherit the peak of its parent.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def build(spec: Spec) -> dict[str, Any]:
    """Train one vocabulary; time and memory include reading the docids and saving the vocabulary."""
    note = Note()
    cpu = time.process_time()
    tokens = method(spec["method"]).build(spec, note)
    wall = time.perf_counter() - note.start
    return {
        "tokens": tokens,
        "build_seconds": round(wall, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "peak_mb": round(peak_bytes() / 1e6, 1),
        "read_seconds": None if note.read_seconds is None else round(note.read_seconds, 3),
        "stages": note.stages(),
    }


def encode(spec: Spec) -> dict[str, Any]:
    """Tokens per docid over the whole corpus, and the best of three timed rounds over an even sample of it."""
    how = method(spec["method"])
    began = time.perf_counter()
    run = how.encoder(spec)
    load_seconds = time.perf_counter() - began
    path = Path(spec["text"])
    histogram = np.zeros(0, np.int64)
    for batch in batches(lines(path)):
        counts = np.bincount(how.lengths(run(batch)))
        histogram = np.pad(histogram, (0, max(0, len(counts) - len(histogram))))
        histogram[: len(counts)] += counts
    sample, sample_bytes = _sample(path)
    best = min(_seconds(run, sample) for _ in range(SPEED_ROUNDS))
    total = int(histogram.sum())
    return {
        "mean_tokens": round(float((histogram * np.arange(len(histogram))).sum() / total), 4),
        "p99_tokens": int(np.searchsorted(np.cumsum(histogram), 0.99 * total)),
        "encode_mb_s": round(sample_bytes / best / 1e6, 3),
        "encode_sample_mb": round(sample_bytes / 1e6, 3),
        "load_seconds": round(load_seconds, 3),
    }


def _sample(path: Path) -> tuple[list[list[str]], int]:
    """Docids at even distances, about `SPEED_BYTES` of them, in batches; and their bytes."""
    step = max(1, -(-path.stat().st_size // SPEED_BYTES))
    texts = [text for i, text in enumerate(lines(path)) if i % step == 0]
    return list(batches(texts)), sum(len(text.encode()) for text in texts)


def _seconds(run: Callable[[list[str]], Any], sample: Sequence[list[str]]) -> float:
    began = time.perf_counter()
    for batch in sample:
        run(batch)
    return time.perf_counter() - began


def main(arguments: Sequence[str]) -> None:
    """Entry point of the child process."""
    action, spec = arguments
    result = {"build": build, "encode": encode}[action](json.loads(spec))
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
