"""Draw docs/images/scaling-search.png from what the benchmarks wrote: latency against size, workers against one.

python tools/draw_scaling.py benchmarks/results docs/images/scaling-search.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot


def main(folder: Path, out: Path) -> None:
    """Three pictures in one: decoding against docids, the head against tokens, and what more processes change."""

    def read(name: str) -> Any:
        return json.loads((folder / f"{name}.json").read_bytes())

    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(13, 4), layout="constrained")
    cells = [cell for name in ("decode", "decode-100m") for cell in read(name)["cells"] if cell["method"] == "exact"]
    for colour, mode in enumerate(("strict", "floor", "floor, any order")):
        for profile, line in (("peaked", "o-"), ("calibrated", "o--")):
            some = [cell for cell in cells if (cell["mode"], cell["profile"], cell["k"]) == (mode, profile, 10)]
            left.plot(
                [cell["docids"] for cell in some],
                [cell["p50_ms"] for cell in some],
                line,
                color=f"C{colour}",
                label=f"{mode}, {profile}",
            )
    left.set(title="exact top 10: median", xlabel="docids")
    kinds = {"full softmax": "full", "shortlist, lists of the true groups": "shortlist"}
    found: dict[str, list[tuple[int, float]]] = {kind: [] for kind in kinds.values()}
    for part in read("softmax").values():
        for size, rows in part["synthetic"].items():
            tokens, _, width = size.partition(" x ")
            if width == "384":
                for name, kind in kinds.items():
                    found[kind].append((int(tokens.replace(",", "")), rows["methods"][name]["ms"]["mean"]))
    for kind, points in found.items():
        middle.plot(*zip(*sorted(points), strict=True), "o-", label=kind)
    sizes = sorted({tokens for points in found.values() for tokens, _ in points})
    middle.set(title="head, width 384, 8 slots, one thread: mean", xlabel="tokens")
    for axis in (left, middle):
        axis.set(xscale="log", yscale="log", ylabel="milliseconds")
    middle.set_xticks(sizes, [f"{size / 1e6:g} M" for size in sizes])
    middle.minorticks_off()
    plain, *ways = (way for way in read("ray_build")["ways"] if not way["kills"])
    workers = [way["workers"] for way in ways]
    for name in ("vocabulary", "table"):
        right.plot(workers, [way[f"{name}_cpu"] / plain[f"{name}_cpu"] for way in ways], "o-", label=f"{name}: CPU")
    told = read("distributed")["processes"]
    own = {int(size): max(one["peak_mb"]) for size, one in told.items()}
    right.plot(list(own), [value / own[1] for value in own.values()], "s--", label="training: memory of a process")
    right.axhline(1.0, color="0.7", linewidth=0.8)
    right.set(title="against one plain process", xlabel="workers or processes", xticks=workers, ylim=(0, None))
    for axis in (left, middle, right):
        axis.grid(alpha=0.3)
        axis.legend(frameon=False, fontsize=8)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
