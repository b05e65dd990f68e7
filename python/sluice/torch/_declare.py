"""The declaration of a module: its collections, parameters and buffers."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import Any, Iterable, Iterator, Mapping, TypeVar

import torch
from torch import Tensor, nn

from .._optimizer import Optimizer as Optimizer
from .._plain import to_json
from ._check import check_module, may_be_table, refuse_torch_optim, with_names
from ._embedding import EmbeddingCollection

_T = TypeVar("_T")

_MOST_NAMES = 10  # of parameters in a message

_FROZEN = Optimizer("sgd", 0.0)  # the rule that the core knows as that of a frozen parameter


@dataclass
class Declaration:
    """What a module consists of. Tensors are the module's own."""

    collections: list[EmbeddingCollection]
    parameters: list[tuple[str, nn.Parameter]]  # those that are trained
    buffers: list[tuple[str, Tensor]]  # of floating point
    frozen: list[tuple[str, Tensor]]  # parameters that no step changes, and that are tables
    counters: list[tuple[str, Tensor]]  # other buffers, which keep their values
    constants: list[tuple[str, Tensor]]  # what is no table: the counters, and frozen parameters that no table can hold
    optimizers: dict[str, Optimizer]  # by parameter, where the script says one

    def to_json(self) -> str:
        """The ProgramConfig. A scalar is a vector of one element."""
        collections = []
        for c in self.collections:
            one: dict[str, Any] = {"name": c.name, "dim": c.dim, "features": c.features}
            if c.optimizer is not None:
                one["optimizer"] = c.optimizer.to_json()
            if c.initializer is not None:
                one["initializer"] = c.initializer
            collections.append(one)
        parameters: list[dict[str, Any]] = []
        for name, parameter in self.parameters:
            parameters.append({"name": name, "shape": list(parameter.shape) or [1]})
            if name in self.optimizers:
                parameters[-1]["optimizer"] = self.optimizers[name].to_json()
        for name, buffer in self.buffers:
            parameters.append({"name": name, "shape": list(buffer.shape) or [1], "buffer": True})
        for name, tensor in self.frozen:
            parameters.append({"name": name, "shape": list(tensor.shape) or [1], "optimizer": _FROZEN.to_json()})
        return to_json({"collections": collections, "parameters": parameters}, "the program")

    def with_names(self, error: str) -> str:
        """An error of the core that counts collections and parameters, with their names."""
        return with_names(error, [c.name for c in self.collections], [name for name, _ in self.tensors()])

    def tensors(self) -> list[tuple[str, Tensor]]:
        """Names and tensors of all dense tables, in the order of the declaration."""
        return [*self.parameters, *self.buffers, *self.frozen]


def declare(model: nn.Module, optimizers: Mapping[str, Optimizer] | None = None) -> Declaration:
    """Lists what the tables of a job with this module are.

    Args:
        model: The module. A tied parameter counts once. A frozen one (``requires_grad=False``) is a table that no step
            changes.
        optimizers: Rules by patterns of parameters' names, such as ``{"mlp.*": Optimizer(...)}``. The first that matches
            counts; the others get the job's ``optimizers.dense``.

    Names do not show whether a module was compiled (``torch.compile``).

    Raises:
        TypeError: A parameter or a persistent buffer of floating point is not float32, has no values yet or is not on the CPU,
            or an optimizer is not one of ours.
        ValueError: Two collections have the same name, or a pattern matches no parameter.
    """
    check_module(model)
    refuse_torch_optim(optimizers=optimizers)
    collections: list[EmbeddingCollection] = []
    for module in model.modules():
        if isinstance(module, EmbeddingCollection):
            if any(other.name == module.name for other in collections):
                raise ValueError(f"two collections are named {module.name!r}; give each a name of its own")
            collections.append(module)
    parameters: list[tuple[str, nn.Parameter]] = []
    frozen: list[tuple[str, Tensor]] = []
    constants: list[tuple[str, Tensor]] = []
    for name, parameter in _named(model.named_parameters()):
        if not parameter.requires_grad:
            (frozen if may_be_table(parameter) else constants).append((name, parameter))
            continue
        if parameter.dtype != torch.float32:
            raise TypeError(f"parameter {name!r} is {parameter.dtype}; parameters are float32 (autocast may compute in others)")
        if parameter.numel() == 0:
            raise TypeError(f"parameter {name!r} has no elements")
        parameters.append((name, parameter))
    saved = {name for name, _ in _named(model.state_dict(keep_vars=True).items())}
    buffers, counters = [], []
    for name, buffer in _named(model.named_buffers()):
        if (buffer.is_floating_point() or buffer.is_complex()) and buffer.dtype != torch.float32 and name in saved:
            raise TypeError(
                f"buffer {name!r} is {buffer.dtype}; buffers of floating point are tables, which are float32. One that no step "
                "changes may have another type with register_buffer(..., persistent=False)"
            )
        if buffer.dtype == torch.float32 and name in saved and buffer.numel() > 0:
            buffers.append((name, buffer))
        else:
            counters.append((name, buffer))
            constants.append((name, buffer))
    by_name: dict[str, Optimizer] = {}
    for pattern, optimizer in (optimizers or {}).items():
        if not isinstance(optimizer, Optimizer):
            raise TypeError(
                f"the optimizer of {pattern!r} is {type(optimizer).__name__}; the parameter servers run the update: give a "
                "sluice.torch.Optimizer"
            )
        names = [name for name, _ in parameters]
        matched = fnmatch.filter(names, pattern)
        if not matched:
            raise ValueError(f"the pattern {pattern!r} in optimizers= matches no parameter; there are {_listed(names)}")
        for name in matched:
            by_name.setdefault(name, optimizer)
    return Declaration(collections, parameters, buffers, frozen, counters, constants, by_name)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return (", ".join(names[:_MOST_NAMES]) or "none that are trained") + more


def _named(tensors: Iterable[tuple[str, _T]]) -> Iterator[tuple[str, _T]]:
    """Names as they are without torch.compile, which wraps a module as its child `_orig_mod`."""
    for name, tensor in tensors:
        yield name.replace("_orig_mod.", ""), tensor
