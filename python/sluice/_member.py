"""This process as a worker of one job, whatever its program computes: where its cluster is, and how it ends."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, Callable, Iterable

from . import _private, _process
from ._errors import JobError

if TYPE_CHECKING:
    from . import _core

__all__ = ["Member", "shortened"]


class Member:
    """Call ``enter`` first and ``leave`` last.

    Args:
        core: The extension module.
        resume: A script that is run by itself goes on from the newest checkpoint in the job's output folder.
        ranks: Finds the processes that another launcher has started together with this one, which become the workers of one
            cluster; None: there must be no others.
        forked: Called in a forked child, which is no worker.
    """

    def __init__(
        self,
        core: Any,
        resume: bool,
        *,
        ranks: Callable[[], _private.Ranks | None] | None = None,
        forked: Callable[[], None] = lambda: None,
    ) -> None:
        self._core_module = core
        self._resume = resume
        self._ranks = ranks
        self._on_fork = forked
        self._cluster: _private.PrivateCluster | None = None  # of a script that is run by itself
        self._core: _core.Worker | None = None
        self._handler: Any = None  # of SIGINT, before the job was cancelled
        self.forked = False  # this process is a forked child of the worker

    def enter(
        self,
        job: str,
        *,
        offer: Callable[[str], None],
        offered: Callable[[str], None] = lambda folder: None,
        epoch_steps: int | None = None,
    ) -> _core.Worker:
        """Joins the job of this launch, or of a cluster of its own.

        Args:
            job: As ``declare`` of the core gives it.
            offer: Gives the job to the launcher through this folder. Called in the first worker alone: all of them declare
                the same, and the job and the values of one must count.
            offered: Called in all workers when that has been done.
            epoch_steps: The most batches that this process gives in an epoch; 0: any number; None: it gives none.
        """
        _process.enter(self._abandon)
        try:
            self._find_cluster()
            folder = os.environ["SLUICE_PROGRAM_DIR"]
            if os.environ.get("SLUICE_RANK", "0") == "0":
                offer(folder)
            while not self._core_module.is_offered(folder, job):
                time.sleep(0.05)
            offered(folder)
            steps = () if epoch_steps is None else (epoch_steps,)
            core: _core.Worker = self._core_module.Worker(job, *steps)
            self._core = core
            return core
        except BaseException:
            if self._cluster is not None:
                self._cluster.stop(failed=True)
            _process.leave(again=True)
            raise

    def _find_cluster(self) -> None:
        if not _process.launched():
            if self._ranks is None and (processes := os.environ.get("WORLD_SIZE", "1")) != "1":
                raise JobError(
                    f"another launcher has started {processes} processes (WORLD_SIZE); only sluice.torch.worker can use "
                    f"them. Start these with: sluice launch --program=FILE.py --worker_num={processes}"
                )
            self._cluster = _private.PrivateCluster(self._resume, None if self._ranks is None else self._ranks())
        elif self._resume:
            print(
                "sluice: resume=True has no effect here: the launch has started this job; give it --resume",
                file=sys.stderr,
                flush=True,
            )
        _process.show_errors_once()

    def fail(self, error: BaseException, before: Callable[[], None]) -> None:
        """The job fails with the traceback of the error. ``before``: called when the user has looked at it (--pdb)."""
        _process.debug(error)
        before()
        _process.tell_launcher(error)
        whole = "".join(traceback.format_exception(error)).rstrip("\n")
        text = shortened(whole)
        assert self._core is not None
        if self._core.fail(text) and text == whole:
            _process.reported(error)

    def cancel(self) -> None:
        """Cancels the job. Until ``leave`` another interrupt ends the process at once."""
        # Handlers belong to the main thread. Only there does a signal become a KeyboardInterrupt.
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
        assert self._core is not None
        try:
            self._core.cancel()
        except RuntimeError as error:
            print(f"sluice: the job is not cancelled: {error}", file=sys.stderr, flush=True)

    def leave(self) -> None:
        """Stops the worker, and waits for the end of a cluster of its own."""
        assert self._core is not None
        self._core.stop()
        if self._cluster is not None:
            self._cluster.stop()
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
        self._core = None
        _process.leave()

    def _abandon(self) -> None:
        """In a forked child: the worker belongs to the parent process, whose threads are not here."""
        self.forked = True
        self._on_fork()
        core, self._core = self._core, None
        if core is not None:
            core.abandon()
        if self._cluster is not None:
            self._cluster.abandon()


def shortened(text: str, most: int = 3500) -> str:
    """Cuts the middle of a long traceback: its end says what is wrong, its beginning in which line of the script.

    Args:
        text: A traceback.
        most: Bytes of the result in UTF-8, with 4 more for each line: the scheduler indents them. It cuts the end of what is
            longer than 4096 bytes together with the name of the worker.
    """
    text = text.encode("utf-8", "replace").decode()  # without surrogates, which no message can have
    costs = [len(character.encode()) + (4 if character == "\n" else 0) for character in text]
    if sum(costs) <= most:
        return text
    gap = "\n...\n"
    half = (most - len(gap) - 2 * 4) // 2
    return text[: _fitting(costs, half)] + gap + text[len(text) - _fitting(reversed(costs), half) :]


def _fitting(costs: Iterable[int], most: int) -> int:
    """How many of these costs, from the first on, are at most this sum together."""
    return sum(1 for total in itertools.accumulate(costs) if total <= most)
