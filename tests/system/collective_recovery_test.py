"""A worker that keeps dense tables dies at a chosen moment of a step, and the job continues where it is."""
import json
import os
import random
import signal
import unittest

from sluice_testing import SEED, TEST_BIN, SluiceTest, free_port, wait_until

EXAMPLES, BATCH, EPOCHS = 1200, 24, 6
STEPS = EXAMPLES // BATCH  # of an epoch
# %(sparse)s: a feature whose rows the pservers keep.
JOB = """
name: "recovery"
data {
  format: CSV
  train_files: "%(folder)s/train.csv"
  eval_files: "%(folder)s/train.csv"
  csv { header: true }
  label { column: "label" }
}
features { name: "x" numeric {} }
features { name: "y" numeric {} }
%(sparse)s
model { wide_deep { hidden_units: 8 %(dim)s } }
optimizers { all { adam {} learning_rate: 0.01 } }
train { seed: 3 }
"""
FLAGS = ("--a_sync=false", "--epochs=%d" % EPOCHS, "--set=strategy.sync_configs.dense=COLLECTIVE", "--set=train.threads=1",
         "--set=data.shuffle_lanes=12", "--set=checkpoint.every_s=0", "--set=train.log_every=5")


class CollectiveRecoveryTest(SluiceTest):
    def setUp(self):
        super().setUp()
        print("SLUICE_TEST_SEED=%d" % SEED, flush=True)
        self.random = random.Random("%d %s" % (SEED, self.id()))
        values = random.Random(5)
        rows = []
        for i in range(EXAMPLES):
            x, y = values.gauss(0, 1), values.random()
            rows.append((int(values.random() < 1 / (1 + 2.7 ** (y - x))), "%.4f" % x, "%.4f" % y, "v%d" % (i * i % 331)))
        self.write_csv("train.csv", rows, header="label,x,y,c")
        self.whole = {}
        self.scheduler_flags = ()

    def job_file(self, servers):
        path = self.tmp / ("job%d.textproto" % servers)
        path.write_text(JOB % {"folder": self.tmp, "sparse": 'features { name: "c" categorical {} }' if servers else "",
                               "dim": "embedding_dim: 4" if servers else ""})
        return path

    def begin(self, name, workers, servers, spares=1, die_at=None, *flags):
        """Starts a cluster by hand and a job on it. `die_at`: for each rank that dies, the moment (see dying_worker.cc)."""
        self.where = "--scheduler=127.0.0.1:%d" % free_port()
        log_dir = self.tmp / (name + ".log")
        log_dir.mkdir()
        log = "--log_dir=%s" % log_dir
        self.daemons = [self.start("sluice-scheduler", self.where.replace("scheduler", "bind"), "--server_num=%d" % servers,
                                   "--worker_num=%d" % (workers + spares), log, *self.scheduler_flags, log=name + ".scheduler")]
        for rank in range(servers):
            self.daemons.append(self.start("sluice-pserver", "--rank=%d" % rank, "--bind=127.0.0.1:0", self.where, log,
                                           log="%s.pserver%d" % (name, rank)))
        self.workers = []

        def start_workers(slots):
            for slot in slots:
                at = (die_at or {}).get(slot)
                program = TEST_BIN / "dying_worker" if at else "sluice-worker"
                env = dict(os.environ, DIE_AT=at or "", DIE_ONCE=str(self.tmp / ("%s.died%d" % (name, slot))))
                worker = self.start(program, "--rank=%d" % slot, self.where, log, log="%s.worker%d" % (name, slot), env=env)
                self.workers.append(worker)
                self.daemons.append(worker)
        start_workers(range(workers))
        process = self.start("sluice", "submit", self.where, log, "--job=%s" % self.job_file(servers), "--worker_num=%d" % workers,
                             "--batch_size=%d" % (BATCH // workers), "--output_dir=%s" % (self.tmp / name), *FLAGS, *flags,
                             log=name + ".out")
        # The job has its workers once it has its folder. A spare one that comes earlier could be one of them.
        wait_until(lambda: (self.tmp / name).exists() or process.poll() is not None, "the job to start")
        start_workers(range(workers, workers + spares))
        return process

    def end(self, process, name, expect=0):
        code = self.exit_code(process, within=180)
        logs = "\n".join("%s:\n%s" % (path.name, path.read_text()[-3000:]) for path in sorted(self.tmp.glob(name + ".*")) if path.is_file())
        self.assertEqual(code, expect, logs)
        self.run_program("sluice", "down", self.where)
        for daemon in self.daemons:
            self.exit_code(daemon)
        self.logs = logs
        return json.loads((self.tmp / name / "result.json").read_text())

    def undisturbed(self, workers, servers, *flags):
        key = (workers, servers, flags)
        if key not in self.whole:
            name = "whole%d" % len(self.whole)
            self.whole[key] = self.end(self.begin(name, workers, servers, 0, None, *flags), name)
        return self.whole[key]

    def assert_same(self, result, whole, losses):
        self.assertEqual(result["status"], "done")
        recovery = result["recovery"]
        expected = {"worker_losses": losses, "rollbacks": 0, "steps_rolled_back": 0, "examples_replayed": 0, "shrinks": 0}
        self.assertEqual({name: recovery[name] for name in expected}, expected, self.logs)
        self.assertEqual(result["model_digest"], whole["model_digest"], self.logs)
        self.assertEqual([e["examples"] for e in result["epochs_log"]], [EXAMPLES] * EPOCHS)
        self.assertEqual([e["loss"] for e in result["epochs_log"]], [e["loss"] for e in whole["epochs_log"]])
        self.assertEqual(result["eval"], whole["eval"])

    def run_with_deaths(self, name, workers, servers, die_at, *flags, spares=1):
        whole = self.undisturbed(workers, servers, *flags)
        with self.subTest(name, die_at=die_at, seed=SEED):
            result = self.end(self.begin(name, workers, servers, spares, die_at, *flags), name)
            self.assert_same(result, whole, len(die_at))

    def number(self):
        return self.random.randrange(2, STEPS * EPOCHS - 2)

    # ------------------------------------------------------------------------------ WAIT

    def test_with_pservers_each_moment_of_a_step(self):
        for event, rank in (("mean", 0), ("reduced", 1), ("mean", 1), ("reduced", 0)):
            self.run_with_deaths("%s%d" % (event, rank), 2, 2, {rank: "%s:%d" % (event, self.number())})

    def test_with_pservers_between_the_messages_of_a_step(self):
        # A step sends a push and a commit to each of two pservers.
        for i in range(4):
            self.run_with_deaths("send%d" % i, 2, 2, {i % 2: "send:%d" % (4 * self.number() + i)})

    def test_without_pservers_each_moment_of_a_step(self):
        for event, rank in (("mean", 0), ("reduced", 1), ("gather", 0), ("gathered", 0), ("gather", 1), ("gathered", 1)):
            self.run_with_deaths("%s%d" % (event, rank), 2, 0, {rank: "%s:%d" % (event, self.number())})

    def test_without_pservers_the_last_step_of_an_epoch(self):
        # The first two records are those of the first meeting: one before, and one in place of, a step's.
        for i in range(-1, 3):
            self.run_with_deaths("end%d" % i, 3, 0, {2: "gathered:%d" % (2 * STEPS + i)})

    def test_three_workers(self):
        self.run_with_deaths("pservers", 3, 2, {1: "mean:%d" % self.number()})
        self.run_with_deaths("alone", 3, 0, {0: "gathered:%d" % self.number()})

    def test_two_of_three_workers_at_once(self):
        for servers in (0, 2):
            n = self.number()
            self.run_with_deaths("both%d" % servers, 3, servers, {0: "mean:%d" % n, 2: "reduced:%d" % n}, spares=2)

    def test_a_worker_dies_while_the_ranks_meet_again(self):
        # Rank 1 takes part in the broadcasts of the meeting that the death of rank 0 has caused, and dies there.
        for servers in (0, 2):
            self.run_with_deaths("meeting%d" % servers, 3, servers, {0: "mean:%d" % self.number(), 1: "broadcast:2"}, spares=2)

    def test_over_gloo(self):
        gloo = "--set=strategy.sync_configs.engine=GLOO"
        self.run_with_deaths("gloo2", 2, 2, {1: "mean:%d" % self.number()}, gloo)
        self.run_with_deaths("gloo0", 2, 0, {0: "gather:%d" % self.number()}, gloo)

    def test_a_killed_worker_is_replaced_with_merged_batches_bf16_and_several_communicators(self):
        merged = 2  # batches of a step: an epoch has half as many steps as in other tests
        flags = ("--set=strategy.sync_configs.gradient_merge_steps=%d" % merged, "--set=strategy.sync_configs.comm_num=2",
                 "--set=strategy.sync_configs.fuse_layers=1",
                 "--set=tables=[{name: 'deep/0/weight' wire_type: BF16}, {name: 'wide/weight' wire_type: BF16}]")
        for engine in ("SHM", "GLOO"):
            more = (*flags, "--set=strategy.sync_configs.engine=" + engine)
            for servers, event, rank in ((2, "mean", 1), (2, "reduced", 0), (0, "gather", 0)):
                self.run_with_deaths("all.%s%d%s" % (engine, servers, event), 2, servers,
                                     {rank: "%s:%d" % (event, self.number() // merged)}, *more)

    def test_all_workers_at_once_take_the_job_back(self):
        for servers in (0, 2):
            name = "all%d" % servers
            whole = self.undisturbed(2, servers)
            n = 2 * STEPS + 27
            process = self.begin(name, 2, servers, 2, {0: "mean:%d" % n, 1: "mean:%d" % n}, "--set=checkpoint.every_steps=20")
            result = self.end(process, name)
            self.assertEqual(result["model_digest"], whole["model_digest"], self.logs)
            self.assertEqual(result["recovery"]["worker_losses"], 2)
            self.assertGreaterEqual(result["recovery"]["rollbacks"], 1)

    # ------------------------------------------------------------------------------ a group that breaks without a loss

    def test_a_broken_group_takes_the_job_back(self):
        self.scheduler_flags = ("--lease_ms=5000",)  # the ranks wait for word of a loss for some leases
        for servers in (0, 2):
            name = "break%d" % servers
            whole = self.undisturbed(2, servers)
            process = self.begin(name, 2, servers, 0, {1: "break:%d" % (2 * STEPS + 27)}, "--set=checkpoint.every_steps=20")
            result = self.end(process, name)
            self.assertEqual(result["model_digest"], whole["model_digest"], self.logs)
            self.assertEqual((result["recovery"]["worker_losses"], result["recovery"]["rollbacks"]), (0, 1), self.logs)

    def test_a_group_that_stays_broken_fails_the_job(self):
        self.scheduler_flags = ("--lease_ms=5000",)
        result = self.end(self.begin("broken", 2, 0, 0, {1: "broken:7"}), "broken", expect=1)
        self.assertEqual(result["status"], "failed")
        # Which rank reports first is open. Both reports say what is wrong with the group.
        self.assertRegex(result["message"], "the connection to another rank broke|rank 1 has left the group")
        self.assertEqual((result["recovery"]["worker_losses"], result["recovery"]["rollbacks"]), (0, 2), self.logs)

    # ------------------------------------------------------------------------------ SHRINK

    def test_shrink_undoes_and_repeats_nothing(self):
        moments = {2: ("mean", "reduced", "send"), 0: ("mean", "reduced", "gather", "gathered")}
        for servers, events in moments.items():
            for i, event in enumerate(events):
                name, rank = "shrink%d%s" % (servers, event), i % 2
                n = self.number() * (4 if event == "send" else 1) + i
                with self.subTest(name, number=n, seed=SEED):
                    process = self.begin(name, 3, servers, 0, {rank: "%s:%d" % (event, n)},
                                         "--set=strategy.sync_configs.on_worker_loss=SHRINK")
                    result = self.end(process, name)
                    expected = {"worker_losses": 1, "shrinks": 1, "rollbacks": 0, "steps_rolled_back": 0, "examples_replayed": 0}
                    self.assertEqual({name: result["recovery"][name] for name in expected}, expected, self.logs)
                    self.assertEqual(result["status"], "done")
                    self.assertEqual([e["examples"] for e in result["epochs_log"]], [EXAMPLES] * EPOCHS)
                    self.assertEqual(result["global_step"], STEPS * EPOCHS)

    # ------------------------------------------------------------------------------ a worker that only hangs or is slow

    def test_a_worker_that_hangs_is_replaced(self):
        for engine in ("SHM", "GLOO"):
            flags = ("--set=strategy.sync_configs.engine=" + engine,)
            whole, name = self.undisturbed(2, 2, *flags), "hangs." + engine
            with self.subTest(name, seed=SEED):
                process = self.begin(name, 2, 2, 1, {1: "hang:%d" % self.number()}, "--set=train.step_timeout_s=600", *flags)
                self.exit_code(process, within=180)
                os.kill(self.workers[1].pid, signal.SIGKILL)
                self.assert_same(self.end(process, name), whole, 1)

    def test_a_worker_that_is_late_is_waited_for(self):
        # The exchange between workers has the patience of pushes and pulls: train.step_timeout_s + recovery.wait_s.
        for engine in ("SHM", "GLOO"):
            flags = ("--set=strategy.sync_configs.engine=" + engine, "--set=train.step_timeout_s=1")
            whole, name = self.undisturbed(2, 0, *flags), "late." + engine
            with self.subTest(name, seed=SEED):
                process = self.begin(name, 2, 0, 0, {1: "late:%d" % self.number()}, *flags)
                self.assert_same(self.end(process, name), whole, 0)
                self.assertTrue((self.tmp / (name + ".died1")).exists(), "rank 1 was late")


if __name__ == "__main__":
    unittest.main()
