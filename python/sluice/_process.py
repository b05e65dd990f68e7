"""This process as a program of `sluice launch`: what it may do once, its forks, and errors that nobody catches."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pdb
import sys
import traceback
from types import TracebackType
from typing import Any, Callable

from ._errors import JobError, UsageError

_REPORTED = "_sluice_reported"  # attribute of an exception: the job's message has its whole traceback
_DEBUGGED = "_sluice_debugged"  # attribute of an exception that a person has looked at

_MOST_CHARACTERS = 600  # of an error in the last line of a launch

_state = "new"  # "open": in `with sluice.torch.worker(...)`; "over": after it
_in_child: Callable[[], None] | None = None  # what a forked child does first
_watches_forks = False
_hook: Any = None  # the sys.excepthook before ours; None: ours is not there
_on_terminal = False  # this process prints where the launcher does, as rank 0


def launched() -> bool:
    """Whether this process is a worker of `sluice launch --program`. Else it runs by itself."""
    return bool(os.environ.get("SLUICE_PROGRAM_DIR"))


def enter(in_child: Callable[[], None]) -> None:
    """Makes this process the worker of its only job.

    Args:
        in_child: Called first in a child process that is forked from now on.
    """
    global _state, _in_child, _watches_forks
    if _state == "open":
        raise RuntimeError("this process is a worker already: `with sluice.torch.worker(...)` cannot be nested")
    if _state == "over":
        raise RuntimeError(
            "this process has been the worker of a job already; a launch runs one job: start another `sluice launch` for "
            "the next one"
        )
    _state = "open"
    _in_child = in_child
    if file := _error_file():
        with contextlib.suppress(OSError):
            os.remove(file)  # of an earlier process of this rank, which this one makes good
    if not _watches_forks:
        os.register_at_fork(after_in_child=_after_fork_in_child)  # for the life of the process
        _watches_forks = True


def leave(*, again: bool = False) -> None:
    """The opposite of ``enter``. ``again``: nothing has begun, so ``enter`` may be called again."""
    global _state, _in_child
    _state = "new" if again else "over"
    _in_child = None


def _after_fork_in_child() -> None:
    global _in_child
    if _in_child is not None:
        _in_child()
    _in_child = None


def reported(error: BaseException) -> None:
    """Says that the job fails with the whole traceback of `error`, which the launcher shows."""
    setattr(error, _REPORTED, True)


def debug(error: BaseException | None) -> None:
    """Under ``sluice launch --pdb``: lets the user look at an exception where it was raised. Once for each."""
    if os.environ.get("SLUICE_PDB") != "1" or not isinstance(error, Exception) or isinstance(error, JobError):
        return
    if error.__traceback__ is None or getattr(error, _DEBUGGED, False) or multiprocessing.parent_process() is not None:
        return
    setattr(error, _DEBUGGED, True)
    traceback.print_exception(error)
    print("sluice: --pdb: the job waits while you look; `q` ends it", file=sys.stderr, flush=True)
    pdb.post_mortem(error.__traceback__)


def _error_file() -> str | None:
    """Where `sluice launch` looks for an error of this rank; None when it does not."""
    folder = os.environ.get("SLUICE_PROGRAM_DIR")
    if not folder or not os.path.isdir(folder) or multiprocessing.parent_process() is not None:
        return None  # of a launch on several hosts, it is on another one
    return os.path.join(folder, "error." + os.environ.get("SLUICE_RANK", "0"))


def tell_launcher(error: BaseException) -> None:
    """Names an error in a file that `sluice launch` looks for when its job, or its program, has failed.

    Format: the exit code of a launch whose job has not begun, a blank, and one line of text.
    """
    file = _error_file()
    if file is None:
        return
    rank = os.environ.get("SLUICE_RANK", "0")
    place = os.path.basename(sys.argv[0]) + (f" rank {rank}" if rank != "0" else "")
    try:
        text = " ".join(str(error).split())
    except Exception:  # of the user's class
        text = ""
    if len(text) > _MOST_CHARACTERS:
        text = text[:_MOST_CHARACTERS] + "..."
    line = f"{2 if _is_wrong_use(error) else 1} {place}: {type(error).__name__}{': ' if text else ''}{text}"
    draft = f"{file}.{os.getpid()}"
    with contextlib.suppress(OSError):  # the job fails with the whole traceback in any case
        with open(draft, "w", encoding="utf-8", errors="replace") as out:
            out.write(line)
        os.rename(draft, file)


def _is_wrong_use(error: BaseException) -> bool:
    """Whether the script has made a job, or called this package, in a way that it refuses before there is a job."""
    if _state != "new" or not isinstance(error, (TypeError, ValueError)):
        return False
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    raised_in = frames[-1].f_globals.get("__name__", "") if frames else ""
    return isinstance(error, UsageError) or raised_in.partition(".")[0] == __name__.partition(".")[0]


def show_errors_once() -> None:
    """Under the launcher: what it shows of an error is not shown a second time by Python, at the end of the process."""
    global _hook, _on_terminal
    if _hook is None and launched():
        _on_terminal = os.environ.get("SLUICE_RANK") == "0"
        _hook = sys.excepthook
        sys.excepthook = _uncaught


def _uncaught(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
    debug(error)
    if isinstance(error, JobError):
        # These say no more than the launcher does on the same terminal, whose last line tells how to go on.
        if _on_terminal and str(error).startswith(("the job has ended elsewhere", "the cluster was stopped")):
            return
        print(f"sluice: the program ends with its job: {_in_one_line(str(error))}", file=sys.stderr, flush=True)
        return
    if not isinstance(error, KeyboardInterrupt):
        tell_launcher(error)
    # Rank 0 prints on the launcher's terminal, the others into their logs, which shall be complete.
    if _on_terminal and getattr(error, _REPORTED, False):
        return
    _hook(kind, error, where)


def _in_one_line(message: str) -> str:
    """The first line of a job's message; of a traceback the last one, which names the error."""
    lines = [line for line in message.splitlines() if line.strip()]
    if not lines:
        return "it has ended"
    return lines[-1] if lines[0].endswith("Traceback (most recent call last):") else lines[0]
