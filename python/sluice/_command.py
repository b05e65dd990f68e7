"""The command ``sluice`` of the wheel."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
from typing import NoReturn, Sequence

from ._errors import UsageError
from ._programs import binary

__all__ = ["main"]

_DEMO = pathlib.Path(__file__).resolve().parent / "demo"
_DEMO_HELP = """\
sluice demo [FLAGS OF sluice launch]
  Trains a first job: does a person of the 1994 census earn more than 50,000 dollars a year (UCI Adult)? Starts a
  scheduler, 2 pservers and 2 workers on this machine, trains for seconds, and prints AUC and log loss.
  The job and its result are in ./sluice-demo.
    sluice demo --a_sync=false          sync instead of async
    sluice demo --k_steps=20            Geo, exchange every 20 steps
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Becomes the program ``sluice`` of this package. Returns an exit code when it cannot."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if words[:1] == ["demo"]:
            if "--help" in words or "-h" in words:
                print(_DEMO_HELP, end="")
                return 0
            words = _demo(pathlib.Path("sluice-demo"), words[1:])
        if words in (["--help"], ["-h"], ["help"]):
            code = subprocess.run([binary(), *words]).returncode
            print("\nOnly here: sluice demo [FLAGS OF sluice launch] trains a first job.")
            return code
        _become(binary(), _with_interpreter(words))
    except UsageError as error:
        print(f"sluice: {error}", file=sys.stderr)
        return 2


def _become(program: str, words: Sequence[str]) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(program, ["sluice", *words])


def _with_interpreter(words: Sequence[str]) -> list[str]:
    """Programs of workers run in the environment of this command, unless the user says otherwise."""
    own = list(words[: words.index("--")] if "--" in words else words)
    names = [word.lstrip("-").partition("=")[0] for word in own]
    if own[:1] != ["launch"] or "program" not in names or "python" in names:
        return list(words)
    return ["launch", f"--python={sys.executable}", *words[1:]]


def _demo(folder: pathlib.Path, flags: Sequence[str]) -> list[str]:
    """Puts the job and its data into `folder`, and gives the command that runs it."""
    job = folder / "configs" / "adult_wide_deep.textproto"
    if not _DEMO.is_dir():
        raise UsageError(f"there is no demo in {_DEMO}; it is part of the wheel")
    try:
        shutil.copytree(_DEMO, folder, dirs_exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error}; run sluice demo in a folder of yours") from None
    output, logs = folder / "output", folder / "log"
    return ["launch", f"--job={job}", "--server_num=2", f"--output_dir={output}", f"--log_dir={logs}", *flags]


if __name__ == "__main__":
    sys.exit(main())
