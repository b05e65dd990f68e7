"""./dev bench --networks measures, and leaves neither namespaces nor daemons, however it ends."""
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[1:1] = [str(ROOT / "tests" / "system"), str(ROOT / "tests" / "faults")]
from sluice_testing import BIN, PATIENCE, TIME_SCALE, SluiceTest, wait_until  # noqa: E402
from net_namespaces import remove_abandoned, why_no_namespaces  # noqa: E402

REASON = why_no_namespaces(limits=True)
if REASON:
    print("skipped: " + REASON, file=sys.stderr)
PREFIX = "sluice-bench"


def children(pid):
    """The command lines of the processes that a process has started."""
    found = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rsplit(")", 1)[1].split()[:2]
            if int(parent) == pid and state != "Z":
                found[int(stat.parent.name)] = (stat.parent / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            pass
    return found


def exists(pid):
    try:
        return pathlib.Path("/proc/%d/stat" % pid).read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@unittest.skipIf(REASON, REASON)
class NetworkJobsTest(SluiceTest):
    def start_bench(self, *flags):
        out = open(self.tmp / "printed", "wb")
        process = subprocess.Popen([sys.executable, "-B", ROOT / "bench" / "network_jobs.py", "--bin=%s" % BIN, "--quick", *flags],
                                   stdout=out, stderr=subprocess.STDOUT, env={**os.environ, "TMPDIR": str(self.tmp)})
        out.close()
        self._started.append(process)
        return process

    def printed(self):
        return (self.tmp / "printed").read_text()

    def namespaces(self, pid):
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        return [line for line in listed.splitlines() if line.startswith("%s-%d-" % (PREFIX, pid))]

    def workers(self, bench):
        return [pid for pid, command in children(bench.pid).items() if "sluice-worker" in command]

    def test_rows_have_the_format_of_the_suite(self):
        bench = self.start_bench("--filter=workers1", "--json=%s" % (self.tmp / "rows.json"))
        self.assertEqual(bench.wait(4 * PATIENCE * TIME_SCALE), 0, self.printed())
        rows = json.loads((self.tmp / "rows.json").read_text())
        self.assertEqual([row["name"] for row in rows],
                         ["networks/1000mbit/tcp", "networks/1000mbit/sync/batch512/workers1/collective_gloo"])
        for row in rows:
            self.assertEqual(set(row), {"name", "value", "unit", "limit", "limit_name", "ratio", "repetitions", "min", "max"})
            for field in ("value", "limit", "ratio", "min", "max", "repetitions"):
                self.assertTrue(math.isfinite(row[field]) and row[field] > 0, row)
        self.assertEqual(self.namespaces(bench.pid), [])

    def test_nothing_is_left_by_a_bench_that_is_ended_or_killed(self):
        for number, code in ((signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)):
            with self.subTest(number):
                bench = self.start_bench("--filter=workers2")
                wait_until(lambda: len(self.workers(bench)) == 2, self.printed)
                daemons = children(bench.pid)
                bench.send_signal(number)
                self.assertEqual(bench.wait(PATIENCE * TIME_SCALE), code, self.printed())
                wait_until(lambda: not any(map(exists, daemons)), "the end of the daemons")
                # A killed program removes nothing; the next one does it for it.
                if number == signal.SIGKILL:
                    self.assertEqual(len(self.namespaces(bench.pid)), 3)
                    remove_abandoned(PREFIX)
                self.assertEqual(self.namespaces(bench.pid), [])


if __name__ == "__main__":
    unittest.main()
