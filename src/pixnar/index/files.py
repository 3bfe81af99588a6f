"""The files of an index, by name, and the two small ones that no other room writes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixnar.scoring import Priors
from pixnar.storage import read_container, write_container

DOCIDS = "docids"  # the docid table, with the vocabulary in it
HEAD = "head.pixnar"  # phrase rows and biases as they are served
ENCODER = "encoder"  # from a query to its vectors, for onnxruntime
MODEL = "model"  # encoder, slots and head as torch knows them; for a GPU, and for training further
TRAINING = "training"  # log and plot
PRIORS = "priors.pixnar"
UNITS = "documents.pixnar"  # document ids in the order that the files below count them
EVIDENCE = "evidence.pixnar"
BM25_FILE = "bm25.pixnar"
VECTORS = "vectors.pixnar"
SHORTLIST = "shortlist.pixnar"

_PRIORS_KIND, _UNITS_KIND, _VERSION = "priors", "units", 1


def write_priors(path: Path, priors: Priors, log_z: NDArray[np.float32]) -> None:
    """Write the log priors of tokens and ends, and the mean log Z of every slot."""
    arrays = {"tokens": priors.tokens, "ends": priors.ends, "log_z": log_z}
    write_container(path, _PRIORS_KIND, _VERSION, {}, arrays)


def read_priors(path: Path, *, verify: bool = True) -> tuple[Priors, NDArray[np.float32]]:
    """Map the log priors, and the mean log Z of every slot."""
    arrays = read_container(path, _PRIORS_KIND, _VERSION, verify=verify).arrays
    return Priors(arrays["tokens"], arrays["ends"]), arrays["log_z"]


def write_units(path: Path, doc_ids: list[str]) -> None:
    """Write document ids, in order."""
    encoded = [doc_id.encode("utf-8", "surrogatepass") for doc_id in doc_ids]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(one) for one in encoded], out=offsets[1:])
    arrays: dict[str, NDArray[Any]] = {"bytes": np.frombuffer(b"".join(encoded), np.uint8), "offsets": offsets}
    write_container(path, _UNITS_KIND, _VERSION, {"count": len(doc_ids)}, arrays)


def read_units(path: Path, *, verify: bool = True) -> list[str]:
    """Read document ids, in order."""
    arrays = read_container(path, _UNITS_KIND, _VERSION, verify=verify).arrays
    data, offsets = arrays["bytes"].tobytes(), arrays["offsets"].tolist()
    return [data[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(offsets)]
