"""The exceptions of the package. Messages are those of the daemons and of the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._launch import Result

__all__ = ["JobError", "UsageError"]


class JobError(RuntimeError):
    """The job has failed, or was cancelled. The message is that of the job.

    Attributes:
        result: What the job has written until then; None when it has written nothing, or in a worker's process.
    """

    def __init__(self, message: str, result: Result | None = None) -> None:
        super().__init__(message)
        self.result = result


class UsageError(ValueError):
    """A job, a file or an option is wrong, so that nothing was started. The message says what, where, and the fix."""
