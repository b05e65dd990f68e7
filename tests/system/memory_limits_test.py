"""Tables that reach a limit of rows or of memory: the job fails and says why, and the pservers serve the next one.

And a flood that Debian's gRPC does not bound: the limit of a pserver's memory ends it, and its job goes on.
"""
import json
import os
import pathlib
import resource
import unittest

from http2_client import END_HEADERS, HEADERS, RST_STREAM, Connection, frame, grpc_headers
from sluice_testing import ADULT_TRAIN_EXAMPLES, PATIENCE, TIME_SCALE, DisturbedLaunchTest, SluiceTest, wait_until

LINES = 3000
KEYS = 2 * LINES  # two features, whose values are all different


class MemoryGroup:
    """A control group whose memory is limited, for one process. Raises OSError where none can be made."""

    def __init__(self, name, limit):
        v1 = pathlib.Path("/sys/fs/cgroup/memory")
        self._top = v1 if v1.is_dir() else pathlib.Path("/sys/fs/cgroup")
        self._limit = "memory.limit_in_bytes" if v1.is_dir() else "memory.max"
        self._group = self._top / name
        self._group.mkdir()
        try:
            self.set_limit(limit)
            if (self._group / "memory.swap.max").exists():
                (self._group / "memory.swap.max").write_text("0")
        except OSError:
            self._group.rmdir()
            raise

    def set_limit(self, limit):
        # Opened without O_CREAT: the file exists only where the controller is on.
        with open(self._group / self._limit, "r+") as file:
            file.write(str(limit))

    def add(self, pid):
        (self._group / "cgroup.procs").write_text(str(pid))

    def remove(self):
        for pid in (self._group / "cgroup.procs").read_text().split():
            (self._top / "cgroup.procs").write_text(pid)
        self._group.rmdir()


def memory_group(test, limit):
    """A MemoryGroup for the time of the test, which is skipped where none can be made."""
    try:
        group = MemoryGroup("sluice-memory-limits-%d" % os.getpid(), limit)
    except OSError as why:
        test.skipTest("no control group with a limit of memory can be made here: %s" % why)
    test.addCleanup(group.remove)
    return group


class MemoryLimitsTest(SluiceTest):
    def setUp(self):
        super().setUp()
        self.write_csv("train.csv", [(i % 2, i % 3, "a%d" % i, "b%d" % i) for i in range(LINES)], header="label,x,c,d")
        self.job = self.small_job(train="train.csv", extra='features { name: "d" categorical {} }')

    def submit(self, log_dir, name, *flags, expect=0):
        out = self.sluice("submit", log_dir, "--job=%s" % self.job, "--output_dir=%s" % (self.tmp / name), "--epochs=1",
                          "--threads=1", *flags, expect=expect)
        return json.loads((self.tmp / name / "result.json").read_text()), out

    def pserver_pids(self, log_dir):
        return sorted(int(m["pid"]) for m in self.status(log_dir)["members"] if m["role"] == "pserver")

    def address_space(self, pid):
        text = pathlib.Path("/proc/%d/status" % pid).read_text()
        return int(text.split("VmSize:")[1].split()[0]) << 10

    # ------------------------------------------------------------------------------------------- max_rows

    def limit(self, rows, shards=4):
        return '--set=tables=[{name: "embedding" max_rows: %d num_shards: %d}]' % (rows, shards)

    def test_a_table_that_reaches_max_rows_fails_the_job_alone(self):
        log_dir = self.up("--server_num=2", "--worker_num=2")
        before = self.pserver_pids(log_dir)
        modes = {"sync": ["--a_sync=false"], "async": ["--a_sync=true"], "geo": ["--a_sync=true", "--k_steps=7"],
                 "sums": ["--a_sync=true", "--set=strategy.a_sync_configs.gradients_to_wait=3"]}
        for mode, flags in modes.items():
            with self.subTest(mode):
                result, out = self.submit(log_dir, mode, "--worker_num=2", self.limit(500), *flags, expect=1)
                self.assertEqual(result["status"], "failed", out)
                for word in ("table 'embedding'", "max_rows, 500", "125 rows", "raise max_rows"):
                    self.assertIn(word, result["message"])
        enough, _ = self.submit(log_dir, "enough", "--worker_num=2", self.limit(4 * KEYS))
        self.assertEqual(enough["status"], "done")
        self.assertEqual(self.pserver_pids(log_dir), before, "no pserver has ended")

    def test_rows_that_are_there_do_not_count_again(self):
        """The limit holds for a model that is loaded, and a model at the limit can be trained on."""
        log_dir = self.up("--server_num=1", "--worker_num=1")
        free, _ = self.submit(log_dir, "free")
        model = "--set=initial_model=%s" % (self.tmp / "free" / "model")
        again, _ = self.submit(log_dir, "again", model, self.limit(KEYS, shards=1))
        self.assertEqual(again["status"], "done")
        result, out = self.submit(log_dir, "less", model, self.limit(LINES, shards=1), expect=1)
        for word in ("initial_model", "table 'embedding'", "max_rows, %d" % LINES):
            self.assertIn(word, result["message"], out)
        self.assertNotEqual(free["model_digest"], again["model_digest"])

    def test_a_limit_of_a_dense_table_is_refused(self):
        done = self.run_program("sluice", "launch", "--job=%s" % self.job, "--server_num=1", "--worker_num=1",
                                "--output_dir=%s" % (self.tmp / "run"), "--set=tables=[{name: \"deep/0/weight\" max_rows: 5}]")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("max_rows", done.stdout)

    # --------------------------------------------------------------------------------- memory of the process

    # Wide rows, so that the memory is that of rows rather than of messages: 8 KiB of values for each, and as much state.
    WIDE = ["--set=model.wide_deep.embedding_dim=2000", "--set=optimizers.embedding={adagrad {}}",
            '--set=tables=[{name: "embedding" num_shards: 1}]']

    @unittest.skipIf(TIME_SCALE > 1, "a sanitizer takes memory of its own")
    def test_a_pserver_in_a_control_group_fails_the_job_before_the_kernel_ends_it(self):
        """As in a container: the kernel refuses no memory, but ends the process that touches too much."""
        group = memory_group(self, 160 << 20)
        adam = ["--set=model.wide_deep.embedding_dim=4000", "--set=optimizers.embedding={adam {}}"]
        log_dir = self.up("--server_num=1", "--worker_num=1")
        [pid] = self.pserver_pids(log_dir)
        group.add(pid)
        for mode, flags in (("async", ["--a_sync=true"]), ("sync", ["--a_sync=false"])):
            with self.subTest(mode):
                wait_until(lambda: not any(m.get("hosted") for m in self.status(log_dir)["members"]), "no tables are held")
                # A reserve of 40 MiB is left of 160 MiB, and 6000 rows of 48 KiB do not fit at all.
                result, out = self.submit(log_dir, mode, *self.WIDE, *adam, *flags, expect=1)
                self.assertEqual(result["status"], "failed", out)
                self.assertRegex(result["message"], "no memory .*'embedding'.* MiB")
                self.assertEqual(self.pserver_pids(log_dir), [pid], "the kernel has not ended it")
                small, _ = self.submit(log_dir, mode + "-small", *flags)
                self.assertEqual(small["status"], "done")

    @unittest.skipIf(TIME_SCALE > 1, "a sanitizer reserves address space of its own")
    def test_a_pserver_without_memory_fails_the_job_and_keeps_running(self):
        """As in a container with a hard limit: the next block of rows cannot be had."""
        log_dir = self.up("--server_num=1", "--worker_num=1")
        [pid] = self.pserver_pids(log_dir)
        small, _ = self.submit(log_dir, "before", "--a_sync=true")
        self.assertEqual(small["status"], "done")
        for mode, flags in (("async", ["--a_sync=true"]), ("sync", ["--a_sync=false"])):
            with self.subTest(mode):
                wait_until(lambda: not any(m.get("hosted") for m in self.status(log_dir)["members"]), "no tables are held")
                used = self.address_space(pid)
                # Room for streams and messages, and not for 6000 rows of 16 KiB.
                before = resource.prlimit(pid, resource.RLIMIT_AS, (used + (60 << 20), resource.RLIM_INFINITY))
                try:
                    result, out = self.submit(log_dir, mode, *self.WIDE, *flags, expect=1)
                finally:
                    resource.prlimit(pid, resource.RLIMIT_AS, before)
                self.assertEqual(result["status"], "failed", out)
                self.assertRegex(result["message"], "no memory .*'embedding'")
                self.assertEqual(self.pserver_pids(log_dir), [pid])
                after, _ = self.submit(log_dir, mode + "-after", *self.WIDE, *flags)
                self.assertEqual(after["status"], "done")


class RapidResetTest(DisturbedLaunchTest):
    """HTTP/2 rapid reset (CVE-2023-44487): calls that are opened and reset at once (docs/threat_model.md)."""

    EPOCHS = 40
    CALLS = 1000  # at once

    def flood(self, pserver):
        """Opens and resets streams of the data plane on one connection, until the process has ended."""
        headers, stream = grpc_headers(b"/sluice.Pserver/Exchange"), 1
        try:
            connection = Connection(int(pserver.address.rsplit(":", 1)[1]), PATIENCE)
            self.addCleanup(connection.close)
            while os.path.exists("/proc/%d" % pserver.pid):
                streams = range(stream, stream + 2 * self.CALLS, 2)
                connection.socket.sendall(b"".join(frame(HEADERS, END_HEADERS, i, headers)
                                                   + frame(RST_STREAM, 0, i, b"\0\0\0\x08") for i in streams))
                stream += 2 * self.CALLS
        except OSError:
            pass  # the pserver has ended the connection, or itself

    @unittest.skipIf(TIME_SCALE > 1, "a sanitizer takes memory of its own")
    def test_the_limit_of_its_memory_ends_the_pserver_and_the_job_goes_on(self):
        group = memory_group(self, 256 << 20)
        launcher = self.start_launch("--server_num=1", "--worker_num=1", "--a_sync=true", "--epochs=%d" % self.EPOCHS,
                                     "--set", "checkpoint.every_s=0.5")
        self.await_output(launcher, "epoch 1: ")  # all rows are there
        first = next(e for e in self.endpoints() if e.role == "pserver")
        group.add(first.pid)

        def has_successor():
            self.flood(first)
            return self.pid_of("pserver", 0) != first.pid
        wait_until(has_successor, lambda: "the pserver runs again:\n" + self.output())
        result = self.result(launcher)
        self.assertEqual(result["status"], "done", result)
        self.assertEqual(result["recovery"]["pserver_losses"], 1, result["recovery"])
        self.assertEqual(result["examples"], self.EPOCHS * ADULT_TRAIN_EXAMPLES)
        self.assertIn("killed by signal 9", self.output())


if __name__ == "__main__":
    unittest.main()
