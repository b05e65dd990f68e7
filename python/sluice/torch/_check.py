"""What our functions refuse, with what to use instead."""

from __future__ import annotations

import difflib
import re
from typing import Any, Mapping, Sequence

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.parameter import is_lazy
from torch.optim import lr_scheduler

from .._job import Job
from .._optimizer import RULES
from .._plain import named
from ._source import is_columns

# In a job as the core writes it: a field in each line, nested ones indented by two spaces.
_FEATURES = re.compile(r"^features \{\n((?:  .*\n)*)", re.MULTILINE)
_COLLECTIONS = re.compile(r"^    collections \{\n((?:      .*\n)*)", re.MULTILINE)
_NAME = re.compile(r'^ +name: "(.*)"$', re.MULTILINE)
# In errors of the core.
_PLACE = re.compile(r"^/\S*/draft\.textproto(:\d+)?: ", re.MULTILINE)
_UNKNOWN = re.compile(
    r"model\.program\.collections\[(?P<number>\d+)\]\.features: names '(?P<feature>.*)', which the job does not declare"
)

_FUNCTIONS = {
    "predict": "predict(batch) returns the batch's logits, [examples]",
}
_SOURCES = {
    "source": "source(rank, world_size, epoch, start) returns the epoch's batches from number start on",
    "eval_source": "eval_source(rank, world_size) returns the batches of an evaluation",
}
_MAPPINGS = {
    "metrics": '{"hits": fn}, with fn(batch, output) -> (sum, weight)',
    "optimizers": '{"mlp.*": sluice.torch.Optimizer("adam", learning_rate=0.001)}',
}
_PART = re.compile(r"(?P<what>collections|parameters)\[(?P<number>\d+)\]\.")
_OF_COLLECTION = re.compile(r"model\.program\.collections\[(?P<number>\d+)\]")

LARGE_EMBEDDING = 10_000_000  # elements
LARGE_FROZEN = 10_000_000  # elements

_OPTIMIZERS = ("SGD", "Adam", "AdamW", "SparseAdam", "Adagrad")  # of torch, which have a counterpart
_WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel")
# Of torch's schedules, those that the parameter servers have, too.
_SCHEDULES = {
    "ExponentialLR": 'exponential": {"steps": 1000, "rate": 0.9}',
    "StepLR": 'exponential": {"steps": 1000, "rate": 0.1, "staircase": True}',
    "CosineAnnealingLR": 'cosine": {"steps": 10000}',
    "CosineAnnealingWarmRestarts": 'cosine_restarts": {}',
    "PolynomialLR": 'polynomial": {"steps": 10000, "power": 1.0}',
    "LinearLR": 'polynomial": {"steps": 10000, "power": 1.0}',
}


def refuse_torch_optim(**arguments: Any) -> None:
    """Refuses objects of torch.optim and gradient scalers among arguments, and in their lists and mappings.

    Raises:
        TypeError: Names the argument and our counterpart.
    """
    for name, value in arguments.items():
        inside: list[tuple[str, Any]] = [(name, value)]
        if isinstance(value, Mapping):
            inside += [(f"{name}[{key!r}]", one) for key, one in value.items()]
        elif isinstance(value, (list, tuple)):
            inside += [(f"{name}[{i}]", one) for i, one in enumerate(value)]
        # Where one Optimizer is taken; elsewhere a mapping of them is.
        takes_one = name == "optimizer" or isinstance(value, Mapping)
        for where, one in inside:
            instead = _counterpart(one, takes_one)
            if instead:
                raise TypeError(f"{where} is a {type(one).__module__}.{type(one).__qualname__}: {instead}")


def check_arguments(model: Any, job: Any, **arguments: Any) -> None:
    """Refuses arguments of ``sluice.torch.worker`` of other types.

    Raises:
        TypeError: Names the argument and says what to give.
        ValueError: ``epoch_steps`` is not positive, or an argument needs another one.
    """
    refuse_torch_optim(model=model, job=job, **arguments)
    if not isinstance(job, Job):
        raise TypeError(f"the job is a {type(job).__name__}; give a sluice.Job, such as sluice.Job.from_file(path)")
    for name, signature in _FUNCTIONS.items():
        function = arguments[name]
        if function is not None and not callable(function):
            raise TypeError(f"{name}= is {named(function)}; give a function: {signature}")
    for name, signature in _SOURCES.items():
        source = arguments[name]
        if source is None or callable(source) or is_columns(source):
            continue
        if isinstance(source, (Mapping, str)) or not hasattr(type(source), "__iter__"):
            raise TypeError(f"{name}= is {named(source)}; give a function: {signature}; or a loader that is iterated anew")
        if hasattr(type(source), "__next__"):
            raise TypeError(f"{name}= is {named(source)}, which can be read once; give a function: {signature}")
    for name, example in _MAPPINGS.items():
        if arguments[name] is not None and not isinstance(arguments[name], Mapping):
            raise TypeError(f"{name}= is {named(arguments[name])}; give a mapping, such as {example}")
    for name, function in (arguments["metrics"] or {}).items():
        if not callable(function):
            raise TypeError(
                f"metrics[{name!r}] is {named(function)}; give a function: fn(batch, output) -> (sum, weight)"
            )
    padding, epoch_steps = arguments["padding"], arguments["epoch_steps"]
    for value in padding.values() if isinstance(padding, Mapping) else [padding]:
        if value is not None and not _is_integer(value):
            raise TypeError(f"padding= is {value!r}; give an integer, or integers by the names of features")
    if epoch_steps is not None and not _is_integer(epoch_steps):
        raise TypeError(f"epoch_steps= is {epoch_steps!r}; give the number of batches of an epoch")
    if epoch_steps is not None and epoch_steps < 1:
        raise ValueError(f"epoch_steps is {epoch_steps}; give at least 1")
    if not isinstance(arguments["resume"], bool):
        raise TypeError(f"resume= is {arguments['resume']!r}; give True or False")
    others = [arguments[name] for name in ("eval_source", "epoch_steps", "padding")]
    if arguments["source"] is None and any(one is not None for one in others):
        raise ValueError("eval_source, epoch_steps and padding need source: without it the job reads data.train_files")
    functions = [arguments[name] for name in ("source", "eval_source") if arguments[name] is not None]
    if padding is not None and all(map(is_columns, functions)):
        raise ValueError("padding= is of arrays [B, L]; a table has lists instead: remove it")
    if arguments["metrics"] and arguments["predict"] is None:
        raise ValueError("metrics= needs predict=, whose output they are given")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _counterpart(value: Any, takes_one: bool) -> str:
    """What to use instead of an object of torch; "" for any other object. ``takes_one``: in the place of an Optimizer."""
    if isinstance(value, torch.optim.Optimizer):
        own = _optimizer(value) if takes_one else f'optimizers={{"*": {_optimizer(value)}}}'
        return f"the parameter servers update the parameters; give {own}{_notes_on(value)}"
    if isinstance(value, lr_scheduler.ReduceLROnPlateau):
        return (
            "no counterpart: the rate of a job is a function of its steps alone; choose a schedule in "
            "sluice.torch.Optimizer(..., others={\"schedule\": {...}}) or in the job's optimizers"
        )
    if isinstance(value, lr_scheduler.LRScheduler):
        known = _SCHEDULES.get(type(value).__name__)
        schedule = '{"' + known + "}" if known else "{...}"
        kinds = "" if known else " (LearningRateSchedule in proto/config.proto has the kinds)"
        return (
            "the parameter servers run the schedule; give sluice.torch.Optimizer(..., "
            f'others={{"schedule": {schedule}}}){kinds}, or write it into the job\'s optimizers'
        )
    if isinstance(value, GradScaler):
        return "parameters and gradients are float32; torch.autocast(dtype=torch.bfloat16) works without a scaler"
    return ""


def _optimizer(value: torch.optim.Optimizer) -> str:
    """Our Optimizer with the settings of one of torch."""
    group, name = value.param_groups[0], type(value).__name__
    options: dict[str, Any] = {}
    others = {"weight_decay": group["weight_decay"]} if group.get("weight_decay") else {}
    if name == "SGD":
        rule = "momentum" if group["momentum"] else "sgd"
        if group["momentum"]:
            options = {"momentum": group["momentum"]}
            if group["nesterov"]:
                options["nesterov"] = True
    elif name in ("Adam", "AdamW", "SparseAdam"):
        rule = "adam"
        options = {"beta1": group["betas"][0], "beta2": group["betas"][1], "epsilon": group["eps"]}
    elif name == "Adagrad":
        rule = "adagrad"
        options = {"initial_accumulator": group["initial_accumulator_value"], "epsilon": group["eps"]}
    else:
        return "sluice.torch.Optimizer(RULE, learning_rate=...)"
    more = (f", options={options}" if options else "") + (f", others={others}" if others else "")
    return f'sluice.torch.Optimizer("{rule}", learning_rate={float(group["lr"])}{more})'


def _notes_on(value: torch.optim.Optimizer) -> str:
    name = type(value).__name__
    if name not in _OPTIMIZERS:
        return f"; rules are {RULES}"
    return " (weight_decay is part of the gradient)" if name == "AdamW" and value.param_groups[0]["weight_decay"] else ""


def check_module(model: Any) -> None:
    """Refuses modules whose values cannot be tables, before anything reads these values.

    Raises:
        TypeError: Names the parameter or buffer and says what to do.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"the model is a {type(model).__name__}; give an nn.Module")
    for path, module in model.named_modules():
        # By name: importing the last one takes long.
        if type(module).__module__.startswith("torch.") and type(module).__name__ in _WRAPPERS:
            where = path or "the model"
            raise TypeError(
                f"{where} is a {type(module).__name__}: each worker computes its own batch, and the parameter servers add "
                "up the gradients; give the module that it wraps (its .module)"
            )
    for what, tensors in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
        for name, tensor in tensors:
            if is_lazy(tensor):
                raise TypeError(
                    f"{what} {name!r} has no shape yet, because its module is a lazy one; call the model once with an "
                    "example, or give the sizes"
                )
            if tensor.device.type == "meta":
                raise TypeError(
                    f"{what} {name!r} is on the device meta and has no values; fill it first: "
                    'model.to_empty(device="cpu"), then initialize'
                )
            if tensor.device.type != "cpu":
                raise TypeError(f"{what} {name!r} is on {tensor.device}; only modules on the CPU are supported yet")


def may_be_table(frozen: torch.Tensor) -> bool:
    """Whether a table can hold the values of a frozen parameter: as float32, and no NaN and no infinity."""
    fits = frozen.dtype in (torch.float32, torch.float16, torch.bfloat16) and frozen.numel() > 0
    return fits and bool(torch.isfinite(frozen).all())


def with_names(error: str, collections: Sequence[str], parameters: Sequence[str]) -> str:
    """An error of the core that counts the parts of the declaration, with the parts' names."""

    def name(match: re.Match[str]) -> str:
        names = collections if match["what"] == "collections" else parameters
        number = int(match["number"])
        return f"{match['what'][:-1]} {names[number]!r}: " if number < len(names) else match[0]

    return _PART.sub(name, error)


def explained(error: str, job: str) -> str:
    """What is wrong with a job, for the one who has written its program.

    Args:
        error: What the core says, by lines and fields of a file that only it has written.
        job: The job as the core writes it, with its declaration.

    Returns:
        The same by fields alone, with the name of the collection and the features that may be meant.
    """
    features = [name for block in _FEATURES.findall(job) for name in _NAME.findall(block)[:1]]
    collections = [name for block in _COLLECTIONS.findall(job) for name in _NAME.findall(block)[:1]]
    lines = []
    for line in _PLACE.sub("", error).split("\n"):
        unknown = _UNKNOWN.match(line)
        if unknown and int(unknown["number"]) < len(collections):
            close = difflib.get_close_matches(unknown["feature"], features, 1)
            meant = f"; did you mean {close[0]!r}?" if close else f"; it has {features}"
            line = f"{line} (collection {collections[int(unknown['number'])]!r}{meant})"
        elif (of := _OF_COLLECTION.match(line)) and int(of["number"]) < len(collections):
            line = f"{line} (collection {collections[int(of['number'])]!r})"
        lines.append(line)
    return "\n".join(lines)


def _hint_of_frozen(name: str, parameter: torch.Tensor) -> str:
    """What could be done better about a frozen parameter; "" if nothing."""
    if may_be_table(parameter):
        if parameter.numel() <= LARGE_FROZEN:
            return ""
        return (
            f"frozen parameter {name!r} has {parameter.numel():,} elements, which each worker pulls and each model and "
            "checkpoint holds; where the script makes them anew, register_buffer(..., persistent=False) avoids all that"
        )
    what, instead = f"is {parameter.dtype}", "register it as a buffer"
    if parameter.dtype in (torch.float32, torch.float16, torch.bfloat16):
        what, instead = "has a NaN or an infinite value", "give it finite values"
    elif parameter.is_floating_point():
        instead = "make it float32"
    return (
        f"frozen parameter {name!r} {what}: saved models and checkpoints do not have it; {instead}, or give it its value "
        "in the script"
    )


def hints(model: nn.Module) -> list[str]:
    """What works, but could be done better."""
    found = [
        line
        for name, parameter in model.named_parameters()
        if not parameter.requires_grad and parameter.numel() > 0 and (line := _hint_of_frozen(name, parameter))
    ]
    for path, module in model.named_modules():
        if not isinstance(module, (nn.Embedding, nn.EmbeddingBag)) or module.weight.numel() <= LARGE_EMBEDDING:
            continue
        if module.weight.requires_grad:
            found.append(
                f"{path or 'the model'} is a {type(module).__name__} of {module.weight.numel():,} elements, which every step "
                "pulls and pushes as a whole; sluice.torch.EmbeddingCollection moves only the rows of the batch"
            )
    return found
