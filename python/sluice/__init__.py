"""Sluice trains models whose embeddings and parameters live on parameter servers.

`sluice.torch` runs a PyTorch module as the network of a job. `Job` is the rest of the job: its data, features,
optimizers and strategy.
"""

from __future__ import annotations

import os

__all__ = ["Job", "JobError"]


class JobError(RuntimeError):
    """The job has failed, or was cancelled. The message is that of the job."""


class Job:
    """A job without a model, in the text format of job files (proto/config.proto).

    Args:
        text: The job, such as ``'data { format: CSV ... } features { ... } train { epochs: 3 }'``.
        base_dir: The folder against which relative paths in the job are resolved. Default: the current folder.
    """

    def __init__(self, text: str, *, base_dir: str = "") -> None:
        self.text = text
        self.base_dir = base_dir

    @classmethod
    def from_file(cls, path: str) -> Job:
        """Reads a job file. Relative paths in it are resolved against its folder, as with ``sluice launch --job``."""
        with open(path, encoding="utf-8") as file:
            return cls(file.read(), base_dir=os.path.dirname(os.path.abspath(path)))
