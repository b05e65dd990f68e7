"""Runs the real programs for the system tests, with time limits and without leaving processes behind.

Each test class derives from SluiceTest: `self.tmp` is its folder, `self.launch(...)` runs `sluice launch` to its
end, `self.start(...)` starts any program, and tearDown fails the test when a process of it is still alive.
"""
import atexit
import collections
import json
import os
import itertools
import pathlib
import random
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

# Programs of the tests get SIGINT even where this process was started to ignore it, as in the background of a script.
signal.signal(signal.SIGINT, signal.default_int_handler)

BIN = pathlib.Path(os.environ.get("SLUICE_BIN_DIR", "build/release/bin")).resolve()
TEST_BIN = pathlib.Path(os.environ.get("SLUICE_TEST_BIN_DIR", "build/release/tests/bin")).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(1, str(ROOT / "tests" / "faults"))  # the fault tools
TIME_SCALE = float(os.environ.get("SLUICE_TIME_SCALE", "1"))  # sanitized programs are slower
# Of what tests choose at random. SLUICE_TEST_SEED repeats a run; programs refuse variables that they do not know.
SEED = int(os.environ.pop("SLUICE_TEST_SEED", random.randrange(1 << 30)))
# Seconds for every wait whose length the product does not promise. Generous: tests that pass do not wait so long.
PATIENCE = 60
ADULT = ROOT / "configs" / "adult_wide_deep.textproto"
ADULT_TRAIN_EXAMPLES = 32561
ADULT_TEST_EXAMPLES = 16281

ETCD = "/usr/bin/etcd"  # of the Debian package etcd-server
needs_etcd = unittest.skipUnless(os.access(ETCD, os.X_OK), "etcd-server is not installed")

ENDED = ("done", "failed", "cancelled")

Endpoint = collections.namedtuple("Endpoint", "role rank address pid")


def torch_python():
    """The interpreter for PyTorch programs. Ends the test as skipped (77) where it lacks torch or the build our module."""
    python = os.environ.get("SLUICE_TORCH_PYTHON", "")
    module = list((BIN.parent / "python" / "sluice").glob("_core*.so"))
    if not module or not python or subprocess.run([python, "-c", "import importlib.util as i, sys; sys.exit(not (i.find_spec('numpy') and i.find_spec('torch')))"]).returncode:
        print("SKIPPED, NOT PASSED: needs a build with SLUICE_PYTHON, and SLUICE_TORCH_PYTHON with torch and numpy (./dev python)",
              file=sys.stderr)
        sys.exit(77)
    return python


# Ports below those that the kernel gives to outgoing connections (from 32768). So no process gets one by chance, and a
# client that finds nobody there is not connected to itself. Each port is given once; test processes start far apart.
_ports = itertools.cycle(range(10000, 30000))
for _ in range(os.getpid() * 61 % 20000):
    next(_ports)
_claims = []  # a socket for each port that the running test was given


def free_port():
    """Returns a port that no other test process gets until this test ends."""
    for port in itertools.islice(_ports, 20000):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind("\0sluice test port %d" % port)  # the name is free again when the socket is closed
            with socket.socket() as s:
                s.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        return port
    raise AssertionError("no free port")


def kill_unless_over(pid, number=signal.SIGKILL):
    """Sends a signal to a process that may end at any moment. Returns whether the process was still there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def wait_until(condition, what, within=PATIENCE, pause=0.05):
    """Polls `condition` until it is true; fails with `what`. Give `within` only where the product promises the time.

    A state from before what the test did must not satisfy the condition. `pause`: seconds between two looks; less for a state that
    passes soon.
    """
    seconds = within * TIME_SCALE
    deadline = time.monotonic() + seconds
    while True:
        begin = time.monotonic()
        late = begin >= deadline  # check once more, however late this process was woken
        value = condition()
        if value:
            return value
        if late:
            raise AssertionError("not within %s s: %s" % (seconds, what() if callable(what) else what))
        time.sleep(min(0.5, max(pause, time.monotonic() - begin)))  # a condition may start a program


def processes_naming(text):
    """(pid, command line) of the sluice processes with `text` in their command line."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if text in command and "sluice" in command and state != "Z":
            found.append((int(entry.name), command))
    return found


def commands_by_hand():
    """The commands of deploy/README.md for two hosts: {"host A": [[program, flag, ...], ...], "host B": ..., ...}."""
    text = (ROOT / "deploy" / "README.md").read_text().split("## By hand", 1)[1].split("\n## ", 1)[0]
    commands, where = {}, None
    for line in text.splitlines():
        if line.startswith("    # "):
            where = line[6:]
        elif line.startswith("    "):
            commands.setdefault(where, []).append(line.split())
    return commands


def optimizers():
    """Each update rule by name, as text for `optimizers.all={...}` with which the loss of a small job falls."""
    done = subprocess.run([TEST_BIN / "list_optimizers"], capture_output=True, text=True, check=True)
    return dict(line.split("\t") for line in done.stdout.splitlines())


@atexit.register
def print_cost():
    """What the programs of a test file cost, for build/release/Testing/Temporary/LastTest.log: two cores do all of them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print("CPU seconds of programs that were waited for: %.1f user, %.1f system" % (used.ru_utime, used.ru_stime))


class SluiceTest(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory(prefix="sluice_test_")
        self.tmp = pathlib.Path(self._folder.name)
        self._started = []
        # A sanitizer report from any process fails the test, whatever the exit code of the process.
        for tool in ("ASAN", "UBSAN", "LSAN", "TSAN"):
            options = [o for o in os.environ.get(tool + "_OPTIONS", "").split(":") if o and "log_path=" not in o]
            os.environ[tool + "_OPTIONS"] = ":".join(options + ["log_path=%s" % (self.tmp / "sanitizer")])
        self._clusters = []

    def tearDown(self):
        for log_dir in self._clusters:
            self.run_program("sluice", "down", "--now", "--log_dir=%s" % log_dir)
        for process in self._started:
            if process.poll() is None:
                process.terminate()
        for process in self._started:
            try:
                process.wait(PATIENCE * TIME_SCALE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        try:
            self.await_none_left()
            lines = [line for path in sorted(self.tmp.glob("sanitizer.*"))
                     for line in path.read_text(errors="replace").splitlines()]
            # The simulated CUDA device switches stacks with swapcontext, of which the sanitizer only warns.
            reports = "\n".join(line for line in lines if "doesn't fully support makecontext/swapcontext" not in line)
            self.assertEqual(reports.strip(), "")
        finally:
            for pid, _ in processes_naming(str(self.tmp)):
                kill_unless_over(pid)
            while _claims:
                _claims.pop().close()
            self._folder.cleanup()

    # ------------------------------------------------------------------------------ running programs

    def run_program(self, *args, timeout=2 * PATIENCE, **kwargs):
        """Runs a program to its end; stdout and stderr together as text in .stdout."""
        timeout *= TIME_SCALE
        program = subprocess.Popen([str(BIN / args[0])] + [str(a) for a in args[1:]], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, cwd=self.tmp, **kwargs)
        self._started.append(program)
        try:
            out, _ = program.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            program.kill()
            out, _ = program.communicate()
            raise AssertionError("%s did not end within %s s:\n%s" % (" ".join(map(str, args)), timeout, out))
        return subprocess.CompletedProcess(args, program.returncode, out)

    def sign_certificate(self, folder, role, rank, days=365):
        """Makes ROLE-RANK.pem and its key with the development CA of the folder, as docs/guide.md says."""
        stem = folder / ("%s-%d" % (role, rank))
        names = self.tmp / "names.cnf"
        names.write_text("subjectAltName=URI:spiffe://sluice/sluice/%s/%d\n"
                         "extendedKeyUsage=serverAuth,clientAuth\n" % (role, rank))
        for step in (["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                      "/CN=sluice %s %d" % (role, rank), "-keyout", "%s.key" % stem, "-out", "%s.csr" % stem],
                     ["x509", "-req", "-in", "%s.csr" % stem, "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key",
                      "-days", str(days), "-extfile", names, "-out", "%s.pem" % stem]):
            subprocess.run(["openssl", *step], check=True, stderr=subprocess.DEVNULL)

    def start(self, *args, log=None, **kwargs):
        """Starts a program in the background; its output goes to tmp/<log>."""
        out = open(self.tmp / (log or "%s.%d.out" % (args[0], len(self._started))), "wb")
        program = subprocess.Popen([str(BIN / args[0])] + [str(a) for a in args[1:]], stdout=out,
                                   stderr=subprocess.STDOUT, **{"cwd": self.tmp, **kwargs})
        out.close()
        self._started.append(program)
        return program

    def exit_code(self, process, within=PATIENCE):
        """Returns the exit code of a started program, which must end; below 0 when a signal has ended it."""
        try:
            return process.wait(within * TIME_SCALE)
        except subprocess.TimeoutExpired:
            self.fail("did not end within %s s: %s" % (within * TIME_SCALE, " ".join(process.args)))

    def await_none_left(self, within=PATIENCE):
        wait_until(lambda: not processes_naming(str(self.tmp)),
                   lambda: "still running: %s" % processes_naming(str(self.tmp)), within)

    def assert_once_within(self, seconds, measure, attempts=5):
        """`measure(attempt)` returns the seconds that something took, which one attempt must do in the given time.

        A busy machine delays some attempts; a process that waits for what does not come delays all of them.
        """
        took = []
        while not took or took[-1] >= seconds * TIME_SCALE:
            self.assertLess(len(took), attempts, "not within %s s: %s" % (seconds * TIME_SCALE, took))
            took.append(measure(len(took)))

    def launch(self, *flags, job=ADULT, name="run", timeout=4 * PATIENCE, expect=0):
        """`sluice launch` with output in tmp/<name>; returns (result.json or None, output text). `expect`: the exit code,
        or some that are possible; None: any."""
        done = self.run_program("sluice", "launch", "--job=%s" % job, "--output_dir=%s" % (self.tmp / name),
                                "--log_dir=%s" % (self.tmp / (name + ".log")), *flags, timeout=timeout)
        if expect is not None:
            self.assertIn(done.returncode, expect if isinstance(expect, tuple) else (expect,), done.stdout)
        path = self.tmp / name / "result.json"
        return (json.loads(path.read_text()) if path.exists() else None), done.stdout

    def start_etcd(self, *flags, scheme="http"):
        """Starts an etcd of one member, without data; returns its process and its port."""
        port, peer = free_port(), free_port()
        client, peers = "%s://127.0.0.1:%d" % (scheme, port), "http://127.0.0.1:%d" % peer
        etcd = self.start(ETCD, "--name=m", "--data-dir=%s" % (self.tmp / "etcd"), "--listen-client-urls=%s" % client,
                          "--advertise-client-urls=%s" % client, "--listen-peer-urls=%s" % peers,
                          "--initial-advertise-peer-urls=%s" % peers, "--initial-cluster=m=%s" % peers, "--log-level=error",
                          *flags, log="etcd.out")
        return etcd, port

    # ------------------------------------------------------------------------------ the machine's clock

    def clock_for_test(self):
        """Returns an environment whose processes have their own time of day, and a function that sets it a number of
        hours ahead of the machine's."""
        step = self.tmp / "clock_step"
        step.write_bytes(struct.pack("q", 0))

        def set_ahead(hours):
            with open(step, "r+b", buffering=0) as file:
                file.write(struct.pack("q", hours * 3600 * 10 ** 9))
        library = TEST_BIN / "libclock_step.so"
        self.assertTrue(library.exists(), library)
        asan = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
        return {**os.environ, "LD_PRELOAD": str(library), "CLOCK_STEP_FILE": str(step), "ASAN_OPTIONS": asan}, set_ahead

    # ------------------------------------------------------------------------------ long-lived clusters

    def up(self, *flags, name="cluster", **kwargs):
        """`sluice up` with logs in tmp/<name>; tearDown stops it. Returns the log folder."""
        log_dir = self.tmp / name
        self._clusters.append(log_dir)
        done = self.run_program("sluice", "up", "--log_dir=%s" % log_dir, *flags, **kwargs)
        self.assertEqual(done.returncode, 0, done.stdout)
        return log_dir

    def sluice(self, command, log_dir, *args, timeout=4 * PATIENCE, expect=0):
        """Runs `sluice COMMAND` on the cluster of `log_dir`; returns its output."""
        done = self.run_program("sluice", command, "--log_dir=%s" % log_dir, *args, timeout=timeout)
        self.assertEqual(done.returncode, expect, done.stdout)
        return done.stdout

    def status(self, log_dir):
        return self.scheduler_status(log_dir) or json.loads(self.sluice("status", log_dir, "--json"))

    def scheduler_status(self, log_dir):
        """What `sluice status --json` prints, from the admin port of the newest scheduler in `log_dir`; None where that port gives
        none, or has TLS, whose scheduler would note a refusal. Tests look so often that a process for each look took a quarter of
        all processor time of some."""
        cluster = log_dir / "cluster.textproto"
        try:
            if cluster.exists() and "tls_ca" in cluster.read_text():
                return None
            host, port = self.admin_addresses(log_dir)["scheduler 0"].rsplit(":", 1)
            with socket.create_connection((host, int(port)), timeout=2 * TIME_SCALE) as connection:
                connection.sendall(b"GET /api/v1/status HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % host.encode())
                reply = b"".join(iter(lambda: connection.recv(1 << 16), b""))
            status = json.loads(reply.partition(b"\r\n\r\n")[2])
        except (OSError, LookupError, ValueError):
            return None
        return status if "uptime_s" in status else None  # one that does not lead knows no jobs

    def job_status(self, log_dir, job_id):
        return next(job for job in self.status(log_dir)["jobs"] if job["job_id"] == job_id)

    def await_job(self, log_dir, job_id, condition, what):
        """Polls until `condition(status of the job)`, and returns that status. Fails at once when the job has ended."""
        seen = {}

        def look():
            seen.update(self.job_status(log_dir, job_id))
            if not condition(seen):
                self.assertNotIn(seen["state"], ENDED, "before %s: %s" % (what, seen.get("message")))
                return None
            return seen
        return wait_until(look, lambda: "%s; the job: %s %s, %s" % (
            what, job_id, seen.get("state"), seen.get("message") or seen.get("waiting_for")))

    def start_launch(self, *flags, job=ADULT, name="run"):
        """Starts `sluice launch` in the background, like launch(); its output goes to tmp/<name>.out."""
        return self.start("sluice", "launch", "--job=%s" % job, "--output_dir=%s" % (self.tmp / name),
                          "--log_dir=%s" % (self.tmp / (name + ".log")), *flags, log=name + ".out")

    def endpoints(self, name="run"):
        """The endpoints that endpoints.log of the cluster in tmp/<name>.log lists."""
        return self.endpoints_of(self.tmp / (name + ".log"))

    def endpoints_of(self, log_dir):
        path = log_dir / "endpoints.log"
        lines = path.read_text().splitlines() if path.exists() else []
        fields = [line.split() for line in lines if not line.startswith("#")]
        return [Endpoint(f[0], int(f[1]), f[2], int(f[3])) for f in fields]

    def admin_addresses(self, log_dir):
        """The addresses of the admin ports by daemon: {"scheduler 0": "127.0.0.1:1234", ...}."""
        found = {}
        for line in (log_dir / "endpoints.log").read_text().splitlines():
            if not line.startswith("#"):
                role, rank, _, _, admin = line.split()
                if role != "supervisor":  # it serves no pages
                    found["%s %s" % (role, rank)] = admin
        return found

    def assert_models_close(self, a, b, tolerance=1e-6, tables=4):
        """Compares the final models of the outputs tmp/<a> and tmp/<b> by the relative norm, table by table.

        They have at least so many tables.
        """
        done = subprocess.run([TEST_BIN / "model_diff", self.tmp / a / "model", self.tmp / b / "model"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line.split() for line in done.stdout.splitlines()]
        self.assertGreaterEqual(len(lines), tables)
        for table, difference in lines:
            self.assertTrue(float(difference) <= tolerance, "%s: %s and %s differ by %s" % (table, a, b, difference))

    # ------------------------------------------------------------------------------------ small jobs

    def write_csv(self, name, rows, header="label,x,c"):
        """Writes rows (tuples) as a CSV file with a header."""
        path = self.tmp / name
        path.write_text(header + "\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
        return path

    def small_job(self, train="train*.csv", evaluation="", extra="", data_extra="", wide_only=False):
        """Writes a job for label,x,c files in tmp; returns its path.

        Only without hidden layers do small differences stay small: a rounding can switch a ReLU unit on or off.
        """
        in_deep, model = ("in_deep: false", "") if wide_only else ("", "embedding_dim: 4 hidden_units: 8")
        text = """
name: "small"
data {
  format: CSV
  train_files: "%s"
  %s
  csv { header: true }
  label { column: "label" }
  %s
}
features { name: "x" numeric {} }
features { name: "c" categorical {} %s }
model { wide_deep { %s } }
optimizers { all { sgd {} learning_rate: 0.1 } }
train { batch_size: 8 epochs: 2 seed: 3 }
%s
""" % (train, 'eval_files: "%s"' % evaluation if evaluation else "", data_extra, in_deep, model, extra)
        path = self.tmp / "small.textproto"
        path.write_text(text)
        return path


class DisturbedLaunchTest(SluiceTest):
    """Disturbs jobs of start_launch at random steps."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        print("SLUICE_TEST_SEED=%d" % SEED, flush=True)

    def setUp(self):
        super().setUp()
        self.random = random.Random("%d %s" % (SEED, self.id()))

    def output(self, name="run"):
        return (self.tmp / (name + ".out")).read_text()

    def pid_of(self, role, rank, name="run"):
        """Of the newest process with this place."""
        return [e.pid for e in self.endpoints(name) if (e.role, e.rank) == (role, rank)][-1]

    def await_output(self, launcher, pattern, name="run", after=0):
        def found():
            match = re.search(pattern, self.output(name)[after:])
            self.assertTrue(match or launcher.poll() is None, self.output(name))
            return match
        return wait_until(found, lambda: "%s in:\n%s" % (pattern, self.output(name)))

    def await_step(self, launcher, step, name="run", after=0):
        """Keep `step` below 90 times train.log_every: a worker prints its first 100 lines, and then one in 10 seconds."""
        def reached():
            steps = re.findall(r"step ([\d,]+) loss", self.output(name)[after:])
            self.assertTrue(launcher.poll() is None, self.output(name))
            return steps and int(steps[-1].replace(",", "")) >= step
        wait_until(reached, lambda: "step %d:\n%s" % (step, self.output(name)))

    def result(self, launcher, name="run", expect=0):
        self.assertEqual(self.exit_code(launcher, 180), expect, self.output(name))
        return json.loads((self.tmp / name / "result.json").read_text())


class ClusterJobsTest(SluiceTest):
    """Jobs of a cluster whose daemons the test starts itself. `address`: of its scheduler, or of all that may lead."""

    def cluster_status(self):
        done = self.run_program("sluice", "status", "--json", "--scheduler=%s" % self.address)
        return json.loads(done.stdout) if done.returncode == 0 else {"members": [], "jobs": []}

    def submit(self, name, *flags):
        done = self.run_program("sluice", "submit", "--scheduler=%s" % self.address, "--job=%s" % ADULT, "--worker_num=2",
                                "--output_dir=%s" % (self.tmp / name), "--detach", *flags)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout.split()[-1]

    def job(self, job_id):
        return next((job for job in self.cluster_status()["jobs"] if job["job_id"] == job_id), {})

    def await_training(self, job_id, step=1):
        """Waits until the job trains with all its members."""
        def look():
            job = self.job(job_id)
            return job.get("state") == "running" and job["message"] == "" and int(job["global_step"]) >= step
        wait_until(look, lambda: "%s trains: %s" % (job_id, self.job(job_id)))

    def result(self, job_id, name):
        wait_until(lambda: self.job(job_id).get("state") == "done", lambda: "%s is done: %s" % (job_id, self.job(job_id)),
                   within=4 * PATIENCE)
        return json.loads((self.tmp / name / "result.json").read_text())
