"""A model to start from: phrase vectors from the encoder's own reading of each phrase, bias from the priors."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from pixnar.model.encoder import Encoder
from pixnar.model.features import FeatureCache, Known
from pixnar.model.head import PhraseHead
from pixnar.model.nar import Nar, make_slots
from pixnar.model.sharded import random_shard, shard_of_vectors
from pixnar.model.world import ALONE, World
from pixnar.progress import Progress
from pixnar.scoring import Priors
from pixnar.vocab import TargetVocabulary


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
    progress: Progress | None = None,
    world: World = ALONE,
    known: Known | None = None,
) -> Nar:
    """An untrained model for a vocabulary; with `head` "encoder" and the mlp design it can already search.

    In a world of several processes each makes its own rows of the head, the same as one process would make. Phrases
    whose texts are `known` are not encoded again.
    """
    torch.manual_seed(seed)
    start = start_bias(priors) if bias else None
    encoder: Encoder = features.encoder
    made: PhraseHead
    if world.size > 1:
        made = _shard(vocabulary, features, start, head, world, progress, known)
    elif head == "random":
        made = PhraseHead.random(len(vocabulary) + 1, encoder.width, bias=start)
    else:
        vectors = features.vectors(phrase_texts(vocabulary), progress, "encoding phrases", known)
        made = PhraseHead.from_vectors(np.vstack([vectors, np.zeros((1, encoder.width), vectors.dtype)]), bias=start)
    return Nar(encoder, make_slots(design, encoder.width, slots, hidden), made)


def _shard(
    vocabulary: TargetVocabulary,
    features: FeatureCache,
    bias: NDArray[np.float32] | None,
    head: str,
    world: World,
    progress: Progress | None,
    known: Known | None,
) -> PhraseHead:
    """The head's rows of this process."""
    total, width = len(vocabulary) + 1, features.encoder.width
    if head == "random":
        return random_shard(total, width, bias, world)
    first, last = world.rows(total)
    vectors = np.zeros((last - first, width), np.float16)  # the last row of all, that of the end, stays zero
    texts = phrase_texts(vocabulary)
    for places, found in features.some(texts, first, min(last, total - 1), progress, "encoding phrases", known):
        vectors[places - first] = found
    return shard_of_vectors(vectors, bias, total, world)


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
