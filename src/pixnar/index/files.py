"""The files of an index, by name, and the two small ones that no other room writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError
from pixnar.base.storage import read_container, write_container
from pixnar.scoring import Priors
from pixnar.search.spelling import LEXICON as LEXICON

DOCIDS = "docids"  # the docid table, with the vocabulary in it
HEAD = "head.pixnar"  # phrase rows and biases as they are served
ENCODER = "encoder"  # from a query to its vectors, for onnxruntime
MODEL = "model"  # encoder, slots and head as torch knows them; for a GPU; only if the recipe keeps it
TRAINING = "training"  # log and plot
FACTORS = "factors.pixnar"  # of docids, under the composed score
PRIORS = "priors.pixnar"
LEXICAL_FILE = "lexical.pixnar"
VECTORS = "vectors.pixnar"  # of docids
TEXT_FILE = "text.pixnar"  # vectors of the documents' text
SHORTLIST = "shortlist.pixnar"

_PRIORS_KIND, _VERSION = "priors", 1


def write_priors(path: Path, priors: Priors, log_z: NDArray[np.float32]) -> None:
    """Write the log priors of tokens and ends, and the mean log Z of every slot."""
    arrays = {"tokens": priors.tokens, "ends": priors.ends, "log_z": log_z}
    write_container(path, _PRIORS_KIND, _VERSION, {}, arrays)


def read_priors(path: Path, *, verify: bool = True) -> tuple[Priors, NDArray[np.float32]]:
    """Map the log priors, and the mean log Z of every slot."""
    arrays = read_container(path, _PRIORS_KIND, _VERSION, verify=verify).arrays
    return Priors(_floats(path, arrays, "tokens"), _floats(path, arrays, "ends")), _floats(path, arrays, "log_z")


def _floats(path: Path, arrays: Mapping[str, NDArray[Any]], name: str) -> NDArray[np.float32]:
    if name not in arrays or arrays[name].dtype != np.float32:
        raise FileFormatError(f"{path} holds no usable priors (no {name} in 32-bit floats): build the index again")
    return arrays[name]
