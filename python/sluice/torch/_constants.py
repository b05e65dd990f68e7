"""Values of the module that no step changes and that must be equal in all workers.

They are those buffers and frozen parameters that are no tables, such as counters. The first worker of a launch writes
its values into the folder of the launch, before it offers the job. Every worker reads them from there, also one that is
started again. Another launch begins with the values of its own first worker, also when it resumes a job.
"""

from __future__ import annotations

import os
from typing import Sequence

import torch
from torch import Tensor

FILE = "constants.pt"

Constants = Sequence[tuple[str, Tensor]]  # names in the module, and the module's own tensors


def write(folder: str, constants: Constants) -> None:
    """Writes the values. The first ones win: does nothing when the file is there."""
    path = os.path.join(folder, FILE)
    if not constants or os.path.exists(path):
        return
    # Clones, or a view would bring the whole storage behind it.
    torch.save({name: tensor.detach().clone() for name, tensor in constants}, path + ".new")
    os.replace(path + ".new", path)


def read(folder: str, constants: Constants) -> None:
    """Gives the tensors the values of the first worker. The job is offered already.

    Raises:
        RuntimeError: The first worker has other constants; names the first difference.
    """
    path = os.path.join(folder, FILE)
    values: dict[str, Tensor] = {}
    if os.path.exists(path):
        values = torch.load(path, map_location="cpu", weights_only=True)
    own = dict(constants)
    for name in [*own, *values]:
        here, there = _describe(own.get(name)), _describe(values.get(name))
        if here != there:
            raise RuntimeError(
                f"frozen parameter or buffer {name!r} is {here} in this worker, and {there} in the first one; all workers must "
                "run the same script with the same arguments"
            )
    with torch.no_grad():
        for name, tensor in constants:
            tensor.copy_(values[name])


def _describe(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"
