"""The state that a program keeps beside its parameters and buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    from .. import _core

Save = Callable[[], bytes]
Load = Callable[[bytes], object]

MOST_BYTES = 64 << 10


class ProgramState:
    """Asks the program for its state, and gives it back when the job goes on from an earlier step."""

    def __init__(self) -> None:
        self._save: Save | None = None
        self._load: Load | None = None
        self._started = False
        self._first: bytes | None = None  # the state before the first batch of this process

    def set_save(self, function: Save) -> None:
        self._check_not_started("save_state")
        self._save = function

    def set_load(self, function: Load) -> None:
        self._check_not_started("load_state")
        self._load = function

    def start(self, core: _core.Worker) -> None:
        """The loop begins. A second call changes nothing."""
        if self._started:
            return
        self._started = True
        if (self._save is None) != (self._load is None):
            there, lacks = ("load_state", "save_state") if self._save is None else ("save_state", "load_state")
            raise RuntimeError(f"worker.{there}(fn) needs worker.{lacks}(fn): what is saved is loaded again")
        if self._save is not None:
            core.keep_state()

    def begin(self, turn: _core.Turn) -> bool:
        """The job, or another attempt of it, begins with this batch. False: its state is not wanted."""
        restored = turn.restored
        if self._save is None or self._load is None:
            return restored is None
        again = self._first is not None
        if self._first is None:
            self._first = self._bytes()
        if restored is not None:
            self._load(restored)
        elif again:
            self._load(self._first)
        return True

    def answer(self, core: _core.Worker) -> None:
        """Answers a turn that asks for the state."""
        core.answer_state(self._bytes())

    def _bytes(self) -> bytes:
        assert self._save is not None
        state = self._save()
        if not isinstance(state, (bytes, bytearray)):
            raise TypeError(f"worker.save_state: fn gave {type(state).__name__}; it gives bytes, such as pickle.dumps(...)")
        if len(state) > MOST_BYTES:
            raise ValueError(
                f"worker.save_state: fn gave {len(state)} bytes; at most {MOST_BYTES} are allowed. "
                "What is large belongs in parameters or buffers of the module"
            )
        return bytes(state)

    def _check_not_started(self, name: str) -> None:
        if self._started:
            raise RuntimeError(f"worker.{name}(fn) comes before the loop: the first batch was there already")
