"""The result of a job, as one of its workers reads it afterwards."""

from __future__ import annotations

import json
import os
import time
import zlib
from typing import Any

from .._places import is_url, read_text

# The scheduler writes the result after the workers have learned of the end.
_WAIT_S = 60.0
_LOOK_S = 0.1


class JobResult:
    """``result.json`` of a job that has begun.

    The folder may have the result of an earlier job, so only a file that has changed since counts.

    Args:
        folder: The job's output folder, on the scheduler's host or on a store; "" when it is not known.
        job_id: The job.
        fails: This process is about to fail or cancel the job, so it asks no store first. A result on a store is then the
            job's own when it names the job and is not that of a job that was done: a later launch may use the id again.
    """

    def __init__(self, folder: str, job_id: str, *, fails: bool = False) -> None:
        self._path = os.path.join(folder, "result.json") if folder else ""
        self._job_id = job_id
        self._unasked = fails and is_url(self._path)
        self._before = None if self._unasked else self._identity()
        self._result: dict[str, Any] | None = None

    def read(self) -> dict[str, Any]:
        """The result. Waits for it; raises RuntimeError when it does not come."""
        if not self._path:
            raise RuntimeError(f"the job {self._job_id} has no result that this process can read: it knows no output folder")
        deadline = time.monotonic() + _WAIT_S
        while self._result is None:
            self._result = self._read_now()
            if self._result is None and time.monotonic() >= deadline:
                raise RuntimeError(
                    f"the job {self._job_id} has no result that this process can read: {self._path} was not "
                    f"written within {_WAIT_S:.0f} s. Is the output folder on another host?"
                )
            if self._result is None:
                time.sleep(_LOOK_S)
        return self._result

    def _read_now(self) -> dict[str, Any] | None:
        if self._identity() in (None, self._before):
            return None
        try:
            result: dict[str, Any] = json.loads(read_text(self._path))
        except (OSError, ValueError):
            return None
        # While its model replaces that of an earlier job, that job's result says so.
        others = ("replaced", "done") if self._unasked else ("replaced",)
        return result if result.get("job") == self._job_id and result.get("status") not in others else None

    def _identity(self) -> tuple[int, int, int] | None:
        try:
            if is_url(self._path):
                text = read_text(self._path).encode()
                return 0, zlib.crc32(text), len(text)
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size
