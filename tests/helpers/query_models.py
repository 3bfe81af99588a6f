"""Tiny doc2query models: T5 or BART with random weights and a tokenizer of whole words, as Hugging Face keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

_hf: Any = transformers  # whose classes are not typed

_SPECIAL = ("<pad>", "</s>", "<unk>")
_IDS = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}


def save_t5(folder: Path, texts: Sequence[str], seed: int = 0) -> Path:
    """Write a model that reads and writes the words of some texts."""
    shape = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    torch.manual_seed(seed)
    config = _hf.T5Config(vocab_size=_save_words(folder, texts), **shape, **_IDS)
    _hf.T5ForConditionalGeneration(config).save_pretrained(folder)
    return folder


def save_bart(folder: Path, texts: Sequence[str], places: int) -> Path:
    """The same of another kind, which has room for so many word pieces and no more."""
    shape = {"d_model": 16, "max_position_embeddings": places, "encoder_layers": 1, "decoder_layers": 1}
    heads = {
        f"{part}_{what}": n for part in ("encoder", "decoder") for what, n in (("ffn_dim", 32), ("attention_heads", 2))
    }
    torch.manual_seed(0)
    config = _hf.BartConfig(
        vocab_size=_save_words(folder, texts), **shape, **heads, **_IDS, bos_token_id=1, forced_eos_token_id=1
    )
    _hf.BartForConditionalGeneration(config).save_pretrained(folder)
    return folder


def _save_words(folder: Path, texts: Sequence[str]) -> int:
    """A tokenizer of whole words; how many it knows."""
    pieces = Tokenizer(models.WordLevel(unk_token="<unk>"))
    pieces.normalizer = normalizers.Lowercase()
    pieces.pre_tokenizer = pre_tokenizers.Whitespace()
    pieces.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=list(_SPECIAL), show_progress=False))
    pieces.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    pad, end, unknown = _SPECIAL
    wrapped = _hf.PreTrainedTokenizerFast(tokenizer_object=pieces, pad_token=pad, eos_token=end, unk_token=unknown)
    wrapped.save_pretrained(folder)
    return len(wrapped)
