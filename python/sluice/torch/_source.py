"""The user's own data: what its batches hold, and the thread that reads them."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping, Protocol, Sequence, TypeGuard, cast

import numpy as np
import numpy.typing as npt
import torch

from .. import _process

if TYPE_CHECKING:
    from .. import _core


class Columns(Protocol):
    """A table of Arrow's columns, such as ``pyarrow.Table``, ``pyarrow.RecordBatchReader`` or a data frame of polars."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


Source = Callable[[int, int, int, int], Iterable[Mapping[str, Any]]] | Iterable[Mapping[str, Any]] | Columns
EvalSource = Callable[[int, int], Iterable[Mapping[str, Any]]] | Iterable[Mapping[str, Any]] | Columns
Padding = int | Mapping[str, int] | None

_CATEGORICAL = "int64 [B], int64 [B, L] with padding=, or (values, offsets) with int64 [keys] and [B + 1]"
_SHAPE_OF_KEYS = "[B], [B, L] with padding=, or (values, offsets) of [keys] and [B + 1]"


def _shape_of_numbers(dim: int) -> str:
    return f"[B, {dim}]" if dim > 0 else "[B]"


@dataclass
class Given:
    """A batch as the worker takes it: arrays in the order of the job's features."""

    examples: int
    label: npt.NDArray[np.float32] | None
    weight: npt.NDArray[np.float32] | None
    numbers: list[npt.NDArray[np.float64]]  # [B] each, or [B, dim]; rounded to float32 when they are normalized
    values: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64] | None]]  # values; offsets, if not one an example
    rest: dict[str, Any] = field(default_factory=dict)  # what the job does not know, untouched


class Converter:
    """Checks batches of a source and turns them into arrays.

    Args:
        numbers: Numeric features, in the order of the job, each with the dim of its vector, 0 for one number.
        slots: Categorical features, in the order of the job.
        padding: The value in ``[B, L]`` that is no value, for all features or by feature.
    """

    def __init__(self, numbers: Sequence[tuple[str, int]], slots: Sequence[str], padding: Padding) -> None:
        self._numbers = list(numbers)
        self._slots = list(slots)
        if isinstance(padding, Mapping) and (unknown := sorted(set(padding) - set(slots))):
            raise ValueError(f"padding= names {unknown[0]!r}; the categorical features are {', '.join(slots)}")
        self._padding = padding
        self._known = {"label", "weight", *dict(numbers), *slots}

    def convert(self, batch: Mapping[str, Any]) -> Given:
        """Raises TypeError or ValueError, which name the key and what it must be."""
        if not isinstance(batch, Mapping):
            raise TypeError(f"the source gave a {type(batch).__name__}; a batch is a dict of tensors or arrays by feature")
        sizes: dict[str, int] = {}
        label = self._floats(batch, "label", sizes).astype(np.float32) if "label" in batch else None
        weight = self._floats(batch, "weight", sizes).astype(np.float32) if "weight" in batch else None
        numbers = [self._floats(batch, name, sizes, dim) for name, dim in self._numbers]
        values = [self._values(batch, name, sizes) for name in self._slots]
        if not sizes:
            raise ValueError("the source gave a batch without any feature of the job, label or weight")
        first, examples = next(iter(sizes.items()))
        for name, size in sizes.items():
            if size != examples:
                raise ValueError(f"the batch's {name!r} is of {size} examples, but {first!r} is of {examples}")
        rest = {name: value for name, value in batch.items() if name not in self._known}
        return Given(examples, label, weight, numbers, values, rest)

    def _array(self, batch: Mapping[str, Any], name: str, needs: str) -> npt.NDArray[Any]:
        if name not in batch:
            raise ValueError(f"the batch has no {name!r}, a feature of the job; give {needs}")
        return _as_array(batch[name], name, needs)

    def _floats(
        self, batch: Mapping[str, Any], name: str, sizes: dict[str, int], dim: int = 0
    ) -> npt.NDArray[np.float64]:
        value = batch.get(name)
        if isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16:
            batch = {name: value.float()}  # nothing is lost
        array = self._array(batch, name, f"float32 {_shape_of_numbers(dim)}")
        if array.shape[1:] != ((dim,) if dim > 0 else ()) or array.ndim == 0:
            raise _wrong_shape(name, array.shape, _shape_of_numbers(dim))
        if array.dtype.kind not in "fiub":
            raise _wrong_type(name, array.dtype, "float32 or another type of real numbers")
        sizes[name] = len(array)
        return np.ascontiguousarray(array, np.float64)

    def _values(
        self, batch: Mapping[str, Any], name: str, sizes: dict[str, int]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64] | None]:
        if isinstance(batch.get(name), (tuple, list)) and len(batch[name]) == 2:
            values, offsets = (_integers(_as_array(one, name, _CATEGORICAL), name) for one in batch[name])
            if values.ndim != 1 or offsets.ndim != 1 or len(offsets) == 0:
                raise ValueError(
                    f"the batch's {name!r} is (values, offsets) of shapes {values.shape} and {offsets.shape}; "
                    f"give {_CATEGORICAL}"
                )
            sizes[name] = len(offsets) - 1
            return values, offsets
        array = _integers(self._array(batch, name, _CATEGORICAL), name)
        if array.ndim not in (1, 2):
            raise _wrong_shape(name, array.shape, _SHAPE_OF_KEYS)
        sizes[name] = len(array)
        if array.ndim == 1:
            return array, None
        padding = self._padding.get(name) if isinstance(self._padding, Mapping) else self._padding
        kept = np.ones(array.shape, bool) if padding is None else array != padding
        offsets = np.zeros(len(array) + 1, np.int64)
        np.cumsum(kept.sum(axis=1), out=offsets[1:])
        return array[kept], offsets


def _as_array(value: Any, name: str, needs: str) -> npt.NDArray[Any]:
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_quantized or value.is_complex() or value.device.type == "meta":
            raise TypeError(f"the batch's {name!r} is a tensor of {_kind(value)}; give a plain tensor or an array: {needs}")
        if value.dtype == torch.bfloat16:  # which NumPy has not
            raise _wrong_type(name, value.dtype, "int64")
        array: npt.NDArray[Any] = value.detach().cpu().numpy()
        return array
    if isinstance(value, np.ndarray):
        return value
    raise TypeError(f"the batch's {name!r} is a {type(value).__name__}; give a tensor or an array: {needs}")


def _kind(tensor: torch.Tensor) -> str:
    return f"type {tensor.dtype}, layout {tensor.layout} and device {tensor.device}"


def _integers(array: npt.NDArray[Any], name: str) -> npt.NDArray[np.int64]:
    if array.dtype.kind not in "iu" or array.dtype == np.uint64:
        raise _wrong_type(name, array.dtype, "int64 or another type of whole numbers")
    return np.ascontiguousarray(array, np.int64)


def _wrong_shape(name: str, found: tuple[int, ...], expected: str) -> ValueError:
    return ValueError(f"the batch's {name!r} has the shape {list(found)}; expected {expected}, with B examples")


def _wrong_type(name: str, found: object, expected: str) -> ValueError:
    return ValueError(f"the batch's {name!r} has the dtype {found}; expected {expected}")


def seed_of(*parts: object) -> int:
    """A seed for a generator of torch, from what it shall depend on."""
    text = " ".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")


def seed_draws(batches: Any, seed: int, rank: int) -> None:
    """Lets a loader and its samplers draw from generators of their own, which begin with this seed, the epoch's.

    Torch's own generator is seeded before each batch, by the loop, on another thread; and what a generator has drawn before is
    in no checkpoint. So each generator is seeded anew, also those of the script. Torch's samplers draw by rank; where there is
    a sampler of another class, which may deal one order to all ranks, each rank draws the same.
    """
    if not hasattr(batches, "sampler"):
        return
    samplers = _samplers(batches)
    by_rank = seed_of(seed, rank)
    own = any(type(sampler).__module__.partition(".")[0] not in ("torch", "torchdata") for sampler in samplers)
    for part in (batches, *samplers):
        if not hasattr(part, "generator"):
            continue
        # A loader draws the seeds of its processes alone; a generator that its sampler shares would miss them later.
        if part is batches or part.generator is None or part.generator is torch.default_generator:
            part.generator = torch.Generator()
        if isinstance(part.generator, torch.Generator):
            part.generator.manual_seed(seed if own and part is not batches else by_rank)


def _samplers(batches: Any) -> list[Any]:
    found: list[Any] = []
    for name in ("sampler", "batch_sampler"):
        sampler = getattr(batches, name, None)
        while sampler is not None and not any(sampler is one for one in found):
            found.append(sampler)
            sampler = getattr(sampler, "sampler", None)  # one of batches has one of rows
    return found


class Loader:
    """An iterable that gives the batches of an epoch each time it is iterated, such as a ``DataLoader``.

    It has no position. If it has ``state_dict()`` and ``load_state_dict()``, as torchdata's StatefulDataLoader, a state is
    kept now and then, which goes into checkpoints. It goes on from the newest state that fits, or from the beginning of the
    epoch, and what is left up to the position is read and dropped. So its order must depend on the epoch alone: see
    ``seed_draws``.

    Args:
        core: The worker, which keeps the states.
        batches: The iterable. Its own ``set_epoch`` and those of its samplers and dataset are called for each epoch.
    """

    STATE_EVERY = 64  # batches from one state to the next

    def __init__(self, core: _core.Worker, batches: Iterable[Mapping[str, Any]]) -> None:
        self._core = core
        self._batches = batches
        self._has_state = all(hasattr(batches, name) for name in ("state_dict", "load_state_dict"))

    def read(self, epoch: int, start: int, seed: int, rank: int) -> Iterator[Mapping[str, Any]]:
        """The batches of the epoch from number ``start`` on. ``seed`` is the epoch's (``seed_draws``)."""
        seed_draws(self._batches, seed, rank)
        for owner in (self._batches, *_samplers(self._batches), getattr(self._batches, "dataset", None)):
            if hasattr(owner, "set_epoch"):
                owner.set_epoch(epoch)
        began = time.monotonic()
        first = self._load(epoch, start)
        batches = iter(self._batches)
        for _ in range(first, start):
            if next(batches, None) is None:
                return
        if start > 0:
            place = f"its state after batch {first}" if first > 0 else "the beginning"
            print(
                f"sluice: the source goes on after batch {start} of epoch {epoch + 1}: from {place}, {start - first} batches "
                f"were read again in {time.monotonic() - began:.1f} s",
                file=sys.stderr,
                flush=True,
            )
        for at, batch in enumerate(batches, start + 1):
            # First: the state is after this batch, and nobody may have trained it yet.
            if self._has_state and at % self.STATE_EVERY == 0:
                self._keep(epoch, at)
            yield batch

    def _load(self, epoch: int, start: int) -> int:
        """Puts the iterable where it can go on. Returns the number of batches before that."""
        kept = self._core.source_state_before(epoch, start) if self._has_state and start > 0 else None
        if kept is None:
            return 0
        at, state = kept
        self._batches.load_state_dict(_read_state(state))  # type: ignore[attr-defined]
        return at

    def _keep(self, epoch: int, at: int) -> None:
        state = io.BytesIO()
        torch.save(self._batches.state_dict(), state)  # type: ignore[attr-defined]
        try:
            _read_state(state.getvalue())
        except Exception as error:  # whatever the state holds
            self._do_without_state(f"cannot be read back ({str(error).strip().splitlines()[0]}): give plain values and tensors")
            return
        if not self._core.keep_source_state(epoch, at, state.getvalue()):
            self._do_without_state(f"has {len(state.getvalue()) >> 20} MiB, which is too much for a checkpoint")

    def _do_without_state(self, why: str) -> None:
        self._has_state = False
        print(
            f"sluice: the source's state_dict() {why}; a job that goes on reads from the beginning of the epoch",
            file=sys.stderr,
            flush=True,
        )


def _read_state(state: bytes) -> Any:
    """Only tensors and plain values: nobody who can write a checkpoint may run code here."""
    return torch.load(io.BytesIO(state), weights_only=True)


class SourceReader:
    """Serves the worker's requests for batches on a thread of its own, which reads ahead of the training.

    The thread holds the interpreter lock in the user's code and in conversions, not while it waits.

    Args:
        core: The worker.
        source: ``source(rank, world_size, epoch, start)`` gives an epoch's batches from number ``start`` on; or what
            ``Loader`` takes.
        eval_source: ``eval_source(rank, world_size)`` gives the batches of an evaluation; or an iterable.
        padding: As in ``Converter``.

    A source may be a table instead of a function. Its batches are then dealt to the workers in turn.
    """

    def __init__(
        self,
        core: _core.Worker,
        source: Source,
        eval_source: EvalSource | None,
        padding: Padding,
    ) -> None:
        self._core = core
        self._source: Any = source  # a function, an iterable or a table
        self._loader: Loader | None = None
        if not callable(source) and not is_columns(source):
            self._loader = Loader(core, cast("Iterable[Mapping[str, Any]]", source))
        self._eval_source: Any = eval_source
        self._padding = padding
        self._converter: Converter | None = None
        self._numbers = itertools.count(1)
        self._rest: dict[int, dict[str, Any]] = {}  # by number of the batch
        self._unlabelled: set[int] = set()  # the numbers of batches without a label
        self._lock = threading.Lock()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="sluice-source", daemon=True)
        self._thread.start()

    def rest_of(self, given_as: int) -> dict[str, Any]:
        """What the batch with this number has besides features, label and weight. Once."""
        return self._rest.pop(given_as, {})

    def lacks_label(self, given_as: int) -> bool:
        """Whether the batch with this number was given without a label. Once."""
        found = given_as in self._unlabelled
        self._unlabelled.discard(given_as)
        return found

    def stop(self) -> None:
        """Call before the worker is stopped: the source's errors do not count any more."""
        with self._lock:
            self._over = True

    def join(self) -> None:
        """Call after the worker was stopped. Does not wait for a source that never returns."""
        self._thread.join(timeout=1)

    def _run(self) -> None:
        try:
            while (request := self._core.await_source()) is not None:
                self._serve(*request)
        except BaseException as error:  # also what a source raises to end the program: its thread cannot
            text = traceback.format_exc()
            with self._lock:
                if not self._over:
                    _process.tell_launcher(error)
                    self._core.fail_source(text)

    def _serve(self, number: int, kind: str, rank: int, world: int, epoch: int, start: int) -> None:
        if kind == "count":
            if is_columns(self._source):
                count = _batches(_length(self._source), self._core.batch_rows(), world)
            else:
                count = _length(self._source(rank, world, 0, 0) if callable(self._source) else self._source)
            self._core.counted_source(number, count)
            return
        # The batches of earlier requests are trained, or nobody wants them.
        self._rest.clear()
        self._unlabelled.clear()
        own = self._source if kind == "train" else self._eval_source
        if is_columns(own):
            self._serve_columns(number, own, rank, world, start)
            return
        if self._converter is None:
            self._converter = Converter(self._core.numbers(), self._core.features(), self._padding)
        seed = seed_of(self._core.seed(), epoch, "source")
        if kind == "train" and self._loader is not None:
            _check_own_rank(rank, world)
            given = self._loader.read(epoch, start, seed, rank)
        else:
            arguments = (rank, world, epoch, start) if kind == "train" else (rank, world)
            made = own(*arguments) if callable(own) else own
            seed_draws(made, seed, rank)
            given = iter(made)
        try:
            for batch in given:
                if not self._give(number, self._converter.convert(batch)):
                    return
            self._core.end_batches(number)
        finally:
            close = getattr(given, "close", None)
            if close is not None:
                close()  # a generator's own clean-up runs now

    def _serve_columns(self, number: int, table: Columns, rank: int, world: int, start: int) -> None:
        rows = self._core.table_rows(table.__arrow_c_stream__(), rank, world, start)
        while wanted := self._core.give_rows(number, next(self._numbers), rows):
            pass
        if wanted is None:
            if rows.rows == 0:
                raise ValueError("the source has no rows; a reader has them only once, so give a table for several epochs")
            self._core.end_batches(number)

    def _give(self, number: int, given: Given) -> bool:
        given_as = next(self._numbers)
        if given.rest:
            self._rest[given_as] = given.rest
        if given.label is None:
            self._unlabelled.add(given_as)
        return self._core.give_batch(
            number, given_as, given.examples, given.label, given.weight, given.numbers, given.values
        )


def _check_own_rank(rank: int, world: int) -> None:
    """RuntimeError where an iterable, made by ``RANK``, would give the batches of another rank."""
    place = os.environ.get("RANK", "")
    if world > 1 and place.isdecimal() and int(place) != rank:
        raise RuntimeError(
            f"this worker was started as rank {place} and now has the data of rank {rank}, which its iterable source= cannot "
            "know: give a function of rank, source(rank, world_size, epoch, start)"
        )


def is_columns(source: object) -> TypeGuard[Columns]:
    """Whether a source is a table and not a function."""
    return hasattr(source, "__arrow_c_stream__")


def columns_of(table: Columns, core: Any) -> list[str]:
    """The names of a table's columns, without reading any row; empty if it tells them only as it is read."""
    schema: Any = getattr(table, "schema", None)
    if hasattr(schema, "__arrow_c_schema__"):
        names: list[str] = core.column_names(schema.__arrow_c_schema__())
        return names
    if hasattr(table, "__len__"):  # gives its rows as often as they are wanted
        names = core.column_names(table.__arrow_c_stream__())
        return names
    return []


def _batches(rows: int, batch_rows: int, world: int) -> int:
    """Batches of the rank that has the most of them."""
    return -(-rows // (batch_rows * world))


def _length(batches: object) -> int:
    """The number of batches, or of the rows of a table; 0 if the source does not know."""
    try:
        return len(batches)  # type: ignore[arg-type]
    except TypeError:
        return 0
