"""The loop of a job, handed out to a script one batch at a time."""

from __future__ import annotations

import math
import os
import re
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping

import torch
from torch import Tensor, nn

from .. import Job, JobError, _process, _programs
from .._member import Member
from .._plain import named
from . import _constants
from ._check import check_arguments, explained, hints, refuse_torch_optim
from ._declare import Declaration, Optimizer, declare
from ._embedding import Batch, Place, columns_of_numbers
from ._group import Group, OnEpochEnd
from ._reports import Metric, Metrics, OutputCheck, StepCount, StepLog, Value
from ._result import JobResult
from ._source import EvalSource, Padding, Source, SourceReader, columns_of, is_columns, seed_of
from ._state import Load, ProgramState, Save
from ._torchrun import ranks_of_launcher

from ._saved import fill, state_dict

if TYPE_CHECKING:
    from .. import _core

Predict = Callable[[Batch], Tensor]

# In a job as `declare` of the core writes it: a field in each line, nested ones indented by two spaces.
_EVALUATES = re.compile(r"^data \{\n(?:  .*\n)*?  eval_files: ", re.MULTILINE)
_NO_PREDICT = (
    "the job evaluates (data.eval_files or eval_source=), but sluice.torch.worker has no predict=; give predict=fn, a function "
    "of a batch that returns its logits, or leave these out"
)
_NO_GRADIENT = (
    "no parameter and no row has a gradient: call loss.backward() before worker.step(), or use worker.backward(loss)"
)
# How soon after its start the result of a job is looked for.
_LOOK_S = 0.05
_ONE_NUMBER = "give one number, the weighted mean over the batch"


class Worker:
    """Makes this process a worker of a job: ``with sluice.torch.worker(...) as worker``.

    Under ``sluice launch --program=FILE.py`` it is one of the launch's workers. A script that is run by itself
    (``python train.py``) is the only worker of a cluster of its own on this machine, which ``with`` starts and stops.
    Under torchrun on one host its ranks are the workers of such a cluster. There a job whose worker is lost ends.

    The loop is ``for batch in worker``: all epochs come in one loop. Parameters have the values of the parameter servers
    from a batch on; a change of a parameter outside of a step is lost with the next batch.

    Leaving the loop early (``break``) ends the job for all workers after this step: its model is evaluated and saved, and
    the job is done. The ``with`` block is left when that is complete. An exception fails the job; KeyboardInterrupt
    cancels it.

    With ``source`` the script gives the data, and the job names no files. A batch is a dict of tensors or arrays: each
    categorical feature as int64 ``[B]``, int64 ``[B, L]``, or ``(values, offsets)`` with int64 ``[keys]`` and ``[B + 1]``;
    each numeric feature as float32 ``[B]``, with ``dim`` as ``[B, dim]``; ``label`` and ``weight``, ``[B]``, where there
    are any (without a label ``batch.label`` raises, and the weight is 1). Everything else is handed through as
    ``batch["name"]``. A source runs on a thread of its own, ahead of the training. What it raises fails the job. A position in
    the data is a number of batches, so a source must give the same batches each time when results shall not depend on losses.

    Args:
        model: The network. Its parameters' values become those of the job when it starts, from the first worker.
        job: All of the job but its model.
        predict: Gives the logits of a batch, ``[examples]``. Needed when the job evaluates; called in eval mode.
        metrics: More metrics of an evaluation, by name: ``fn(batch, output) -> (sum, weight)`` is called for each batch with
            what ``predict`` has given. The value is the sum of the sums over all batches and workers, in float64, divided by
            the sum of the weights; without weight it is undefined (null). result.json has it in ``eval.user``. At most 64;
            names are ``[A-Za-z_][A-Za-z0-9_./-]*`` and none of the job's own (``auc``, ``log_loss``, ...).
        optimizers: Rules by patterns of parameters' names (``declare``).
        source: ``source(rank, world_size, epoch, start)`` gives the batches of this rank in an epoch (from 0), from number
            ``start`` on. It is called for each epoch, and again where a lost worker is replaced. Or an iterable that gives
            this worker's batches of an epoch each time, such as a ``DataLoader``: after a loss it is read up to the position.
            With ``state_dict()`` and ``load_state_dict()``, as torchdata's StatefulDataLoader, its state is part of the
            checkpoints of sync mode. ``set_epoch(epoch)`` of it, its sampler and its dataset is called.
            Or a table: any object with ``__arrow_c_stream__``, the same on all workers, whose columns are read as the job's
            features, label and weight, as those of a Parquet file are. Its batches have ``train.batch_size`` rows and are
            dealt to the workers in turn, in the table's order.
        eval_source: ``eval_source(rank, world_size)`` gives this rank's batches of an evaluation; or an iterable, or a table.
        epoch_steps: Batches of an epoch. In sync mode needed unless what ``source`` returns, or the table, has ``len()``, the
            same on all ranks. A rank with fewer batches adds nothing to the rest of the epoch; those beyond are not asked for.
        padding: The value in ``[B, L]`` that is no value, for all features or by feature. Default: all L values count.
        resume: For a script that runs by itself or under torchrun: go on from the newest checkpoint in ``output_dir``.
        core: For tests: takes the place of the module ``sluice._core``.

    Raises:
        TypeError, ValueError: An argument is of another type, or the job and the module do not fit; names it.
        RuntimeError: This is a child process of multiprocessing.
    """

    def __init__(
        self,
        model: nn.Module,
        job: Job,
        *,
        predict: Predict | None = None,
        metrics: Mapping[str, Metric] | None = None,
        optimizers: Mapping[str, Optimizer] | None = None,
        source: Source | None = None,
        eval_source: EvalSource | None = None,
        epoch_steps: int | None = None,
        padding: Padding = None,
        resume: bool = False,
        core: Any = None,
    ) -> None:
        _programs.refuse_in_child("sluice.torch.worker")
        check_arguments(
            model,
            job,
            predict=predict,
            metrics=metrics,
            optimizers=optimizers,
            source=source,
            eval_source=eval_source,
            epoch_steps=epoch_steps,
            padding=padding,
            resume=resume,
        )
        self._model = model
        self._predict = predict
        self._metrics = Metrics(metrics or {})
        self._outputs = OutputCheck()
        self._log = StepLog()
        self._count = StepCount()
        self._leaving = False  # the loop was left early
        self._state = ProgramState()
        self._declared: Declaration = declare(model, optimizers)
        self._views = _Views(self._declared)
        self._parameters = [parameter for _, parameter in self._declared.parameters]
        self._tensors = [tensor for _, tensor in self._declared.tensors()]
        self._untrained = [*self._declared.frozen, *self._declared.constants]
        self._frozen_names = {name for name, _ in self._declared.frozen}
        self._core_module: Any = core if core is not None else _load_core()
        self._source, self._eval_source = source, eval_source
        self._epoch_steps, self._padding = epoch_steps or 0, padding
        self._reader: SourceReader | None = None
        self._counters: list[Tensor] = []  # values of the declaration's counters
        sources = [one for one in (source, eval_source) if one is not None]
        own: tuple[Any, ...] = ()
        if source is not None:
            tables = [is_columns(one) for one in sources]
            own = (True, eval_source is not None, not all(tables), any(tables))
        if is_columns(source) and "*" in job.text:  # features may stand for columns
            own = (*own, columns_of(source, self._core_module))
        try:
            self._text, self.digest = self._core_module.declare(job.text, job.base_dir, self._declared.to_json(), *own)
        except ValueError as error:
            raise ValueError(self._declared.with_names(str(error))) from None
        if predict is None and (eval_source is not None or _EVALUATES.search(self._text)):
            raise ValueError(_NO_PREDICT)
        self._core: _core.Worker | None = None
        self._no_core = "use `with sluice.torch.worker(...) as worker`"  # why there is none
        self._known_place: tuple[str, int, int, bool] | None = None  # for what reads it after the `with` block
        self._result: JobResult | None = None  # None until the job has begun, with its place
        self._member = Member(self._core_module, resume, ranks=ranks_of_launcher, forked=self._forget)
        self._group = Group()
        self._batch: Batch | None = None
        self._turn: _core.Turn | None = None
        self._unanswered = False  # a turn was taken, and what serves it has not returned
        self._over = False
        self._failed = False  # it is over, and has failed or was cancelled
        self._saved = False  # the module has the values that the job has left
        self._final = False  # the module has the values of an evaluation, with no step of this process since
        self._places: dict[str, list[Place]] | None = None
        self._columns: dict[str, int | slice] = {}  # of the numbers of a batch
        self._own_rank: int | None = None  # in this attempt of the job
        self._tables = 0
        self._seen: list[int] = []  # versions of _tensors with the values of the parameter servers
        self._versions: dict[str, int] = {}  # those of counters
        self._compared: tuple[int, bool] | None = None  # when frozen values were: the epoch, and whether it trained
        self._told: set[str] = set()
        self.moved_gradients = 0  # gradients of rows that backward has put elsewhere, so that they were copied

    # ------------------------------------------------------------------------------------------- the job

    def __enter__(self) -> Worker:
        if not _process.launched() and "OMP_NUM_THREADS" not in os.environ:
            # The other half is for the pserver and the worker's own threads.
            torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2))
        steps = None if self._source is None else self._epoch_steps
        self._core = self._member.enter(self._text, offer=self._offer, offered=self._take_constants, epoch_steps=steps)
        if self._source is not None:
            self._reader = SourceReader(self._core, self._source, self._eval_source, self._padding)
        self._group.join(self._core, self._core_module.JobEnded)
        return self

    def _offer(self, folder: str) -> None:
        for hint in hints(self._model):
            self._tell(hint, hint)
        _constants.write(folder, self._declared.constants)
        values = [(name, _values(tensor)) for name, tensor in self._declared.tensors()]
        try:
            self._core_module.offer(folder, self._text, values)
        except ValueError as error:
            raise ValueError(explained(str(error), self._text)) from None

    def _take_constants(self, folder: str) -> None:
        _constants.read(folder, self._declared.constants)
        self._counters = [counter.clone() for _, counter in self._declared.counters]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._member.forked:
            return  # the parent process is the worker
        core = self._running()
        try:
            if not isinstance(error, JobError):
                self._find_result(core, fails=error is not None)
            if isinstance(error, KeyboardInterrupt):
                self._member.cancel()
            elif error is not None and not isinstance(error, JobError):
                self._member.fail(error, self._drop_batch)
            elif error is None and not self._over:
                self._leave(core)
        finally:
            if self._batch is not None:
                self._batch._close()
            self._batch = self._turn = None
            if self._reader is not None:
                self._reader.stop()
            self._member.leave()
            if self._reader is not None:
                self._reader.join()
            self._core, self._no_core = None, "the worker has left its job: its `with` block is over"

    def _forget(self) -> None:
        """In a forked child, which is no worker."""
        self._core, self._batch, self._turn = None, None, None
        self._no_core = "this process was forked from a worker and is none itself; only the worker's own process may use it"

    def _leave(self, core: _core.Worker) -> None:
        """Ends the job early, and helps to evaluate it. Returns when it is done; raises JobError when it is not."""
        if self._batch is not None:
            self._end_turn()
        try:
            self._check_answered()
            self._leaving = True
            self._state.start(core)
            self._group.begin_loop()
            core.leave()
            while (turn := self._take(core)) is not None:
                self._serve(core, turn)
        except JobError:
            raise
        except KeyboardInterrupt:
            self._member.cancel()
            raise
        except BaseException as error:
            self._member.fail(error, self._drop_batch)
            raise

    def _drop_batch(self) -> None:
        """Before the job has failed, since the turn's memory is gone then."""
        if self._batch is not None:
            self._end_turn()

    @property
    def rank(self) -> int:
        """This worker's number in the job, from 0. Waits until the job has started; stays after the ``with`` block."""
        return self._place()[1]

    @property
    def world_size(self) -> int:
        """The number of workers of the job. Waits until the job has started; stays after the ``with`` block."""
        return self._place()[2]

    @property
    def local_rank(self) -> int:
        """This process's number on its host."""
        return int(os.environ.get("LOCAL_RANK", os.environ.get("SLUICE_RANK", "0")))

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    @property
    def result(self) -> dict[str, Any]:
        """How the job has ended: the contents of its ``result.json``, never None. After the ``with`` block, on any rank.

        ``result["eval"]["auc"]``, ``result["status"]``, ...; also of a job that has failed or was cancelled. The first
        use waits until the file is written, for up to a minute.

        Raises:
            RuntimeError: The ``with`` block is not over, the job has not begun, or its output folder cannot be read here,
                because it is on another host.
        """
        return self._ended().read()

    @property
    def model_dir(self) -> str | None:
        """The folder of the saved model, for ``sluice.torch.load``; None when none was saved. As ``result``."""
        return self._ended().read().get("model_dir") or None

    # --------------------------------------------------------------------------------------- all workers

    def on_epoch_end(self, function: OnEpochEnd) -> OnEpochEnd:
        """Lets ``function(epoch)`` run at the end of each epoch (from 0). May be used as a decorator.

        It runs on every worker, in ``next()`` of the loop, when the worker has trained its last batch of the epoch or has
        had none in it, and before the epoch's evaluation. The epoch is over when it has returned on all workers: until
        then a lost worker is replaced before this point, and the function runs in the new process, too. When the job
        goes back to a checkpoint, it runs again with the epochs that are trained again. What it leaves in variables of
        the script is not known to processes that start later. The module's parameters have the values with which this
        worker's last batch began. An exception fails the job.
        """
        return self._group.on_epoch_end(function)

    def sum(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Adds up numbers over all workers, in the order of their ranks, in float64.

        A call of all workers: all make the same calls, in the same order, before the first batch or in functions of
        ``on_epoch_end``. Elsewhere it raises RuntimeError. It returns when all have made it. What a worker has given
        stays: a process that takes over makes the calls again and gets the same results, whatever it gives. A border of
        epochs has at most 64 calls, and the values of all workers in a call take at most 1 MiB.

        Args:
            values: Numbers, or tensors or arrays of one dimension. All workers give the same names and sizes.

        Returns:
            By name a float, or a float64 tensor of one dimension.
        """
        self._running()
        return self._group.sum(values)

    def broadcast(self, data: bytes, root: int = 0) -> bytes:
        """Gives all workers the bytes of one. A call of all workers, as ``sum``; at most 1 MiB.

        Args:
            data: On rank ``root`` what all get; ignored on the others.
            root: A rank.
        """
        self._running()
        self._group.check("broadcast")
        workers = self.world_size
        if not 0 <= root < workers:
            raise ValueError(f"worker.broadcast: there is no rank {root}; the job has {workers} workers")
        return self._group.broadcast(data, root)

    def barrier(self) -> None:
        """Waits until all workers are there. A call of all workers, as ``sum``."""
        self._running()
        self._group.barrier()

    # ------------------------------------------------------------------------------------------ the loop

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        core = self._running()
        if self._group.ends_epoch:
            raise RuntimeError("the loop goes on when the function of worker.on_epoch_end has returned")
        self._check_answered()
        self._state.start(core)
        self._group.begin_loop()
        if self._batch is not None:
            self._log.hand_over(self._open_turn())
            self._tell("left out", "a batch was left without worker.step(): it trains nothing")
            self._end_turn()
            core.skip()
        while True:
            turn = self._take(core)
            if turn is None:
                raise StopIteration
            if self._serve(core, turn):
                continue
            if turn.examples == 0:
                core.skip()  # the other workers have the rest of the step
                self._unanswered = False
            else:
                return self._begin(turn)

    def backward(self, loss: Tensor, *, weight: float | None = None) -> None:
        """``loss.backward()``, then ``step(loss, weight=weight)``. ``loss`` is the weighted mean over the batch."""
        batch = self._open()
        _check_weight(weight)
        if not isinstance(loss, Tensor):
            refuse_torch_optim(loss=loss)
            raise TypeError(f"the loss is a {type(loss).__name__}; {_ONE_NUMBER}")
        value = _loss_value(loss, batch)
        torch.autograd.backward(loss)
        self.step(value, weight=weight)

    def step(self, loss: Tensor | float | None = None, *, weight: float | None = None) -> None:
        """Pushes what is in ``.grad``.

        Args:
            loss: The weighted mean over the batch, which the job reports. Without it the step counts as one with loss 0
                there, and a line says so once.
            weight: How much the batch counts beside those of the other workers in sync mode. Default: the sum of its
                weights.

        Raises:
            FloatingPointError: The loss is NaN or infinite.
            RuntimeError: There is no gradient at all, and the weight was not given as 0; or a parameter that was frozen when
                the worker was made has one.
            ValueError: The weight is negative, NaN or infinite.
        """
        core, batch, turn = self._running(), self._open(), self._open_turn()
        _check_weight(weight)
        n_w = batch._weight_sum() if weight is None else float(weight)
        value = 0.0
        if loss is not None:
            value = _loss_value(loss, batch)
        else:
            self._tell("no loss", "worker.step() was not given the loss, so the job reports 0: pass it, worker.step(loss)")
        for name, constant in self._untrained:
            if constant.grad is not None:
                raise RuntimeError(
                    f"parameter {name!r} has a gradient, but was frozen when the worker was made, so that no step changes it: "
                    "make the worker with requires_grad=True, and use its detach() until it is to train"
                )
        own = [parameter.grad for parameter in self._parameters]
        lacking = [name for (name, _), gradient in zip(self._declared.parameters, own) if gradient is None]
        if len(lacking) == len(own) and weight != 0 and batch._lacks_gradients(bool(lacking)):
            raise RuntimeError(_NO_GRADIENT)
        self._tell_names(lacking, "has no gradient: it counts as zero", "have no gradient: they count as zero")
        gradients = self._views.of(turn.gradient_addresses(), turn.parameter_gradient)
        first = len(own)
        with torch.no_grad():
            # Where there is no place for a gradient its rate is 0, so nobody takes it.
            pushed = [(to, gradient) for to, gradient in zip(gradients, own) if to is not None]
            for to in [to for to, gradient in pushed if gradient is None]:
                to.zero_()
            _copy([(to, value.to_dense() if value.is_sparse else value) for to, value in pushed if value is not None])
            if self._declared.buffers:
                _, _, workers, asynchronous = core.place()
                values = self._views.of(turn.parameter_addresses(), turn.parameter)
            for i, (_, buffer) in enumerate(self._declared.buffers, first):
                moved = torch.sub(values[i], buffer, out=gradients[i])
                if asynchronous:
                    moved /= workers  # each worker's push is applied
        self._log.hand_over(turn)
        self._count.stepped()
        self._end_turn()
        core.answer(value * n_w, n_w)

    def log(self, **values: Value) -> None:
        """Reports values of the present step beside its loss, such as ``worker.log(gradient_norm=norm)``.

        The job shows and draws (TensorBoard: ``train/NAME``) each name's mean over the steps since its last report
        (``train.log_every``) and over the workers. Call it while a batch is open; values that come after its step are
        reported with the next one.

        Args:
            values: Numbers or tensors without dimensions. A second value of a name in a step replaces the first.

        Raises:
            RuntimeError: There was no batch yet, or the job is over.
            ValueError: A name cannot be one, is ``loss`` or another curve of the job, or there are more than 16.
        """
        if self._places is None or self._over:
            raise RuntimeError("worker.log reports values of a step: call it in the loop")
        self._log.add(values, late=self._batch is None)

    def save_state(self, fn: Save) -> Save:
        """Has ``fn`` asked for what must survive and is neither in parameters nor in buffers, such as a counter.

        ``fn()`` gives bytes, at most 64 KiB: ``pickle.dumps(...)``, ``json.dumps(...).encode()``, or what
        ``torch.save(..., buffer)`` has written to an ``io.BytesIO``. It is called between two batches: after each step in
        sync, and in async when a checkpoint is made or an epoch ends. Each rank keeps its own state. Register ``fn`` before the
        loop, together with ``load_state``; both may be used as decorators.
        """
        self._state.set_save(fn)
        return fn

    def load_state(self, fn: Load) -> Load:
        """Has ``fn`` called before a batch or an evaluation when the job goes on from another step than this process did.

        ``fn(state)`` gets the bytes that ``save_state``'s function gave after the step from which this rank goes on: after
        ``--resume``, after the loss of a pserver in sync (on all ranks), and in a process that replaces a lost one. In async
        such a process gets the newest state that is known: of the last checkpoint or epoch. When the job begins anew, ``fn``
        gets what was saved before the first batch. With another number of workers, rank r gets the state of rank r; a rank
        that is new gets none, and ``fn`` is not called.
        """
        self._state.set_load(fn)
        return fn

    def state_dict(self) -> dict[str, Tensor | float | str]:
        """Copies of the module's values by name, for ``model.load_state_dict`` and ``torch.save``.

        In the loop they are those of the newest batch, before its step. After it they are those of the saved model, which
        the module gets, too; where the job has saved none, those of its last evaluation. Of a job that has failed or was
        cancelled they are those of this worker's last batch, and a line says so. Rows of collections are not among them: a
        saved model has them (``sluice.torch.load``).

        Raises:
            RuntimeError: The job is done and has saved no model, or none that this process can read, so that the module
                lacks the last steps. It does not where the job has evaluated after them.
        """
        if self._over and not self._saved:
            self._take_saved_values()
            self._saved = True
        return state_dict(self._model)

    # ------------------------------------------------------------------------------------------- inside

    def _running(self) -> _core.Worker:
        if self._core is None:
            raise RuntimeError(self._no_core)
        return self._core

    def _ended(self) -> JobResult:
        if self._member.forked or self._core is not None:
            raise RuntimeError("there is no result before the `with` block of the worker is over")
        if self._result is None:
            raise RuntimeError("there is no result: the job has not begun in this process")
        return self._result

    def _place(self) -> tuple[str, int, int, bool]:
        if self._core is None and self._known_place is not None and not self._member.forked:
            return self._known_place
        self._known_place = self._running().place()
        return self._known_place

    def _next(self, core: _core.Worker) -> _core.Turn | None:
        """The next turn; None when the job has ended well."""
        while self._result is None:
            # A job can fail before its first turn.
            turn = core.poll(_LOOK_S)
            self._find_result(core)
            if isinstance(turn, bool):
                return None
            if turn is not None:
                if self._result is None:
                    self._result = JobResult("", self._place()[0])
                return turn
        return core.take()

    def _find_result(self, core: _core.Worker, *, fails: bool = False) -> None:
        """Looks where the job's result will be, before it has ended: one of an earlier job may be there."""
        if self._result is None and (folder := core.output_dir()):
            self._result = JobResult(folder, self._place()[0], fails=fails)

    def _take(self, core: _core.Worker) -> _core.Turn | None:
        """The next turn; None when the job has ended well. Looks where the job's result will be."""
        try:
            turn = self._next(core)
        except self._core_module.JobEnded as error:
            self._over = self._failed = True
            raise JobError(str(error)) from None
        if turn is None:
            self._over = True
            self._end_evaluation()
        elif self._places is None:
            self._learn(core)
        return turn

    def _open(self) -> Batch:
        if self._batch is None:
            raise RuntimeError("there is no batch to step: each batch takes one step")
        return self._batch

    def _check_answered(self) -> None:
        """RuntimeError when a turn is open that nobody answers any more: the core would wait for ever."""
        if self._unanswered and not self._over:
            raise RuntimeError(
                "the last turn was not answered: the loop cannot go on after an exception, or inside, of predict, a metric, or "
                "a function of worker.save_state, load_state or on_epoch_end. Let such an exception leave the `with` block: it "
                "fails the job"
            )

    def _serve(self, core: _core.Worker, turn: _core.Turn) -> bool:
        """Answers a turn that is no batch to train. False: it is one, and waits for its answer."""
        self._unanswered = True
        try:
            if not self._serve_between(core, turn):
                return False
        except JobError:
            self._over = self._failed = True  # a call of all workers has learned it
            raise
        self._unanswered = False
        return True

    def _serve_between(self, core: _core.Worker, turn: _core.Turn) -> bool:
        if turn.saves:
            self._state.answer(core)
            return True
        if turn.begins:
            self._own_rank = None
        if turn.begins and not self._state.begin(turn):
            self._tell("state", "the checkpoint has a state of the program, which has no worker.load_state")
        if turn.trains:
            self._end_evaluation()
            return False
        if turn.ends_epoch:
            self._end_evaluation()
            if not self._leaving:
                self._count.check()
            self._group.end_epoch(core, turn.epoch)
        else:
            self._evaluate(core, turn)
        return True

    def _end_evaluation(self) -> None:
        if self._outputs.end():
            self._tell("probabilities", OutputCheck.LINE)

    def _open_turn(self) -> _core.Turn:
        self._open()
        assert self._turn is not None
        return self._turn

    def _learn(self, core: _core.Worker) -> None:
        self._places = {name: [Place(*one) for one in places] for name, places in core.lookups()}
        self._columns = columns_of_numbers(core.numbers())
        self._tables = core.tables()
        names = [name for name, _ in self._declared.tensors()]
        assert core.parameters() == names, "the scheduler gives a job only to workers with its declaration"

    def _begin(self, turn: _core.Turn) -> Batch:
        self._final = False
        self._count.begin(turn)
        self._load(turn)
        for parameter in self._parameters:
            parameter.grad = None
        if self._own_rank is None:
            self._own_rank = self.rank
        torch.default_generator.manual_seed(seed_of(turn.seed, turn.epoch, turn.step, self._own_rank))
        self._turn = turn
        self._batch, _ = self._batch_of(turn)
        self._unanswered = False
        return self._batch

    def _batch_of(self, turn: _core.Turn) -> tuple[Batch, bool]:
        """The batch of a turn, and whether it has a label."""
        assert self._places is not None
        rest, labelled = None, True
        if self._reader is not None:
            number = turn.given_as
            rest, labelled = self._reader.rest_of(number), not self._reader.lacks_label(number)
        return Batch(turn, self._columns, self._places, self._tables, rest, labelled), labelled

    def _take_saved_values(self) -> None:
        """Gives the module the values of the saved model, which may be of a later step than those of this process."""
        lacks = "worker.state_dict(): the module lacks the job's last steps"
        result: dict[str, Any] = {}
        try:
            if self._result is not None and not self._failed:
                result = self._result.read()
        except RuntimeError:
            if not self._final:
                raise
            self._tell("no result", "worker.state_dict(): no result can be read here; it gives the last evaluation's values")
        if self._failed or result.get("status", "done") != "done":
            self._tell("failed", "worker.state_dict(): the job has failed or was cancelled; it gives the last batch's values")
        elif folder := result.get("model_dir"):
            try:
                fill(self._declared, self._core_module.open_model(folder))
            except KeyError as error:
                raise RuntimeError(f"{lacks}, and its saved model cannot be read: {error.args[0]}") from None
        elif not self._final:
            raise RuntimeError(f"{lacks}, and the job has saved no model; call it in the loop, or let it evaluate at its end")

    def _load(self, turn: _core.Turn) -> None:
        """Gives parameters and buffers the values of the parameter servers."""
        with torch.no_grad():
            values = self._views.of(turn.parameter_addresses(), turn.parameter)
            written = self._written_frozen(turn, values)
            changed = self._changed(written)
            if changed:
                why = "" if self._count.any_step else " (a torch optimizer? The pservers update the parameters)"
                self._tell_names(
                    [name for name, _ in [*self._declared.parameters, *self._declared.frozen] if name in changed],
                    f"was changed outside of a step: the change is lost{why}",
                    f"were changed outside of a step: the changes are lost{why}",
                )
            # Frozen ones have these values already.
            kept = len(self._tensors) - len(self._declared.frozen) if self._seen else len(self._tensors)
            copies = list(zip(self._tensors[:kept], values))
            if changed:
                named = zip(self._declared.tensors()[kept:], values[kept:])
                copies += [(tensor, value) for (name, tensor), value in named if name in changed]
            _copy(copies)
            self._seen = [tensor._version for tensor in self._tensors]
            for (name, counter), value in zip(self._declared.counters, self._counters):
                is_changed = self._versions.get(name, counter._version) != counter._version
                if is_changed and counter.is_floating_point() and not torch.equal(counter, value):
                    self._tell(
                        "kept " + name,
                        f"buffer {name!r} has changed, but each batch begins with its first value, because it is not "
                        "persistent; register it with persistent=True to train it",
                    )
                counter.copy_(value)
                self._versions[name] = counter._version

    def _written_frozen(self, turn: _core.Turn, values: list[Any]) -> set[str]:
        """The frozen parameters that have other values. A write through ``.data`` leaves the version as it was."""
        now = turn.epoch, turn.trains
        if now == self._compared:
            return set()  # looks when an epoch or an evaluation begins
        self._compared = now
        return {
            name
            for value, (name, tensor) in zip(values, self._declared.tensors())
            if name in self._frozen_names and self._seen and not torch.equal(tensor.float(), value)
        }

    def _changed(self, written: set[str]) -> set[str]:
        """The names of tensors that were changed since they had the values of the parameter servers."""
        now = [tensor._version for tensor in self._tensors]
        if not self._seen or now == self._seen:
            return written
        named = zip(self._declared.tensors(), now, self._seen)
        return written | {name for (name, _), version, seen in named if version != seen}

    def _end_turn(self) -> None:
        assert self._batch is not None
        self.moved_gradients += self._batch._close()
        self._batch = self._turn = None

    def _evaluate(self, core: _core.Worker, turn: _core.Turn) -> None:
        if self._predict is None:
            raise RuntimeError(_NO_PREDICT)  # a flag has added the files
        self._load(turn)
        self._final = True
        modes = [(module, module.training) for module in self._model.modules()]
        batch, labelled = self._batch_of(turn)
        if not labelled:
            self._tell("unlabelled", "batches of eval_source have no label: metrics of the job, such as auc, take it as 0")
        self._model.eval()
        try:
            with torch.no_grad():
                logits = self._predict(batch)
                if not isinstance(logits, Tensor):
                    raise TypeError(f"predict gave {type(logits).__name__}; it gives a tensor of shape ({batch.examples},)")
                if logits.shape != (batch.examples,):
                    raise ValueError(f"predict gave {tuple(logits.shape)}; it gives logits of shape ({batch.examples},)")
                torch.from_numpy(turn.logits()).copy_(logits)
                if labelled:
                    self._outputs.add(batch, logits)
                self._metrics.measure(turn, batch, logits)
        finally:
            batch._close()
            for module, training in modes:
                module.training = training
        core.answer_logits()

    def _tell(self, key: str, line: str) -> None:
        if key not in self._told:
            self._told.add(key)
            print(f"sluice: {line} (said once)", file=sys.stderr, flush=True)

    def _tell_names(self, names: list[str], one: str, several: str) -> None:
        """Says about parameters, in one line, what was not said about them before."""
        if not names:
            return
        new = [name for name in names if f"{name} {one}" not in self._told]
        self._told.update(f"{name} {one}" for name in new)
        if len(new) == 1:
            self._tell(f"{new} {one}", f"parameter {new[0]!r} {one}")
        elif new:
            shown = ", ".join(repr(name) for name in new[:3]) + (", ..." if len(new) > 3 else "")
            self._tell(f"{new} {one}", f"{len(new)} parameters {several}: {shown}")


worker = Worker


def train(
    model: nn.Module,
    loss: Callable[[Tensor, Batch], Tensor],
    job: Job,
    *,
    metrics: Mapping[str, Metric] | None = None,
    optimizers: Mapping[str, Optimizer] | None = None,
    source: Source | None = None,
    eval_source: EvalSource | None = None,
    epoch_steps: int | None = None,
    padding: Padding = None,
    resume: bool = False,
) -> None:
    """Trains a module whose ``forward`` takes a batch and gives its logits.

    Args:
        model: The network.
        loss: ``loss(logits, batch)`` is the weighted mean over the batch.
        job: All of the job but its model.

    The other arguments are those of ``worker``.
    """
    refuse_torch_optim(loss=loss)
    if not callable(loss):
        raise TypeError(f"the loss is {named(loss)}; give a function: loss(logits, batch) returns the weighted mean")
    with worker(
        model,
        job,
        predict=model,
        metrics=metrics,
        optimizers=optimizers,
        source=source,
        eval_source=eval_source,
        epoch_steps=epoch_steps,
        padding=padding,
        resume=resume,
    ) as running:
        for batch in running:
            running.backward(loss(model(batch), batch))


def _load_core() -> Any:
    # Here and not at the top, so that declarations can be made and tested where the module is not built.
    from .. import _core

    return _core


def _values(tensor: Tensor) -> Any:
    return tensor.detach().float().contiguous().numpy()


def _copy(pairs: list[tuple[Tensor, Tensor]]) -> None:
    """Copies the second tensor of each pair into the first one. One call of torch is quicker than one for each pair."""
    if pairs:
        torch._foreach_copy_([to for to, _ in pairs], [value for _, value in pairs])


class _Views:
    """Tensors on the arrays that turns have of dense tables. The worker uses few buffers, so they come again.

    A tensor owns nothing, and is used while the turn is open that has these addresses. Arrays at the same addresses have the
    same sizes, since those are the declaration's.
    """

    _MOST = 64  # sets of arrays

    def __init__(self, declared: Declaration) -> None:
        self._shapes = [tensor.shape for _, tensor in declared.tensors()]
        self._known: dict[tuple[int, ...], list[Any]] = {}

    def of(self, addresses: list[int], array: Callable[[int], Any]) -> list[Any]:
        """By parameter. ``array(i)`` gives the array; a scalar is stored as one element. None: there is no array."""
        key = tuple(addresses)
        views = self._known.get(key)
        if views is None:
            if len(self._known) == self._MOST:
                self._known.clear()
            views = [
                torch.from_numpy(array(i)).view(shape) if address else None
                for i, (address, shape) in enumerate(zip(addresses, self._shapes))
            ]
            self._known[key] = views
        return views


def _loss_value(loss: Tensor | float, batch: Batch) -> float:
    if isinstance(loss, Tensor):
        if loss.numel() != 1:
            raise TypeError(f"the loss is of shape {tuple(loss.shape)}; {_ONE_NUMBER}")
        loss = loss.item()
    else:
        refuse_torch_optim(loss=loss)
    try:
        value = float(loss)
    except (TypeError, ValueError):
        raise TypeError(f"the loss is a {type(loss).__name__}; {_ONE_NUMBER}") from None
    if not math.isfinite(value):
        raise FloatingPointError(f"the loss is {value} in epoch {batch.epoch + 1}, step {batch.step + 1}")
    return value


def _check_weight(weight: float | None) -> None:
    if weight is not None and not 0 <= float(weight) < math.inf:
        raise ValueError(f"the weight of a step is {float(weight)}; it is a finite number that is not negative")
