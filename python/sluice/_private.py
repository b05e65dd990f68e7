"""A cluster for one script: `python train.py` without `sluice launch`.

The script's process is the only worker. `sluice launch` runs beside it, with a scheduler and a pserver on loopback; for the
launcher the worker is a stand-in, which gives its variables to this process and then waits (``_stand_in.py``). When either
side ends, whatever ends it, the other one does, too: a lost worker is not started again.
"""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading

from ._errors import JobError
from ._programs import binary

__all__ = ["PrivateCluster"]

_STAND_IN = pathlib.Path(__file__).resolve().parent / "_stand_in.py"
# How often a wait looks for the end of the launcher, and for signals.
_LOOK_S = 0.1


class PrivateCluster:
    """Runs until ``stop``. This process has the variables of its worker meanwhile (SLUICE_*).

    Args:
        resume: The job goes on from the newest checkpoint in its output folder.

    Raises:
        JobError: The launcher has ended; it has printed why. Or this is a process of torchrun.
        UsageError: The programs are not built.
    """

    def __init__(self, resume: bool) -> None:
        processes = os.environ.get("WORLD_SIZE", "1")
        if processes != "1":
            raise JobError(
                f"another launcher has started {processes} processes (WORLD_SIZE), and one alone can have the cluster; start "
                f"them with: sluice launch --program=FILE.py --worker_num={processes}"
            )
        self._folder = tempfile.TemporaryDirectory(prefix="sluice-worker-")
        path = os.path.join(self._folder.name, "socket")
        # The launcher names its programs by their files.
        program = pathlib.Path(self._folder.name, "program", os.path.basename(sys.argv[0]) or "script")
        program.parent.mkdir()
        program.symlink_to(_STAND_IN)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(1)
            self._reads, writes = os.pipe()
            try:
                # A session of its own: Ctrl-C in a terminal reaches this process alone, which then cancels the job.
                self._launcher = subprocess.Popen(
                    [binary(), "launch", f"--program={program}", f"--python={sys.executable}", "--server_num=1",
                     "--worker_num=1", f"--progress_fd={writes}", *(["--resume"] if resume else []), "--", path],
                    stdin=subprocess.DEVNULL, pass_fds=[writes], start_new_session=True,
                )
            except BaseException:
                os.close(self._reads)
                self._folder.cleanup()
                raise
            finally:
                os.close(writes)
            threading.Thread(target=self._drain, name="sluice-launcher", daemon=True).start()
            self._stand_in = self._accept(listener)
        self._before = dict(os.environ)
        with self._stand_in.makefile("r") as lines:
            os.environ.update(json.loads(lines.readline()))

    def stop(self) -> None:
        """Waits until the launcher has ended, which it does after the job."""
        self._stand_in.close()
        self._launcher.wait()
        for name in [name for name in os.environ if name.startswith("SLUICE_")]:
            del os.environ[name]
        os.environ.update({name: value for name, value in self._before.items() if name.startswith("SLUICE_")})
        self._folder.cleanup()

    def abandon(self) -> None:
        """In a forked child: what it keeps open would hide the end of this process from the launcher."""
        self._stand_in.close()
        os.close(self._reads)

    # ------------------------------------------------------------------------------------------- inside

    def _accept(self, listener: socket.socket) -> socket.socket:
        listener.settimeout(_LOOK_S)
        while True:
            try:
                return listener.accept()[0]
            except TimeoutError:
                if self._launcher.poll() is not None:
                    raise JobError("the cluster of this script has not started; sluice launch says why above") from None
            except BaseException:
                os.close(self._reads)  # the launcher stops
                raise

    def _drain(self) -> None:
        """Reads the launcher's statuses, which this process does not need: the launcher ends when nobody reads them."""
        while os.read(self._reads, 1 << 16):
            pass
        os.close(self._reads)
