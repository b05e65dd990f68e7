"""Embeddings whose rows live on parameter servers, and the batches that bring these rows."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .._optimizer import Optimizer
from .._plain import named
from ._check import refuse_torch_optim

if TYPE_CHECKING:
    from .._core import Turn


class Jagged(NamedTuple):
    """Values of a feature with any number of keys: those of example i are ``values[offsets[i]:offsets[i + 1]]``."""

    values: Tensor  # [keys, dim]
    offsets: Tensor  # [examples + 1], int64


class EmbeddingCollection(nn.Module):
    """Looks up the rows of several features.

    The module has no parameters: a batch brings the rows that its keys need, and takes their gradients back. Features
    that are looked up by the same collections, and those that share an ``embedding`` in the job, share a table.

    Args:
        name: Name of the collection, unique in the model.
        dim: Width of a row.
        features: Names of categorical, bucketed or crossed features of the job, in the order of the output.
        pooled: Adds up, or averages, the rows of an example as the feature's ``pooling`` says.
        optimizer: The rule that updates the rows. Default: the job's ``optimizers.embedding``.
        initializer: As in the job's configuration, e.g. ``{"normal": {"stddev": 0.01}}``. Default: uniform in +-0.05.

    Raises:
        TypeError, ValueError: An argument is of another type, or cannot be; names it. Whether features, rules and
            initializers are those of the job is checked with the job.
    """

    def __init__(
        self,
        name: str,
        dim: int,
        *,
        features: Sequence[str],
        pooled: bool = True,
        optimizer: Optimizer | None = None,
        initializer: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        refuse_torch_optim(optimizer=optimizer)
        _check_collection(name, dim, features, optimizer, initializer)
        self.name = name
        self.dim = dim
        self.features = list(features)
        self.pooled = pooled
        self.optimizer = optimizer
        self.initializer = initializer

    def forward(self, batch: Batch) -> Tensor | dict[str, Jagged]:
        """Looks up the rows of a batch.

        Returns:
            Pooled: ``[examples, features, dim]``; zeros where an example has no key. Else a ``Jagged`` by feature.
        """
        return batch.pooled(self) if self.pooled else batch.unpooled(self)

    def extra_repr(self) -> str:
        return f"{self.name!r}, dim={self.dim}, features={self.features}"


def _check_collection(name: Any, dim: Any, features: Any, optimizer: Any, initializer: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(f"the name of an EmbeddingCollection is {named(name)}; give a text")
    of = f"of the collection {name!r}"
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise TypeError(f"dim= {of} is {dim!r}; give the width of a row, a whole number")
    if dim < 1:
        raise ValueError(f"dim= {of} is {dim}; give at least 1")
    if isinstance(features, str) or not isinstance(features, Sequence):
        raise TypeError(f"features= {of} is {named(features)}; give a list of the features' names")
    for feature in features:
        if not isinstance(feature, str):
            raise TypeError(f"features= {of} has {named(feature)}; give the features' names")
    if not features:
        raise ValueError(f"features= {of} is empty; name at least one feature")
    if optimizer is not None and not isinstance(optimizer, Optimizer):
        raise TypeError(f"optimizer= {of} is {named(optimizer)}; give a sluice.torch.Optimizer")
    if initializer is not None and not isinstance(initializer, Mapping):
        raise TypeError(
            f"initializer= {of} is {named(initializer)}; give a dictionary, such as "
            '{"normal": {"stddev": 0.01}} or {"constant": 0}'
        )


class Place(NamedTuple):
    """Where a collection has the rows of one of its features."""

    table: int
    slot: int
    begin: int  # first column
    mean: bool


def columns_of_numbers(numbers: Sequence[tuple[str, int]]) -> dict[str, int | slice]:
    """Where ``Batch.numbers`` has the numeric features of a job, each with its dim, 0 for one number."""
    columns: dict[str, int | slice] = {}
    first = 0
    for name, dim in numbers:
        columns[name] = slice(first, first + dim) if dim > 0 else first
        first += max(dim, 1)
    return columns


class Batch:
    """Examples, and the rows that they need.

    Attributes:
        label: ``[examples]``, 0 or 1. AttributeError for a batch to which a source of the script gave none.
        weight: ``[examples]``.
        numbers: ``[examples, numbers]``, normalized as the job says.
        epoch: From 0.
        step: Steps of this worker in the epoch before this one.
        first_of_epoch: Whether this is the worker's first batch of its epoch.

    What a source of the script has put into the batch besides features, label and weight is ``batch["name"]`` and, where
    the batch has no attribute of that name, ``batch.name``.
    """

    label: Tensor  # not set where the source gave none
    weight: Tensor  # made when it is read, if each is 1

    def __init__(
        self,
        turn: Turn,
        columns: Mapping[str, int | slice],
        places: dict[str, list[Place]],
        tables: int,
        rest: dict[str, Any] | None = None,
        labelled: bool = True,
    ) -> None:
        self._rest = rest or {}
        self.epoch = turn.epoch
        self.step = turn.step
        self.first_of_epoch = turn.trains and turn.step == 0
        self.examples = turn.examples
        # Copies: the user may keep them, and the memory behind the turn is reused.
        if labelled:
            self.label = torch.from_numpy(turn.label()).clone()
        if not turn.unweighted:
            self.weight = torch.from_numpy(turn.weight()).clone()
        self.numbers = torch.from_numpy(turn.numbers()).clone()
        self._columns_of = columns  # of numbers
        self._places = places
        self._turn: Turn | None = turn
        self._single = turn.single
        # Of the turn's memory. What is taken of it is copied, because a graph may outlive the turn.
        self._matrix = torch.from_numpy(turn.all_rows()) if turn.single else None
        self._leaves = [torch.from_numpy(turn.rows(t)) for t in range(tables)]
        self._gradients = [torch.from_numpy(turn.row_gradients(t)) for t in range(tables)] if turn.trains else []
        for leaf, gradient in zip(self._leaves, self._gradients):
            leaf.requires_grad_()
            # Backward adds to it in place: what it leaves there is pushed.
            leaf.grad = gradient

    def __len__(self) -> int:
        return self.examples

    def __getitem__(self, name: str) -> Any:
        if name not in self._rest:
            raise KeyError(f"the source gave no {name!r}; it gave {sorted(self._rest)} besides features, label and weight")
        return self._rest[name]

    def __getattr__(self, name: str) -> Any:
        # Called only for what is no attribute.
        rest = self.__dict__.get("_rest", {})
        if name == "weight" and "examples" in self.__dict__:
            self.weight = torch.ones(self.examples)
            return self.weight
        if name == "label" and "_rest" in self.__dict__:
            close = difflib.get_close_matches("label", rest, 1)
            meant = f" (did you mean {close[0]!r}?)" if close else ""
            raise AttributeError(
                f"the source gave this batch no 'label'{meant}; besides features and weight it gave "
                f"{sorted(rest) or 'nothing'}; give 'label' as float32 [B]"
            )
        if name not in rest:
            raise AttributeError(f"the batch has no {name!r}")
        return rest[name]

    def number(self, feature: str) -> Tensor:
        """The normalized numbers of a feature, ``[examples]``; of a vector ``[examples, dim]``.

        Raises:
            KeyError: It is no numeric feature of the job.
        """
        if feature not in self._columns_of:
            raise KeyError(f"the job has no numeric feature {feature!r}; it has {sorted(self._columns_of)}")
        return self.numbers[:, self._columns_of[feature]]

    def pooled(self, collection: EmbeddingCollection) -> Tensor:
        places = self._places_of(collection)
        if self._matrix is not None:
            return self._single_keys(collection, places)
        pooled = [self._bag(collection, place) for place in places]
        return torch.stack(pooled, dim=1)

    def unpooled(self, collection: EmbeddingCollection) -> dict[str, Jagged]:
        turn = self._open()
        jagged = {}
        for feature, place in zip(collection.features, self._places_of(collection)):
            index = torch.from_numpy(turn.slot_rows(place.slot)).clone()
            offsets = torch.from_numpy(turn.slot_offsets(place.slot)).clone()
            jagged[feature] = Jagged(F.embedding(index, self._columns(collection, place)), offsets)
        return jagged

    def _single_keys(self, collection: EmbeddingCollection, places: list[Place]) -> Tensor:
        assert self._matrix is not None
        # One gather for each table: most collections have one.
        by_table: dict[int, list[int]] = {}
        for i, place in enumerate(places):
            by_table.setdefault(place.table, []).append(i)
        parts, order = [], []
        for members in by_table.values():
            index = self._matrix[[places[i].slot for i in members]].t()  # a list of rows copies them
            parts.append(F.embedding(index, self._columns(collection, places[members[0]])))
            order += members
        if len(parts) == 1:
            return parts[0]
        return torch.cat(parts, dim=1)[:, torch.tensor(order).argsort()]

    def _bag(self, collection: EmbeddingCollection, place: Place) -> Tensor:
        turn = self._open()
        columns = self._columns(collection, place)
        index = torch.from_numpy(turn.slot_rows(place.slot)).clone()
        if len(index) == 0:
            return columns.new_zeros(self.examples, collection.dim)
        offsets = torch.from_numpy(turn.slot_offsets(place.slot)).clone()
        mode = "mean" if place.mean else "sum"
        return F.embedding_bag(index, columns, offsets, mode=mode, include_last_offset=True)

    def _columns(self, collection: EmbeddingCollection, place: Place) -> Tensor:
        leaf = self._leaves[place.table]
        if leaf.shape[1] == collection.dim:
            return leaf
        return leaf[:, place.begin : place.begin + collection.dim]

    def _places_of(self, collection: EmbeddingCollection) -> list[Place]:
        self._open()
        if collection.name not in self._places:
            raise KeyError(
                f"the collection {collection.name!r} is not part of the model that was given to sluice.torch.worker"
            )
        return self._places[collection.name]

    def _open(self) -> Turn:
        if self._turn is None:
            raise RuntimeError("this batch is over: use it before worker.step()")
        return self._turn

    def _weight_sum(self) -> float:
        return float(self.weight.sum()) if "weight" in self.__dict__ else float(self.examples)

    def _lacks_gradients(self, otherwise: bool) -> bool:
        """Whether backward has given no row a gradient; ``otherwise`` when the batch has no rows.

        A gradient may be zero. But backward adds to it in place, which the tensor's version counts, or puts it elsewhere.
        """
        found = [(leaf.grad, gradient) for leaf, gradient in zip(self._leaves, self._gradients) if leaf.numel() > 0]
        if not found:
            return otherwise
        return all(
            grad is None or (grad.data_ptr() == gradient.data_ptr() and grad._version == 0) for grad, gradient in found
        )

    def _close(self) -> int:
        """Ends the use of the turn's memory. Returns how many gradients backward has put elsewhere."""
        moved = 0
        for leaf, gradient in zip(self._leaves, self._gradients):
            if leaf.grad is None:
                gradient.zero_()  # the user has cleared it
            elif leaf.grad.data_ptr() != gradient.data_ptr():
                gradient.copy_(leaf.grad)
                moved += 1
            leaf.grad = None
        self._turn = self._matrix = None
        self._leaves, self._gradients = [], []
        return moved
