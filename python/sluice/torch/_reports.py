"""What a program reports beside its loss, metrics of an evaluation and values of a step, and whether it makes steps."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from ._embedding import Batch

if TYPE_CHECKING:
    from .. import _core

Value = float | Tensor
Metric = Callable[[Batch, Tensor], tuple[Value, Value]]

MOST_METRICS = 64
MOST_LOGGED = 16
MOST_CHARACTERS = 64
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
# Tags of curves that the job has anyway.
_METRICS_OF_JOB = {"auc", "log_loss", "accuracy", "mae", "rmse"}
_VALUES_OF_JOB = {"loss", "epoch_loss", "examples_per_second"}


class Metrics:
    """The metrics of a program: each is a sum over the examples of an evaluation, divided by a weight.

    Args:
        functions: ``fn(batch, output) -> (sum, weight)`` by name; ``output`` is what ``predict`` has given.

    Raises:
        ValueError: A name cannot be one, is a metric of the job, or there are more than 64.
    """

    def __init__(self, functions: Mapping[str, Metric]) -> None:
        if len(functions) > MOST_METRICS:
            raise ValueError(f"metrics= has {len(functions)} metrics; at most {MOST_METRICS} are allowed")
        for name in functions:
            _check_name("metric", name, _METRICS_OF_JOB)
        self._functions = dict(functions)

    def __bool__(self) -> bool:
        return bool(self._functions)

    def measure(self, turn: _core.Turn, batch: Batch, output: Tensor) -> None:
        """Adds the sums of an evaluation batch."""
        for name, function in self._functions.items():
            result = function(batch, output)
            if not isinstance(result, tuple) or len(result) != 2:
                raise TypeError(f"the metric {name!r} gave {_shown(result)}; it gives (sum, weight)")
            weight = _number("metric", name, result[1])
            if not 0 <= weight < math.inf:
                raise ValueError(
                    f"the metric {name!r} gave the weight {weight}; a weight is a finite number that is not negative"
                )
            turn.measure(name, _number("metric", name, result[0]), weight)


class OutputCheck:
    """Notices a ``predict`` that gives probabilities where logits are needed.

    Both can lie between 0 and 1. They are taken for probabilities when all outputs of an evaluation lie there and
    predict its labels better as probabilities than as logits. Labels that are all the same tell nothing: a low logit fits
    0 worse than the same number as a probability.
    """

    LINE = (
        "all outputs of predict in an evaluation lie between 0 and 1, and fit the labels better as probabilities than as "
        "logits: log loss and accuracy are wrong if they are; give logits, the values before the sigmoid"
    )

    def __init__(self) -> None:
        self._logits = False  # some output was no probability
        self._as_logits = self._as_probabilities = 0.0  # sums of the weighted log loss
        self._least_label, self._most_label = math.inf, -math.inf

    def add(self, batch: Batch, output: Tensor) -> None:
        """A batch of an evaluation was predicted."""
        if self._logits or not len(output):
            return
        output = output.detach().float()
        least, most = torch.aminmax(output)
        if not (least >= 0 and most <= 1):
            self._logits = True
            return
        least_label, most_label = torch.aminmax(batch.label)
        self._least_label = min(self._least_label, float(least_label))
        self._most_label = max(self._most_label, float(most_label))
        self._as_logits += float(F.binary_cross_entropy_with_logits(output, batch.label, batch.weight, reduction="sum"))
        # Torch bounds the logarithms, so that 0 and 1 are fine.
        self._as_probabilities += float(F.binary_cross_entropy(output, batch.label.clamp(0, 1), batch.weight, reduction="sum"))

    def end(self) -> bool:
        """The evaluation is over, if there was one. Whether its outputs were probabilities."""
        found = self._as_probabilities < self._as_logits and self._least_label < self._most_label
        self._as_logits = self._as_probabilities = 0.0
        self._least_label, self._most_label = math.inf, -math.inf
        return found and not self._logits


class StepCount:
    """Finds an epoch in which the program has made no step."""

    def __init__(self) -> None:
        self.any_step = False  # since this process began
        self._epoch = 0
        self._batches = 0  # of this epoch in this attempt
        self._steps = 0

    def begin(self, turn: _core.Turn) -> None:
        """A batch to train begins. An attempt of the job that begins with it counts anew.

        Raises:
            RuntimeError: As ``check``; the batch is the first of another epoch.
        """
        if turn.epoch != self._epoch and not turn.begins:
            self.check()
        if turn.epoch != self._epoch or turn.begins:
            self._epoch, self._batches, self._steps = turn.epoch, 0, 0
        self._batches += 1

    def stepped(self) -> None:
        self.any_step = True
        self._steps += 1

    def check(self) -> None:
        """The epoch ends.

        Raises:
            RuntimeError: It had several batches, all of which were left without a step. One alone may be meant.
        """
        if self._batches > 1 and self._steps == 0:
            raise RuntimeError(
                f"all {self._batches} batches of epoch {self._epoch + 1} were left without worker.step(): nothing was trained; "
                "call worker.backward(loss) or worker.step(loss) for each batch"
            )


class StepLog:
    """The values that a program logs, until a step takes them along."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._late: list[tuple[str, float]] = []
        self._values: dict[str, float] = {}

    def add(self, values: Mapping[str, Value], *, late: bool) -> None:
        """Adds values. ``late``: the step of their batch was made already, so the next one takes them along."""
        for name, value in values.items():
            if name not in self._names:
                _check_name("value", name, _VALUES_OF_JOB)
                if len(self._names) == MOST_LOGGED:
                    known = ", ".join(sorted(self._names))
                    raise ValueError(f"{name!r} is one name too many to log; at most {MOST_LOGGED} are allowed: {known}")
                self._names.add(name)
            number = _number("value", name, value)
            if late:
                self._late.append((name, number))
            else:
                self._values[name] = number

    def hand_over(self, turn: _core.Turn) -> None:
        """Gives the values to a step that is about to be made."""
        if not self._late and not self._values:
            return
        for name, value in self._late:
            turn.log(name, value)
        for name, value in self._values.items():
            turn.log(name, value)
        self._late.clear()
        self._values.clear()


def _check_name(what: str, name: Any, taken: set[str]) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > MOST_CHARACTERS:
        raise ValueError(
            f"{name!r} cannot be the name of a {what}: a name is {_NAME.pattern}, at most {MOST_CHARACTERS} characters"
        )
    if name in taken:
        raise ValueError(f"{name!r} is a {what} that every job has; choose another name, such as {'my_' + name!r}")


def _number(what: str, name: str, value: Any) -> float:
    if isinstance(value, Tensor):
        value = value.detach()
    try:
        if getattr(value, "ndim", 0) == 0:
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise TypeError(f"the {what} {name!r} is {_shown(value)}; it is a number or a tensor without dimensions")


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
