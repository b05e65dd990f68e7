"""A cluster for scripts that `sluice launch` has not started: `python train.py`, or the ranks of torchrun.

The script's processes are the workers. Rank 0 runs `sluice launch` beside them, with a scheduler and a pserver on loopback; for
the launcher each worker is a stand-in, which gives its variables to the process of its rank and then waits (``_stand_in.py``).
A lost worker is not started again: its stand-in leaves the file FOLDER/lost, and rank 0 ends the launch. When rank 0 or the
launcher ends, whatever ends it, the other one does, too. Rank 0 holds a lock on FOLDER/alive, by which ranks that wait for
their stand-ins see its end.

    rank 0                                 rank r                           the launcher, of rank 0
    makes a folder, tells the ranks -----> binds FOLDER/r
    starts the launcher when all have -----------------------------------> starts stand-in r
    has the variables of its stand-in      has the variables of its own <- connects to FOLDER/r
"""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from typing import Protocol

from ._errors import JobError
from ._programs import binary

__all__ = ["PrivateCluster", "Ranks"]

_STAND_IN = pathlib.Path(__file__).resolve().parent / "_stand_in.py"
# How often a wait looks for the end of the launcher, and for signals.
_LOOK_S = 0.1


class Ranks(Protocol):
    """The processes that another launcher has started on this host, with this one among them."""

    rank: int
    size: int

    def share(self, text: str | None) -> str:
        """Gives all ranks the text of rank 0; the others give None."""

    def await_all(self) -> None:
        """Tells rank 0 that this rank has come here. On rank 0: waits until all have."""


class PrivateCluster:
    """Runs until ``stop``. This process has the variables of its worker meanwhile (SLUICE_*).

    Args:
        resume: The job goes on from the newest checkpoint in its output folder.
        ranks: The processes that are the workers. Default: this one alone.

    Raises:
        JobError: The launcher has ended; it has printed why.
        UsageError: The programs are not built.
    """

    def __init__(self, resume: bool, ranks: Ranks | None = None) -> None:
        rank, size = (0, 1) if ranks is None else (ranks.rank, ranks.size)
        self._launcher: subprocess.Popen[bytes] | None = None  # on rank 0
        self._reads = -1  # the end of the pipe of its statuses; -1: closed
        self._drainer: threading.Thread | None = None  # reads it, and closes it
        self._given_up = threading.Event()  # nobody waits for the launcher any more
        self._alive = -1  # the lock of rank 0
        self._made: str | None = tempfile.mkdtemp(prefix="sluice-worker-") if rank == 0 else None
        try:
            if self._made is not None:
                self._alive = os.open(os.path.join(self._made, "alive"), os.O_RDWR | os.O_CREAT, 0o600)
                fcntl.flock(self._alive, fcntl.LOCK_EX)
            self._folder = self._made if ranks is None else ranks.share(self._made)
            assert self._folder is not None
            with socket.socket(socket.AF_UNIX) as listener:
                try:
                    listener.bind(os.path.join(self._folder, str(rank)))
                except FileNotFoundError:
                    raise JobError(
                        f"rank {rank} is not on the host of rank 0, or rank 0 has ended; a script under torchrun runs on one "
                        "host. Use several with sluice up and sluice submit (docs/operations.md)"
                    ) from None
                listener.listen(1)
                if ranks is not None:
                    ranks.await_all()
                if rank == 0:
                    self._start(resume, size)
                self._stand_in = self._accept(listener)
        except BaseException:
            self._given_up.set()
            if self._drainer is not None:
                self._drainer.join()
            self._remove()
            raise
        self._before = dict(os.environ)
        with self._stand_in.makefile("r") as lines:
            os.environ.update(json.loads(lines.readline()))

    def stop(self, *, failed: bool = False) -> None:
        """Rank 0: waits until the launcher has ended, which it does after the job and all ranks.

        Args:
            failed: This rank has not come to the job, which cannot begin without it.
        """
        if self._launcher is not None or not failed:
            try:
                self._stand_in.sendall(b".")  # the end is no loss
            except OSError:
                pass  # the launcher has ended
        self._stand_in.close()
        if self._launcher is not None:
            self._launcher.wait()
        for name in [name for name in os.environ if name.startswith("SLUICE_")]:
            del os.environ[name]
        os.environ.update({name: value for name, value in self._before.items() if name.startswith("SLUICE_")})
        self._remove()

    def abandon(self) -> None:
        """In a forked child: what it keeps open would hide the end of this process from the launcher."""
        self._stand_in.close()
        self._close_reader()
        self._close_lock()

    # ------------------------------------------------------------------------------------------- inside

    def _start(self, resume: bool, workers: int) -> None:
        assert self._folder is not None
        # The launcher names its programs by their files.
        program = pathlib.Path(self._folder, "program", os.path.basename(sys.argv[0]) or "script")
        program.parent.mkdir()
        program.symlink_to(_STAND_IN)
        self._reads, writes = os.pipe()
        try:
            # A session of its own: Ctrl-C in a terminal reaches this process alone, which then cancels the job.
            self._launcher = subprocess.Popen(
                [binary(), "launch", f"--program={program}", f"--python={sys.executable}", "--server_num=1",
                 f"--worker_num={workers}", f"--progress_fd={writes}", *(["--resume"] if resume else []), "--", self._folder],
                stdin=subprocess.DEVNULL, pass_fds=[writes], start_new_session=True,
            )
        except BaseException:
            self._close_reader()
            raise
        finally:
            os.close(writes)
        self._drainer = threading.Thread(target=self._drain, name="sluice-launcher", daemon=True)
        self._drainer.start()

    def _accept(self, listener: socket.socket) -> socket.socket:
        assert self._folder is not None
        listener.settimeout(_LOOK_S)
        while True:
            try:
                accepted = listener.accept()[0]
                accepted.settimeout(None)
                return accepted
            except TimeoutError:
                if self._launcher is None:
                    if not _is_locked(os.path.join(self._folder, "alive")):
                        raise JobError("rank 0 has ended, and the cluster of this script with it; see its output") from None
                elif self._launcher.poll() is not None:
                    raise JobError("the cluster of this script has not started; sluice launch says why above") from None

    def _close_reader(self) -> None:
        """The launcher stops when nobody reads its statuses. Called by the thread that reads them, where there is one."""
        reads, self._reads = self._reads, -1
        if reads >= 0:
            os.close(reads)

    def _close_lock(self) -> None:
        lock, self._alive = self._alive, -1
        if lock >= 0:
            os.close(lock)

    def _remove(self) -> None:
        self._close_lock()
        if self._made is not None:
            shutil.rmtree(self._made, ignore_errors=True)

    def _drain(self) -> None:
        """Reads the launcher's statuses, which this process does not need: the launcher ends when nobody reads them."""
        assert self._folder is not None
        lost = os.path.join(self._folder, "lost")
        while not self._given_up.is_set():
            if os.path.exists(lost):
                print("sluice: a process of the job has ended, so the job ends", file=sys.stderr, flush=True)
                break
            if select.select([self._reads], [], [], _LOOK_S)[0] and not os.read(self._reads, 1 << 16):
                break
        self._close_reader()


def _is_locked(path: str) -> bool:
    """Whether a process holds the lock on this file. False when there is no such file."""
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
