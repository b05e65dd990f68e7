"""Tables on parameter servers for a program that computes its gradients itself, without a framework."""

from __future__ import annotations

import collections
import itertools
import math
import re
import sys
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from . import _programs
from ._errors import JobError
from ._job import Job
from ._member import Member
from ._optimizer import Optimizer
from ._plain import to_json

if TYPE_CHECKING:
    from . import _core

__all__ = ["Client", "RolledBack", "SparseTable"]

Rows = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
# In errors of the core: a file that only it has written.
_PLACE = re.compile(r"^/\S*/draft\.textproto(:\d+)?: ", re.MULTILINE)
# There a table is a collection, counted in the order of the tables.
_TABLE = re.compile(r"(?:model\.program\.|the program: )collections\[(\d+)\]\.?(?:: )?")
_FIELD_OF_DATA = re.compile(r"^(?:(?:data|features|eval)[\w.\[\]]*: )?", re.MULTILINE)
# In a job as `declare` of the core writes it: a field in each line, nested ones indented by two spaces.
_EPOCHS = re.compile(r"^train \{\n(?:  .*\n)*?  epochs: (\d+)$", re.MULTILINE)
_FEATURE = re.compile(r"^features \{$", re.MULTILINE)
_ONE_EPOCH = "a job of sluice.Client has one epoch, whose steps the program counts; leave train.epochs (--epochs) out"
# How long a wait is without a look at signals and at what else has happened.
_LOOK_S = 0.1
# Steps that are prefetched at a time. The exchange of the core takes so many batches without waiting for the worker, which
# may itself wait for the open step.
_MOST_AHEAD = 2
_MISSING = {
    "new": "the client has not joined its job: use `with sluice.Client(...) as client`",
    "over": "the client has left its job: its `with` block is over",
    "forked": "this process was forked from a worker and is none itself; only the worker's own process may use the client",
}


@dataclass(frozen=True)
class SparseTable:
    """A table with a row of ``dim`` float32 values for each id. A row exists from its first push on.

    Args:
        dim: Width of a row, 1 to 4096.
        optimizer: The update rule of its rows. Default: ``optimizers { all }`` of the job.
        initializer: The values of a row that was never pushed, as ``Initializer`` of the job's configuration, such as
            ``{"normal": {"stddev": 0.1}}`` or ``{"constant": 0}``. They depend on the job's seed, the table and the id
            alone. Default: uniform in +-0.05.
    """

    dim: int
    optimizer: Optimizer | None = None
    initializer: Mapping[str, Any] | None = None


@dataclass
class _Given:
    """The ids of a step that has no turn yet, by table, and the number of its batch. 0: it is not given to the worker."""

    arrays: dict[str, Ids]
    number: int = 0


class RolledBack(RuntimeError):
    """The job went back to an earlier step, because a process was lost: its later steps count no more.

    ``Client.run`` deals with it. A loop of one's own goes on with step ``step``.
    """

    def __init__(self, step: int) -> None:
        super().__init__(
            f"a process was lost, and the job went back to step {step}; make the steps from there on again, or let "
            "client.run(function) do it"
        )
        self.step = step


class Client:
    """One of a job's workers, whose program pulls rows and pushes gradients. Use ``with sluice.Client(...) as client``.

    A step is ``pull``, any number of ``push``, and ``commit``::

        with sluice.Client({"user": sluice.SparseTable(16), "item": sluice.SparseTable(16)}, job, steps=1000) as client:

            def make(step):
                u, i = client.pull(user=users, item=items).values()
                ...
                client.push(user=..., item=...)
                client.commit(loss)

            client.run(make)

    ``for step in client`` is a loop of one's own, which must deal with RolledBack itself. A program that knows early which
    ids come next says so with ``prefetch``.

    The updates are made by the parameter servers: in async mode each worker's when it arrives, in sync mode one a step
    with the weighted mean over the workers, in Geo by the worker, which sends its changes every ``k_steps``.

    The data is the program's own, and its position is the number of steps. Each step counts exactly once, whatever
    process is lost: a process that takes over runs the script from its first line, and its ``step`` is the first one that
    the job does not have. So what a step trains on must follow from ``rank`` and ``step``. Variables of the script, and
    random numbers without such a seed, do not survive.

    All calls are those of one thread. The interpreter lock is free while they wait and while they copy rows.

    Args:
        tables: By name, which is also the argument's name in ``pull`` and ``push``.
        job: All of the job but its model, features and data: optimizers, strategy, checkpoints. Default: an empty one.
        steps: How many steps each worker makes. Needed in sync mode. Without it the job ends when all workers have left
            their ``with`` blocks.
        resume: For a script that is run by itself: go on from the newest checkpoint in the job's ``output_dir``.

    Raises:
        ValueError: A table or the job is wrong; the message names the field.
        TypeError: An argument is of another type.
    """

    def __init__(
        self,
        tables: Mapping[str, SparseTable],
        job: Job | None = None,
        *,
        steps: int | None = None,
        resume: bool = False,
        core: Any = None,
    ) -> None:
        _programs.refuse_in_child("sluice.Client")
        self._tables = dict(_checked_tables(tables))
        job = Job() if job is None else job
        if not isinstance(job, Job):
            raise TypeError(f"the job is a {type(job).__name__}; give a sluice.Job, such as sluice.Job.from_file(path)")
        if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int)):
            raise TypeError(f"steps is {steps!r}; give a whole number")
        if steps is not None and steps < 1:
            raise ValueError(f"steps is {steps}; give at least 1")
        self._steps = steps
        self._core_module: Any = core if core is not None else _load_core()
        features = "".join(f'\nfeatures {{ name: "{name}" key: RAW categorical {{}} }}' for name in self._tables)
        try:
            self._text, self.digest = self._core_module.declare(
                job.text + features, job.base_dir, _declaration(self._tables), True, False, True
            )
        except (TypeError, ValueError) as error:
            raise type(error)(self._explained(str(error))) from None
        if len(_FEATURE.findall(self._text)) > len(self._tables):
            raise ValueError("the job of a sluice.Client has no features: its tables are all that it looks up; remove features")
        if (epochs := _EPOCHS.search(self._text)) and int(epochs[1]) > 1:
            raise ValueError(f"train.epochs is {epochs[1]}: {_ONE_EPOCH}")
        self._member = Member(self._core_module, resume)
        self._core: _core.Worker | None = None
        self._state = "new"  # or "open", "over"
        self._known_place: tuple[str, int, int, bool] | None = None  # for what reads it after the `with` block
        self._order: list[str] = []  # tables in the order of the job's slots
        self._lookup: dict[str, tuple[int, int, int]] = {}  # of the core: table, slot, first column
        self._mode = ""
        self._request: int | None = None  # the core wants batches for it
        self._ended = False  # it was told that there are no more
        self._position: int | None = None  # the next step
        self._numbers = itertools.count(1)
        self._ahead: collections.deque[_Given] = collections.deque()  # the next steps
        self._turn: _core.Turn | None = None  # of the open step
        self._pulled: dict[str, int] = {}  # ids of the open step by table
        self._any_push = False  # in the open step
        self._frames = 0  # steps that this attempt of the job has committed
        self._job_over = False
        self._epoch_over = False  # the worker has said that all steps of this rank count
        self._told: set[str] = set()

    def __enter__(self) -> Client:
        try:
            self._core = self._member.enter(
                self._text,
                offer=lambda folder: self._core_module.offer(folder, self._text, []),
                epoch_steps=self._steps or 0,
            )
        except ValueError as error:
            raise ValueError(self._explained(str(error))) from None
        self._state = "open"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._member.forked:
            return  # the parent process is the worker
        self._running()
        try:
            if error is None:
                error = self._try_to_finish()
                if error is not None:
                    raise error
            elif isinstance(error, KeyboardInterrupt):
                self._member.cancel()
            elif not isinstance(error, JobError):
                self._member.fail(error, self._drop_step)
        finally:
            self._drop_step()
            self._member.leave()
            self._core, self._state = None, "over"

    def _try_to_finish(self) -> BaseException | None:
        """Ends this worker's part and waits for the others. An exception is one of the job, or has reached it."""
        try:
            if self._turn is not None:
                self._tell("left open", "the last step was left without client.commit(): it trains nothing")
                self._skip()
            if self._ahead:
                self._tell("left ahead", "a prefetched step was left without client.pull(): it trains nothing")
            self._leave()
        except JobError as error:
            return error
        except KeyboardInterrupt as error:
            self._member.cancel()
            return error
        except BaseException as error:
            self._member.fail(error, self._drop_step)
            return error
        return None

    def _leave(self) -> None:
        before = self._position
        while not self._job_over:
            step = self._finish()
            if step is not None and before is not None and step < before:
                raise RuntimeError(
                    f"a process was lost, and the job went back to step {step}, but this program has left its loop after "
                    f"step {before} and cannot make these steps again; --resume continues the job"
                )

    # ------------------------------------------------------------------------------------------- the place

    @property
    def rank(self) -> int:
        """This worker's number in the job, from 0. Waits until the job has started; stays after the ``with`` block."""
        return self._place()[1]

    @property
    def world_size(self) -> int:
        """The number of workers of the job. Waits until the job has started; stays after the ``with`` block."""
        return self._place()[2]

    @property
    def step(self) -> int:
        """The next step of this worker, from 0; within a step that step. Waits until the job has started.

        It is the number of its steps that count, also in a process that takes over or resumes.
        """
        if self._position is None and not self._await_request():
            # The whole part of this worker counts already: an earlier life of it has made it.
            if self._steps is None:
                raise RuntimeError("this worker has no more steps: an earlier life of it has left its job")
            return self._steps
        assert self._position is not None
        return self._position

    # -------------------------------------------------------------------------------------------- the loop

    def __iter__(self) -> Iterator[int]:
        """The numbers of the steps to make. It ends when the job is done after ``steps`` steps; without ``steps``, never.

        The body commits one step. When it raises RolledBack and the loop goes on, the next number is where to go on.
        """
        while True:
            self._running()
            if self._turn is not None:
                raise RuntimeError(f"step {self._position} was not committed: client.commit() ends it")
            has_steps = self._position is not None or self._await_request()
            step: int | None = self.step if has_steps else None
            if step is None or (self._steps is not None and step >= self._steps):
                step = None if self._job_over else self._finish()
                if step is None:
                    return
            assert step is not None
            yield step

    def run(self, function: Callable[[int], object]) -> None:
        """Calls ``function(step)`` for each step; it pulls, pushes and commits. Goes back with the job where that must.

        Returns when the job is done after ``steps`` steps, and runs for ever without ``steps``.
        """
        for step in self:
            try:
                function(step)
            except RolledBack as back:
                print(f"sluice: the job went back to step {back.step}", file=sys.stderr, flush=True)

    def prefetch(self, **ids: Any) -> None:
        """Says early what the next step will pull, so that its rows come sooner. A program is right without it.

        The worker prepares the ids while the program computes, and asks for the rows together with the push of the step
        before. Call it between ``pull`` and ``commit``, with what the next ``pull`` will be given::

            def make(step):
                rows = client.pull(row=ids(step))["row"]
                client.prefetch(row=ids(step + 1))
                ...
                client.commit(loss)

        At most two steps may be prefetched, one call each. The rows are the same as without it. Only in async mode with
        ``train.pipeline_depth`` above 1 they may lack this worker's newest steps, at most ``pipeline_depth - 1``.

        Ids of a step beyond ``steps`` are ignored. When the job goes back, what was prefetched is forgotten. A prefetched step
        that is never pulled counts as one without push.

        Args:
            ids: As of ``pull``. They are copied.

        Raises:
            RuntimeError: Two steps are prefetched already, or the ``with`` block is over.
            ValueError, TypeError, JobError: As ``pull``.
        """
        core = self._running()
        if len(self._ahead) == _MOST_AHEAD:
            raise RuntimeError(f"{_MOST_AHEAD} steps are prefetched already: client.pull() begins the first of them")
        arrays = {name: array.copy() for name, array in self._all_ids("prefetch", ids).items()}
        number = self.step + len(self._ahead) + (self._turn is not None)
        if self._steps is None or number < self._steps:
            self._ahead.append(_Given(arrays))
            self._give_ahead(core)

    def pull(self, **ids: Any) -> dict[str, Rows]:
        """Begins a step: the rows of these ids, by table.

        Args:
            ids: For some tables, or all, an array of whole numbers, ``[n]``; ``n`` may differ. Equal ids are allowed. What
                NumPy reads without a copy (the buffer protocol, DLPack) is copied once, for the worker's own threads.

        Returns:
            By table, in the order of the arguments, float32 ``[n, dim]``: row k is that of id k. The arrays are the
            caller's own.

        Raises:
            RuntimeError: The last step was not committed, all steps are made, the step was prefetched with other ids, or the
                ``with`` block is over.
            RolledBack: The job went back to an earlier step.
            ValueError, TypeError: There is no such table, or its ids are not ``[n]`` whole numbers.
            JobError: The job has failed or was cancelled.
        """
        core = self._running()
        if self._turn is not None:
            raise RuntimeError(
                f"step {self._position} is open: client.commit() ends it. A step has one pull; give it all tables that it needs"
            )
        arrays = self._all_ids("pull", ids)
        if self._steps is not None and self.step >= self._steps:
            raise RuntimeError(f"all {self._steps} steps are made (steps={self._steps})")
        self._begin(core, arrays)
        assert self._turn is not None
        rows = {}
        for name, array in arrays.items():
            table, slot, first = self._lookup[name]
            rows[name] = np.empty((len(array), self._tables[name].dim), np.float32)
            self._turn.copy_rows(table, slot, first, rows[name])
        self._pulled = {name: len(array) for name, array in arrays.items()}
        return rows

    def push(self, **gradients: Any) -> None:
        """Gives gradients of the rows of this step. Those of equal ids add up, as do those of several calls.

        Rows that the step has pulled and gets no gradient for have gradient 0. A row has an update in each step that has
        pulled it and pushes anything.

        Args:
            gradients: For tables that this step has pulled, float32 ``[n, dim]``: row k is the gradient for id k. In sync
                mode they are those of a mean over the step's examples, so that the mean over the workers is one as well.

        Raises:
            RuntimeError: There is no pull before it.
            ValueError: There is no such table or it was not pulled, the shape is another one, or a value is NaN or infinite.
                Nothing was added.
            TypeError: The values are not float32.
        """
        self._running()
        turn = self._open("push")
        if not gradients:
            raise ValueError(f"client.push needs gradients: push({next(iter(self._tables))}=gradients)")
        arrays = {name: self._gradient(name, value) for name, value in gradients.items()}
        # Before anything is added. The core looks through the first one itself before it adds it.
        for name in itertools.islice(arrays, 1, None):
            self._check_finite(name, arrays[name], _bad_row(arrays[name]))
        for name, array in arrays.items():
            self._check_finite(name, array, turn.add_row_gradients(*self._lookup[name], array))
        self._any_push = True

    def commit(self, loss: float | None = None, *, weight: float | None = None) -> None:
        """Ends the step and sends what was pushed. Returns without waiting for the parameter servers.

        A step without ``push`` changes nothing, but counts as one.

        Args:
            loss: The mean over the step's examples, which the job reports.
            weight: The number of examples: how much the step counts in the loss and, in sync mode, beside those of the
                other workers. Default: the length of the longest array of ids.

        Raises:
            RuntimeError: There is no pull before it, or it is committed already.
            ValueError: The weight is negative, NaN or infinite.
            FloatingPointError: The loss is NaN or infinite.
        """
        core = self._running()
        self._open("commit")
        n_w = float(max(self._pulled.values()) if weight is None else weight)
        if not 0 <= n_w < math.inf:
            raise ValueError(f"the weight of a step is {n_w}; it is a finite number that is not negative")
        value = 0.0 if loss is None else float(loss)
        if not math.isfinite(value):
            raise FloatingPointError(f"the loss is {value} in step {self._position}")
        if not self._any_push:
            self._skip()
            return
        if loss is None:
            self._tell("no loss", "client.commit() was not given the loss, so the job reports 0: pass it, client.commit(loss)")
        self._close()
        core.answer(value * n_w, n_w)

    def wait(self) -> None:
        """Waits until all parameter servers have acknowledged what was committed.

        In async mode it is applied then. In sync mode it is kept then, and applied when all workers have committed the
        step; the next pull has the values. Nobody needs it for correct results: a pull waits by itself, and the end of the
        ``with`` block waits for all.

        Raises:
            RuntimeError: In Geo mode, where the worker itself applies its steps, and sends them every ``k_steps``.
            RolledBack, JobError: As ``pull``.
        """
        core = self._running()
        if self._position is None or self._job_over:
            return
        if self._mode == "geo":
            raise RuntimeError("client.wait() is not for Geo mode: the worker applies its steps, and sends every k_steps")
        step = self.step
        while self._frames > 0 and not self._job_over:
            # In sync the pservers count the job's steps, in async those of this attempt.
            done = self._of_job(core.await_acknowledged, self._frames if self._mode == "async" else step, _LOOK_S)
            if done or (done is None and self._steps is not None and step >= self._steps):
                return
            if done is None:  # the attempt is over; the next one begins with a request, or the job is over as well
                turn = self._poll(_LOOK_S)
                if turn is not None:
                    self._serve(turn)
            if self._take_request():
                self._check_no_rollback(step)
                return  # the worker asks for this step because it knows the ones before it

    # ------------------------------------------------------------------------------------------- inside

    def _running(self) -> _core.Worker:
        if self._core is None or self._member.forked:
            raise RuntimeError(_MISSING["forked" if self._member.forked else self._state])
        return self._core

    def _open(self, what: str) -> _core.Turn:
        if self._turn is None:
            raise RuntimeError(f"client.{what}: there is no open step; client.pull(...) begins one and client.commit() ends it")
        return self._turn

    def _place(self) -> tuple[str, int, int, bool]:
        if self._core is None and self._known_place is not None and not self._member.forked:
            return self._known_place
        self._known_place = self._running().place()
        return self._known_place

    def _names(self) -> str:
        return ", ".join(self._tables)

    def _explained(self, error: str) -> str:
        """An error of the core in the words of this class: it speaks of collections, and of the sources of sluice.torch."""
        text = _PLACE.sub("", error)
        if "source=" in text:
            # It is about files or an evaluation.
            field = _FIELD_OF_DATA.match(text)
            return (
                f"{field[0] if field else ''}the job of a sluice.Client has no data {{ train_files, ... }} and no eval "
                "{ ... }: the program gives the ids, and evaluates by pulling rows; remove them"
            )
        names = list(self._tables)
        return _TABLE.sub(lambda match: f"table {names[int(match[1])]!r}: ", text)

    def _check_finite(self, name: str, gradient: Rows, bad: int) -> None:
        """``bad``: the first row with a value that is NaN or infinite, or -1."""
        if bad >= 0:
            raise ValueError(f"the gradient of {name!r} is not finite in row {bad}, of step {self._position}: {gradient[bad]}")

    def _check_table(self, name: str) -> None:
        if name not in self._tables:
            raise ValueError(f"there is no table {name!r}; tables are {self._names()}")

    def _all_ids(self, call: str, ids: dict[str, Any]) -> dict[str, Ids]:
        if not ids:
            raise ValueError(f"client.{call} needs ids: {call}({next(iter(self._tables))}=ids); tables are {self._names()}")
        return {name: self._ids(name, value) for name, value in ids.items()}

    def _ids(self, name: str, value: Any) -> Ids:
        self._check_table(name)
        array = _as_array(value)
        needs = "give an array of int64, [n]"
        if array.ndim == 1 and array.size == 0 and not hasattr(value, "dtype"):
            return np.empty(0, np.int64)  # an empty list is one of floats for NumPy
        if array.dtype.kind not in "iu" or array.dtype == np.uint64:
            raise TypeError(f"the ids of {name!r} are {array.dtype}; {needs}")
        if array.ndim != 1:
            raise ValueError(f"the ids of {name!r} have the shape {array.shape}; {needs}")
        return np.ascontiguousarray(array, np.int64)

    def _gradient(self, name: str, value: Any) -> Rows:
        self._check_table(name)
        if name not in self._pulled:
            raise ValueError(f"the table {name!r} has no ids in this step, which has pulled {', '.join(self._pulled)}")
        array = _as_array(value)
        shape = (self._pulled[name], self._tables[name].dim)
        if array.dtype != np.float32:
            raise TypeError(f"the gradient of {name!r} is {array.dtype}; give float32 (gradient.astype(numpy.float32))")
        if array.shape != shape:
            raise ValueError(f"the gradient of {name!r} has the shape {array.shape}; the step has pulled {shape}")
        return np.ascontiguousarray(array)

    def _begin(self, core: _core.Worker, arrays: dict[str, Ids]) -> None:
        """Waits for the rows of the next step. Gives these ids to the worker, unless they were prefetched."""
        step = self.step
        if not self._ahead:
            self._ahead.append(_Given(arrays))
        elif not _equal(self._ahead[0].arrays, arrays):
            raise RuntimeError(f"step {step} was prefetched with other ids: give pull the same arrays as prefetch")
        began = self._ahead[0]
        try:
            while self._turn is None:
                if self._give_ahead(core):
                    self._turn = self._take(began.number)
                elif not self._await_request():
                    raise JobError("the job has ended before this step")
                self._check_no_rollback(step)
        finally:
            if self._ahead and self._ahead[0] is began:
                self._ahead.popleft()
        if self._turn.begins:
            self._frames = 0

    def _give_ahead(self, core: _core.Worker) -> bool:
        """Gives the worker what it does not have of the next steps. False: it wants them for another request."""
        for given in self._ahead:
            if given.number > 0:
                continue
            number = next(self._numbers)
            examples = max(1, *(len(array) for array in given.arrays.values()))
            values = [_spread(given.arrays.get(name), examples) for name in self._order]
            if self._request is None or not core.give_batch(self._request, number, examples, None, None, [], values):
                return False
            given.number = number
        return True

    def _check_no_rollback(self, step: int) -> None:
        if self.step < step:
            self._ahead.clear()
            raise RolledBack(self.step)

    def _take(self, number: int) -> _core.Turn | None:
        """The turn of the batch with this number; None: the worker wants the batches of another request."""
        while True:
            turn = self._poll(_LOOK_S)
            if self._job_over:
                raise JobError("the job has ended before this step")
            if turn is None:
                if self._take_request():
                    return None
            elif turn.trains and turn.given_as == number:
                return turn
            else:
                self._serve(turn)

    def _serve(self, turn: _core.Turn) -> None:
        """Answers a turn that is none of this program's steps."""
        core = self._running()
        if turn.trains:
            core.skip()  # a step of the other workers, or one that was given before the job went back
        elif turn.ends_epoch:
            core.answer_end(True)
            self._epoch_over = True
        else:
            raise RuntimeError("a job of sluice.Client has no evaluation of its own; remove eval { ... } and data.eval_files")

    def _of_job(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except self._core_module.JobEnded as error:
            self._job_over = True
            raise JobError(str(error)) from None

    def _poll(self, seconds: float) -> _core.Turn | None:
        turn: _core.Turn | bool | None = self._of_job(self._running().poll, seconds)
        if isinstance(turn, bool):
            self._job_over = True
            return None
        return turn

    def _take_request(self) -> bool:
        """Looks whether the worker has asked for batches anew. They begin with step ``_position`` then."""
        core = self._running()
        request = core.await_source(False)
        if request is None:
            return False
        number, kind, _, _, epoch, start = request
        if not self._order and (epochs := core.epochs()) > 1:  # by a flag of the launch
            raise ValueError(f"train.epochs is {epochs}: {_ONE_EPOCH}")
        if kind == "count":
            if self._steps is None:
                raise ValueError("sync mode needs the number of steps of each worker: sluice.Client(..., steps=N)")
            core.counted_source(number, self._steps)
            return False
        assert kind == "train" and epoch == 0
        self._request, self._ended, self._position = number, False, start
        for given in self._ahead:  # to an earlier request
            given.number = 0
        self._frames = 0  # all steps before `start` are acknowledged, and an attempt that is new counts from 0
        self._epoch_over = False
        if not self._order:
            self._order = core.features()
            self._lookup = {name: places[0][:3] for name, places in core.lookups()}
            self._mode = core.mode()
            self._place()
        return True

    def _await_request(self) -> bool:
        """Waits until the worker asks for batches anew. False: it needs none, since all steps of this rank count."""
        while not self._take_request():
            if self._job_over or self._epoch_over:
                return False
            turn = self._poll(_LOOK_S / 10)
            if turn is not None:
                self._serve(turn)
        return True

    def _finish(self) -> int | None:
        """Gives no more steps. None: the job has ended well; else the step to which it went back."""
        while True:
            if self._request is not None and not self._ended:
                self._ahead.clear()
                self._running().end_batches(self._request)
                self._ended = True
            turn = self._poll(_LOOK_S / 10)
            if self._job_over:
                return None
            if turn is not None:
                self._serve(turn)
            else:
                before = self._position
                if self._take_request() and before is not None and self.step < before:
                    return self.step

    def _close(self) -> None:
        """The open step counts."""
        assert self._position is not None
        self._turn, self._any_push = None, False
        self._position += 1
        self._frames += 1

    def _skip(self) -> None:
        self._close()
        self._running().skip()

    def _drop_step(self) -> None:
        self._turn = None

    def _tell(self, key: str, line: str) -> None:
        if key not in self._told:
            self._told.add(key)
            print(f"sluice: {line} (said once)", file=sys.stderr, flush=True)


def _checked_tables(tables: Any) -> Iterator[tuple[str, SparseTable]]:
    if not isinstance(tables, Mapping) or not tables:
        raise TypeError('the tables are a mapping by name, such as {"user": sluice.SparseTable(16)}')
    for name, table in tables.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"a table is named {name!r}; names are arguments of pull: letters, digits and _, at most 64")
        if not isinstance(table, SparseTable):
            raise TypeError(f"the table {name!r} is a {type(table).__name__}; give a sluice.SparseTable(dim)")
        if isinstance(table.dim, bool) or not isinstance(table.dim, int):
            raise TypeError(f"the dim of the table {name!r} is {table.dim!r}; give a whole number")
        if table.optimizer is not None and not isinstance(table.optimizer, Optimizer):
            raise TypeError(f"the optimizer of {name!r} is a {type(table.optimizer).__name__}; give a sluice.Optimizer")
        yield name, table


def _declaration(tables: Mapping[str, SparseTable]) -> str:
    """The ProgramConfig. Each table is a collection of one feature, whose values are the keys. Errors: as ``to_json``."""
    collections = []
    for name, table in tables.items():
        one: dict[str, Any] = {"name": name, "dim": table.dim, "features": [name]}
        if table.optimizer is not None:
            one["optimizer"] = table.optimizer.to_json()
        if table.initializer is not None:
            one["initializer"] = table.initializer
        collections.append(one)
    return to_json({"collections": collections, "parameters": []}, "the program")


def _as_array(value: Any) -> npt.NDArray[Any]:
    """A view of arrays, and of what has the buffer protocol or DLPack."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    return np.asarray(value)


def _bad_row(gradient: Rows) -> int:
    """The first row with a value that is NaN or infinite, or -1."""
    with np.errstate(all="ignore"):
        if math.isfinite(gradient.sum()):  # a sum with such a value is none; makes no array, unlike isfinite
            return -1
    bad = np.flatnonzero(~np.isfinite(gradient).all(axis=1))
    return int(bad[0]) if len(bad) else -1


def _spread(ids: Ids | None, examples: int) -> tuple[Ids, Ids | None]:
    """Values and offsets of a batch with so many examples: one id each, as far as there are ids."""
    if ids is None:
        return np.empty(0, np.int64), np.zeros(examples + 1, np.int64)
    if len(ids) == examples:
        return ids, None
    return ids, np.minimum(np.arange(examples + 1), len(ids))


def _equal(some: dict[str, Ids], others: dict[str, Ids]) -> bool:
    return some.keys() == others.keys() and all(np.array_equal(array, others[name]) for name, array in some.items())


def _load_core() -> Any:
    # Here and not at the top, so that programs can be tested where the module is not built.
    from . import _core

    return _core
