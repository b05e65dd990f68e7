"""The four programs that belong to this package, and how they are called."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import subprocess
from typing import Sequence

from ._errors import UsageError

__all__ = ["binary", "flags", "refuse_in_child", "run"]

_PACKAGE = pathlib.Path(__file__).resolve().parent
_WRONG = 2  # exit code: cli/README.md
# In a wheel; beside the package of a build tree (build/release/bin and build/release/python/sluice).
_FOLDERS = (_PACKAGE / "bin", _PACKAGE.parents[1] / "bin")


def binary(name: str = "sluice") -> str:
    """The path of one of the programs. They find each other in its folder.

    Raises:
        UsageError: The programs are not built.
    """
    for folder in _FOLDERS:
        if os.access(folder / name, os.X_OK):
            return str(folder / name)
    folders = " or ".join(map(str, _FOLDERS))
    raise UsageError(f"there is no program {name} in {folders}; install the wheel, or build with ./dev build")


def refuse_in_child(what: str) -> None:
    """A process of multiprocessing ends with its parent, and takes its own processes for members of a pool."""
    if multiprocessing.parent_process() is not None:
        raise RuntimeError(
            f"{what} was called in a child process of multiprocessing; call it in the main process, below "
            "if __name__ == '__main__'"
        )


def flags(options: dict[str, object]) -> list[str]:
    """Keyword arguments as flags of the command line: ``worker_num=2`` is ``--worker_num=2``.

    None leaves the flag out; a list repeats it; a dictionary repeats it with ``name=value``.
    """
    made: list[str] = []
    for name, value in options.items():
        if value is None:
            continue
        if isinstance(value, dict):
            made += [f"--{name}={key}={_text(one)}" for key, one in value.items()]
        elif isinstance(value, (list, tuple)):
            made += [f"--{name}={_text(one)}" for one in value]
        else:
            made.append(f"--{name}={_text(value)}")
    return made


def run(words: Sequence[str]) -> str:
    """Runs ``sluice`` with these words, and gives what it prints.

    Raises:
        UsageError: Flags or files are wrong. The message is that of the command.
        RuntimeError: It has failed otherwise.
    """
    done = subprocess.run([binary(), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode == 0:
        return done.stdout
    message = done.stderr.strip()
    at = max(message.rfind("\nsluice: ") + 1, 0)
    message = message[at:].removeprefix("sluice: ") or f"sluice {words[0]} has ended with code {done.returncode}"
    raise UsageError(message) if done.returncode == _WRONG else RuntimeError(message)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    return str(value)
