"""Small files that may be on a store (``s3://``)."""

from __future__ import annotations

import pathlib


def is_url(path: str) -> bool:
    """Whether the path leads to a place that is not this machine."""
    return "://" in path


def read_text(path: str) -> str:
    """The text of a file, in UTF-8.

    Raises:
        OSError: It cannot be read; FileNotFoundError when it is not there.
    """
    if not is_url(path):
        return pathlib.Path(path).read_text(encoding="utf-8")
    from . import _core

    try:
        return _core.read_file(path).decode("utf-8")
    except KeyError as error:
        raise FileNotFoundError(error.args[0]) from None
    except (ValueError, RuntimeError) as error:
        raise OSError(str(error)) from None
