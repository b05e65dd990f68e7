"""--trace writes one file that shows the work of all workers and pservers of a job on one time line."""
import collections
import json
import re
import resource
import signal
import time
import unittest

from sluice_testing import ADULT_TRAIN_EXAMPLES, SluiceTest, wait_until

MODES = {"sync": ["--a_sync=false"], "async": ["--a_sync=true"], "geo": ["--a_sync=true", "--k_steps=20"]}
PSERVERS = WORKERS = 2
STAGES = ("pull_wait", "compute", "push_wait")


class Trace:
    """A trace file: spans by process name ("worker 0"), each with the name of its thread."""

    def __init__(self, path):
        self.json = json.loads(path.read_text())
        events = self.json["traceEvents"]
        names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
        threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
        self.names = sorted(names.values())
        self.spans = collections.defaultdict(list)
        for e in events:
            if e["ph"] == "X":
                e["thread"] = threads[e["pid"], e["tid"]]
                self.spans[re.match(r"\w+ \d+", names[e["pid"]]).group()].append(e)

    def named(self, process, name):
        return [e for e in self.spans[process] if e["name"] == name]


class TraceTest(SluiceTest):
    def train(self, mode, *flags):
        began = time.time()
        result, out = self.launch("--server_num=%d" % PSERVERS, "--worker_num=%d" % WORKERS, "--epochs=1",
                                  "--trace=%s" % (self.tmp / "sub" / "trace.json"), *MODES[mode], *flags)
        trace = Trace(self.tmp / "sub" / "trace.json")
        self.assertEqual(trace.json["otherData"]["dropped"], {}, trace.json["otherData"])
        self.assertEqual(trace.json["otherData"]["clock_shift_us"], {})
        self.assert_processes(trace)
        self.assert_times(trace, began, time.time())
        self.assert_stages(trace, result)
        return result, trace

    def assert_processes(self, trace):
        for role in ("worker", "pserver"):
            for rank in (0, 1):
                pid = next(e.pid for e in self.endpoints() if (e.role, e.rank) == (role, rank))
                self.assertTrue(any(re.fullmatch(r"%s %d \(pid %d on host \S+\)" % (role, rank, pid), name)
                                    for name in trace.names), trace.names)
                self.assertTrue(trace.spans["%s %d" % (role, rank)])
        self.assertEqual(len(trace.names), 4)

    def assert_times(self, trace, began, ended):
        for process, spans in trace.spans.items():
            by_thread = collections.defaultdict(list)
            for e in spans:
                self.assertGreaterEqual(e["dur"], 0)
                self.assertGreaterEqual(e["ts"], began * 1e6)
                self.assertLessEqual(e["ts"] + e["dur"], ended * 1e6)
                by_thread[e["thread"]].append((e["ts"], -e["dur"], e["name"]))
            for thread, of_thread in by_thread.items():  # beside or within each other
                around = []
                for start, minus, name in sorted(of_thread):
                    while around and around[-1] <= start:
                        around.pop()
                    if around:
                        self.assertLessEqual(start - minus, around[-1], (process, thread, name))
                    around.append(start - minus)

    def assert_stages(self, trace, result):
        for stage in STAGES:
            seconds = [sum(e["dur"] for e in trace.named("worker %d" % rank, stage)) / 1e6 for rank in range(WORKERS)]
            said = result["stages"][stage]
            self.assertLessEqual(abs(sum(seconds) / WORKERS - said), max(0.2 * said, 0.1), stage)
        for rank in range(WORKERS):
            worker = "worker %d" % rank
            for phase in ("index", "train epoch 1", "eval", "save"):
                self.assertEqual(len(trace.named(worker, phase)), 1, (worker, phase))
            steps = [e["args"]["step"] for e in trace.named(worker, "step")]
            self.assertEqual(steps, list(range(1, len(steps) + 1)))
            self.assertEqual({e["args"]["step"] for e in trace.named(worker, "compute")}, set(steps))
            for e in trace.spans[worker]:
                self.assertEqual(e["thread"], "reading" if e["name"] in ("read", "dedup") else "training")
            if steps:  # in async a slow rank may find no task left
                self.assertTrue(trace.named(worker, "read"))

    def steps(self, trace):
        return [len(trace.named("worker %d" % rank, "step")) for rank in range(WORKERS)]

    def assert_pushes(self, trace, frames):
        """Checks that each pserver has frames[rank] pushes of each rank, in order."""
        for server in range(PSERVERS):
            pushes = trace.named("pserver %d" % server, "push")
            for rank in range(WORKERS):
                of_rank = [e["args"]["sequence"] for e in sorted(pushes, key=lambda e: e["ts"])
                           if e["args"]["rank"] == rank]
                self.assertEqual(of_rank, list(range(1, frames[rank] + 1)))
            self.assertGreater(sum(e["args"]["bytes"] for e in pushes), 0)
            pulls = trace.named("pserver %d" % server, "pull")
            self.assertEqual({e["args"]["rank"] for e in pulls}, set(range(WORKERS)))
            self.assertEqual(len(trace.named("pserver %d" % server, "save shards")), 1)

    def test_sync(self):
        result, trace = self.train("sync")
        steps = self.steps(trace)
        self.assertEqual(steps, [result["global_step"]] * WORKERS)
        self.assert_pushes(trace, steps)
        for server in range(PSERVERS):
            closed = [e["args"]["step"] for e in trace.named("pserver %d" % server, "close step")]
            self.assertEqual(closed, list(range(1, result["global_step"] + 1)))

    def test_async(self):
        result, trace = self.train("async")
        steps = self.steps(trace)
        self.assertEqual(sum(steps), result["global_step"])
        self.assertEqual(result["examples"], ADULT_TRAIN_EXAMPLES)
        self.assert_pushes(trace, steps)
        self.assertFalse(trace.named("pserver 0", "close step"))

    def test_geo(self):
        _, trace = self.train("geo")
        for server in range(PSERVERS):
            self.assertTrue(trace.named("pserver %d" % server, "push"))

    def tiny_job(self):
        self.write_csv("train.csv", [(i % 2, i, "ab"[i % 2]) for i in range(64)])
        return self.small_job(train="train.csv")

    def test_no_trace_is_written_unless_asked(self):
        self.launch(job=self.tiny_job())
        found = [path for path in self.tmp.rglob("*") if path.is_file() and b"traceEvents" in path.read_bytes()]
        self.assertEqual(found, [])

    def test_a_path_that_cannot_be_written_is_refused(self):
        (self.tmp / "file").write_text("")
        for path in (self.tmp, self.tmp / "file" / "trace.json", "/proc/trace.json"):
            _, out = self.launch("--trace=%s" % path, expect=2)
            self.assertIn("trace_file: cannot write %s" % path, out)

    def test_a_disk_that_fills_leaves_a_whole_file_and_a_warning(self):
        # A limit on file size simulates a full disk; only the trace reaches it.
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (128 << 10, resource.RLIM_INFINITY))
        path = self.tmp / "trace.json"
        done = self.run_program("sluice", "launch", "--job=%s" % self.tiny_job(), "--epochs=100",
                                "--output_dir=%s" % (self.tmp / "run"), "--log_dir=%s" % (self.tmp / "run.log"),
                                "--trace=%s" % path,
                                preexec_fn=limit, restore_signals=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(Trace(path).json["otherData"]["producer"], "sluice")
        self.assertLessEqual(path.stat().st_size, 128 << 10)
        warnings = json.loads((self.tmp / "run" / "result.json").read_text())["warnings"]
        self.assertEqual(len([w for w in warnings if str(path) in w]), 1, warnings)
        self.assertEqual(len([line for line in done.stdout.splitlines() if "warning: " in line and str(path) in line]),
                         1, done.stdout)

    def test_a_cancelled_job_leaves_a_whole_file(self):
        log_dir = self.up("--server_num=1", "--worker_num=1")
        path = self.tmp / "trace.json"
        job = self.tiny_job()
        out = self.sluice("submit", log_dir, "--job=%s" % job, "--output_dir=%s" % (self.tmp / "out"),
                          "--epochs=100000", "--trace=%s" % path, "--detach")
        job_id = re.search(r"submitted (\S+)", out).group(1)
        # Those of the pserver come with its own report, and none comes after the end of the job.
        wait_until(lambda: path.exists() and all(word in path.read_bytes() for word in (b'"step"', b'"push"')),
                   "spans of the worker and of the pserver in the file")
        again = self.sluice("submit", log_dir, "--job=%s" % job, "--output_dir=%s" % (self.tmp / "other"),
                            "--trace=%s" % path, expect=1)
        self.assertRegex(again, r"job %s, .*same trace_file" % job_id)
        self.sluice("cancel", log_dir, job_id)
        wait_until(lambda: (self.tmp / "out" / "result.json").exists(), "the end of the job")
        trace = Trace(path)
        self.assertEqual(len(trace.names), 2)
        self.assertTrue(trace.named("worker 0", "step"))
        self.assertTrue(trace.named("pserver 0", "push"))


if __name__ == "__main__":
    unittest.main()
