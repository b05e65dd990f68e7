"""Trains the counting model while streams break and processes die, and compares its values with counts made here.

A round is a Case. Its seed decides the data, the sizes of the job, when something is broken and what. What is in flight at
such a moment depends on the speed of the machine, too. run.py runs many rounds.
"""
import contextlib
import dataclasses
import io
import json
import random
import signal
import time

from counts import CountedData, Recovery, compare, read_values
from daemons import Daemons, ReplicatedDaemons
from kill_harness import KillHarness
from sluice_testing import PATIENCE, TEST_BIN, TIME_SCALE, SluiceTest, kill_unless_over, processes_naming, wait_until

COUNTING_BIN = TEST_BIN.parent / "counting"  # the programs that know the counting model
MODES = ("sync", "async", "geo")
NOTHING, STREAMS, LAUNCHER, MEMBERS, EVERYTHING = "nothing", "streams", "launcher", "members", "everything"
ROLES = WORKER, PSERVER, SCHEDULER = "worker", "pserver", "scheduler"
STREAM_BYTES = 50000  # on average, before a stream breaks
STREAM_BYTES_OF_COPIES = 500000  # so that a pserver's copies can be completed
ALLOWED = 8 * PATIENCE  # seconds for a job, however often it is disturbed


@dataclasses.dataclass(frozen=True)
class Case:
    """What is broken: NOTHING; STREAMS between workers and pservers; the LAUNCHER with all its processes, and then
    --resume; single MEMBERS, of the roles `victims`, which are started again; or EVERYTHING: streams and members.

    With `replicas` (async and Geo) a kill waits until each pserver has a complete copy. Then no acknowledged update is
    lost, whoever dies; if only pservers die, nothing is trained again either."""
    seed: int
    mode: str
    broken: str
    kills: int = 3
    victims: tuple = ROLES
    k_steps: int = 0  # of Geo; 0: the seed decides
    replicas: bool = False
    tls: bool = False  # mutual TLS; its certificates are replaced while the job trains, unless a launcher made them
    transport: str = "grpc"  # between workers and pservers


@dataclasses.dataclass
class Figures:
    kills: int = 0
    faults: int = 0
    losses: int = 0
    replayed: int = 0
    lost: int = 0
    extra: int = 0
    missing: int = 0
    seconds: float = 0


class Sizes:
    """What the seed decides about the job."""

    def __init__(self, case):
        draw = random.Random("sizes %d %s" % (case.seed, case.mode))
        self.workers, self.pservers = draw.choice((1, 2, 2, 4)), draw.choice((1, 2, 2, 4))
        self.batch = draw.choice((8, 16))
        self.k_steps = draw.randint(1, 9) if case.mode == "geo" else 0
        self.k_steps = case.k_steps or self.k_steps
        self.pipeline_depth = draw.randint(1, 3) if case.mode == "async" else 1
        self.epochs = {NOTHING: 4, STREAMS: 15, EVERYTHING: 10}.get(case.broken, 30)  # a few seconds of training
        if case.replicas:  # a copy needs a second pserver; training is slower
            self.workers, self.pservers, self.epochs = min(2, self.workers), min(3, max(2, self.pservers)), 20

    def frame_examples(self):
        return self.batch * max(1, self.k_steps)

    def exact(self):
        """Every frame has frame_examples. In Geo the frame before a wait for data may have fewer steps."""
        return self.k_steps <= 1

    def flags(self, case):
        flags = ["--worker_num=%d" % self.workers, "--epochs=%d" % self.epochs, "--batch_size=%d" % self.batch,
                 "--set=train.seed=%d" % case.seed]
        if case.mode == "sync":
            flags += ["--a_sync=false", "--set=optimizers.lr_scale=WORKERS"]
        elif case.mode == "async":
            flags += ["--a_sync=true", "--set=train.pipeline_depth=%d" % self.pipeline_depth]
        else:
            flags += ["--a_sync=true", "--k_steps=%d" % self.k_steps, "--set=strategy.a_sync_configs.geo_merge=SUM"]
        if case.broken in (LAUNCHER, MEMBERS, EVERYTHING) and case.mode == "sync":
            flags += ["--set=checkpoint.every_s=0", "--set=checkpoint.every_steps=50"]
        elif case.broken in (LAUNCHER, MEMBERS, EVERYTHING):
            flags += ["--set=checkpoint.every_s=0.3"]
        return flags + ["--set=recovery.replicas=1"] * case.replicas


class CountingTest(SluiceTest):
    def count(self, case):
        """Runs a case, and fails unless the counts are right; returns its Figures."""
        begin = time.monotonic()
        sizes, data, log = Sizes(case), CountedData(case.seed), io.StringIO()
        name = "%s-%s%s%s-%s-%d" % (case.mode, case.broken, "-replicas" * case.replicas, "-tls" * case.tls, case.transport,
                                    case.seed)
        folder = self.tmp / name
        folder.mkdir()
        equal_updates = PSERVER in case.victims and case.broken in (MEMBERS, EVERYTHING) and case.mode != "sync"
        flags = ["--job=%s" % data.write(folder, equal_updates), "--output_dir=%s" % (folder / "out"),
                 *sizes.flags(case)]
        train = self._train_and_kill_the_launcher if case.broken == LAUNCHER else self._train_on_daemons
        with self.showing(log, case, vars(sizes)):
            figures = train(case, sizes, name, flags, log)
            result = self._result(name)
            self.assertEqual(result["status"], "done", result.get("message"))
            recovery = Recovery.of(result, sizes.frame_examples(), exact=equal_updates and sizes.exact(),
                                   resumed=figures.kills if case.broken == LAUNCHER else 0)
            found = compare(data, read_values(TEST_BIN / "model_values", folder / "out" / "model"), sizes.epochs, case.mode,
                            recovery)
            self.assertEqual(found.problems, [], result["recovery"])
            if case.broken in (NOTHING, STREAMS):
                self.assertEqual((recovery.losses, recovery.examples_replayed, recovery.updates_lost), (0, 0, 0))
            only_pservers = case.broken == MEMBERS and case.victims == (PSERVER,)
            if case.mode != "sync" and only_pservers:
                # Nothing is trained again: only the shards of the lost pserver go back.
                self.assertEqual((result["recovery"]["rollbacks"], recovery.examples_replayed), (0, 0))
            if case.replicas:
                self.assertEqual((recovery.updates_lost, found.missing), (0, 0), result["recovery"])
            if case.replicas and only_pservers:
                self.assertEqual(found.extra, 0, result["recovery"])
            if case.mode == "sync" or recovery.losses == 0 or only_pservers:
                self.assertEqual(result["examples"], sizes.epochs * len(data.rows))
            return dataclasses.replace(figures, losses=recovery.losses, replayed=recovery.examples_replayed,
                                       lost=recovery.updates_lost, extra=found.extra, missing=found.missing,
                                       seconds=time.monotonic() - begin)

    @contextlib.contextmanager
    def showing(self, log, *what):
        """If the block fails, prints what it was, and what was broken when."""
        try:
            yield
        except AssertionError as error:
            raise AssertionError("\n".join([*map(str, what), log.getvalue(), str(error)])) from None

    def _result(self, name):
        return json.loads((self.tmp / name / "out" / "result.json").read_text())

    def _train_on_daemons(self, case, sizes, name, flags, log):
        streams = case.broken in (STREAMS, EVERYTHING)
        kind = ReplicatedDaemons if case.replicas else Daemons
        daemons = kind(self, COUNTING_BIN, name, sizes.pservers, sizes.workers, case.seed, log,
                       stream_bytes=streams and (STREAM_BYTES_OF_COPIES if case.replicas else STREAM_BYTES),
                       tls=case.tls, transport=case.transport)
        daemons.submit(*flags)
        if case.broken == STREAMS:
            third = sizes.epochs * CountedData.FILES * CountedData.LINES / 3
            wait_until(lambda: daemons.has_ended() or daemons.examples() >= third, "a third of the examples", ALLOWED)
            daemons.drop_streams()
        made = []
        if case.broken in (MEMBERS, EVERYTHING):
            harness = KillHarness(daemons.victims(case.victims), case.seed, log)
            total = sizes.epochs * CountedData.FILES * CountedData.LINES
            made = harness.run(harness.plan(case.kills, last=0.9 * total), daemons.examples, daemons.has_ended)
            self.assertNotEqual(made, [], "the job was over before a kill")
        wait_until(daemons.has_ended, lambda: "the end of the job: %s" % daemons.job(), ALLOWED)
        daemons.stop()
        if streams:
            self.assertGreater(daemons.faults() if case.transport == "grpc" else daemons.cuts(), 0)
        return Figures(kills=len(made), faults=daemons.faults())

    def _train_and_kill_the_launcher(self, case, sizes, name, flags, log):
        """Kills the launcher or all processes at once, and resumes, `kills` times. Then the job runs to its end."""
        draw = random.Random("launcher %d" % case.seed)
        total = sizes.epochs * CountedData.FILES * CountedData.LINES
        command = [COUNTING_BIN / "sluice", "launch", *flags, "--server_num=%d" % sizes.pservers, "--resume",
                   "--transport=%s" % case.transport,
                   "--log_dir=%s" % (self.tmp / (name + ".log")), *["--tls"] * case.tls]
        kills = 0
        for at in sorted(draw.uniform(0, 0.9 * total) for _ in range(case.kills)):
            launcher = self.start(*command, log="%s.%d.out" % (name, kills))
            wait_until(lambda: launcher.poll() is not None or self._examples(name) >= at,
                       lambda: "%d examples: %s" % (at, (self.tmp / ("%s.%d.out" % (name, kills))).read_text()), ALLOWED)
            self.assertIsNone(launcher.poll(), (self.tmp / ("%s.%d.out" % (name, kills))).read_text())
            all_at_once = draw.random() < 0.5
            log.write("kill the launcher%s at %d examples\n" % (" and its processes" if all_at_once else "", at))
            kill_launch(self, launcher, all_at_once)
            kills += 1
        done = self.run_program(*command, timeout=ALLOWED)
        self.assertEqual(done.returncode, 0, done.stdout)
        return Figures(kills=kills)

    def _examples(self, name):
        return launched_job(self, COUNTING_BIN, name).get("examples", 0)


def launched_job(test, programs, name):
    """{"examples": ..., "global_step": ...} of the job of the launch whose logs are in tmp/<name>.log; {} if unknown."""
    log_dir = test.tmp / (name + ".log")
    status = test.scheduler_status(log_dir)
    scheduler = next((e for e in test.endpoints(name) if e.role == "scheduler"), None)
    if not status and scheduler:
        done = test.run_program(programs / "sluice", "status", "--json", "--scheduler=%s" % scheduler.address, "--log_dir=%s" % log_dir)
        status = json.loads(done.stdout) if done.returncode == 0 else None
    jobs = status["jobs"] if status else []
    return {key: int(jobs[0][key]) for key in ("examples", "global_step")} if jobs else {}


def kill_launch(test, launcher, all_at_once):
    """Kills a launcher, and with `all_at_once` the processes that it has started; otherwise they end by themselves."""
    launcher.send_signal(signal.SIGKILL)
    for pid, _ in processes_naming(str(test.tmp)) if all_at_once else ():
        kill_unless_over(pid)
    launcher.wait(PATIENCE * TIME_SCALE)
    test.await_none_left()
