"""Scores data with a saved model."""

from __future__ import annotations

import os
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any, Sequence

from ._errors import UsageError
from ._programs import binary, flags

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["predict"]

_WRONG = 2  # exit code: cli/README.md


def predict(
    model_dir: str | os.PathLike[str],
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    output: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    id_column: str | None = None,
    worker_num: int | None = None,
    max_bad_lines: int | None = None,
) -> npt.NDArray[np.float32] | None:
    """Gives the probability of each line of data files, in their order: ``sluice predict`` from Python.

    Args:
        model_dir: The folder of a saved model, such as ``result.model_dir``.
        files: Paths or patterns of data files, in the format of the model's job.
        output: A file for one probability per line. Default: no file, and the probabilities are returned.
        overwrite: Replace ``output`` when it exists.
        id_column: Write this column of the data and a tab before each probability; needs ``output``.
        worker_num: Threads. Default: 1.
        max_bad_lines: Fail when more lines are malformed. Default: the limit of the model's job.

    Returns:
        ``[lines]``, float32, or None with ``output``. A malformed line has NaN.

    Raises:
        UsageError: The model, a file or an option is wrong.
        RuntimeError: The data cannot be scored, such as when too many lines are malformed.
    """
    if id_column is not None and output is None:
        raise UsageError("id_column= needs output=FILE")
    listed = [files] if isinstance(files, (str, os.PathLike)) else list(files)
    options: dict[str, Any] = {
        "model": model_dir,
        "data": listed,
        "id_column": id_column,
        "overwrite": overwrite or None,
        "worker_num": worker_num,
        "max_bad_lines": max_bad_lines,
        "progress": "plain",
    }
    if output is not None:
        _run({**options, "output": output})
        return None
    import numpy as np

    with tempfile.TemporaryDirectory(prefix="sluice-predict-") as folder:
        file = os.path.join(folder, "scores")
        _run({**options, "output": file})
        return np.fromfile(file, dtype=np.float32, sep="\n")


def _run(options: dict[str, Any]) -> None:
    done = subprocess.run(
        [binary(), "predict", *flags(options)], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode == 0:
        return
    message = done.stderr.strip()
    at = max(message.rfind("\nsluice: ") + 1, 0)
    message = message[at:].removeprefix("sluice: ") or f"sluice predict has ended with code {done.returncode}"
    raise UsageError(message) if done.returncode == _WRONG else RuntimeError(message)
