"""Sluice trains models whose embeddings and parameters live on parameter servers.

`launch` runs a job on this machine and gives its result; `Job` makes the job. `predict` scores data with the model that
was saved, and `load_model` gives its values as arrays, and `import_table` makes a model from the table
of another system. `sluice.torch` runs a PyTorch module as the network of a job, and
`Client` gives rows of tables to a program that computes gradients itself, such as with NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _process
from ._errors import JobError, UsageError
from ._job import Job
from ._launch import Epoch, Launch, Progress, Result, launch
from ._optimizer import Optimizer
from ._predict import predict

_process.show_errors_once()  # does nothing outside of a launch

if TYPE_CHECKING:
    from ._client import Client, RolledBack, SparseTable
    from ._model import Model, Table, load_model
    from .table import import_table

__all__ = [
    "Client",
    "Epoch",
    "Job",
    "JobError",
    "Launch",
    "Model",
    "Optimizer",
    "Progress",
    "Result",
    "RolledBack",
    "SparseTable",
    "Table",
    "UsageError",
    "import_table",
    "launch",
    "load_model",
    "predict",
]


def __getattr__(name: str) -> Any:
    if name == "_core":  # also by `from sluice import _core`
        from ._load import load_core

        return load_core()
    # They need NumPy, which takes longer to import than all the rest.
    if name in ("Client", "RolledBack", "SparseTable"):
        from . import _client

        return getattr(_client, name)
    if name in ("Model", "Table", "load_model"):
        from . import _model

        return getattr(_model, name)
    if name == "import_table":
        from .table import import_table

        return import_table
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
