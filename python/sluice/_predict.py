"""Scores data with a saved model."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any, Sequence

from ._errors import UsageError
from ._programs import flags, run

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["predict"]


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
        run(["predict", *flags({**options, "output": output})])
        return None
    import numpy as np

    with tempfile.TemporaryDirectory(prefix="sluice-predict-") as folder:
        file = os.path.join(folder, "scores")
        run(["predict", *flags({**options, "output": file})])
        return np.fromfile(file, dtype=np.float32, sep="\n")
