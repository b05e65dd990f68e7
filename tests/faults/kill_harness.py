"""Kills and pauses processes of a test at seeded random moments, by a plan that is printed and can be replayed.

    harness = KillHarness({"pserver 0": lambda: pids.get("pserver 0")}, seed=3)
    plan = harness.plan(count=5, last=10.0, actions=(KILL, PAUSE), longest_pause_s=2)
    harness.run(plan, ended=lambda: job_is_done())

The plan depends on the seed, the names and the arguments of plan() only. It is a list of Strike, so that a test can also
write its own. Only processes that the getters name are touched.
"""
import dataclasses
import os
import select
import signal
import time

from fault_log import FaultLog

KILL, PAUSE = "kill", "pause"  # SIGKILL; SIGSTOP and later SIGCONT
TICK_S = 0.01


@dataclasses.dataclass(frozen=True)
class Strike:
    """`at`: seconds since run(), or the progress at which it comes where run() is given `progress`."""
    at: float
    victim: str
    action: str
    pause_s: float = 0

    def __str__(self):
        pause = " for %.3f s" % self.pause_s if self.action == PAUSE else ""
        return "at %.3f %s %s%s" % (self.at, self.action, self.victim, pause)


class KillHarness:
    """Thread safety: one thread; run() may be called on another than plan()."""

    def __init__(self, processes, seed=None, out=None):
        """`processes`: {name: function that returns the pid at the moment, or None while there is no such process}."""
        self._processes = dict(processes)
        self.log = FaultLog("kill_harness", seed, out)
        self._plans = 0
        self._paused = []  # [when to continue, name, descriptor of the process]

    def plan(self, count, last, first=0.0, victims=None, actions=(KILL,), longest_pause_s=1.0):
        """`count` strikes between `first` and `last` (seconds or progress), in order."""
        draw = self.log.random("plan", self._plans)
        self._plans += 1
        names = sorted(victims if victims is not None else self._processes)
        unknown = set(names) - set(self._processes)
        if unknown or not names:
            raise ValueError("no such processes: %s" % sorted(unknown))
        strikes = []
        for at in sorted(draw.uniform(first, last) for _ in range(count)):
            victim, action = draw.choice(names), draw.choice(list(actions))
            strikes.append(Strike(at, victim, action, draw.uniform(0, longest_pause_s) if action == PAUSE else 0))
        for strike in strikes:
            self.log.note("plan: %s" % strike)
        return strikes

    def run(self, strikes, progress=None, ended=lambda: False, wait_for_victim_s=10.0):
        """Executes a plan; returns the strikes that were made, and continues all paused processes before.

        A victim that does not run, e.g. because it is being restarted, is waited for, and after `wait_for_victim_s`
        left out. Stops early when `ended` is true.
        """
        begin = time.monotonic()
        now = progress or (lambda: time.monotonic() - begin)
        made = []
        try:
            for strike in sorted(strikes, key=lambda one: one.at):
                if not self._wait(lambda: now() >= strike.at, ended):
                    break
                given_up_at = time.monotonic() + wait_for_victim_s
                found = []

                def victim_runs():
                    found[:] = [self._open(strike.victim)]
                    return found[0] is not None or time.monotonic() >= given_up_at
                if not self._wait(victim_runs, ended):
                    break
                if found[0] is None:
                    self.log.note("left out, the victim does not run: %s" % strike)
                    continue
                self._strike(strike, *found[0])
                made.append(strike)
            self._wait(lambda: not self._paused, ended)
        finally:
            for _, name, process in self._paused:
                self._continue(name, process)
            self._paused = []
        return made

    def _wait(self, condition, ended):
        """Waits for the condition, continuing paused processes in time. False when `ended` came first."""
        while True:
            for pause in [one for one in self._paused if time.monotonic() >= one[0]]:
                self._continue(pause[1], pause[2])
                self._paused.remove(pause)
            if ended():
                return False
            if condition():
                return True
            time.sleep(TICK_S)

    def _open(self, name):
        """(pid, descriptor) of a process; None when it does not run."""
        pid = self._processes[name]()
        if pid is None:
            return None
        if pid <= 1 or pid == os.getpid():
            raise ValueError("%s: pid %d is none to kill" % (name, pid))
        try:
            process = os.pidfd_open(pid)  # a signal to it cannot reach another process that gets the same pid
        except ProcessLookupError:
            return None
        poll = select.poll()
        poll.register(process, select.POLLIN)
        if poll.poll(0):  # it has ended, and its parent has not waited for it
            os.close(process)
            return None
        return pid, process

    def _strike(self, strike, pid, process):
        sent = self._signal(process, signal.SIGKILL if strike.action == KILL else signal.SIGSTOP)
        self.log.note("%s (pid %d)%s" % (strike, pid, "" if sent else ": it had ended"))
        if sent and strike.action == PAUSE:
            self._paused.append([time.monotonic() + strike.pause_s, strike.victim, process])
        else:
            os.close(process)

    def _continue(self, name, process):
        sent = self._signal(process, signal.SIGCONT)
        os.close(process)
        self.log.note("continue %s%s" % (name, "" if sent else ": it had ended"))

    @staticmethod
    def _signal(process, number):
        try:
            signal.pidfd_send_signal(process, number)
            return True
        except ProcessLookupError:
            return False
