"""Pseudo-queries: written by a Hugging Face seq2seq model, and kept if they find the document they were made for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from pixnar.base.errors import MissingExtraError, PixnarError
from pixnar.base.progress import quiet_loading
from pixnar.fusion.bm25 import Bm25


@dataclass(frozen=True, kw_only=True)
class Doc2QueryOptions:
    """Options of a doc2query model; all of them decide which queries it writes."""

    model: str = ""
    per_document: int = 5
    batch: int = 16
    top_k: int = 10
    longest: int = 64  # word pieces of a query
    reads: int = 384  # word pieces of a document
    seed: int = 0
    device: str = "auto"


class Doc2Query:
    """A seq2seq model that writes queries for texts, sampled from the `top_k` likeliest word pieces at each step."""

    def __init__(self, model: Any, tokenizer: Any, options: Doc2QueryOptions) -> None:
        self._model, self._tokenizer, self._options = model, tokenizer, options

    @classmethod
    def load(cls, options: Doc2QueryOptions, threads: int = 0) -> Doc2Query:
        """By its name on the Hugging Face hub, or from a folder."""
        try:
            import torch
            from safetensors import SafetensorError
            from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
        except ImportError as error:
            raise MissingExtraError("a doc2query model", "train") from error
        quiet_loading()
        if threads:
            torch.set_num_threads(threads)
        device = options.device if options.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
        try:
            tokenizer = AutoTokenizer.from_pretrained(options.model)
            precision = torch.bfloat16 if device.startswith("cuda") else torch.float32
            model = AutoModelForSeq2SeqLM.from_pretrained(options.model, dtype=precision).to(device).eval()
        except (OSError, ValueError, ImportError, RuntimeError, AssertionError, SafetensorError) as error:
            raise PixnarError(
                f"cannot load the model {options.model}: {_reason(error)}; give the name or folder of a seq2seq model "
                "such as doc2query/msmarco-t5-base-v1, and a device that is there"
            ) from error
        _check(options.model, model, tokenizer)
        return cls(model, tokenizer, _within(model, options))

    def queries(self, texts: Sequence[str], place: int, done: Callable[[int], None] | None = None) -> list[list[str]]:
        """Queries for each text. `place` is the number of the first: it, the seed and the texts decide what is drawn.

        Texts of like length go through the model together. Nothing depends on what was asked before, so a run that
        goes on in the middle draws what it would have drawn.
        """
        import torch

        out: list[list[str]] = [[] for _ in texts]
        order = sorted((i for i, text in enumerate(texts) if text.strip()), key=lambda i: len(texts[i]))
        for start in range(0, len(order), self._options.batch):
            rows = order[start : start + self._options.batch]
            seed = xxhash.xxh3_64_intdigest(f"{self._options.seed} {place} {start}".encode()) & (2**63 - 1)
            with torch.random.fork_rng(), torch.inference_mode():
                torch.manual_seed(seed)
                try:
                    drawn = self._drawn([texts[i] for i in rows])
                except (RuntimeError, IndexError, ValueError) as error:
                    raise PixnarError(
                        f"the model {self._options.model} failed at some of the documents {place + 1:,} to "
                        f"{place + len(texts):,}: {_reason(error)}; if memory ran out, lower --batch"
                    ) from error
            for row, found in zip(rows, drawn, strict=True):
                out[row] = found
            if done:
                done(start + len(rows))
        return out

    def _drawn(self, texts: list[str]) -> list[list[str]]:
        options = self._options
        given = self._tokenizer(
            texts,
            truncation=True,
            max_length=options.reads,
            padding=True,
            return_tensors="pt",
            return_token_type_ids=False,
        )
        ids = self._model.generate(
            **given.to(self._model.device),
            do_sample=True,
            num_beams=1,
            top_k=options.top_k,
            num_return_sequences=options.per_document,
            max_new_tokens=options.longest,
        )
        said = [" ".join(text.split()) for text in self._tokenizer.batch_decode(ids, skip_special_tokens=True)]
        rows = [said[i : i + options.per_document] for i in range(0, len(said), options.per_document)]
        return [list(dict.fromkeys(filter(None, row))) for row in rows]


def _check(name: str, model: Any, tokenizer: Any) -> None:
    """Refuse a model whose tokenizer is missing or another model's, which would fail later, or silently."""
    if len(set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens)) < 2:
        raise PixnarError(f"the model {name} has no tokenizer: its files (tokenizer.json, spiece.model …) are missing")
    rows = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > rows:
        raise PixnarError(
            f"the model {name} knows {rows:,} word pieces and its tokenizer {len(tokenizer):,}: they do not belong "
            "together; give the model with its own tokenizer"
        )


def _within(model: Any, options: Doc2QueryOptions) -> Doc2QueryOptions:
    """No more word pieces, read or written, than a model has places for; T5 has no such limit."""
    places = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(places, int):
        return options
    return replace(options, reads=min(options.reads, places), longest=min(options.longest, places - 1))


def _reason(error: Exception) -> str:
    """What an error of another library says, in one line."""
    return " ".join(str(error).split())[:400] or type(error).__name__


class RoundtripFilter:
    """A filter by BM25 over the documents' texts, in the order of the corpus.

    >>> roundtrip = RoundtripFilter(Bm25.build(["green tea and cups", "black tea", "coffee"]))
    >>> roundtrip.finds("a cup of green tea", 0, 1), roundtrip.finds("tea", 0, 1), roundtrip.finds("sugar", 2, 3)
    (True, False, False)
    """

    def __init__(self, bm25: Bm25) -> None:
        self._bm25 = bm25

    @classmethod
    def over(cls, texts: Iterable[str], path: Path) -> RoundtripFilter:
        """Build it once; what lies at `path` is opened."""
        if not path.exists():
            Bm25.build(texts).save(path)
        return cls(Bm25.load(path))

    def finds(self, query: str, document: int, most: int) -> bool:
        """Whether at most `most` documents, this one included, answer a query as well as it does."""
        scores = self._bm25.score(query)
        own = scores[document]
        return bool(own > 0) and int(np.count_nonzero(scores >= own)) <= most
