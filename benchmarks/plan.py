"""What `pixnar plan` reckons with, measured at small sizes: bytes and seconds per docid, token and product.

``python -m benchmarks.plan --json FILE`` writes the figures; `pixnar.research.scale` has those of
benchmarks/results/plan.json, and what larger runs in benchmarks/results say. One thread throughout; each stage in a
process of its own, so that memory is its own, too.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from pixnar.base.storage import atomic_write
from pixnar.corpus import DocidRow, Document, open_corpus, write_corpus
from pixnar.evaluation.latency import environment, resident_mb
from pixnar.vocab import Vocabulary, load_vocabulary

from .generate import generate_docids

DOCIDS_PER_DOCUMENT, DOCIDS_PER_TEXT = 5, 10
SLOTS, WIDTH, BATCH = 8, 384, 32


def corpus_of(folder: Path, docids: int) -> None:
    """A corpus of generated docids, five to a document, with nothing else."""
    rows = [DocidRow(f"d{i // DOCIDS_PER_DOCUMENT}", text) for i, text in enumerate(generate_docids(docids))]
    documents = [Document(f"d{i}", "", "", {}) for i in range(-(-len(rows) // DOCIDS_PER_DOCUMENT))]
    write_corpus(folder, documents, rows, [], {})


def vocabulary_stage(home: Path, docids: int) -> dict[str, float]:
    """Bytes of the file and of its memory per token."""
    began, before = time.process_time(), resident_mb()
    texts = [row.docid for row in open_corpus(home / "corpus").docids()]
    made = Vocabulary.build(texts, 32_768, min_count=2, threads=1)
    made.save(home / "vocabulary")
    chars = float(np.mean([len(text.encode()) for text in texts]))
    return {
        "tokens": len(made),
        "bytes_per_token": (home / "vocabulary").stat().st_size / len(made),
        "seconds_per_text_mb": (time.process_time() - began) / (chars * len(texts) / 1e6),
        "text_bytes": chars,
        "memory_mb": resident_mb() - before,
    }


def table_stage(home: Path, docids: int) -> dict[str, float]:
    """Bytes of every file of a docid table per docid, and seconds."""
    from pixnar.table import build_table

    began = time.process_time()
    table = build_table(home / "corpus", load_vocabulary(home / "vocabulary"), home / "table", threads=1)
    seconds = time.process_time() - began
    rows = table.snapshot().table.rows
    kinds = {"docids": 0.0, "spellings": 0.0, "documents": 0.0}
    for path in (home / "table").iterdir():
        for kind in kinds:
            if path.name.startswith(kind):
                kinds[kind] += path.stat().st_size
    return {
        "docids": rows,
        "documents": table.documents,
        "table_bytes": kinds["docids"] / rows,
        "spelling_bytes": kinds["spellings"] / rows,
        "document_bytes": kinds["documents"] / table.documents,
        "seconds_per_docid": seconds / rows,
    }


def reading_stage(home: Path, docids: int) -> dict[str, float]:
    """Memory and seconds per docid of what a training run reads: by one process, and mapped by all of them."""
    from pixnar.train.data import TrainingData, write_inputs

    vocabulary, before, began = load_vocabulary(home / "vocabulary"), resident_mb(), time.process_time()
    data = TrainingData.read(open_corpus(home / "corpus"), vocabulary)
    count = len(data.docids)
    seconds, after = time.process_time() - began, resident_mb()
    write_inputs(data, home / "inputs")
    return {
        "tokens_per_docid": float(data.tokens.lengths.mean()),
        "bytes_per_docid": (after - before) * 1e6 / count,
        "file_bytes_per_docid": (home / "inputs").stat().st_size / count,
        "seconds_per_docid": seconds / count,
    }


def pairs_stage(home: Path, docids: int) -> dict[str, float]:
    """Memory per docid of the pairs of an epoch, at the most: while the second one is drawn. More docids, more sure."""
    from pixnar.train.pairs import Pairs

    count = 50 * docids
    docid = np.arange(count)
    document = docid // DOCIDS_PER_DOCUMENT
    before = _peak_bytes()
    pairs = Pairs(count, docid, document)
    pairs.batch(0, 1024)
    pairs.batch(pairs.steps_per_epoch(1024), 1024)
    return {"docids": count, "bytes_per_docid": (_peak_bytes() - before) / count}


def processor_stage(home: Path, docids: int) -> dict[str, float]:
    """What every process does for each step beside the products, at the size of a large run: draw, and copy."""
    import torch

    from pixnar.model.losses import Sampler
    from pixnar.train.step import copied

    chance = np.random.default_rng(0)
    tokens, sample, batch, candidates = 5_000_000, 65_536, 1024, 24_000
    sampler = Sampler(chance.zipf(1.5, tokens).clip(1, 10**7), sample)
    wanted = torch.from_numpy(chance.integers(0, tokens, batch * SLOTS + candidates))
    own = np.sort(chance.integers(0, tokens, (batch, 12)), 1).ravel()
    owner, known = np.repeat(np.arange(batch), 12), np.sort(chance.choice(tokens, candidates, replace=False))
    return {
        "draw_seconds_per_token": _best(lambda: sampler.draw(wanted), 5) / (sample + len(wanted)),
        "copy_seconds_per_cell": _best(lambda: copied(own, owner, batch, known), 5) / (batch * candidates),
    }


def plain_stage(home: Path, docids: int) -> dict[str, float]:
    """The peak of a step without the ranking loss, in gradients of the head."""
    return {"gradients": _gradients(ranking=False)}


def ranking_stage(home: Path, docids: int) -> dict[str, float]:
    """The same with what the ranking loss asks of the head."""
    return {"gradients": _gradients(ranking=True)}


def _gradients(ranking: bool) -> float:
    import torch

    from pixnar.model.head import PhraseHead
    from pixnar.model.losses import Weights, losses
    from pixnar.train.optimizers import RowAdam

    torch.set_num_threads(1)
    torch.manual_seed(0)
    total = 200_000
    head = PhraseHead(torch.zeros(total, WIDTH), torch.zeros(total))
    optimizer = RowAdam(head.parameters())
    x = torch.randn(16, 5, WIDTH, requires_grad=True)
    targets, ids = torch.randint(0, total, (16, 4)), torch.unique(torch.randint(0, total, (300,)))
    small = PhraseHead(torch.zeros(99, WIDTH), torch.zeros(99))
    losses(x[:1], targets[:1] % 99, small).l1.backward()  # type: ignore[no-untyped-call]  # torch loads some things late
    before = _peak_bytes()
    for _ in range(2):
        optimizer.zero_grad()
        loss = losses(x, targets, head).total(Weights())
        if ranking:
            logits, log_z = head.logits_of(x[:, 0], ids), head.log_z(x[:, 0])
            loss = loss + (logits - log_z[:, None]).amax(1).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return (_peak_bytes() - before) / (4 * total * WIDTH)


def _peak_bytes() -> float:
    """The most memory of this process so far; what getrusage tells begins at that of the process that started it."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return 1024.0 * int(line.split()[1])


def lexical_stage(home: Path, docids: int) -> dict[str, float]:
    """Bytes per docid of the lexical index over docids."""
    texts = [row.docid for row in open_corpus(home / "corpus").docids()]
    owners = [i // DOCIDS_PER_DOCUMENT for i in range(len(texts))]
    return _lexical(home, texts, owners, len(texts), "docid")


def text_stage(home: Path, docids: int) -> dict[str, float]:
    """The same per byte of the documents' own text, which is ten generated docids long."""
    lines = generate_docids(docids * 2, seed=1)
    texts = [". ".join(islice(lines, DOCIDS_PER_TEXT)) for _ in range(docids // DOCIDS_PER_DOCUMENT)]
    size = sum(len(text.encode()) for text in texts)
    return {"text_bytes": size / len(texts)} | _lexical(home, texts, list(range(len(texts))), size, "byte")


def _lexical(home: Path, texts: list[str], owners: list[int], units: int, unit: str) -> dict[str, float]:
    from pixnar.fusion.lexical import LexicalIndex

    count = owners[-1] + 1
    began = time.process_time()
    vocabulary, pairs = load_vocabulary(home / "vocabulary"), list(zip(owners, texts, strict=True))
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = _peak_bytes()
    LexicalIndex.build(vocabulary, pairs, count).save(home / "lexical")
    return {
        "bytes": (home / "lexical").stat().st_size / units,
        "peak_bytes": (_peak_bytes() - before) / units,
        f"seconds_per_{unit}": (time.process_time() - began) / units,
    }


def encoder_stage(home: Path, docids: int) -> dict[str, float]:
    """Texts a second through MiniLM, and what that is in products and sums a second."""
    import torch

    from pixnar.model.encoder import MINILM, Encoder

    torch.set_num_threads(1)
    encoder = Encoder.load(MINILM)
    texts = [row.docid for row in open_corpus(home / "corpus").docids()][:800]
    pieces = float(np.mean([len(row) for row in encoder.pieces(texts)]))
    embedded = sum(p.numel() for name, p in encoder.body.named_parameters() if "embeddings" in name)
    inner = sum(p.numel() for p in encoder.body.parameters()) - embedded
    encoder.embed(texts[:64])
    seconds = _best(lambda: encoder.embed(texts), 2)
    return {
        "texts_per_second": len(texts) / seconds,
        "pieces_per_text": pieces,
        "inner_parameters": inner,
        "flops": 2 * inner * pieces * len(texts) / seconds,
    }


def head_stage(home: Path, docids: int) -> dict[str, Any]:
    """Seconds of a step of the head alone, full and sampled, and the bytes of its rows and of what Adam keeps."""
    import torch

    from pixnar.model.head import PhraseHead
    from pixnar.model.losses import Sampler, Weights, losses
    from pixnar.train.optimizers import RowAdam

    torch.set_num_threads(1)
    out: dict[str, Any] = {}
    for total in (20_001, 40_001):
        torch.manual_seed(0)
        head = PhraseHead.random(total, WIDTH, bias=np.zeros(total, np.float32))
        x, targets = torch.randn(BATCH, SLOTS + 1, WIDTH), torch.randint(0, total, (BATCH, SLOTS))
        x.requires_grad_(True)
        optimizer = RowAdam(head.parameters())
        sampler = Sampler(np.ones(total), 2048)

        def step(sampled: bool, head: PhraseHead = head, x: Any = x, targets: Any = targets) -> None:
            sample = sampler.draw(targets) if sampled else None  # noqa: B023
            losses(x, targets, head, Weights(), sample).total(Weights()).backward()  # type: ignore[no-untyped-call]
            optimizer.step()  # noqa: B023
            optimizer.zero_grad()  # noqa: B023

        step(False)
        seconds = _best(lambda step=step: step(False), 2)  # type: ignore[misc]
        products = 8 * BATCH * (SLOTS + 1) * total * WIDTH
        head.sparse = True
        sampled = _best(lambda step=step: step(True), 3)  # type: ignore[misc]
        out[str(total)] = {
            "seconds": seconds,
            "flops": products / seconds,
            "sampled_seconds": sampled,
            "row_bytes": sum(p.numel() * p.element_size() for p in head.parameters()),
            "state_bytes": sum(
                t.numel() * t.element_size() for state in optimizer.state.values() for t in state.values()
            ),
        }
    return out


STAGES: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "vocabulary": vocabulary_stage,
    "table": table_stage,
    "reading": reading_stage,
    "pairs": pairs_stage,
    "processor": processor_stage,
    "plain": plain_stage,
    "ranking": ranking_stage,
    "lexical": lexical_stage,
    "text": text_stage,
    "encoder": encoder_stage,
    "head": head_stage,
}


def run(docids: int = 60_000, out: Path | None = None, stages: Sequence[str] = tuple(STAGES)) -> dict[str, Any]:
    """Measure every stage, each in a process of its own, and write the figures."""
    unknown = [name for name in stages if name not in STAGES]
    if unknown:
        sys.exit(f"{unknown[0]} is no stage: choose from {', '.join(STAGES)}")
    results: dict[str, Any] = {
        "environment": environment("numpy", "torch") | {"command": _command()},
        "docids": docids,
        "stages": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        corpus_of(Path(folder) / "corpus", docids)
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            for name in stages:
                results["stages"][name] = pool.apply(STAGES[name], (Path(folder), docids))
                print(name, json.dumps(results["stages"][name]), flush=True)
    if out is not None:
        with atomic_write(out) as file:
            file.write(json.dumps(results, indent=1).encode() + b"\n")
    return results


def _command() -> str:
    return shlex.join(["python", "-m", "benchmarks.plan", *sys.argv[1:]])


def _best(work: Callable[[], Any], times: int) -> float:
    seconds = []
    for _ in range(times):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return min(seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--docids", type=int, default=60_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--stages", default=",".join(STAGES), help="some of them; most need vocabulary first")
    wanted = parser.parse_args()
    run(wanted.docids, wanted.json, wanted.stages.split(","))
