"""Loads the extension module."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

__all__ = ["load_core"]


def load_core() -> ModuleType:
    """The module `_core`, which finds its own libraries first.

    Some packages, such as TensorFlow, give all of their symbols to the whole process, among them those of another protobuf.
    Without RTLD_DEEPBIND our libraries would call into these, and crash. A preloaded library, such as an allocator or a
    sanitizer, must replace functions everywhere, so nothing is changed under one.
    """
    before = sys.getdlopenflags()
    if not os.environ.get("LD_PRELOAD"):
        sys.setdlopenflags(before | os.RTLD_DEEPBIND)
    try:
        return importlib.import_module("sluice._core")
    finally:
        sys.setdlopenflags(before)
