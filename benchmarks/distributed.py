"""Training steps of a large head over 1, 2 and 4 processes: losses side by side, seconds a step, memory of a process.

``python -m benchmarks.distributed --tokens 200000 --json FILE``. torchrun starts the processes, which meet through
gloo; each has one thread. Kept vectors go through the slots (the batch shared), then the whole head (rows shared): full
and sampled loss with row-wise Adam, then stage two, the paper's l' on vectors c_i under the head. The machine has fewer
cores than processes, so seconds show what sharing costs, not what it gains; memory shows what it is for.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from pixnar.base.storage import atomic_write
from pixnar.evaluation.latency import environment, resident_mb

SLOTS = 8
KINDS = ("full", "sampled", "stage two")


def work(options: argparse.Namespace) -> dict[str, Any]:
    """What one process does: every kind of step, a few times."""
    import torch

    from pixnar.model.head import PhraseHead
    from pixnar.model.losses import Sampler, Weights, losses, shortlist_loss
    from pixnar.model.nar import MlpSlots
    from pixnar.model.process_group import ProcessGroup
    from pixnar.model.sharded import random_shard
    from pixnar.train.optimizers import RowAdam

    torch.set_num_threads(1)
    group = ProcessGroup.join("cpu")
    before = resident_mb()
    out: dict[str, Any] = {"rank": group.rank, "losses": {}, "seconds": {}}
    chance = np.random.default_rng(0)
    pooled = torch.nn.functional.normalize(torch.from_numpy(chance.normal(size=(options.batch, options.width))).float())
    targets = torch.from_numpy(chance.integers(0, options.tokens, (options.batch, SLOTS)))
    sampler = Sampler(np.ones(options.tokens + 1), options.sample)
    with group.together():
        torch.manual_seed(0)
        bias = np.zeros(options.tokens + 1, np.float32)
        head: PhraseHead
        if group.size == 1:
            head = PhraseHead.random(options.tokens + 1, options.width, bias=bias)
        else:
            head = random_shard(options.tokens + 1, options.width, bias, group)
        slots = MlpSlots(options.width, SLOTS, 256)
        rows, body = (
            RowAdam(head.parameters(), lr=1e-2, processes=group),
            torch.optim.AdamW(slots.parameters(), lr=1e-3),
        )
        own = torch.from_numpy(group.share(np.arange(options.batch)))
        c = pooled[: options.batch // 4].clone().mul_(10).requires_grad_(True)
        vectors = RowAdam([c], lr=1e-2)
        for kind in KINDS:
            head.sparse = kind != "full"
            out["losses"][kind], out["seconds"][kind] = [], []
            for _ in range(options.steps):
                group.wait()
                began = time.monotonic()
                sample = None if kind == "full" else sampler.draw(targets)
                if kind == "stage two":
                    loss, _ = shortlist_loss(c, pooled, targets, head.requires_grad_(False), None)
                else:
                    x = group.gather(slots(pooled[own]), options.batch)
                    loss = losses(x, targets, head, Weights(), sample).total(Weights())
                loss.backward()  # type: ignore[no-untyped-call]
                shared = [c] if kind == "stage two" else list(slots.parameters())
                group.add_up([part.grad for part in shared if part.grad is not None])
                for optimizer in (vectors,) if kind == "stage two" else (rows, body):
                    optimizer.step()
                    optimizer.zero_grad()
                out["losses"][kind].append(float(loss.detach()))
                out["seconds"][kind].append(time.monotonic() - began)
        out["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        out["before_mb"] = before
        out["row_mb"] = sum(part.numel() * part.element_size() for part in head.parameters()) / 1e6
        (options.worker / f"{group.rank}.json").write_text(json.dumps(out))
    return out


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Every number of processes; prints a table and writes the figures."""
    import tempfile

    results: dict[str, Any] = {
        "environment": environment("torch")
        | {"command": shlex.join(["python", "-m", "benchmarks.distributed", *sys.argv[1:]])},
        "settings": {name: getattr(options, name) for name in ("tokens", "width", "batch", "sample", "steps")},
        "processes": {},
    }
    for size in options.processes:
        with tempfile.TemporaryDirectory() as folder:
            launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
            arguments = [part for name, value in results["settings"].items() for part in (f"--{name}", str(value))]
            command = [sys.executable, *launch, "-m", "benchmarks.distributed", *arguments, "--worker", folder]
            environ = os.environ | {"OMP_NUM_THREADS": "1"}
            done = subprocess.run(
                command, cwd=Path(__file__).parents[1], env=environ, stderr=subprocess.PIPE, text=True
            )
            if done.returncode:
                sys.exit(f"{size} processes ended with {done.returncode}:\n{done.stderr[-3000:]}")
            told = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(size)]
        results["processes"][str(size)] = {
            "losses": told[0]["losses"],
            "same_in_all": all(one["losses"] == told[0]["losses"] for one in told),
            "seconds": {kind: min(told[0]["seconds"][kind]) for kind in KINDS},
            "peak_mb": [one["peak_mb"] for one in told],
            "before_mb": [one["before_mb"] for one in told],
            "row_mb": [one["row_mb"] for one in told],
        }
    first = results["processes"][str(options.processes[0])]
    for told in results["processes"].values():
        told["worst_difference"] = {
            kind: max(abs(a / b - 1) for a, b in zip(told["losses"][kind], first["losses"][kind], strict=True))
            for kind in KINDS
        }
    _show(results)
    if options.json:
        with atomic_write(options.json) as file:
            file.write(json.dumps(results, indent=1).encode() + b"\n")
    worst = max(max(told["worst_difference"].values()) for told in results["processes"].values())
    if worst > 1e-4:
        sys.exit(f"losses differ by {worst:.1e} of themselves, more than 1e-4")
    return results


def _show(results: dict[str, Any]) -> None:
    table = Table("processes", *(f"{kind}: s a step" for kind in KINDS), "losses differ by", "rows MB", "peak MB each")
    for size, told in results["processes"].items():
        worst = max(told["worst_difference"].values())
        seconds = [f"{told['seconds'][kind]:.2f}" for kind in KINDS]
        peak, rows = max(told["peak_mb"]), max(told["row_mb"])
        table.add_row(size, *seconds, f"{worst:.1e}", f"{rows:.0f}", f"{peak:.0f}")
    Console().print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, value in (("tokens", 200_000), ("width", 384), ("batch", 128), ("sample", 8192), ("steps", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--processes", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2, 4])
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    work(chosen) if chosen.worker else run(chosen)
