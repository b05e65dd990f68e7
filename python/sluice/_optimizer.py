"""Update rules, as a script names them."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, field
from typing import Any, Mapping

from ._plain import named

__all__ = ["RULES", "Optimizer"]

RULES = "sgd, momentum, adam, adagrad and ftrl"


@dataclass(frozen=True)
class Optimizer:
    """An update rule of the parameter servers, as ``OptimizerConfig`` in the job's configuration.

    ``Optimizer("adam", learning_rate=1e-3, options={"beta1": 0.9})``. Rules: sgd, momentum, adam, adagrad, ftrl.
    """

    rule: str
    learning_rate: float
    options: Mapping[str, Any] = field(default_factory=dict)  # of the rule
    others: Mapping[str, Any] = field(default_factory=dict)  # of OptimizerConfig, such as {"weight_decay": 1e-4}

    def __post_init__(self) -> None:
        """TypeError or ValueError for what is no name, number or mapping. The rest is checked with the job."""
        if not isinstance(self.rule, str):
            raise TypeError(f"the rule of an Optimizer is {named(self.rule)}; give its name: {RULES}")
        rate = self.learning_rate
        if isinstance(rate, bool) or not isinstance(rate, numbers.Real):
            raise TypeError(f"the learning_rate of Optimizer({self.rule!r}) is {rate!r}; give a number")
        if not 0 <= rate < math.inf:
            raise ValueError(f"the learning_rate of Optimizer({self.rule!r}) is {rate}; give a finite one, 0 or more")
        for name, value, example in (
            ("options", self.options, '{"beta1": 0.9}'),
            ("others", self.others, '{"weight_decay": 1e-4}'),
        ):
            if not isinstance(value, Mapping):
                raise TypeError(
                    f"{name}= of Optimizer({self.rule!r}) is {named(value)}; give a dictionary, such as {example}"
                )

    def to_json(self) -> dict[str, Any]:
        return {self.rule: dict(self.options), "learning_rate": self.learning_rate, **self.others}
