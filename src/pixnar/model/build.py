"""Initial model: phrase rows that compose docids, or the encoder's vector of each phrase; bias from priors."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError
from pixnar.base.progress import Progress
from pixnar.base.storage import atomic_write, read_container, reserve, write_container
from pixnar.model.encoder import Encoder
from pixnar.model.features import FeatureCache, KnownVectors
from pixnar.model.head import PhraseHead, PieceRows, pieces_of_tokens
from pixnar.model.nar import Nar, make_slots
from pixnar.model.process_group import SINGLE, ProcessGroup
from pixnar.model.sharded import random_shard, shard_of_vectors
from pixnar.model.solve import Solved, SolveOptions, solve_rows
from pixnar.scoring import Priors
from pixnar.vocab import TargetVocabulary
from pixnar.vocab.protocol import EncodedBatch

_KIND, _VERSION = "solvedrw", 1


@dataclass(frozen=True, kw_only=True)
class Docids:
    """What phrase rows are solved from: the docids as tokens and their vectors, and where results may be kept."""

    tokens: EncodedBatch
    vectors: NDArray[Any]
    pieces: bool = True  # phrases also have the rows of their word pieces
    options: SolveOptions = field(default_factory=SolveOptions)
    folder: Path | None = None


def build_model(
    vocabulary: TargetVocabulary,
    features: FeatureCache,
    priors: Priors,
    *,
    slots: int,
    design: str = "mlp",
    head: str = "encoder",
    bias: bool = True,
    hidden: int = 1024,
    seed: int = 0,
    docids: Docids | None = None,
    progress: Progress | None = None,
    group: ProcessGroup = SINGLE,
    known: KnownVectors | None = None,
) -> Nar:
    """An untrained model for a vocabulary; unless `head` is "random", with the mlp design it can already search.

    `head` "solved" needs `docids`: rows then add up to the vectors of the docids. In a group of several processes each
    makes its own rows of the head, the same as one process would make. Phrases whose texts are `known` are not encoded
    again.
    """
    torch.manual_seed(seed)
    start = start_bias(priors) if bias else None
    encoder: Encoder = features.encoder
    made: PhraseHead
    if head == "solved":
        if docids is None:
            raise ValueError('head "solved" needs the docids and their vectors')
        made = _solved_head(vocabulary, features, start, docids, progress, group, known)
    elif group.size > 1:
        made = _shard(vocabulary, features, start, head, group, progress, known)
    elif head == "random":
        made = PhraseHead.random(len(vocabulary) + 1, encoder.width, bias=start)
    else:
        vectors = features.vectors(phrase_texts(vocabulary), progress, "encoding phrases", known)
        made = PhraseHead.from_vectors(np.vstack([vectors, np.zeros((1, encoder.width), vectors.dtype)]), bias=start)
    return Nar(encoder, make_slots(design, encoder.width, slots, hidden), made)


def _solved_head(
    vocabulary: TargetVocabulary,
    features: FeatureCache,
    bias: NDArray[np.float32] | None,
    docids: Docids,
    progress: Progress | None,
    group: ProcessGroup,
    known: KnownVectors | None,
) -> PhraseHead:
    """Rows that add up to the docids' vectors; of a head in shards every process solves some columns."""
    texts = phrase_texts(vocabulary)
    pieces = pieces_of_tokens(features.encoder.tokenizer, texts) if docids.pieces else None
    read_alone = None
    if not docids.pieces:
        read = group.in_turn(lambda: features.vectors(texts, progress, "encoding phrases", known))
        read_alone = read.astype(np.float32)
    solved = _solved(docids, len(vocabulary), pieces, read_alone, progress, group)
    end = np.zeros((1, solved.rows.shape[1]), np.float32)
    made: PhraseHead
    if group.size == 1:
        made = PhraseHead.from_vectors(np.vstack([solved.rows, end]), bias=bias)
    else:
        first, last = group.rows(len(vocabulary) + 1)
        own = solved.rows[first : min(last, len(vocabulary))]
        own = np.vstack([own, end]) if last > len(vocabulary) else own
        made = shard_of_vectors(own, bias, len(vocabulary) + 1, group)
    if pieces is not None:
        made.pieces = PieceRows(torch.from_numpy(np.array(solved.pieces)), pieces)
    return made


def _solved(
    docids: Docids,
    size: int,
    pieces: EncodedBatch | None,
    start: NDArray[np.float32] | None,
    progress: Progress | None,
    group: ProcessGroup,
) -> Solved:
    """The solved rows: from the file of an earlier run, or solved now; several processes share the columns."""
    folder = docids.folder
    options = replace(docids.options, threads=docids.options.threads if group.size == 1 else 1)
    parts: dict[str, Any] = {"pieces": pieces, "start": start, "progress": progress}
    if folder is None:
        if group.size > 1:
            raise ValueError("several processes need a folder to share solved rows")
        return solve_rows(docids.tokens, docids.vectors, size, options, **parts)
    folder.mkdir(parents=True, exist_ok=True)
    width = docids.vectors.shape[1]
    state = folder / f"solving-{group.rank}-of-{group.size}.pixnar"
    known = {"ridge": options.ridge, "size": size, "docids": len(docids.tokens.offsets) - 1, "width": width}
    if group.size > 1:
        return _solved_together(docids, size, options, known, parts, folder, state, group)
    path = folder / "solved.pixnar"
    try:
        found = read_container(path, _KIND, _VERSION)
        if {name: found.meta[name] for name in known} == known:
            rows, others = (found.arrays[name].reshape(-1, width) for name in ("rows", "pieces"))
            return Solved(rows, others, found.meta["rounds"], found.meta["residual"])
    except (FileFormatError, KeyError, ValueError):
        pass  # none yet, or damaged
    solved = solve_rows(docids.tokens, docids.vectors, size, options, state=state, **parts)
    meta = known | {"rounds": solved.rounds, "residual": solved.residual}
    write_container(path, _KIND, _VERSION, meta, {"rows": solved.rows.ravel(), "pieces": solved.pieces.ravel()})
    return solved


def _solved_together(
    docids: Docids,
    size: int,
    options: SolveOptions,
    known: dict[str, Any],
    parts: dict[str, Any],
    folder: Path,
    state: Path,
    group: ProcessGroup,
) -> Solved:
    """The same by several processes: each solves some columns and writes them into one file, which all then map."""
    path, about, width = folder / "solved.rows", folder / "solved.json", known["width"]
    found = group.tell(_finished(about, path, known) if group.first else None)
    if found is None:
        begin, end = group.rows(width)
        columns = slice(begin, end)
        solved = solve_rows(docids.tokens, docids.vectors, size, options, columns=columns, state=state, **parts)
        found = known | {"pieces": len(solved.pieces), "rounds": solved.rounds, "residual": solved.residual}
        shape = (size + len(solved.pieces), width)
        if group.first:
            reserve(path, 4 * math.prod(shape))
        group.wait()
        written = np.memmap(path, np.float32, "r+", shape=shape)
        written[:size, columns], written[size:, columns] = solved.rows, solved.pieces
        written.flush()
        group.wait()
        if group.first:
            with atomic_write(about) as file:
                file.write(json.dumps(found).encode())
    whole = np.memmap(path, np.float32, "r", shape=(size + found["pieces"], width))
    return Solved(whole[:size], whole[size:], found["rounds"], found["residual"])


def _finished(about: Path, path: Path, known: dict[str, Any]) -> dict[str, Any] | None:
    """What an earlier run says of the rows that it solved; None where it did not come that far, or solved others."""
    try:
        found: dict[str, Any] = json.loads(about.read_bytes())
        length = 4 * (known["size"] + found["pieces"]) * known["width"]
        same = {name: found[name] for name in known} == known and path.stat().st_size == length
        return found if same else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _shard(
    vocabulary: TargetVocabulary,
    features: FeatureCache,
    bias: NDArray[np.float32] | None,
    head: str,
    group: ProcessGroup,
    progress: Progress | None,
    known: KnownVectors | None,
) -> PhraseHead:
    """The head's rows of this process."""
    total, width = len(vocabulary) + 1, features.encoder.width
    if head == "random":
        return random_shard(total, width, bias, group)
    first, last = group.rows(total)
    vectors = np.zeros((last - first, width), np.float16)  # the last row of all, that of the end, stays zero
    texts = phrase_texts(vocabulary)
    for places, found in features.some(texts, first, min(last, total - 1), progress, "encoding phrases", known):
        vectors[places - first] = found
    return shard_of_vectors(vectors, bias, total, group)


def phrase_texts(vocabulary: TargetVocabulary) -> list[str]:
    """What the encoder reads for each token: its text, without the mark of a piece inside a word."""
    texts = (vocabulary.token(v) for v in range(len(vocabulary)))
    return [text[2:] if text.startswith("##") and len(text) > 2 else text for text in texts]


def start_bias(priors: Priors) -> NDArray[np.float32]:
    """Log priors of the tokens, and of the end: the mean ending rate over the slots."""
    ending = float(np.log(np.exp(priors.ends.astype(np.float64)).mean()))
    return np.append(priors.tokens, np.float32(ending))


@torch.inference_mode()
def calibrate(model: Nar, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Measure log Z of every slot with the whole vocabulary on queries x [Q, s + 1, d]; keeps the means in the model.

    Gives what is left per query and slot after the means are taken off.
    """
    vectors = torch.from_numpy(x).to(model.device)
    log_z = model.head.log_z(vectors.flatten(0, 1)).view(len(x), -1)
    model.log_z.copy_(log_z.mean(0))
    return (log_z - model.log_z).cpu().numpy()
