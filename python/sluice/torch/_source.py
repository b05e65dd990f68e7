"""The user's own data: what its batches hold, and the thread that reads them."""

from __future__ import annotations

import itertools
import threading
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

if TYPE_CHECKING:
    from .. import _core

Source = Callable[[int, int, int, int], Iterable[Mapping[str, Any]]]
EvalSource = Callable[[int, int], Iterable[Mapping[str, Any]]]
Padding = int | Mapping[str, int] | None

_CATEGORICAL = "int64 [B], int64 [B, L] with padding=, or (values, offsets) with int64 [keys] and [B + 1]"
_NUMERIC = "float32 [B]"


@dataclass
class Given:
    """A batch as the worker takes it: arrays in the order of the job's features."""

    examples: int
    label: npt.NDArray[np.float32] | None
    weight: npt.NDArray[np.float32] | None
    numbers: list[npt.NDArray[np.float32]]  # [B] each
    values: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64] | None]]  # values; offsets, if not one an example
    rest: dict[str, Any] = field(default_factory=dict)  # what the job does not know, untouched


class Converter:
    """Checks batches of a source and turns them into arrays.

    Args:
        numbers: Numeric features, in the order of the job.
        slots: Categorical features, in the order of the job.
        padding: The value in ``[B, L]`` that is no value, for all features or by feature.
    """

    def __init__(self, numbers: Sequence[str], slots: Sequence[str], padding: Padding) -> None:
        self._numbers = list(numbers)
        self._slots = list(slots)
        if isinstance(padding, Mapping) and (unknown := sorted(set(padding) - set(slots))):
            raise ValueError(f"padding= names {unknown[0]!r}; the categorical features are {', '.join(slots)}")
        self._padding = padding
        self._known = {"label", "weight", *numbers, *slots}

    def convert(self, batch: Mapping[str, Any]) -> Given:
        """Raises TypeError or ValueError, which name the key and what it must be."""
        if not isinstance(batch, Mapping):
            raise TypeError(f"the source gave a {type(batch).__name__}; a batch is a dict of tensors or arrays by feature")
        sizes: dict[str, int] = {}
        label = self._floats(batch, "label", sizes) if "label" in batch else None
        weight = self._floats(batch, "weight", sizes) if "weight" in batch else None
        numbers = [self._floats(batch, name, sizes) for name in self._numbers]
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

    def _floats(self, batch: Mapping[str, Any], name: str, sizes: dict[str, int]) -> npt.NDArray[np.float32]:
        value = batch.get(name)
        if isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16:
            batch = {name: value.float()}  # nothing is lost
        array = self._array(batch, name, _NUMERIC)
        if array.ndim != 1 or array.dtype.kind not in "fiub":
            raise _unfit(name, array, _NUMERIC)
        sizes[name] = len(array)
        return np.ascontiguousarray(array, np.float32)

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
            raise _unfit(name, array, _CATEGORICAL)
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
            raise ValueError(f"the batch's {name!r} is {value.dtype} of shape {tuple(value.shape)}; give {needs}")
        array: npt.NDArray[Any] = value.detach().cpu().numpy()
        return array
    if isinstance(value, np.ndarray):
        return value
    raise TypeError(f"the batch's {name!r} is a {type(value).__name__}; give a tensor or an array: {needs}")


def _kind(tensor: torch.Tensor) -> str:
    return f"type {tensor.dtype}, layout {tensor.layout} and device {tensor.device}"


def _integers(array: npt.NDArray[Any], name: str) -> npt.NDArray[np.int64]:
    if array.dtype.kind not in "iu" or array.dtype == np.uint64:
        raise _unfit(name, array, _CATEGORICAL)
    return np.ascontiguousarray(array, np.int64)


def _unfit(name: str, array: npt.NDArray[Any], needs: str) -> ValueError:
    return ValueError(f"the batch's {name!r} is {array.dtype} of shape {array.shape}; give {needs}")


class SourceReader:
    """Serves the worker's requests for batches on a thread of its own, which reads ahead of the training.

    The thread holds the interpreter lock in the user's code and in conversions, not while it waits.

    Args:
        core: The worker.
        source: ``source(rank, world_size, epoch, start)`` gives an epoch's batches from number ``start`` on.
        eval_source: ``eval_source(rank, world_size)`` gives the batches of an evaluation.
        padding: As in ``Converter``.
    """

    def __init__(self, core: _core.Worker, source: Source, eval_source: EvalSource | None, padding: Padding) -> None:
        self._core = core
        self._source = source
        self._eval_source = eval_source
        self._padding = padding
        self._converter: Converter | None = None
        self._numbers = itertools.count(1)
        self._rest: dict[int, dict[str, Any]] = {}  # by number of the batch
        self._lock = threading.Lock()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="sluice-source", daemon=True)
        self._thread.start()

    def rest_of(self, given_as: int) -> dict[str, Any]:
        """What the batch with this number has besides features, label and weight. Once."""
        return self._rest.pop(given_as, {})

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
        except BaseException:  # also what a source raises to end the program: its thread cannot
            text = traceback.format_exc()
            with self._lock:
                if not self._over:
                    self._core.fail_source(text)

    def _serve(self, number: int, kind: str, rank: int, world: int, epoch: int, start: int) -> None:
        if kind == "count":
            self._core.counted_source(number, _length(self._source(rank, world, 0, 0)))
            return
        # The batches of earlier requests are trained, or nobody wants them.
        self._rest.clear()
        if self._converter is None:
            self._converter = Converter(self._core.numbers(), self._core.features(), self._padding)
        if kind == "train":
            batches = iter(self._source(rank, world, epoch, start))
        else:
            assert self._eval_source is not None
            batches = iter(self._eval_source(rank, world))
        try:
            for batch in batches:
                if not self._give(number, self._converter.convert(batch)):
                    return
            self._core.end_batches(number)
        finally:
            close = getattr(batches, "close", None)
            if close is not None:
                close()  # a generator's own clean-up runs now

    def _give(self, number: int, given: Given) -> bool:
        given_as = next(self._numbers)
        if given.rest:
            self._rest[given_as] = given.rest
        return self._core.give_batch(
            number, given_as, given.examples, given.label, given.weight, given.numbers, given.values
        )


def _length(batches: Iterable[Any]) -> int:
    """The number of batches; 0 if the source does not know."""
    try:
        return len(batches)  # type: ignore[arg-type]
    except TypeError:
        return 0
