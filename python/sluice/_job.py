"""Jobs, as a script makes them."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

__all__ = ["Job"]


class Job:
    """A job: its data, features, optimizers and strategy, as proto/config.proto describes them.

    Each part can be text in the format of job files, or keyword arguments in protobuf's JSON mapping; these are merged
    into the text, field by field::

        job = sluice.Job.from_file("adult.textproto")
        job = sluice.Job('data { format: CSV ... } train { epochs: 3 }')
        job = sluice.Job(
            data={"format": "CSV", "train_files": ["train.csv"], "label": {"column": "label"}},
            features=[{"name": "age", "numeric": {}}, {"name": "city", "categorical": {}}],
            optimizers={"all": {"adam": {}, "learning_rate": 0.001}},
            train={"epochs": 3},
        )
        job.set("train.batch_size", 512)

    Only a program's job has no ``model``: the program is its model.

    Args:
        text: The job in text format.
        base_dir: The folder against which relative paths of inputs are resolved. Default: the current folder.
        fields: The job in JSON mapping. Enums are their names.

    Raises:
        UsageError: A field does not exist, or has a value of another type.
    """

    def __init__(self, text: str = "", *, base_dir: str | os.PathLike[str] = "", **fields: Any) -> None:
        self.base_dir = os.fspath(base_dir)
        self.text = text
        # As long as nothing is changed, the file itself is the job, so that messages name its lines.
        self._file: str | None = None
        self._name = "job"
        if fields:
            self._merge(fields)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **fields: Any) -> Job:
        """Reads a job file. Relative paths in it are resolved against its folder, as with ``sluice launch --job``."""
        text = pathlib.Path(path).read_text(encoding="utf-8")
        job = cls(text, base_dir=os.path.dirname(os.path.abspath(path)))
        job._file = os.path.abspath(path)
        job._name = pathlib.Path(path).stem
        if fields:
            job._merge(fields)
        return job

    def set(self, path: str, value: Any) -> Job:
        """Sets one field, as ``--set PATH=VALUE`` of the command line does.

        Args:
            path: Such as ``"train.epochs"`` or ``"tables[0].max_rows"``.
            value: A number, a bool, a text, or a sequence of them, which replaces the whole list.

        Returns:
            This job.

        Raises:
            UsageError: There is no such field, or the value does not fit it.
        """
        core = _core()
        try:
            self.text = core.set_in_job(self.text, path, _value_text(value))
        except ValueError as error:
            raise _usage(error) from None
        self._file = None
        return self

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"sluice.Job({self.text!r}, base_dir={self.base_dir!r})"

    def _merge(self, fields: dict[str, Any]) -> None:
        core = _core()
        try:
            self.text = core.merge_into_job(self.text, json.dumps(fields))
        except ValueError as error:
            raise _usage(error) from None
        self._file = None

    def _write(self, folder: str) -> str:
        """Gives a file with this job: its own, or a new one in `folder`."""
        if self._file is not None:
            return self._file
        core = _core()
        try:
            text = core.resolve_job(self.text, self.base_dir, self._name)
        except ValueError as error:
            raise _usage(error) from None
        file = os.path.join(folder, self._name + ".textproto")
        with open(file, "w", encoding="utf-8") as out:
            out.write(text)
        return file


def _value_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        # In brackets, because values may have commas.
        return "[" + ", ".join(json.dumps(one) if isinstance(one, str) else _value_text(one) for one in value) + "]"
    return str(value)


def _usage(error: ValueError) -> ValueError:
    from ._errors import UsageError

    return UsageError(str(error))


def _core() -> Any:
    # Here and not at the top: most scripts need it late or not at all.
    from . import _core as module

    return module
