"""A tiny doc2query model: a T5 with random weights and a tokenizer of whole words, as Hugging Face keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

_hf: Any = transformers  # whose classes are not typed

_SPECIAL = ("<pad>", "</s>", "<unk>")


def save_t5(folder: Path, texts: Sequence[str], seed: int = 0) -> Path:
    """Write a model that reads and writes the words of some texts."""
    pieces = Tokenizer(models.WordLevel(unk_token="<unk>"))
    pieces.normalizer = normalizers.Lowercase()
    pieces.pre_tokenizer = pre_tokenizers.Whitespace()
    pieces.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=list(_SPECIAL), show_progress=False))
    pieces.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    pad, end, unknown = _SPECIAL
    wrapped = _hf.PreTrainedTokenizerFast(tokenizer_object=pieces, pad_token=pad, eos_token=end, unk_token=unknown)
    wrapped.save_pretrained(folder)
    shape = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    ids = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    torch.manual_seed(seed)
    _hf.T5ForConditionalGeneration(_hf.T5Config(vocab_size=len(wrapped), **shape, **ids)).save_pretrained(folder)
    return folder
