"""The seed of a fault tool and the log of what it breaks, so that a run can be replayed."""
import os
import random
import sys
import threading
import time


class FaultLog:
    """Prints each note with the seconds since the start, and keeps it in `notes`.

    Thread safety: safe from any thread.
    """

    def __init__(self, tool, seed=None, out=None):
        """`seed`: default SLUICE_FAULT_SEED, and a random one where that is not set. `out`: default stderr."""
        if seed is None:
            seed = int(os.environ.get("SLUICE_FAULT_SEED") or random.SystemRandom().randrange(2**32))
        self.seed = seed
        self.notes = []
        self._tool = tool
        self._out = out or sys.stderr
        self._begin = time.monotonic()
        self._lock = threading.Lock()
        self.note("seed %d; replay with SLUICE_FAULT_SEED=%d" % (seed, seed))

    def random(self, *names):
        """A generator that depends on the seed and on the names only, not on what others draw."""
        return random.Random("/".join(map(str, (self.seed, *names))))

    def seconds(self):
        return time.monotonic() - self._begin

    def note(self, text):
        with self._lock:
            self.notes.append(text)
            print("%9.3f %s: %s" % (self.seconds(), self._tool, text), file=self._out, flush=True)
