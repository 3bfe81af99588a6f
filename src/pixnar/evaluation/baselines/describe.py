"""One-line description of a baseline or an index: its sources, settings and weights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pixnar.evaluation.baselines.aggregate import Aggregate
from pixnar.evaluation.baselines.entries import BOTH, DOCIDS, JOINED, TEXT
from pixnar.evaluation.baselines.folder import BASELINE, BM25, DENSE, is_baseline
from pixnar.evaluation.baselines.hybrid import RRF
from pixnar.fusion.fuse import DENSE as DENSE_SOURCE
from pixnar.fusion.fuse import DOCIDS as DOCID_SCORE
from pixnar.fusion.fuse import EXPANSION, LEXICAL
from pixnar.fusion.fuse import TEXT as TEXT_SOURCE
from pixnar.index import manifest

_READS = {DOCIDS: "docids", JOINED: "docids joined", TEXT: "text", BOTH: "text and docids"}
_NAMES = {
    LEXICAL: "lexical BM25 of words and phrases",
    EXPANSION: "expansion by phrases",
    DENSE_SOURCE: "dense",
    TEXT_SOURCE: "dense over text",
}


def describe(folder: str | os.PathLike[str], sources: str = "all") -> str:
    """What a baseline or an index ranks by; `sources` are those of an index.

    For example: dense (docids, log-sum-exp, scale 20, zero-shot) + 0.04 · BM25 (docids, k1 0.9, b 0.4).
    """
    where = Path(folder)
    if is_baseline(where):
        content = manifest.read_manifest(where, BASELINE)
        return _baseline(content["kind"], content["options"], content.get("facts", {}))
    return _index(manifest.read_manifest(where), sources)


def _baseline(kind: str, options: dict[str, Any], facts: dict[str, Any]) -> str:
    if kind == BM25:
        return f"BM25 ({_READS[options['over']]}, k1 {options['k1']:g}, b {options['b']:g})"
    if kind == DENSE:
        return _dense(options, facts.get("fine_tuning"), Aggregate.from_dict(options["aggregate"]))
    parts = options["dense"], facts.get("fine_tuning"), Aggregate.from_dict(options["aggregate"])
    dense, bm25 = _dense(*parts), _baseline(BM25, options["bm25"], {})
    fusion = options["fusion"]
    if fusion["kind"] == RRF:
        return f"reciprocal ranks (constant {fusion['constant']:g}) of {dense} and {bm25}"
    weights = ((fusion["dense"], dense), (fusion["bm25"], bm25))
    return " + ".join(side if weight == 1 else f"{weight:g} · {side}" for weight, side in weights)


def _dense(options: dict[str, Any], tuned: dict[str, Any] | None, aggregate: Aggregate) -> str:
    how = "zero-shot" if not tuned else f"fine-tuned, step {tuned['best_step']:,} of {tuned['steps']:,}"
    if tuned and not tuned["best_step"]:
        how = f"untrained: the best of {tuned['steps']:,} steps is step 0"
    several = [] if options["over"] == TEXT else [str(aggregate)]
    return f"dense ({', '.join([_READS[options['over']], *several, how])})"


def _index(content: dict[str, Any], sources: str) -> str:
    fusion = manifest.fusion_of(content, sources) or {"weights": {DOCID_SCORE: 1.0}}
    weights = {name: weight / fusion.get("scales", {}).get(name, 1.0) for name, weight in fusion["weights"].items()}
    first = weights.get(DOCID_SCORE) or next(iter(weights.values()))
    parts = []
    for name, weight in weights.items():
        noun = f"docids ({_rule(content['rule'])})" if name == DOCID_SCORE else _NAMES.get(name, name)
        parts.append(noun if weight == first else f"{weight / first:.2g} · {noun}")
    untrained = content.get("facts", {}).get("best_step") == 0
    return " + ".join(parts) + ("; untrained: the best step on dev is step 0" if untrained else "")


def _rule(rule: dict[str, Any]) -> str:
    aggregate = rule["aggregate"]
    of_several = "max" if aggregate == "max" else "log-sum-exp"
    if isinstance(aggregate, int):
        of_several += f" of the best {aggregate}"
    return of_several + (f", copy {rule['copy']:g}" if rule["copy"] else "")
