"""Makes a model from the embedding table of another system: ``sluice table import`` from Python.

The command reads Parquet, .npz, .npy and text by itself. Here are what only Python reads: files of PyTorch
(``state_dict``), safetensors, and arrays in memory. ``python -m sluice.table --help`` is the same as a command.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import tempfile
from typing import TYPE_CHECKING, Any, Mapping

from ._errors import UsageError
from ._programs import flags, run

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["import_table", "main"]

_TORCH = (".pt", ".pth", ".bin", ".ckpt")
_SAFETENSORS = ".safetensors"
_MOST_HEADER_BYTES = 100 << 20


def import_table(
    source: Any,
    output: str | os.PathLike[str],
    *,
    like: str | os.PathLike[str] | None = None,
    job: str | os.PathLike[str] | None = None,
    name: str | None = None,
    table: str | None = None,
    feature: str | None = None,
    vocabulary: str | os.PathLike[str] | None = None,
    column: str | None = None,
    overwrite: bool = False,
) -> str:
    """Makes a model whose table has the rows of `source`, for the ``initial_model`` of a job.

    Row i belongs to the value on line i of `vocabulary`, or to the value i of a feature with ``key: RAW``.

    Args:
        source: The weights, ``[rows, dim]`` floats: an array, a tensor of PyTorch, a dictionary of them
            (``state_dict``), or a file: .pt, .pth, .bin and .ckpt of PyTorch (``weights_only``), .safetensors, or one that
            the command reads.
        output: The folder of the new model.
        like: The model or checkpoint whose job and other tables the new one has.
        job: Instead of `like` a job file, whose other tables begin with their initial values.
        name: The tensor's name in a dictionary or file of several, such as ``"embedding.weight"``.
        table: The table. Default: that of `feature`, or the only sparse one.
        feature: The feature whose values the rows belong to.
        vocabulary: A text file, whose line i is the value of row i.
        column: The column of the table to which the weights belong. Default: the one of this width. Others get initial
            values.
        overwrite: Replace a model in `output`.

    Returns:
        The report of the command: rows, what did not match, and the digest of the model.

    Raises:
        UsageError: The file, the job or an option is wrong; a row has another width, its key occurs twice, or a value is
            NaN. The message names the row.
        RuntimeError: The model cannot be written.
    """
    options: dict[str, object] = {
        "like": like,
        "job": job,
        "table": table,
        "feature": feature,
        "vocabulary": vocabulary,
        "column": column,
        "overwrite": overwrite or None,
        "output": output,
    }
    path = pathlib.Path(os.fspath(source)) if isinstance(source, (str, os.PathLike)) else None
    if path is not None and path.suffix not in (*_TORCH, _SAFETENSORS):
        return run(["table", "import", str(path), *flags({**options, "name": name})])
    import numpy as np

    weights = _weights(source if path is None else _read(path, name), name)
    # Beside the output, where there is room for the model.
    parent = pathlib.Path(output).absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".sluice-table-", dir=parent) as folder:
        file = os.path.join(folder, "weights.npy")
        np.save(file, weights)
        try:
            return run(["table", "import", file, *flags(options)])
        except (UsageError, RuntimeError) as error:  # users do not know the file
            raise type(error)(str(error).replace(file, "the array" if path is None else str(path))) from None


def _choose(names: list[str], name: str | None, where: str) -> str:
    if name in names:
        return str(name)
    if name is None and len(names) == 1:
        return names[0]
    asked = "give name=, one of" if name is None else f"there is no {name!r}; there are"
    raise UsageError(f"{where}: {asked} {', '.join(sorted(names)[:50])}")


def _weights(source: Any, name: str | None) -> npt.NDArray[Any]:
    """The array of a source in memory, contiguous."""
    import numpy as np

    if isinstance(source, Mapping):
        tensors = {key: value for key, value in source.items() if getattr(value, "ndim", 0) == 2}
        source = tensors[_choose(list(tensors), name, "the dictionary has several matrices")]
    if hasattr(source, "detach"):  # a tensor of PyTorch
        source = source.detach().cpu()
        if str(source.dtype) == "torch.bfloat16":  # NumPy has none
            source = source.float()
        source = source.numpy()
    weights = np.ascontiguousarray(source)
    if weights.ndim != 2 or weights.dtype.kind != "f":
        raise UsageError(
            f"the weights have the shape {list(weights.shape)} and the type {weights.dtype}; give floats [rows, dim]"
        )
    return weights.astype(weights.dtype.newbyteorder("<"), copy=False)


def _read(path: pathlib.Path, name: str | None) -> Any:
    if path.suffix == _SAFETENSORS:
        return _read_safetensors(path, name)
    try:
        import torch
    except ImportError:
        raise UsageError(f"{path} is a file of PyTorch, which is not installed; install torch") from None
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # of many kinds, by format and version
        raise UsageError(f"cannot read {path}: {error}") from None
    # Trainers save the state_dict beside other things.
    if isinstance(loaded, Mapping) and isinstance(loaded.get("state_dict"), Mapping):
        return loaded["state_dict"]
    return loaded


def _read_safetensors(path: pathlib.Path, name: str | None) -> npt.NDArray[Any]:
    """Maps one tensor of the file: 8 bytes of length, a JSON header of that length, and the values."""
    import numpy as np

    types = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > _MOST_HEADER_BYTES:
                raise UsageError(f"{path} is no file of safetensors: its header has {length} bytes")
            header = json.loads(file.read(length))
        matrices = {
            key: one for key, one in header.items() if key != "__metadata__" and len(one["shape"]) == 2
        }
        one = matrices[_choose(list(matrices), name, str(path))]
        begin, end = one["data_offsets"]
        if one["dtype"] == "BF16":
            halves = np.memmap(path, "<u2", "r", 8 + length + begin, tuple(one["shape"]))
            return (halves.astype("<u4") << 16).view("<f4")
        if one["dtype"] not in types:
            raise UsageError(f"{path}: the tensor has the type {one['dtype']}; save it as F32")
        kind = np.dtype(types[one["dtype"]])
        if end - begin != kind.itemsize * one["shape"][0] * one["shape"][1]:
            raise UsageError(f"{path} is damaged: the tensor has {end - begin} bytes, which is not its shape")
        return np.memmap(path, kind, "r", 8 + length + begin, tuple(one["shape"]))
    except UsageError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None


def main(arguments: list[str] | None = None) -> int:
    """``python -m sluice.table``. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m sluice.table", description=__doc__.splitlines()[0])
    parser.add_argument("source", help="the weights: .pt, .pth, .bin, .ckpt, .safetensors, or what the command reads")
    parser.add_argument("--output", required=True, help="the folder of the new model")
    for flag, text in (
        ("like", "the model or checkpoint whose job and other tables the new one has"),
        ("job", "a job file instead, whose other tables begin with their initial values"),
        ("name", "the tensor's name in the file"),
        ("table", "the table; default: that of --feature, or the only sparse one"),
        ("feature", "the feature whose values the rows belong to"),
        ("vocabulary", "a text file, whose line i is the value of row i"),
        ("column", "the column of the table; default: the one of this width"),
    ):
        parser.add_argument(f"--{flag}", help=text)
    parser.add_argument("--overwrite", action="store_true", help="replace a model in the output")
    options = vars(parser.parse_args(arguments))
    try:
        print(import_table(options.pop("source"), options.pop("output"), **options), end="")
    except (UsageError, RuntimeError) as error:
        print(f"sluice: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
