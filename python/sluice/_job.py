"""Jobs, as a script makes them."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

from ._errors import UsageError
from ._plain import to_json

__all__ = ["Job"]

# Of files with jobs, which are no texts of jobs themselves.
_SUFFIXES = (".textproto", ".pbtxt", ".prototxt", ".txtpb")


class JobFileError(UsageError, OSError):
    """The file of a job cannot be read. Also an OSError, as that of any file."""


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
        TypeError: ``text`` or ``base_dir`` is of another type, or a field has a value that JSON has not.
        UsageError: A field does not exist, or has a value of another type; or ``text`` is the name of a file.
    """

    def __init__(self, text: str = "", *, base_dir: str | os.PathLike[str] = "", **fields: Any) -> None:
        if not isinstance(text, str):
            more = "sluice.Job.from_file(path) reads a file, and sluice.Job(**fields) takes a dictionary"
            raise TypeError(f"the text of a sluice.Job is {text!r:.60}; give a job in text format; {more}")
        if text.endswith(_SUFFIXES) and "\n" not in text:
            raise UsageError(f"{text!r} is the name of a file; sluice.Job.from_file({text!r}) reads it")
        self.base_dir = _path("base_dir= of a sluice.Job", base_dir)
        self.text = text
        # As long as nothing is changed, the file itself is the job, so that messages name its lines.
        self._file: str | None = None
        self._name = "job"
        if fields:
            self._merge(fields)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **fields: Any) -> Job:
        """Reads a job file. Relative paths in it are resolved against its folder, as with ``sluice launch --job``.

        Raises:
            UsageError: The file cannot be read, which is also an OSError; or as the constructor.
        """
        path = _path("the path of sluice.Job.from_file", path)
        try:
            text = pathlib.Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
            raise JobFileError(f"the job's file {path!r} cannot be read: {why}; give a job file in text format") from None
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
            TypeError: The value is none of these.
            UsageError: There is no such field, or the value does not fit it.
        """
        if not isinstance(path, str):
            raise TypeError(f"the path of sluice.Job.set is {path!r}; give a text, such as \"train.epochs\"")
        text = _value_text(path, value)
        core = _core()
        try:
            self.text = core.set_in_job(self.text, path, text)
        except ValueError as error:
            raise UsageError(str(error)) from None
        self._file = None
        return self

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"sluice.Job({self.text!r}, base_dir={self.base_dir!r})"

    def _merge(self, fields: dict[str, Any]) -> None:
        core = _core()
        try:
            self.text = core.merge_into_job(self.text, to_json(fields, "the job"))
        except ValueError as error:
            raise UsageError(str(error)) from None
        self._file = None

    def _write(self, folder: str) -> str:
        """Gives a file with this job: its own, or a new one in `folder`."""
        if self._file is not None:
            return self._file
        core = _core()
        try:
            text = core.resolve_job(self.text, self.base_dir, self._name)
        except ValueError as error:
            raise UsageError(str(error)) from None
        file = os.path.join(folder, self._name + ".textproto")
        with open(file, "w", encoding="utf-8") as out:
            out.write(text)
        return file


def _path(what: str, value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)) or not isinstance(path := os.fspath(value), str):
        raise TypeError(f"{what} is {value!r:.60}; give a path, as a text or a pathlib.Path")
    return path


def _value_text(path: str, value: Any) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    elif hasattr(value, "tolist"):  # of NumPy and torch
        value = value.tolist()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        # In brackets, because values may have commas.
        return "[" + ", ".join(json.dumps(one) if isinstance(one, str) else _value_text(path, one) for one in value) + "]"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise TypeError(
        f"sluice.Job.set({path!r}, ...) was given {value!r:.60}; give a number, a bool, a text, or a list of these; "
        "sluice.Job(**fields) takes dictionaries"
    )


def _core() -> Any:
    # Here and not at the top: most scripts need it late or not at all.
    from . import _core as module

    return module
