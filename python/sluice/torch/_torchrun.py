"""The ranks of torchrun, or of another launcher that sets the variables of torch.distributed."""

from __future__ import annotations

import math
import os
import sys
import time
from typing import Any, Mapping

from torch.distributed.rendezvous import rendezvous

from .._errors import JobError

_LOOK_S = 0.1
_TELL_S = 30.0
_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class TorchRanks:
    """This process among the others, which meet in torch's store at MASTER_ADDR and MASTER_PORT (``sluice._private.Ranks``).

    Raises:
        JobError: A variable is missing or no number, or the processes are on several hosts.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        lacking = [name for name in _VARIABLES if not environment.get(name)]
        if lacking:
            raise JobError(
                f"another launcher has started {environment.get('WORLD_SIZE')} processes (WORLD_SIZE), but {lacking[0]} is not "
                "set, by which they would meet; use torchrun, or sluice launch --program=FILE.py --worker_num=N"
            )
        try:
            self.rank, self.size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
            here = int(environment.get("LOCAL_WORLD_SIZE", self.size))
        except ValueError as error:
            raise JobError(f"RANK, WORLD_SIZE and LOCAL_WORLD_SIZE are numbers of processes: {error}") from None
        if here != self.size:
            raise JobError(
                f"torchrun has started {self.size} processes, {here} of them on this host; a script under torchrun runs on one "
                "host. Use several with sluice up and sluice submit (docs/operations.md)"
            )
        # The store that init_process_group uses, under names of our own.
        self._store: Any = next(iter(rendezvous("env://", self.rank, self.size)))[0]

    def share(self, text: str | None) -> str:
        if text is not None:
            self._store.set("sluice/folder", text)
            return text
        self._await(["sluice/folder"])
        return str(self._store.get("sluice/folder").decode())

    def await_all(self) -> None:
        self._store.set(f"sluice/rank{self.rank}", "there")
        if self.rank == 0:
            self._await([f"sluice/rank{rank}" for rank in range(self.size)])

    def _await(self, names: list[str]) -> None:
        # Not Store.wait, which looks for no signals.
        told_at = time.monotonic() + _TELL_S
        while not self._store.check(names):
            if time.monotonic() >= told_at:
                told_at = math.inf
                whom = "rank 0" if self.rank else "the other ranks"
                print(f"sluice: rank {self.rank} waits for {whom} to reach sluice.torch.worker", file=sys.stderr, flush=True)
            time.sleep(_LOOK_S)


def ranks_of_launcher() -> TorchRanks | None:
    """None when this process is alone."""
    return None if os.environ.get("WORLD_SIZE", "1") == "1" else TorchRanks(os.environ)
