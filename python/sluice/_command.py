"""The command ``sluice`` of the wheel."""

from __future__ import annotations

import os
import sys
from typing import NoReturn, Sequence

from ._errors import UsageError
from ._programs import binary

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Becomes the program ``sluice`` of this package. Returns an exit code when it cannot."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
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


if __name__ == "__main__":
    sys.exit(main())
