"""What all workers of a job do together: calls at the borders of epochs, and functions at their ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Callable, Mapping, TypeVar

import torch

from .. import JobError

if TYPE_CHECKING:
    from .. import _core

OnEpochEnd = TypeVar("OnEpochEnd", bound=Callable[[int], Any])
# The other workers see it instead of a call that this one does not make before its first batch.
LOOP = "its first batch"


class _AttemptOver(BaseException):
    """Leads out of the functions of an epoch's end: the job has gone back, and the epoch is trained again."""


class Group:
    """A worker's part in the calls of all workers.

    A border is a place that all workers reach: before the first batch (0), and the end of each epoch (1, 2, ...). Calls
    are counted there, from 0.
    """

    def __init__(self) -> None:
        self._functions: list[Callable[[int], Any]] = []
        self._core: _core.Worker | None = None
        self._ended: type[Exception] = JobError
        self._border: int | None = None  # None: the worker is at none
        self._number = 0
        self.ends_epoch = False  # the functions of on_epoch_end run

    def join(self, core: _core.Worker, ended: type[Exception]) -> None:
        """The worker is before its first batch. ``ended``: what core raises when the job has ended."""
        self._core, self._ended = core, ended
        self._border, self._number = 0, 0

    def begin_loop(self) -> None:
        if self._border == 0 and self._core is not None:
            self._core.pass_on(0, self._number, LOOP)
            self._border = None

    def on_epoch_end(self, function: OnEpochEnd) -> OnEpochEnd:
        self._functions.append(function)
        return function

    def end_epoch(self, core: _core.Worker, epoch: int) -> None:
        """Runs the functions, in the order in which they were given. ``epoch``: from 0."""
        self._border, self._number, self.ends_epoch = epoch + 1, 0, True
        done = True
        try:
            for function in self._functions:
                function(epoch)
        except _AttemptOver:
            done = False
        finally:
            self._border, self.ends_epoch = None, False
        core.answer_end(done)

    # ---- calls

    def sum(self, values: Mapping[str, Any]) -> dict[str, Any]:
        own = {name: _numbers(name, value) for name, value in values.items()}
        given_by_rank = self._gather("sum", lambda rank: json.dumps(own).encode())
        workers = self._workers()
        if len(given_by_rank) != workers:
            raise RuntimeError(
                f"worker.sum: {len(given_by_rank)} ranks have given values, but the job has {workers} workers now; start "
                "the job again with this number of workers"
            )
        by_rank = [json.loads(given) for given in given_by_rank]
        _check_equal(by_rank)
        total: dict[str, Any] = {}
        for name in own:
            first, *others = [given[name] for given in by_rank]
            if isinstance(first, list):
                added = torch.tensor(first, dtype=torch.float64)
                for other in others:
                    added += torch.tensor(other, dtype=torch.float64)
                total[name] = added
            else:
                number = first
                for other in others:
                    number += other
                total[name] = number
        return total

    def broadcast(self, data: bytes, root: int) -> bytes:
        by_rank = self._gather(f"broadcast(root={root})", lambda rank: bytes(data) if rank == root else b"")
        if root >= len(by_rank):
            raise RuntimeError(
                f"worker.broadcast: rank {root} has given nothing; {len(by_rank)} ranks have answered, and the job has "
                f"{self._workers()} workers now"
            )
        return by_rank[root]

    def barrier(self) -> None:
        self._gather("barrier", lambda rank: b"")

    def check(self, what: str) -> None:
        """RuntimeError where not all workers come."""
        if self._border is None:
            raise RuntimeError(
                f"worker.{what} is a call of all workers, and not all of them come here: use it before the first batch, "
                "or in a function of worker.on_epoch_end"
            )

    def _workers(self) -> int:
        assert self._core is not None
        return self._core.place()[2]

    def _gather(self, what: str, data: Callable[[int], bytes]) -> list[bytes]:
        """What all workers give to a call, by rank. ``data``: what this one gives when it has that rank."""
        self.check(what.partition("(")[0])
        core, border = self._core, self._border
        assert core is not None and border is not None
        while True:
            rank = core.place()[1]
            try:
                given = core.gather(border, self._number, "worker." + what, rank, data(rank))
            except self._ended as error:
                raise JobError(str(error)) from None
            if given is not None:
                self._number += 1
                return given
            if border > 0:
                raise _AttemptOver
            # Before the first batch nothing is lost: the worker goes on as the rank that it has become.


def _numbers(name: str, value: Any) -> float | list[float]:
    """The value as what JSON carries without a loss."""
    if not isinstance(name, str):
        raise TypeError(f"worker.sum: {name!r} is no name; the keys are str")
    tensor = torch.as_tensor(value, dtype=torch.float64).detach()
    if tensor.dim() > 1:
        raise ValueError(f"worker.sum: {name!r} has shape {tuple(tensor.shape)}; give a number or one dimension")
    numbers: float | list[float] = tensor.tolist()
    return numbers


def _size(value: Any) -> str:
    return f"{len(value)} numbers" if isinstance(value, list) else "a number"


def _check_equal(by_rank: list[dict[str, Any]]) -> None:
    """All ranks give the same names, each with the same number of values."""
    for rank, given in enumerate(by_rank[1:], 1):
        for has, lacks in ((0, rank), (rank, 0)):
            for name in sorted(by_rank[has].keys() - by_rank[lacks].keys()):
                raise ValueError(f"worker.sum: rank {has} gives {name!r}, rank {lacks} does not; all give the same names")
        for name, value in given.items():
            if _size(value) != _size(by_rank[0][name]):
                raise ValueError(
                    f"worker.sum: rank 0 gives {_size(by_rank[0][name])} as {name!r}, rank {rank} {_size(value)}"
                )
