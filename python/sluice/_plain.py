"""Values of scripts as plain ones, as JSON has them."""

from __future__ import annotations

import json
import math
import os
from typing import Any, Mapping

__all__ = ["named", "to_json"]


def named(value: Any) -> str:
    """The type of a value with its article, for messages."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def to_json(value: Any, where: str) -> str:
    """JSON of dictionaries, lists and single values; a number of NumPy or torch counts as Python's, a path as its text.

    Args:
        value: What a script has given.
        where: What it is, for messages, such as "the job".

    Raises:
        TypeError: Something in it has no place in JSON; names it by its path.
        ValueError: A number is NaN or infinite.
    """
    return json.dumps(_plain(value, where, ""))


def _plain(value: Any, where: str, path: str) -> Any:
    place = f"{where}: {path}" if path else where
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{place} is {value}; give a finite number")
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise TypeError(f"{place} has the key {name!r}; keys are names of fields, in texts")
        return {name: _plain(one, where, f"{path}.{name}" if path else name) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one, where, f"{path}[{i}]") for i, one in enumerate(value)]
    # Arrays and tensors, and their elements.
    if hasattr(value, "tolist"):
        return _plain(value.tolist(), where, path)
    raise TypeError(
        f"{place} is a {type(value).__name__}; give a number, a text, a bool, or a list or dictionary of these"
    )
