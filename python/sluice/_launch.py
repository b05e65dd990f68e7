"""Launches a job on a local cluster, and follows it."""

from __future__ import annotations

import codecs
import json
import math
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Callable, Iterator, Mapping, Sequence

from ._errors import JobError, UsageError
from ._job import Job
from ._places import is_url, read_text
from ._programs import binary, flags, refuse_in_child

__all__ = ["Epoch", "Launch", "Progress", "Result", "launch"]

# Exit codes of the command line (cli/README.md).
_DONE, _WRONG, _OUTPUT_LOST = 0, 2, 4
# Every wait looks for signals this often.
_LOOK_S = 0.1
# What the messages of errors are taken from.
_TAIL_BYTES = 64 << 10
_TAIL_LINES = 40


@dataclass(frozen=True)
class Epoch:
    """One epoch of a job. Metrics are NaN where the job did not evaluate, or where they are undefined."""

    epoch: int  # from 1
    examples: int
    seconds: float
    loss: float
    auc: float
    log_loss: float


@dataclass(frozen=True)
class Progress:
    """The status of a job at one moment.

    Attributes:
        state: "queued", "starting", "running", "recovering", "done", "failed" or "cancelled".
        phase: What it does in the epoch, such as "train" or "eval".
        epoch: From 1; 0 before the first one.
        step: Global steps so far.
        loss: Of the newest steps; NaN before the first one.
        auc: Of the newest evaluation; NaN before the first one.
        eta_s: Seconds left; NaN while it is not known.
        raw: All of it, as in ``sluice status --json``.
    """

    job_id: str
    state: str
    message: str
    phase: str
    epoch: int
    epochs: int
    step: int
    examples: int
    examples_per_second: float
    loss: float
    auc: float
    workers_alive: int
    worker_num: int
    eta_s: float
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def _from(cls, raw: Mapping[str, Any]) -> Progress:
        evals = [one["eval"] for one in raw.get("epochs_log") or [] if (one.get("eval") or {}).get("examples")]
        return cls(
            job_id=raw["job_id"],
            state=raw["state"],
            message=raw["message"],
            phase=raw["phase"],
            epoch=raw["epoch"],
            epochs=raw["epochs"],
            step=raw["global_step"],
            examples=raw["examples"],
            examples_per_second=_number(raw["examples_per_second"]),
            loss=_number(raw["loss"] or None),
            auc=_number(evals[-1].get("auc")) if evals else math.nan,
            workers_alive=raw["workers_alive"],
            worker_num=raw["worker_num"],
            eta_s=_number(raw["eta_s"] or None),
            raw=raw,
        )


@dataclass(frozen=True)
class Result:
    """How a job has ended: the contents of its ``result.json``.

    Attributes:
        status: "done", "failed" or "cancelled".
        message: Why it has failed or was cancelled.
        auc: Of the last evaluation; NaN without one.
        model_dir: The saved model, for ``sluice.load_model`` and ``sluice.predict``; None when none was saved.
        output_dir: The folder of ``result.json``.
        raw: All of ``result.json``.
    """

    status: str
    message: str
    auc: float
    log_loss: float
    examples: int
    seconds: float
    epochs_log: list[Epoch]
    model_dir: str | None
    output_dir: str
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Result:
        """Reads ``OUTPUT_DIR/result.json``, which may be on a store (``s3://``)."""
        file = os.fspath(path)
        raw = json.loads(read_text(file))
        final = raw.get("eval") or {}
        epochs = []
        for one in raw.get("epochs_log") or []:
            metrics = one.get("eval") or {}
            epochs.append(
                Epoch(
                    epoch=one["epoch"],
                    examples=one["examples"],
                    seconds=one["seconds"],
                    loss=_number(one.get("loss")),
                    auc=_number(metrics.get("auc")),
                    log_loss=_number(metrics.get("log_loss")),
                )
            )
        return cls(
            status=raw["status"],
            message=raw.get("message") or "",
            auc=_number(final.get("auc")),
            log_loss=_number(final.get("log_loss")),
            examples=raw["examples"],
            seconds=raw["seconds"],
            epochs_log=epochs,
            model_dir=raw.get("model_dir") or None,
            output_dir=os.path.dirname(file if is_url(file) else os.path.abspath(file)),
            raw=raw,
        )


class ProgressFeed:
    """The progress of a launch: ``for progress in launch.progress`` ends with the job. ``last`` is the newest one."""

    def __init__(self, owner: Launch) -> None:
        self._owner = owner

    @property
    def last(self) -> Progress | None:
        """None until the job is submitted."""
        return self._owner._last

    def __iter__(self) -> Iterator[Progress]:
        """Gives each new status; a slow loop gets the newest one. Ctrl-C in it cancels the job, as in ``wait``."""
        seen = 0
        while True:
            over, number, progress = self._owner._await_news(seen)
            if progress is not None and number > seen:
                seen = number
                yield progress
            elif over:
                return


class Launch:
    """A job that runs on a local cluster, in processes of its own. They end with this process, whatever ends it.

    As a context manager, it cancels a job that has not ended when the block ends::

        with sluice.launch(job, worker_num=2) as run:
            for progress in run.progress:
                print(progress.epoch, progress.auc)
            result = run.wait()

    Thread safety: any thread, except that only the main thread gets KeyboardInterrupt.
    """

    def __init__(
        self, command: Sequence[str], folder: tempfile.TemporaryDirectory[str] | None, show: bool,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._folder = folder  # has the job's file
        self._show = show
        # Of this process: of the callback, or of reading the launcher. wait() raises it.
        self._error: BaseException | None = None
        self._prints_errors = any(word.startswith("--program=") for word in command)
        self._changed = threading.Condition()
        self._last: Progress | None = None
        self._number = 0  # of the statuses so far
        self._drained = False  # no status follows
        self._over = False
        self._cancelled = False
        self._output_dir: str | None = None
        self._tail = b""  # of standard error
        reads, writes = os.pipe()
        self._reads: int | None = reads
        try:
            # A process group of its own: Ctrl-C in a terminal reaches this process, which then cancels the job.
            self._process = subprocess.Popen(
                [*command[:2], f"--progress_fd={writes}", *command[2:]],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[writes],
                start_new_session=True,
            )
        except BaseException:
            os.close(reads)
            raise
        finally:
            os.close(writes)
        _running.add(self)
        # The callback has a thread of its own: while it runs, the launcher's pipes must be read, or the launcher would wait.
        self._caller: threading.Thread | None = None
        if on_progress is not None:
            self._caller = threading.Thread(target=self._call_back, args=(on_progress,), name="sluice-progress", daemon=True)
            self._caller.start()
        threading.Thread(target=self._follow, name="sluice-launch", daemon=True).start()

    @property
    def pid(self) -> int:
        """Of the launcher."""
        return self._process.pid

    @property
    def progress(self) -> ProgressFeed:
        return ProgressFeed(self)

    @property
    def job_id(self) -> str | None:
        """None until the job is submitted."""
        return None if self._last is None else self._last.job_id

    def wait(self, timeout: float | None = None) -> Result:
        """Waits until the job has ended and its processes have stopped.

        Ctrl-C cancels the job, which saves a checkpoint first; a second one ends it at once.

        Args:
            timeout: Seconds. Default: no limit.

        Returns:
            The result of a job that is done, or was cancelled by ``cancel``.

        Raises:
            JobError: The job has failed, with its message; or it was cancelled by somebody else.
            UsageError: The job or an option is wrong, and nothing was started.
            TimeoutError: It has not ended within the timeout, and goes on.
        """
        self._await_end(timeout)
        return self._ended()

    def cancel(self) -> None:
        """Cancels the job, and returns at once. It saves a checkpoint first, if it can; a second call ends it at once."""
        self._cancelled = True
        self._signal(signal.SIGINT)

    def __enter__(self) -> Launch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if not self._is_over():
            self.cancel()
            self._await_end(None)

    # ------------------------------------------------------------------------------------------- inside

    def _is_over(self) -> bool:
        with self._changed:
            return self._over

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)

    def _await_news(self, seen: int) -> tuple[bool, int, Progress | None]:
        with self._interruptible(), self._changed:
            while not self._over and self._number <= seen:
                self._changed.wait(_LOOK_S)
            return self._over, self._number, self._last

    def _await_end(self, timeout: float | None) -> None:
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        with self._interruptible(), self._changed:
            while not self._over:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"the job has not ended within {timeout} s; it goes on")
                self._changed.wait(min(left, _LOOK_S))

    def _interruptible(self) -> _CancelsOnInterrupt:
        return _CancelsOnInterrupt(self)

    def _ended(self) -> Result:
        if self._error is not None:
            raise self._error
        code = self._process.returncode
        result = self._result()
        if code in (_DONE, _OUTPUT_LOST):
            if result is None:
                raise JobError(f"the job is done, but its result.json is missing: {self._message(code)}")
            return result
        if self._cancelled and result is not None and result.status == "cancelled":
            return result
        if code == _WRONG and self._last is None:
            raise UsageError(self._message(code))
        last = self._last
        if last is not None and last.state in ("failed", "cancelled") and last.message:
            raise JobError(f"job {last.job_id} {last.state}: {last.message}", result)
        raise JobError(self._message(code), result)

    def _result(self) -> Result | None:
        if self._output_dir is None:
            return None
        try:
            return Result.from_file(os.path.join(self._output_dir, "result.json"))
        except FileNotFoundError:
            return None

    def _message(self, code: int) -> str:
        """The last error on standard error: from its first line on, which begins with the command's name.

        A program prints there, too, and its traceback says more than the launcher, which sees only an exit code.
        """
        text = self._tail.decode("utf-8", "replace").rstrip()
        if self._prints_errors and text:
            return "\n".join(text.splitlines()[-_TAIL_LINES:])
        at = max(text.rfind("\nsluice: ") + 1, 0 if text.startswith("sluice: ") else -1)
        if at > 0 or text.startswith("sluice: "):
            return text[at:].removeprefix("sluice: ")
        return text or f"sluice launch has ended with code {code}"

    def _follow(self) -> None:
        """Runs in a thread of its own until the launcher has ended."""
        try:
            try:
                self._read_all()
            finally:
                self._process.wait()
                with self._changed:
                    self._drained = True
                    self._changed.notify_all()
                if self._caller is not None:
                    self._caller.join()
                if self._folder is not None:
                    self._folder.cleanup()
        except BaseException as error:
            self._keep(error)
        finally:
            with self._changed:
                self._over = True
                self._changed.notify_all()

    def _keep(self, error: BaseException) -> None:
        """Keeps the first error of this process for wait()."""
        with self._changed:
            if self._error is None:
                self._error = error

    def _read_all(self) -> None:
        process = self._process
        assert process.stdout is not None and process.stderr is not None and self._reads is not None
        out, errors, progress = process.stdout.fileno(), process.stderr.fileno(), self._reads
        takes = {out: self._printer(lambda: sys.stdout), errors: self._printer(lambda: sys.stderr), progress: self._taker()}
        try:
            with selectors.DefaultSelector() as selector:
                for source in takes:
                    selector.register(source, selectors.EVENT_READ)
                while selector.get_map():
                    for key, _ in selector.select():
                        read = os.read(key.fd, 1 << 16)
                        if not read:
                            selector.unregister(key.fd)
                        if key.fd == errors:
                            self._tail = (self._tail + read)[-_TAIL_BYTES:]
                        try:
                            takes[key.fd](read)
                        except BaseException as error:
                            # The launcher stops when nobody takes its progress. Until then its output must be read.
                            self._keep(error)
                            self._show = False
                            if progress in selector.get_map():
                                selector.unregister(progress)
                            self._close_reader()
                            break  # this round may name the closed pipe
        finally:
            process.stdout.close()
            process.stderr.close()
            self._close_reader()

    def _taker(self) -> Callable[[bytes], None]:
        """Takes the bytes of the progress: a status a line."""
        rest = b""

        def take(read: bytes) -> None:
            nonlocal rest
            *lines, rest = (rest + read).split(b"\n")
            for one in lines:
                self._take(json.loads(one))

        return take

    def _take(self, raw: Mapping[str, Any]) -> None:
        progress = Progress._from(raw)
        self._output_dir = (raw.get("config") or {}).get("output_dir") or self._output_dir
        with self._changed:
            self._last = progress
            self._number += 1
            self._changed.notify_all()

    def _call_back(self, function: Callable[[Progress], None]) -> None:
        """Runs in a thread of its own: gives the newest status, and the last one in any case."""
        seen = 0
        while True:
            with self._changed:
                while not self._drained and self._number == seen:
                    self._changed.wait()
                if self._number == seen:
                    return
                seen, progress = self._number, self._last
            assert progress is not None
            try:
                function(progress)
            except BaseException as error:
                self._keep(error)
                self.cancel()
                return

    def _printer(self, stream: Callable[[], Any]) -> Callable[[bytes], None]:
        """Prints bytes through one of Python's streams, which a notebook shows in the cell. No bytes: the end."""
        # What is read may end within a character.
        decoder = codecs.getincrementaldecoder("utf-8")("replace")

        def write(read: bytes) -> None:
            text, to = decoder.decode(read, final=not read), stream()
            if not self._show or to is None or not text:
                return
            try:
                to.write(text)
                to.flush()
            except (OSError, ValueError):  # closed; the job goes on, and its pipes must be read
                self._show = False

        return write

    def _close_reader(self) -> None:
        reads, self._reads = self._reads, None
        if reads is not None:
            os.close(reads)


class _CancelsOnInterrupt:
    """Cancels the job at KeyboardInterrupt, waits for its end, and lets the exception go on."""

    def __init__(self, owner: Launch) -> None:
        self._owner = owner

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if kind is None or not issubclass(kind, KeyboardInterrupt):
            return
        process = self._owner._process
        self._owner._signal(signal.SIGINT)
        while process.poll() is None:
            try:
                time.sleep(_LOOK_S)
            except KeyboardInterrupt:
                self._owner._signal(signal.SIGINT)


# A forked child must not keep the pipes open by which launchers notice the end of this process.
_running: weakref.WeakSet[Launch] = weakref.WeakSet()


def _forget_in_child() -> None:
    for one in list(_running):
        one._close_reader()


os.register_at_fork(after_in_child=_forget_in_child)


def launch(
    job: Job | str | os.PathLike[str] | None = None,
    *,
    program: str | os.PathLike[str] | None = None,
    args: Sequence[str] = (),
    server_num: int | str | None = None,
    worker_num: int | None = None,
    a_sync: bool | None = None,
    k_steps: int | None = None,
    resume: bool = False,
    output: str | os.PathLike[str] | None = None,
    log_dir: str | os.PathLike[str] | None = None,
    show: bool = True,
    on_progress: Callable[[Progress], None] | None = None,
    **options: Any,
) -> Launch:
    """Starts a local cluster on free ports, runs one job on it, and stops it: ``sluice launch`` from Python.

    Args:
        job: The job, or the path of its file. Or else:
        program: A Python file that each worker runs, with the interpreter of this process (``sluice.torch``).
        args: Arguments of the program.
        server_num: Number of pservers; "auto" measures the job first. Default: 2.
        worker_num: Number of workers. Default: as the job says; 1 for a program.
        a_sync: Async, or (False) sync. Default: as the job says.
        k_steps: Geo: workers train locally and exchange differences every so many steps.
        resume: Continue from the newest checkpoint of ``output``, if there is one.
        output: The job's folder, for ``result.json``, the model and checkpoints. Default: ``output/JOB_ID``.
        log_dir: The folder of the logs. Default: ``log``, or ``log-2``, ... if it is in use.
        show: Print what the launcher and the first worker print, on ``sys.stdout`` and ``sys.stderr``.
        on_progress: Called with each new status, on a thread of its own. A slow one gets the newest status, and the last one
            in any case, before ``Launch.wait`` returns. It must not wait for the launch. An exception of it cancels the
            job; ``Launch.wait`` raises it.
        options: Other flags of ``sluice launch``, such as ``batch_size=512``, ``tls=True``, or
            ``set={"train.log_every": 10}``.

    Returns:
        A handle, while the job runs.

    Raises:
        UsageError: There is neither a job nor a program, or the programs are not built. Other mistakes in the job or the
            options are raised by ``Launch.wait``.
        TypeError: The job or ``args`` is of another type.
        RuntimeError: This is a child process of multiprocessing, or a worker of a job.
    """
    refuse_in_child("sluice.launch")
    if "SLUICE_PROGRAM_DIR" in os.environ:
        raise RuntimeError("sluice.launch was called in a worker of a job; launch a program from another script than itself")
    if (job is None) == (program is None):
        raise UsageError("give sluice.launch either a job or program=FILE.py")
    if job is not None and not isinstance(job, (Job, str, os.PathLike)):
        raise TypeError(f"the job of sluice.launch is a {type(job).__name__}; give a sluice.Job or the path of a job file")
    if isinstance(args, str):
        raise TypeError(f"args= of sluice.launch is the text {args!r}; give a list of arguments")
    if args and program is None:
        raise UsageError("args= are those of a program; give program=FILE.py")
    folder: tempfile.TemporaryDirectory[str] | None = None
    command = [binary(), "launch"]
    if isinstance(job, Job):
        folder = tempfile.TemporaryDirectory(prefix="sluice-job-")
        command.append(f"--job={job._write(folder.name)}")
    elif job is not None:
        command.append(f"--job={os.fspath(job)}")
    named = {
        "program": program,
        "python": None if program is None else options.pop("python", sys.executable),
        "server_num": server_num,
        "worker_num": worker_num,
        "a_sync": a_sync,
        "k_steps": k_steps,
        "resume": True if resume else None,
        "output_dir": output,
        "log_dir": log_dir,
        "progress": "plain",
    }
    command += flags({**named, **options})
    if args:
        command += ["--", *args]
    return Launch(command, folder, show, on_progress)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
