"""Contrast: the encoder is fine-tuned on pairs of docids before their vectors are computed and rows are solved."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pixnar.base.progress import Progress
from pixnar.base.workdir import staged
from pixnar.evaluation.baselines.bi_encoder import Tuning, fine_tune
from pixnar.evaluation.baselines.entries import Entries
from pixnar.evaluation.queries import Queries
from pixnar.model.encoder import Encoder
from pixnar.train.data import TrainingInputs

_NO_QUERIES = Queries([], [], [])  # the weights of the last step are kept: the stages that follow judge the whole


def tune_encoder(
    encoder: Encoder,
    inputs: TrainingInputs,
    steps: int,
    folder: Path,
    *,
    seed: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> None:
    """Train an encoder to put the docids of a document near to each other, and write it to a folder.

    An interrupted run resumes from its checkpoints beside the folder; a folder that is there is left as it is.
    """
    if folder.exists():
        return
    docids = list(inputs.docids)
    offsets = np.searchsorted(inputs.pair_docid, np.arange(len(docids) + 1))
    entries = Entries(inputs.doc_ids, offsets, inputs.pair_document, docids)
    work = folder.with_name(f"{folder.name}.checkpoints")
    fine_tune(
        encoder,
        inputs,
        entries,
        docids,
        _NO_QUERIES,
        Tuning(steps=steps, seed=seed, device=device),
        folder=work,
        progress=progress,
        say=say,
    )
    with staged(folder) as draft:
        encoder.save(draft)
    shutil.rmtree(work, ignore_errors=True)
