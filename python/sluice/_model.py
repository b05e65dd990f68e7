"""Saved models as arrays."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ._errors import UsageError

if TYPE_CHECKING:
    from ._core import ModelReader, Rows

__all__ = ["Column", "Model", "Table", "load_model"]

Floats = npt.NDArray[np.float32]
Keys = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Column:
    """Weights of a table that are updated by one rule: of a dense table all, of a sparse row those of a collection."""

    name: str
    begin: int  # first weight of the row
    dim: int  # 0 in a dense table
    optimizer: str  # an OptimizerConfig in text format


class Table:
    """The rows of a sparse table, by key."""

    def __init__(self, name: str, columns: Sequence[Column], rows: Rows) -> None:
        self.name = name
        self.columns = {column.name: column for column in columns}
        self._rows = rows

    @property
    def dim(self) -> int:
        """Weights of a row."""
        return self._rows.dim

    @property
    def keys(self) -> Keys:
        """``[rows]``, ascending; read-only."""
        return self._rows.keys()

    @property
    def values(self) -> Floats:
        """``[rows, dim]``, in the order of ``keys``; read-only."""
        return self._rows.values()

    def rows(self, keys: npt.ArrayLike, column: str | None = None) -> Floats:
        """The rows of some keys.

        Args:
            keys: ``[n]``, integers; negative ones as their two's complement. ``Model.keys`` makes them from values.
            column: The weights of this column alone.

        Returns:
            ``[n, dim]``. A key that the table lacks has its initial row, as in training and prediction.
        """
        found = self._rows.find(_as_keys(keys))
        return found if column is None else self._part(found, column)

    def contains(self, keys: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether the table has each of the keys, ``[n]``."""
        return self._rows.contains(_as_keys(keys)).astype(np.bool_)

    def __len__(self) -> int:
        return len(self.keys)

    def __contains__(self, key: int) -> bool:
        return bool(self.contains([key])[0])

    def __getitem__(self, key: int) -> Floats:
        """The row of a key that the table has, ``[dim]``."""
        if key not in self:
            raise KeyError(key)
        row: Floats = self.rows([key])[0]
        return row

    def __iter__(self) -> Iterator[int]:
        """The keys, ascending."""
        return (int(key) for key in self.keys)

    def items(self) -> Iterator[tuple[int, Floats]]:
        """Each key and its row, ``[dim]``, read-only."""
        return zip(self, self.values)

    def __repr__(self) -> str:
        return f"<sluice table {self.name!r}: {len(self):,} rows of {self.dim}>"

    def _part(self, rows: Floats, column: str) -> Floats:
        if column not in self.columns:
            raise KeyError(f"table {self.name!r} has no column {column!r}; it has {', '.join(self.columns)}")
        one = self.columns[column]
        return rows[:, one.begin : one.begin + one.dim]


class Model:
    """A saved model, or a checkpoint.

    Tables are read when they are first asked for, and then kept in memory::

        model = sluice.load_model(result.model_dir)
        model.dense["deep/0/weight"]                        # an array of the table's shape
        model.table("embedding").rows([17, 18])              # [2, dim]
        model.rows("occupation", ["Sales", "Tech-support"])  # rows by value

    Attributes:
        job_id: Of the job that has made it.
        step: Global steps until it was saved.
        epochs: Epochs until it was saved.
        digest: SHA-256 of all values; "" for a checkpoint.
        job: The job's effective configuration, in text format.
    """

    def __init__(self, reader: ModelReader) -> None:
        self._reader = reader
        self.job_id = reader.job_id
        self.step = reader.step
        self.epochs = reader.epochs
        self.digest = reader.digest
        self.job = reader.job
        self._columns: dict[str, list[Column]] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}  # of dense tables
        self._tables: dict[str, Table | None] = {}  # sparse ones; None until it is read
        for name, sparse, shape, columns in reader.tables():
            self._columns[name] = [Column(*one) for one in columns]
            if sparse:
                self._tables[name] = None
            else:
                self._shapes[name] = tuple(shape)
        self.dense: Mapping[str, Floats] = _Dense(reader, self._shapes)

    @property
    def tables(self) -> list[str]:
        """Names of the sparse tables."""
        return list(self._tables)

    @property
    def optimizers(self) -> dict[str, list[Column]]:
        """By table, dense or sparse: its columns, each with its optimizer."""
        return dict(self._columns)

    def table(self, name: str) -> Table:
        """A sparse table. KeyError lists those that there are; RuntimeError: its files are damaged."""
        table = self._tables.get(name)
        if table is None:
            table = Table(name, self._columns.get(name, []), self._reader.rows(name))
            self._tables[name] = table
        return table

    def keys(self, feature: str, values: Sequence[Any]) -> Keys:
        """The keys of values of a feature, as training makes them from the cells of a data file.

        Args:
            feature: A categorical or bucketed feature of the job that has rows.
            values: ``[n]``: texts or numbers. A whole number counts as an integer, also as a float: 5.0 is the cell "5".

        Raises:
            KeyError: The model has no rows of such a feature.
            TypeError: A value is neither text nor a number.
            UsageError: A value is malformed, or has no key or several.
        """
        try:
            return self._reader.keys_of(feature, [_cell(feature, value) for value in _listed(feature, values)])
        except ValueError as error:
            raise UsageError(str(error)) from None

    def rows(self, feature: str, values: Sequence[Any], column: str | None = None) -> Floats:
        """The rows of values of a feature, ``[n, dim]``, as ``Table.rows``."""
        return self.table(self._reader.table_of(feature)).rows(self.keys(feature, values), column)

    def __repr__(self) -> str:
        return f"<sluice model of {self.job_id!r}, step {self.step:,}: tables {', '.join(self._columns)}>"


def _listed(feature: str, values: Sequence[Any]) -> Sequence[Any]:
    if isinstance(values, (str, bytes)):
        raise TypeError(f"the values of feature {feature!r} are one {type(values).__name__}; give a list of values")
    return values


def _cell(feature: str, value: Any) -> str:
    """The value as a data file has it."""
    if isinstance(value, str):
        return value
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, (float, np.floating)) and math.isfinite(value):
        return str(int(value)) if float(value).is_integer() else str(value)
    raise TypeError(f"feature {feature!r} has the value {value!r}; give texts or finite numbers")


class _Dense(Mapping[str, Floats]):
    """The dense tables by name, read when they are asked for."""

    def __init__(self, reader: ModelReader, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._reader = reader
        self._shapes = shapes
        self._read: dict[str, Floats] = {}

    def __getitem__(self, name: str) -> Floats:
        if name not in self._shapes:
            raise KeyError(f"there is no dense table {name!r}; there are {', '.join(self._shapes) or 'none'}")
        if name not in self._read:
            self._read[name] = self._reader.dense(name).reshape(self._shapes[name])
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._shapes

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


def load_model(folder: str | os.PathLike[str]) -> Model:
    """Opens the folder of a saved model, such as ``result.model_dir``, or of a checkpoint.

    Raises:
        UsageError: The folder is not a model.
        RuntimeError: It is damaged.
    """
    from . import _core

    try:
        return Model(_core.open_model(os.fspath(folder)))
    except KeyError as error:
        raise UsageError(error.args[0]) from None


def _as_keys(keys: npt.ArrayLike) -> Keys:
    array = np.atleast_1d(np.asarray(keys))
    if array.size == 0:
        return np.zeros(0, np.uint64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(f"keys are a vector of integers, but these are {array.dtype} of shape {array.shape}")
    return np.ascontiguousarray(array.astype(np.uint64))
