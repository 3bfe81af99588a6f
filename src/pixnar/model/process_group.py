"""Process group: the processes that train together, the rows each holds, and their collectives.

torchrun starts the processes and numbers them by environment variables. Sums use nccl on GPUs and gloo elsewhere;
broadcast values and barriers always use gloo on the CPU. A single process has no torch group: every method then returns
its argument.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from pixnar.base.errors import PixnarError

T = TypeVar("T")
Ints = NDArray[np.int64]

_PATIENCE = timedelta(days=30)  # the first process may build vocabularies and tables for hours while the others wait
_MEETING = timedelta(minutes=10)  # in which processes find each other
_BUCKET = 1 << 24  # numbers that are added up at once
_GRACE = 1.0  # seconds in which whoever failed first can say why
_FAILED = "pixnar/failed"  # in the store that all processes share


class ProcessGroup:
    """One of `size` processes, number `rank`; the first is number 0."""

    def __init__(self, rank: int = 0, size: int = 1, local: int = 0) -> None:
        self.rank, self.size, self.local = rank, size, local

    @classmethod
    def join(cls, device: str = "auto") -> ProcessGroup:
        """The group that torchrun started this process in; without torchrun, `SINGLE`."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1 or "RANK" not in os.environ:
            return SINGLE
        kind = torch.device("cpu" if device == "auto" else device).type
        if device == "auto" and torch.cuda.is_available():
            kind = "cuda"
        if kind not in ("cpu", "cuda"):
            raise PixnarError(f"train.device {device} with {size} processes: they can share cpu or cuda; choose one")
        group = cls(int(os.environ["RANK"]), size, int(os.environ.get("LOCAL_RANK", "0")))
        if kind == "cuda" and group.local >= torch.cuda.device_count():
            raise PixnarError(
                f"process {group.rank} has no GPU of its own: start at most {torch.cuda.device_count()} per machine"
            )
        backend = "cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo"
        importlib.import_module("torch._dynamo")  # see `_dissolve`
        try:
            store, rank, size = next(rendezvous("env://", timeout=_MEETING))
            store.set_timeout(_MEETING)  # the group is patient, but whoever keeps the store may be gone
            _meet(store, rank, size)
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_PATIENCE)
        except dist.DistError as error:
            raise PixnarError(
                f"process {group.rank} of {size} met not all of the others within {_MEETING}: see what ended them, or, "
                "for one process, unset WORLD_SIZE"
            ) from error
        return group

    @property
    def first(self) -> bool:
        """Whether this process does the work that is done once."""
        return self.rank == 0

    def device(self, wanted: torch.device) -> torch.device:
        """The device of a kind that this process uses."""
        if self.size == 1:
            return wanted
        if wanted.type != "cuda":  # `auto` may have found a device that processes cannot share
            return torch.device("cpu")
        if wanted.index is not None:
            raise PixnarError(
                f"train.device {wanted} with {self.size} processes: give {wanted.type}, each takes its own"
            )
        torch.cuda.set_device(self.local)
        return torch.device(wanted.type, self.local)

    def rows(self, total: int) -> tuple[int, int]:
        """First row and end of this process's share of `total` rows.

        >>> [ProcessGroup(rank, 4).rows(10) for rank in range(4)]
        [(0, 2), (2, 5), (5, 7), (7, 10)]
        """
        if total < self.size:
            raise PixnarError(f"{total} rows cannot be shared by {self.size} processes: start fewer")
        return total * self.rank // self.size, total * (self.rank + 1) // self.size

    def share(self, batch: Ints) -> Ints:
        """The part of a batch for this process; all parts are equally long, so the last may repeat inputs of others.

        >>> [ProcessGroup(rank, 2).share(np.arange(5)).tolist() for rank in range(2)]
        [[0, 1, 2], [3, 4, 0]]
        """
        if self.size == 1:
            return batch
        length = -(-len(batch) // self.size)
        return batch[(self.rank * length + np.arange(length)) % len(batch)]

    def gather(self, part: Tensor, count: int) -> Tensor:
        """The first `count` of all processes' parts, one behind the other; gradients are added up and given back.

        What is done with the whole must leave in each process its own part of the gradient: see `add` and `merge`.
        """
        if self.size == 1:
            return part
        whole: Tensor = _Gather.apply(part.float(), self)  # type: ignore[no-untyped-call]
        return whole[:count]

    def add(self, part: Tensor) -> Tensor:
        """The sum over the processes; every one of them then computes the same with it, and has its gradient whole."""
        if self.size == 1:
            return part
        total: Tensor = _Add.apply(part)  # type: ignore[no-untyped-call]
        return total

    def merge(self, log_z: Tensor) -> Tensor:
        """The log of the sum of exp over the processes: the largest first, then the sum of what is left."""
        if self.size == 1:
            return log_z
        merged: Tensor = _Merge.apply(log_z)  # type: ignore[no-untyped-call]
        return merged

    @torch.no_grad()
    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Put in place of each tensor its sum over the processes, many small ones in one go."""
        if self.size == 1:
            return
        for some in _buckets(tensors):
            flat = torch.cat([tensor.reshape(-1) for tensor in some])
            dist.all_reduce(flat)
            parts = torch.split(flat, [tensor.numel() for tensor in some])
            for tensor, summed in zip(some, parts, strict=True):
                tensor.copy_(summed.view_as(tensor))

    @torch.no_grad()
    def copy_first(self, tensors: Sequence[Tensor]) -> None:
        """Put in place of each tensor the first process's."""
        if self.size > 1:
            for tensor in tensors:
                whole = tensor.detach().contiguous()
                dist.broadcast(whole, 0)
                tensor.copy_(whole)

    def tell(self, value: T) -> T:
        """Broadcast a JSON value from the first process to all."""
        if self.size == 1:
            return value
        text = json.dumps(value).encode() if self.first else b""
        length = torch.tensor([len(text)])
        dist.broadcast(length, 0)
        content = torch.zeros(int(length), dtype=torch.uint8)
        if self.first:
            content = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        dist.broadcast(content, 0)
        received: T = json.loads(bytes(content.numpy()))
        return received

    def tell_array(self, values: NDArray[Any]) -> NDArray[Any]:
        """Broadcast an array from the first process to all; shapes and types must agree."""
        if self.size == 1:
            return values
        whole = torch.from_numpy(np.ascontiguousarray(values))
        dist.broadcast(whole, 0)
        return whole.numpy()

    def collect(self, value: T) -> list[T]:
        """Gather a JSON value from every process, in order, in all of them."""
        if self.size == 1:
            return [value]
        text = json.dumps(value).encode()
        longest = torch.tensor([len(text)])
        dist.all_reduce(longest, dist.ReduceOp.MAX)
        own = torch.frombuffer(bytearray(text.ljust(int(longest))), dtype=torch.uint8)
        every = [torch.zeros_like(own) for _ in range(self.size)]
        dist.all_gather(every, own)
        return [json.loads(bytes(part.numpy())) for part in every]

    def wait(self) -> None:
        """Barrier: return once all processes have arrived here."""
        if self.size > 1:
            dist.all_reduce(torch.zeros(1))

    def in_turn(self, work: Callable[[], T]) -> T:
        """Run `work` in the first process, then in the others, which find what the first one wrote."""
        if self.size == 1:
            return work()
        if self.first:
            result = work()
            self.wait()
            return result
        self.wait()
        return work()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """A block in which the failure of one process ends all; only the first to fail reports why.

        The others leave by `Silent`. At the end of the block the group is dissolved.
        """
        if self.size == 1:
            yield
            return
        try:
            yield
            self.wait()
            _dissolve()
        except PixnarError:
            if self._someone_failed(time.monotonic()):
                raise Silent from None
            raise
        except RuntimeError as error:  # what a collective raises when another process has gone
            if not _is_lost(error):
                self._someone_failed(time.monotonic())
                raise
            if self._someone_failed(time.monotonic() + _GRACE):
                raise Silent from None
            raise PixnarError(
                f"process {self.rank} lost another one, which was killed or is out of memory: "
                "start again with the same arguments, training goes on from its last checkpoint"
            ) from error
        except Exception:
            self._someone_failed(time.monotonic())  # the others, which will miss this process, need not say so
            raise

    def _someone_failed(self, until: float) -> bool:
        """Whether another process has said why it ends; the first to ask has not, and from then on counts as such."""
        with contextlib.suppress(Exception):  # the store may be gone, too: then everybody speaks
            store = _store()
            store.set_timeout(timedelta(seconds=_GRACE))
            while time.monotonic() < until and not store.check([_FAILED]):
                time.sleep(0.05)
            return int(store.add(_FAILED, 1)) > 1
        return False


class Silent(PixnarError):  # noqa: N818  # no error of its own
    """Exit of a process because another one failed and reported why."""


SINGLE = ProcessGroup()
"""The group of a single process."""


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        whole = part.new_empty((group.size * len(part), *part.shape[1:]))
        dist.all_gather(list(whole.chunk(group.size)), part.contiguous())
        return whole

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        group, whole = ctx.group, grads[0].contiguous()
        length = len(whole) // group.size
        if whole.is_cuda:
            own = whole.new_empty((length, *whole.shape[1:]))
            dist.reduce_scatter_tensor(own, whole)
            return own, None
        whole = whole.clone()
        dist.all_reduce(whole)
        return whole[group.rank * length : (group.rank + 1) * length], None


class _Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor) -> Tensor:
        kind = torch.promote_types(part.dtype, torch.float32)  # gloo adds up no half precision
        total = part.detach().to(kind, copy=True, memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total.to(part.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0]


class _Merge(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, log_z: Tensor) -> Tensor:
        top = log_z.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(top, dist.ReduceOp.MAX)
        top.clamp_(min=torch.finfo(top.dtype).min)  # where no process has anything
        total = (log_z - top).exp_()
        dist.all_reduce(total)
        merged = top + total.log_()
        ctx.save_for_backward(log_z, merged)
        return merged

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        log_z, merged = ctx.saved_tensors
        share: Tensor = (log_z - merged.clamp(min=torch.finfo(merged.dtype).min)).exp_()
        return grads[0] * share


def _meet(store: Any, rank: int, size: int) -> None:
    """Wait until all processes have come; the group itself would wait for them as long as for an answer."""
    store.set(f"pixnar/here/{rank}", "1")
    store.wait([f"pixnar/here/{other}" for other in range(size)], _MEETING)


def _dissolve() -> None:
    """End the group and gloo's threads: one that still lets go of a tensor as the interpreter ends aborts the process.

    The threads end with the last reference to the group. Functions of torch have the group as the default value of an
    argument, so their modules keep one that is there when they are first imported; optimizers import most of them. For
    this reason `join` imports them before there is a group.
    """
    default = weakref.ref(dist.distributed_c10d._get_default_group())
    dist.destroy_process_group()
    if default() is not None:
        time.sleep(_GRACE)  # somebody else keeps it: then its threads are given time


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """The tensors in their order, some together, none of which differ in type."""
    some: list[Tensor] = []
    for tensor in tensors:
        if some and (sum(part.numel() for part in some) + tensor.numel() > _BUCKET or tensor.dtype != some[0].dtype):
            yield some
            some = []
        some.append(tensor)
    if some:
        yield some


def _is_lost(error: RuntimeError) -> bool:
    words = str(error).lower()
    return isinstance(error, dist.DistError) or any(
        word in words for word in ("gloo", "nccl", "connection", "peer", "socket")
    )
