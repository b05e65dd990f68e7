"""Saved models of programs: back into their modules, without a cluster, and into plain files of PyTorch."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Sequence, cast

import numpy as np
import torch
from torch import Tensor, nn

from .._errors import UsageError
from ._declare import Declaration, declare
from ._embedding import Batch, EmbeddingCollection, Place, columns_of_numbers
from ._source import Columns, Converter, Padding, is_columns

if TYPE_CHECKING:
    from .. import _core

Folder = str | os.PathLike[str]


class Saved:
    """The rows of a saved model, and the batches that bring them to its module. Made by ``load``.

    Rows are copied into the batches, so a loaded model is not trained further here; a job goes on from it with
    ``initial_model``.

    Attributes:
        job_id: Of the job that has made the model.
        step: Global steps until it was saved.
        epochs: Epochs until it was saved.
        digest: SHA-256 of all values; "" for a checkpoint.
        job: The job's effective configuration, in text format.
    """

    def __init__(self, reader: _core.ModelReader, source: _core.ExampleSource) -> None:
        self.job_id = reader.job_id
        self.step = reader.step
        self.epochs = reader.epochs
        self.digest = reader.digest
        self.job = reader.job
        self._source = source
        self._tables = [reader.rows(name) for name in source.tables()]
        self._numbers = source.numbers()
        self._columns = columns_of_numbers(self._numbers)
        self._places = {name: [Place(*one) for one in places] for name, places in source.lookups()}

    def batch(self, columns: Mapping[str, Any], *, padding: Padding = None) -> Batch:
        """Makes a batch of values in memory.

        Args:
            columns: By column of the job's data: ``[examples]``, texts or numbers as cells of a data file (several
                values of one feature in one text, with the feature's delimiter); None, NaN and "" are missing values.
                Of a numeric feature with ``dim`` an array ``[examples, dim]``, or a list with a list for each example.
                Label and weight may be left out: labels are then 0, weights 1.

                For a job with ``source=`` also a batch as the source gives it: arrays and tensors ``[B]``, ``[B, L]`` with
                ``padding``, ``(values, offsets)``, or a list with a list of values for each example. What the job
                does not know is handed through as ``batch["name"]``.
            padding: As in ``sluice.torch.worker``.

        Raises:
            UsageError: A column that a feature needs is not there, or a value is malformed. Names column and example.
            TypeError: A column is of another type.
        """
        if self._source.own_data and any(map(_is_given, columns.values())):
            return self._given(columns, padding)
        if padding is not None:
            raise UsageError("padding= is of arrays [B, L] of a job with source=; here there are none")
        vectors = set(self._source.vector_columns())
        cells = [
            (name, [_cell(value, name in vectors) for value in _values(name, column)]) for name, column in columns.items()
        ]
        try:
            return self._batch(self._source.from_columns(cells))
        except ValueError as error:
            raise UsageError(str(error)) from None

    def _given(self, columns: Mapping[str, Any], padding: Padding) -> Batch:
        slots = self._source.features()
        numbers = {*dict(self._numbers), "label", "weight"}
        arrays = {
            name: _lists(name, column) if name in slots else _floats(name, column) if name in numbers else column
            for name, column in columns.items()
        }
        try:
            given = Converter(self._numbers, slots, padding).convert(arrays)
            examples = self._source.from_given(given.examples, given.label, given.weight, given.numbers, given.values)
        except ValueError as error:
            raise UsageError(str(error)) from None
        return self._batch(examples, given.rest)

    def batches(self, files: Folder | Sequence[Folder] | Columns, *, batch_size: int = 1024) -> Iterator[Batch]:
        """Reads files in the format of the job's data, in their order.

        Args:
            files: Files or globs; or a table, any object with ``__arrow_c_stream__``, whose columns are read as those of a
                Parquet file. They may lack the label; it is then 0.
            batch_size: Examples of a batch; the last one has fewer.

        Raises:
            UsageError: A pattern matches no file, a file or table lacks a column, or a row of a table cannot be used.
            RuntimeError: More lines are malformed than the job allows (``data.max_bad_lines``). Fewer are left out.
        """
        reading: _core.ExampleFiles | _core.ExampleTable
        try:
            if is_columns(files):
                reading = self._source.read_table(files.__arrow_c_stream__(), batch_size)
            else:
                names = [files] if isinstance(files, (str, os.PathLike)) else cast("Sequence[Folder]", files)
                reading = self._source.read([os.fspath(file) for file in names], batch_size)
            while (examples := reading.next()) is not None:
                yield self._batch(examples)
        except ValueError as error:
            raise UsageError(str(error)) from None

    def _batch(self, examples: _core.Examples, rest: dict[str, Any] | None = None) -> Batch:
        # A batch that does not train asks for no more of its turn than _SavedTurn has.
        turn = cast("_core.Turn", _SavedTurn(examples, self._tables))
        return Batch(turn, self._columns, self._places, len(self._tables), rest)

    def __repr__(self) -> str:
        return f"<sluice model of {self.job_id!r}, step {self.step:,}>"


class _SavedTurn:
    """A batch with rows of a saved model, in the place of a worker's turn. It is never over."""

    trains = False
    epoch = 0
    step = 0

    def __init__(self, examples: _core.Examples, tables: Sequence[_core.Rows]) -> None:
        self.examples = examples.examples
        self.single = examples.single
        self.label = examples.label
        self.weight = examples.weight
        self.unweighted = False
        self.numbers = examples.numbers
        self.all_rows = examples.all_rows
        self.slot_rows = examples.slot_rows
        self.slot_offsets = examples.slot_offsets
        self._keys = examples.keys
        self._tables = tables

    def rows(self, table: int) -> Any:
        return self._tables[table].find(self._keys(table))


def load(model: nn.Module, folder: Folder, *, core: Any = None) -> Saved:
    """Fills a module with a saved model, or a checkpoint, of a program.

    ::

        saved = sluice.torch.load(model, result.model_dir)
        model.eval()
        with torch.no_grad():
            for batch in saved.batches("test.csv"):
                logits = model(batch)

    Args:
        model: The module of the script that has trained the model, with any values. Its parameters, also frozen ones, and
            floating-point buffers get the saved values. What is no table of the job keeps its own: integer buffers, frozen
            parameters of a type that float32 does not hold or with a NaN or an infinite value, and those that the model
            lacks, because an earlier build has saved it (a line says so).
        folder: Such as ``OUTPUT_DIR/model``. It is not needed afterwards.

    Raises:
        UsageError: The folder is no model, or one of another module; names the first difference.
        RuntimeError: The model is damaged.
    """
    core = core if core is not None else _load_core()
    where = os.fspath(folder)
    try:
        reader: _core.ModelReader = core.open_model(where)
    except KeyError as error:
        raise UsageError(error.args[0]) from None
    try:
        source: _core.ExampleSource = core.ExampleSource(reader.job)
    except ValueError as error:
        raise UsageError(f"model {where}: {error}; sluice.load_model reads its values") from None
    declared = _without_new_frozen(declare(model), source)
    _check(declared, source, where)
    saved = Saved(reader, source)
    fill(declared, reader)
    return saved


def fill(declared: Declaration, reader: _core.ModelReader) -> None:
    """Gives a module the values of the dense tables of a saved model of its program. An error leaves it as it was."""
    values = [torch.from_numpy(np.asarray(reader.dense(name))) for name, _ in declared.tensors()]
    with torch.no_grad():
        for (_, tensor), value in zip(declared.tensors(), values):
            tensor.copy_(value.view(tensor.shape))


def export(model: nn.Module, folder: Folder, out: Folder, *, core: Any = None) -> None:
    """Writes a saved model as one file that ``torch.load(OUT, weights_only=True)`` reads where there is no sluice.

    The file is a dict of tensors, numbers and texts:

    - ``state``: what ``model.load_state_dict`` takes.
    - ``collections``: by collection ``{"dim": D, "pooled": bool, "features": {feature: table}}``.
    - ``tables``: by table ``{"keys": int64 [rows], "values": float32 [rows, W], "columns": {collection: first column}}``.
      Keys ascend as unsigned numbers. That of a feature with ``key: RAW`` is its value, and the others are hashes of
      values; ``sluice.load_model(folder).keys(feature, values)`` computes them.
    - ``job_id``, ``step``, ``epochs``, ``digest``, and ``job``: the job's configuration in text format.

    Args:
        model: The module of the script that has trained the model. It has the saved values afterwards, as by ``load``.
        folder: Such as ``OUTPUT_DIR/model``.
        out: The file. It is replaced, once it is complete.

    Raises:
        UsageError, RuntimeError: As ``load``.
    """
    core = core if core is not None else _load_core()
    saved = load(model, folder, core=core)
    table_names = saved._source.tables()
    collections: dict[str, Any] = {}
    columns: dict[str, dict[str, int]] = {name: {} for name in table_names}
    for collection in (module for module in model.modules() if isinstance(module, EmbeddingCollection)):
        features: dict[str, str] = {}
        for feature, place in zip(collection.features, saved._places[collection.name]):
            features[feature] = table_names[place.table]
            columns[table_names[place.table]][collection.name] = place.begin
        collections[collection.name] = {"dim": collection.dim, "pooled": collection.pooled, "features": features}
    tables = {
        name: {
            "keys": torch.from_numpy(np.array(rows.keys()).view(np.int64)),
            "values": torch.from_numpy(np.array(rows.values())),
            "columns": columns[name],
        }
        for name, rows in zip(table_names, saved._tables)
    }
    content = {
        "state": state_dict(model),
        "collections": collections,
        "tables": tables,
        "job_id": saved.job_id,
        "step": saved.step,
        "epochs": saved.epochs,
        "digest": saved.digest,
        "job": saved.job,
    }
    unfinished = f"{os.fspath(out)}.{os.getpid()}.unfinished"
    try:
        torch.save(content, unfinished)
        os.replace(unfinished, out)
    finally:
        if os.path.exists(unfinished):
            os.remove(unfinished)


def state_dict(model: nn.Module) -> dict[str, Tensor | float | str]:
    """Copies of a module's parameters and buffers by name, for ``model.load_state_dict``.

    Raises:
        TypeError: The module keeps something else there (``get_extra_state``), which ``torch.load`` would refuse with
            ``weights_only=True``.
    """
    state: dict[str, Tensor | float | str] = {}
    for name, value in model.state_dict().items():
        if isinstance(value, Tensor):
            state[name] = value.detach().clone()
        elif isinstance(value, (int, float, str)):
            state[name] = value
        else:
            raise TypeError(f"{name!r} of the module's state is a {type(value).__name__}; give tensors, numbers or texts")
    return state


def _without_new_frozen(declared: Declaration, source: _core.ExampleSource) -> Declaration:
    """The declaration without frozen parameters that the model lacks: of earlier builds, models had none."""
    there = {name for name, _ in source.parameters()}
    lacking = [name for name, _ in declared.frozen if name not in there]
    if lacking:
        shown = ", ".join(map(repr, lacking[:3])) + (", ..." if len(lacking) > 3 else "")
        print(f"sluice: the model has no values of frozen parameters, which keep the module's own: {shown}", file=sys.stderr)
    return replace(declared, frozen=[one for one in declared.frozen if one[0] in there])


def _check(declared: Declaration, source: _core.ExampleSource, where: str) -> None:
    """Raises the first difference between a module and a saved model."""

    def differ(what: str) -> UsageError:
        return UsageError(f"the module is not the one of model {where}: {what}")

    wanted = {name: tuple(tensor.shape) or (1,) for name, tensor in declared.tensors()}
    there = {name: tuple(shape) for name, shape in source.parameters()}
    for name, shape in wanted.items():
        if name not in there:
            raise differ(f"it has {name!r}, and the model has not")
        if there[name] != shape:
            raise differ(f"{name!r} is {list(shape)}, in the model {list(there[name])}")
    for name in there:
        if name not in wanted:
            raise differ(f"it lacks {name!r}")
    collections = {name: (dim, features) for name, dim, features in source.collections()}
    for collection in declared.collections:
        if collection.name not in collections:
            raise differ(f"it has a collection {collection.name!r}, and the model has not")
        dim, features = collections.pop(collection.name)
        if dim != collection.dim:
            raise differ(f"the collection {collection.name!r} has dim {collection.dim}, in the model {dim}")
        if features != collection.features:
            raise differ(f"the collection {collection.name!r} has features {collection.features}, in the model {features}")
    if collections:
        raise differ(f"it lacks the collection {next(iter(collections))!r}")


def _is_given(column: Any) -> bool:
    """Whether a column is as a source gives it, not a list of cells."""
    if isinstance(column, (Tensor, np.ndarray, tuple)):
        return True
    return isinstance(column, list) and any(isinstance(one, (list, tuple)) for one in column)


def _lists(name: str, column: Any) -> Any:
    """A list, of which each example has one value, several or none, as (values, offsets)."""
    if not isinstance(column, list):
        return column
    keys = [[] if one is None else list(one) if isinstance(one, (list, tuple)) else [one] for one in column]
    for example in keys:
        for value in example:
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
                raise TypeError(
                    f"column {name!r} has the value {value!r}; features of a job with source= are integers here; "
                    "give texts in a table of Arrow to batches()"
                )
    offsets = np.cumsum([0] + [len(example) for example in keys], dtype=np.int64)
    return np.array([value for example in keys for value in example], np.int64), offsets


def _floats(name: str, column: Any) -> Any:
    if not isinstance(column, list):
        return column
    try:
        return np.array(column, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"column {name!r} is no list of numbers, one for each example") from None


def _values(name: str, column: Any) -> Sequence[Any]:
    # Arrays and tensors, whose elements would be no numbers of Python.
    if hasattr(column, "tolist"):
        column = column.tolist()
    if isinstance(column, (str, bytes)) or not isinstance(column, Sequence):
        raise TypeError(f"column {name!r} is a {type(column).__name__}; give a list with the value of each example")
    return column


def _cell(value: Any, vector: bool = False) -> str | None:
    """A value as it stands in a data file; the numbers of a vector as a list."""
    if vector and isinstance(value, (list, tuple)):
        return f"[{', '.join(_cell(number) or '' for number in value)}]"
    if isinstance(value, (list, tuple, dict, set)):
        raise TypeError(
            f"{value!r} is no cell: several values of one example are one text, with the feature's multi_value_delimiter"
        )
    if value is None or value != value:
        return None
    return str(int(value)) if isinstance(value, bool) else str(value)


def _load_core() -> Any:
    # Here and not at the top, as in _worker.py.
    from .. import _core

    return _core
