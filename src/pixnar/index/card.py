"""The page that a repository of the hub shows of an index: what it is, how to open it, its figures and its recipe."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from pixnar.base.errors import PixnarError
from pixnar.recipe import dumps, from_dict, override

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def card(content: Mapping[str, Any], repo_id: str) -> str:
    """Markdown with the hub's front matter, made from a manifest; of paths on this machine only the last part."""
    parts = [
        _front(content),
        _what(content, repo_id),
        _use(repo_id),
        _facts(content),
        _figures(content),
        _recipe(content),
    ]
    return "\n".join(part for part in parts if part)


def _front(content: Mapping[str, Any]) -> str:
    lines = ["library_name: pixnar", "tags:", *(f"- {tag}" for tag in ("pixnar", "generative-retrieval", "search"))]
    encoder = _encoder(content)
    if _HUB_NAME.fullmatch(encoder):
        lines.append(f"base_model: {json.dumps(encoder)}")
    return "\n".join(["---", *lines, "---", ""])


def _what(content: Mapping[str, Any], repo_id: str) -> str:
    facts = content.get("facts", {})
    counted = f" {facts['documents']:,} documents" if "documents" in facts else " documents"
    return (
        f"# {repo_id.rpartition('/')[2]}\n\n"
        f"An index of PIXNAR over{counted}. A query goes through one transformer pass, which says all positions of a "
        "docid at once, phrase by phrase; of the docids that exist the best are found, and with them the documents "
        "they name.\n"
    )


def _use(repo_id: str) -> str:
    return f"""## Use it
```
pip install 'pixnar[hub]'
```
```
import pixnar

index = pixnar.Index.from_hub({json.dumps(repo_id)})
for hit in index.search("what you look for", k=5):
    print(hit.doc_id, hit.score, hit.docid, index.table.document(hit.doc_id).title)
```
"""


def _facts(content: Mapping[str, Any]) -> str:
    facts, served = content.get("facts", {}), content.get("facts", {}).get("served", {})
    rows = {
        "corpus": PurePath(str(content.get("corpus", ""))).name,
        "documents": _number(facts.get("documents")),
        "docids": _number(facts.get("docids")),
        "phrases": _number(facts.get("vocabulary")),
        "slots": _number(content.get("slots")),
        "encoder": _encoder(content),
        "served": ", ".join(f"{part} in {served[part]}" for part in ("rows", "encoder") if part in served),
        "format": _number(content.get("version")),
    }
    lines = [f"| {name} | {_cell(value)} |" for name, value in rows.items() if value]
    return "\n".join(["## What is in it", "| | |", "|---|---|", *lines, ""])


def _figures(content: Mapping[str, Any]) -> str:
    dev = {name: figures for name, figures in content.get("dev", {}).items() if figures}
    names = sorted({measure for figures in dev.values() for measure in figures}, key=_by_cutoff)
    if not names:
        return ""
    lines = [f"| ranked by | {' | '.join(names)} |", "|---|" + "---:|" * len(names)]
    for source, figures in dev.items():
        shown = (f"{100 * figures[name]:.1f}" if name in figures else "" for name in names)
        lines.append(f"| {_cell(source)} | {' | '.join(shown)} |")
    about = (
        "In percent, on dev queries. Settings of the score and weights of sources are cross-validated; the training "
        "step, the sources and the shortlist were selected on these queries."
    )
    return "\n".join(["## Dev figures", about, "", *lines, ""])


def _recipe(content: Mapping[str, Any]) -> str:
    try:
        told = dumps(override(from_dict(content["recipe"]), [f"model.encoder={_encoder(content)}"]))
    except (KeyError, PixnarError):  # of another release: not worth failing for
        return ""
    plain = "\n".join(line for line in told.splitlines() if not line.startswith("#"))
    return f"## Recipe\n```toml\n{plain.strip()}\n```\n"


def _encoder(content: Mapping[str, Any]) -> str:
    """Its name on the hub, or that of its folder."""
    name = str(content.get("recipe", {}).get("model", {}).get("encoder", ""))
    return name if _HUB_NAME.fullmatch(name) else PurePath(name).name


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else ""


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _by_cutoff(name: str) -> tuple[str, int]:
    measure, _, cutoff = name.partition("@")
    return measure, int(cutoff) if cutoff.isdigit() else 0
