"""Training over several processes, beside one process; as a program it does what test_groups then looks at.

Processes are forked, which is quick; they meet through gloo on this machine as those of torchrun do.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from pixnar.base.errors import PixnarError
from pixnar.base.progress import Progress
from pixnar.model import solve
from pixnar.model.build import build_model
from pixnar.model.encoder import Encoder
from pixnar.model.features import FeatureCache
from pixnar.model.head import PhraseHead
from pixnar.model.losses import Sampler, Weights, losses, shortlist_loss
from pixnar.model.nar import Nar
from pixnar.model.process_group import ProcessGroup, Silent
from pixnar.model.sharded import random_shard
from pixnar.scoring import ScoreRule
from pixnar.train import checkpoint, log
from pixnar.train.optimizers import LazyAdam, RowAdam
from pixnar.train.ranking import RankingOptions, RankingStep
from pixnar.train.shortlist_learning import Options, learn
from pixnar.train.step import Objective, Step
from tests.helpers import training_runs as runs
from tests.helpers.fit_corpora import WORDS, write_small
from tests.helpers.tiny_model import save_encoder
from tests.helpers.training_runs import SLOTS, movement, options, run

SIZES = (1, 2, 4)
SECONDS = 150  # after which a process that hangs is ended
_DIGITS = 8  # of a port, blanks before it
PARTS = ("l1", "l2", "l3", "ranking", "right", "loss", "log_z", "recall", "dev_mrr10")
RUNS: dict[str, dict[str, Any]] = {
    "full": {"steps": 4},
    "sampled": {"steps": 4, "softmax": "sampled", "sample": 40},
    "fine-tuned": {"steps": 4, "fine_tune": 0.5, "softmax": "sampled", "sample": 60},
    "mask tokens, plain Adam": {"steps": 2, "design": "mask", "optimizer": "adam"},
    "odd batches, accumulated": {"steps": 2, "batch": 7, "accumulate": 2, "negatives": 2, "order": "any"},
    "composed": {"steps": 6, "score": "composed", "head": "pieces", "mine_every": 3, "docids": 2},
    "composed, no pieces, by rows": {
        "steps": 4,
        "score": "composed",
        "head": "solved",
        "batch": 7,
        "optimizer": "rows",
    },
    "composed, fine-tuned": {"steps": 4, "score": "composed", "head": "pieces", "fine_tune": 0.5, "accumulate": 2},
    "composed, mask tokens, all documents": {"steps": 2, "score": "composed", "design": "mask", "rank_against": "all"},
}
STEPS: dict[str, dict[str, Any]] = {
    "full, frozen": {},
    "full, live, any order": {"live": True, "order": "any"},
    "sampled, live": {"live": True, "sample": 40},
    "mask tokens": {"live": True, "design": "mask"},
    "composed, frozen": {"score": "composed", "head": "pieces"},
    "composed, live, no pieces": {"score": "composed", "head": "solved", "live": True},
    "composed, mask tokens": {"score": "composed", "design": "mask", "live": True},
}
CHAINED: dict[str, dict[str, Any]] = {
    "sampled": {"steps": 9, "softmax": "sampled", "sample": 40},
    "composed": {"steps": 9, "score": "composed", "head": "pieces", "mine_every": 4, "learning_rate": 0.01},
}
CHAIN = ((2, 3), (1, 5), (4, 7), (2, 0))  # processes, and the step before which the last of them is killed


def run_group(size: int, work: Callable[[ProcessGroup], Any], folder: Path) -> list[dict[str, Any]]:
    """What `work` gives in each of some processes: a dict, or how the process ended."""
    folder.mkdir(parents=True, exist_ok=True)
    where: dict[str, Any] = {"WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1"}
    ports, said = os.pipe()
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            signal.alarm(SECONDS)
            where |= {
                "MASTER_PORT": int(os.read(ports, _DIGITS)),
                "RANK": rank,
                "LOCAL_RANK": rank,
                "TORCHELASTIC_USE_AGENT_STORE": True,
            }
            os.environ |= {name: str(value) for name, value in where.items()}
            _child(work, folder / f"{rank}.json")
        children.append(child)
    # As torchrun keeps it. Its thread may hold a lock of the system's library, which a child forked then never gets.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    os.write(said, f"{store.port:{_DIGITS}}".encode() * size)
    ends = [os.waitpid(child, 0)[1] for child in children]
    out = []
    for rank, end in enumerate(ends):
        path = folder / f"{rank}.json"
        out.append({"signal": os.WTERMSIG(end)} if os.WIFSIGNALED(end) else json.loads(path.read_text()))
        path.unlink(missing_ok=True)
    os.close(ports)
    os.close(said)
    return out


def _child(work: Callable[[ProcessGroup], Any], path: Path) -> None:
    try:
        group = ProcessGroup.join("cpu")
        with group.together():
            path.write_text(json.dumps(work(group)))
    except Silent:
        path.write_text(json.dumps({"silent": True}))
    except PixnarError as error:
        path.write_text(json.dumps({"error": str(error)}))
    except BaseException:
        path.write_text(json.dumps({"broken": traceback.format_exc()}))
    os._exit(0)


def small(folder: Path) -> runs.TrainingSetup:
    """The small corpus, with an encoder without dropout: processes drop other things than one process would."""
    write_small(folder / "corpus", 8, 3)
    save_encoder(folder / "encoder", texts=WORDS)
    path = folder / "encoder" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}))
    return runs.training_setup(folder)


def model_of(
    made: runs.TrainingSetup,
    design: str,
    group: ProcessGroup,
    head: str = "",
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Nar:
    """A model; with the head `pieces` or `solved` its rows are solved, in a folder that the processes share."""
    features = FeatureCache(Encoder.load(made.encoder.name), None)
    start = "solved" if head else "encoder" if design == "mlp" else "random"
    return build_model(
        made.data.vocabulary,
        features,
        made.priors,
        slots=SLOTS,
        design=design,
        head=start,
        hidden=16,
        group=group,
        docids=runs.docids(made.data, pieces=head == "pieces", folder=folder) if head else None,
        progress=progress,
    )


def _watched(step: Any, spy: Callable[[Any], None]) -> Any:
    def both(self: Any) -> None:
        step(self)
        spy(self)

    return both


def trained(made: runs.TrainingSetup, folder: Path, wish: dict[str, Any], group: ProcessGroup) -> dict[str, Any]:
    """Train and save; the log, and the shapes of what this process held of the head."""
    wish = dict(wish)
    model = model_of(made, wish.pop("design", "mlp"), group, wish.pop("head", ""), folder / "solve")
    rule = ScoreRule(score=wish.pop("score", "probability"), order=wish.pop("order", "bag"))
    seen: list[list[int]] = []

    def spy(step: torch.optim.Optimizer) -> None:
        for rows in (model.head.rows, model.head.bias):
            assert rows is not None
            seen.extend(list(part.shape) for part in [rows, *step.state.get(rows, {}).values()] if part.dim())

    kinds: tuple[Any, ...] = (RowAdam, LazyAdam, torch.optim.Adam)
    for kind in kinds:
        kind.step = _watched(kind.step, spy)
    _, done = run(made, folder, options(evaluate_every=2, **wish), rule=rule, model=model, evaluate=movement)
    model.save_pretrained(folder / "model")
    rows = log.read(folder) if group.first else []
    return {
        "log": [{name: row[name] for name in ("step", *PARTS) if name in row} for row in rows],
        "best": done.best_step,
        "rows": len(model.head.rows),
        "total": model.head.total,
        "shapes": sorted(map(list, {tuple(shape) for shape in seen})),
    }


def gradients(made: runs.TrainingSetup, wish: dict[str, Any], group: ProcessGroup, folder: Path) -> dict[str, Any]:
    """Of one step, as they come: Adam would move the weights alike if all of them were twice as large."""
    model = model_of(made, wish.get("design", "mlp"), group, wish.get("head", ""), folder)
    data, live = made.data, wish.get("live", False)
    sampler = Sampler(data.token_counts(), wish["sample"]) if "sample" in wish else None
    model.head.sparse = sampler is not None
    model.eval()
    model.encoder.requires_grad_(live)
    group.copy_first([*model.slots.parameters(), *model.encoder.parameters()])
    rule = ScoreRule(order=wish.get("order", "bag"))
    step: Step | RankingStep = Step(model, data, data.pairs(), Objective(Weights()), rule, made.priors, sampler)
    if wish.get("score") == "composed":
        step = RankingStep(model, data, data.pairs(), RankingOptions(slot_examples=5, sample=40, docids=2), 0)
    loss, _ = step(3, 9, live=live)
    loss.backward()  # type: ignore[no-untyped-call]
    body = [part.grad for part in (*model.slots.parameters(), *model.encoder.parameters()) if part.grad is not None]
    group.add_up(body)
    assert model.head.bias is not None
    head = [part.grad.to_dense().tolist() for part in (model.head.rows, model.head.bias) if part.grad is not None]
    scale = 0.0 if step.ranking_scale.grad is None else float(step.ranking_scale.grad)  # the composed score has none
    if model.head.pieces is not None:  # every process has all of them, and their whole gradient
        assert model.head.pieces.rows.grad is not None
        body.append(model.head.pieces.rows.grad.to_dense())
    return {"rows": head[0], "bias": head[1], "body": [part.flatten().tolist() for part in body], "scale": scale}


def solving(made: runs.TrainingSetup, folder: Path, group: ProcessGroup, kill: int = 0) -> dict[str, Any]:
    """The rows that processes solve together; the last of them is killed in some round, with every round saved."""
    solve._SAVE_SECONDS = -1.0
    rounds = []

    def progress(words: str, done: int, _: int | None) -> None:
        if "residual" in words:
            rounds.append(done)
            if done == kill and group.rank == group.size - 1:
                os.kill(os.getpid(), signal.SIGKILL)

    model = model_of(made, "mlp", group, "pieces", folder, progress)
    assert model.head.pieces is not None
    pieces = model.head.pieces.rows.detach()
    return {"rows": model.head.rows.detach().tolist(), "pieces": pieces.tolist(), "rounds": rounds}


def killed_at(step: int, rank: int, group: ProcessGroup) -> None:
    """From now on, kill this process as it comes to a step, if it is the one."""
    kinds: tuple[Any, ...] = (Step, RankingStep)
    for kind in kinds:

        def call(self: Any, number: int, size: int, *, live: bool, plain: Any = kind.__call__) -> Any:
            if step and number >= step and group.rank == rank:
                os.kill(os.getpid(), signal.SIGKILL)
            return plain(self, number, size, live=live)

        kind.__call__ = call


def chain(made: runs.TrainingSetup, folder: Path, wish: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """One run that is killed again and again, and goes on with another number of processes each time."""
    out = []
    for turn, (size, step) in enumerate(CHAIN):

        def work(group: ProcessGroup, size: int = size, step: int = step) -> dict[str, Any]:
            killed_at(step, size - 1, group)
            return trained(made, folder / "run", wish, group)

        out.append(run_group(size, work, folder / f"turn{turn}"))
    return out


def shortlists(made: runs.TrainingSetup, model: Path, group: ProcessGroup) -> dict[str, Any]:
    """Stage two of the paper: the vectors c_i under a head that stays."""
    nar = Nar.from_pretrained(model, group)
    chance = np.random.default_rng(0)
    x0 = chance.normal(size=(200, nar.head.width)).astype(np.float32)
    targets = chance.integers(0, nar.head.eos, (200, 20))
    targets[chance.random(targets.shape) < 0.3] = -1
    targets = -np.sort(-targets, axis=1)
    out: dict[str, Any] = {}
    for name, sampled in (("full", -1), ("sampled", 30)):
        said: list[str] = []
        wish = Options(m=12, rounds=6, batch=64, sampled=sampled)
        c = learn(x0, targets, nar.head, wish, lambda words, _, __, said=said: said.append(words))  # type: ignore[misc]
        loss, _ = shortlist_loss(torch.from_numpy(c), torch.from_numpy(x0), torch.from_numpy(targets), nar.head)
        out[name] = {"c": c.tolist(), "said": said, "loss": float(loss)}
    return out


class Widest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The most rows of a given width that any result of any operation has had."""

    def __init__(self, width: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.width, self.rows = width, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for part in found if isinstance(found, tuple | list) else (found,):
            if isinstance(part, torch.Tensor) and not part.is_sparse and part.dim() and part.shape[-1] == self.width:
                self.rows = max(self.rows, part.numel() // self.width)
        return found


def widest(group: ProcessGroup) -> dict[str, Any]:
    """Steps with a large head, full and sampled: losses, and the most rows that any tensor had."""
    total, width, batch = 20_001, 24, 6
    out: dict[str, Any] = {}
    for sparse in (False, True):
        with Widest(width) as seen:
            torch.manual_seed(5)
            bias = np.linspace(-1, 1, total, dtype=np.float32)
            head: PhraseHead = (
                PhraseHead.random(total, width, bias=bias)
                if group.size == 1
                else random_shard(total, width, bias, group)
            )
            drawn = seen.rows
            after = torch.randn(3).tolist()
            seen.rows, head.sparse = 0, sparse
            optimizer = RowAdam(head.parameters(), lr=0.1, processes=group)
            chance = torch.Generator().manual_seed(1)
            x = torch.randn(batch, SLOTS + 1, width, generator=chance)
            targets = torch.randint(0, total, (batch, SLOTS), generator=chance)
            sampler = Sampler(np.ones(total), 500)
            found = []
            for _ in range(3):
                optimizer.zero_grad()
                sample = sampler.draw(targets) if sparse else None
                loss = losses(x, targets, head, Weights(), sample).total(Weights())
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                found.append(float(loss.detach()))
        out["sampled" if sparse else "full"] = {"losses": found, "rows": seen.rows, "drawn": drawn, "after": after}
    return out


def save_for_ever(folder: Path, turn: int, group: ProcessGroup) -> None:
    """Save checkpoint after checkpoint, until one of the processes is ended at some moment."""
    newest = group.tell(checkpoint.step_of(checkpoint.latest(folder) or "step-0") if group.first else 0)
    if group.rank == turn % group.size:
        signal.setitimer(signal.ITIMER_REAL, random.Random(turn).uniform(0.01, 0.3))
    first, last = group.rows(1001)
    rows = checkpoint.RowShard(first, last, group, lambda name: name == "rows")
    for step in itertools.count(newest):  # the last one is written again
        tensors = {"rows": torch.full((last - first, 50), float(step)), "step": torch.tensor(step)}
        checkpoint.save(folder, step, tensors, {"step": step}, rows=rows)


def saved(folder: Path) -> list[int]:
    """The steps of the last whole checkpoints after every kill; what they hold is looked at."""
    out = []
    for turn in range(4):
        ends = run_group(2, lambda group, turn=turn: save_for_ever(folder / "run", turn, group), folder / "turn")  # type: ignore[misc]
        assert ends[turn % 2] == {"signal": signal.SIGALRM}, ends
        newest = checkpoint.latest(folder / "run")
        if newest is not None:
            tensors, state = checkpoint.load(newest)
            assert torch.equal(tensors["rows"], torch.full((1001, 50), float(state["step"])))
            assert int(tensors["step"]) == state["step"] == checkpoint.step_of(newest)
            out.append(state["step"])
    return out


def failing(group: ProcessGroup) -> dict[str, Any]:
    """All processes find the same fault."""
    group.wait()
    raise PixnarError("all of them fail")


def main(folder: Path) -> None:
    """All of the above; leaves found.json."""
    torch.set_num_threads(1)
    made = small(folder)
    out: dict[str, Any] = {
        "runs": {},
        "gradients": {},
        "shortlists": {},
        "widest": {},
        "chain": {},
        "straight": {},
        "solving": [],
    }
    for name, wish in RUNS.items():
        for size in SIZES:
            home = folder / name / str(size)
            out["runs"].setdefault(name, {})[size] = run_group(
                size,
                lambda w, h=home, y=wish: trained(made, h, y, w),  # type: ignore[misc]
                home,
            )
    for name, wish in STEPS.items():
        found = {}
        for size in SIZES:
            home = folder / "steps" / name / str(size)
            found[size] = run_group(size, lambda w, y=wish, h=home: gradients(made, y, w, h / "solve"), home)  # type: ignore[misc]
        out["gradients"][name] = found
    for size in SIZES:
        model = folder / "full" / "1" / "model"
        out["shortlists"][size] = run_group(size, lambda w, m=model: shortlists(made, m, w), folder / "lists")  # type: ignore[misc]
        out["widest"][size] = run_group(size, widest, folder / "widest")
    for name, size, kill in (("one", 1, 0), ("two", 2, 5), ("two", 2, 0), ("two", 2, 0), ("two", 2, -1)):
        where = folder / "solving" / name
        if kill < 0:
            (where / "solve" / "solved.json").unlink()  # as if it had been killed before that was written
        solved = run_group(size, lambda w, h=where, k=kill: solving(made, h / "solve", w, k), where)  # type: ignore[misc]
        out["solving"].append(solved)
    for name, wish in CHAINED.items():
        home = folder / "chain" / name
        out["chain"][name] = chain(made, home, wish)
        out["straight"][name] = run_group(
            1,
            lambda w, h=home, y=wish: trained(made, h / "straight", y, w),  # type: ignore[misc]
            home / "alone",
        )
    out["saved"] = saved(folder / "saved")
    out["failing"] = run_group(3, failing, folder / "failing")
    (folder / "found.json").write_text(json.dumps(out))  # gloo writes to standard output, too


if __name__ == "__main__":
    main(Path(sys.argv[1]))
