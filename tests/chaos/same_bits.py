"""Trains Adult in sync mode while processes are killed: the model has the bits of a run that nobody disturbed."""
import dataclasses
import io
import json
import random
import time

from counting_oracle import ALLOWED, LAUNCHER, MEMBERS, Case, CountingTest, Figures, kill_launch, launched_job
from kill_harness import KillHarness
from sluice_testing import ADULT, ADULT_TRAIN_EXAMPLES, BIN, processes_naming, wait_until

EPOCHS = 12
SERVERS, WORKERS = 2, 2
MEMBERS_OF = {"scheduler": 1, "pserver": SERVERS, "worker": WORKERS}


@dataclasses.dataclass(frozen=True)
class BitsCase:
    """LAUNCHER: kills `sluice launch`, alone or with its processes, and resumes. MEMBERS: kills single processes, which
    `sluice launch` starts again."""
    seed: int
    broken: str
    kills: int = 3
    victims: tuple = Case.victims
    tls: bool = False
    transport: str = "grpc"


class SameBitsTest(CountingTest):
    whole = None  # result.json of the undisturbed run, once there is one

    def same_bits(self, case):
        """Runs a case, and fails unless the model is the one of an undisturbed run; returns its Figures."""
        if SameBitsTest.whole is None:
            SameBitsTest.whole, _ = self.launch(*self._flags("--set=checkpoint.every_s=0"), name="whole")
        begin = time.monotonic()
        log = io.StringIO()
        run = {LAUNCHER: self._kill_launchers, MEMBERS: self._kill_members}[case.broken]
        with self.showing(log, case):
            name = "bits-%s%s-%s-%d" % (case.broken, "-tls" * case.tls, case.transport, case.seed)
            kills = run(case, name, log)
            result = json.loads((self.tmp / name / "result.json").read_text())
            self.assertEqual(result["status"], "done", result.get("message"))
            for key in ("model_digest", "global_step", "examples", "eval"):
                self.assertEqual(result[key], self.whole[key], key)
            recovery = result["recovery"]
            return Figures(kills=kills, losses=sum(recovery[key] for key in ("worker_losses", "pserver_losses",
                                                                             "scheduler_restarts")),
                           replayed=recovery["examples_replayed"], lost=recovery["updates_lost"],
                           seconds=time.monotonic() - begin)

    def _flags(self, *more):
        return ["--a_sync=false", "--server_num=%d" % SERVERS, "--worker_num=%d" % WORKERS, "--threads=1", "--epochs=%d" % EPOCHS,
                "--set=eval.every_epochs=5", *more]

    def _start(self, case, name):
        """Starts or resumes a job; returns the launcher, and a function that returns its output."""
        return self.start_launch(*self._flags("--set=checkpoint.every_s=0", "--set=checkpoint.every_steps=23", "--resume",
                                              "--transport=%s" % case.transport, *["--tls"] * case.tls), name=name), lambda: (self.tmp / (name + ".out")).read_text()

    def _examples(self, name):
        return launched_job(self, BIN, name).get("examples", 0)

    def _kill_launchers(self, case, name, log):
        draw = random.Random("launcher %d" % case.seed)
        for at in sorted(draw.uniform(0, 0.9 * EPOCHS * ADULT_TRAIN_EXAMPLES) for _ in range(case.kills)):
            launcher, output = self._start(case, name)
            wait_until(lambda: launcher.poll() is not None or self._examples(name) >= at,
                       lambda: "%d examples: %s" % (at, output()), ALLOWED)
            self.assertIsNone(launcher.poll(), output())
            all_at_once = draw.random() < 0.5
            log.write("kill the launcher%s at %d examples\n" % (" and its processes" if all_at_once else "", at))
            kill_launch(self, launcher, all_at_once)
        launcher, output = self._start(case, name)
        self.assertEqual(self.exit_code(launcher, ALLOWED), 0, output())
        return case.kills

    def _kill_members(self, case, name, log):
        launcher, output = self._start(case, name)
        harness = KillHarness({"%s %d" % (role, rank): lambda role=role, rank=rank: self._pid(name, role, rank)
                               for role in case.victims for rank in range(MEMBERS_OF[role])}, case.seed, log)
        total = EPOCHS * ADULT_TRAIN_EXAMPLES
        made = harness.run(harness.plan(case.kills, last=0.9 * total), lambda: self._examples(name),
                           lambda: launcher.poll() is not None)
        self.assertNotEqual(made, [], output())
        self.assertEqual(self.exit_code(launcher, ALLOWED), 0, output())
        return len(made)

    def _pid(self, name, role, rank):
        """The process of a role and rank that runs at the moment, or None."""
        for pid, command in processes_naming(str(self.tmp / (name + ".log"))):
            words = command.split()
            if words[0].endswith("sluice-" + role) and (role == "scheduler" or "--rank=%d" % rank in words):
                return pid
        return None
