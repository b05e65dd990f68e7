"""Update rules, as a script names them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping

__all__ = ["Optimizer"]


@dataclass(frozen=True)
class Optimizer:
    """An update rule of the parameter servers, as ``OptimizerConfig`` in the job's configuration.

    ``Optimizer("adam", learning_rate=1e-3, options={"beta1": 0.9})``. Rules: sgd, momentum, adam, adagrad, ftrl.
    """

    rule: str
    learning_rate: float
    options: Mapping[str, Any] = field(default_factory=dict)  # of the rule
    others: Mapping[str, Any] = field(default_factory=dict)  # of OptimizerConfig, such as {"weight_decay": 1e-4}

    def to_json(self) -> dict[str, Any]:
        return {self.rule: dict(self.options), "learning_rate": self.learning_rate, **self.others}
