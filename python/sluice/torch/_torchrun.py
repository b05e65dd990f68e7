"""The ranks of torchrun, or of another launcher that sets the variables of torch.distributed."""

from __future__ import annotations

import math
import os
import socket
import sys
import time
from datetime import timedelta
from typing import Any, Callable, Mapping

from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # not in its __all__

from .._errors import JobError

_LOOK_S = 0.1
_TELL_S = 30.0
_CALL = timedelta(seconds=30)  # the longest call of the store
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
            port = int(environment["MASTER_PORT"])
        except ValueError as error:
            raise JobError(f"RANK, WORLD_SIZE, LOCAL_WORLD_SIZE and MASTER_PORT are numbers: {error}") from None
        if here != self.size:
            raise JobError(
                f"torchrun has started {self.size} processes, {here} of them on this host; a script under torchrun runs on one "
                "host. Use several with sluice up and sluice submit (docs/operations.md)"
            )
        # The store that init_process_group uses, under names of our own: torchrun's, or else rank 0 has it. Made without
        # rendezvous(), which waits for the other processes for up to half an hour and looks for no signals.
        host = environment["MASTER_ADDR"]
        serves = self.rank == 0 and environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        if not serves:
            self._await_server(host, port)
        # torchrun keeps its store when it starts the processes again.
        names = f"sluice/{environment.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        server = TCPStore(host, port, self.size, serves, _CALL, wait_for_workers=False, multi_tenant=True)
        self._store: Any = PrefixStore(names, server)

    def share(self, text: str | None) -> str:
        if text is not None:
            self._store.set("folder", text)
            return text
        self._await(lambda: self._has(["folder"]))
        return str(self._store.get("folder").decode())

    def await_all(self) -> None:
        self._store.set(f"rank{self.rank}", "there")
        if self.rank == 0:
            names = [f"rank{rank}" for rank in range(self.size)]
            self._await(lambda: self._has(names))

    def _await_server(self, host: str, port: int) -> None:
        def listens() -> bool:
            try:
                socket.create_connection((host, port), _LOOK_S * 10).close()
            except OSError:
                return False
            return True

        self._await(listens)

    def _has(self, names: list[str]) -> bool:
        try:
            return bool(self._store.check(names))
        except RuntimeError as error:
            raise JobError(f"rank {self.rank} cannot reach the others; rank 0 or torchrun has ended: {error}") from None

    def _await(self, is_there: Callable[[], bool]) -> None:
        # Not Store.wait, which looks for no signals.
        told_at = time.monotonic() + _TELL_S
        while not is_there():
            if time.monotonic() >= told_at:
                told_at = math.inf
                whom = "rank 0" if self.rank else "the other ranks"
                print(f"sluice: rank {self.rank} waits for {whom} to reach sluice.torch.worker", file=sys.stderr, flush=True)
            time.sleep(_LOOK_S)


def ranks_of_launcher() -> TorchRanks | None:
    """None when this process is alone."""
    return None if os.environ.get("WORLD_SIZE", "1") == "1" else TorchRanks(os.environ)
