"""PyTorch programs under sluice launch --program --hosts, on hosts with ssh servers.

Needs a build with SLUICE_PYTHON, and SLUICE_TORCH_PYTHON, an interpreter with torch and numpy.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest

from sluice_testing import BIN, ROOT, torch_python, wait_until
from ssh_hosts import SshHostsTest, why_no_ssh_hosts

REASON = why_no_ssh_hosts()
if REASON:
    print("SKIPPED, NOT PASSED: " + REASON, file=sys.stderr)
PYTHON = torch_python()
SCRIPT = ROOT / "examples" / "adult_wide_deep.py"


@unittest.skipIf(REASON, REASON)
class ProgramOnHostsTest(SshHostsTest):
    def setUp(self):
        super().setUp()
        # Its folder is sent whole with --ship.
        self.script = self.tmp / "script" / SCRIPT.name
        self.script.parent.mkdir()
        self.script.write_text(SCRIPT.read_text().replace("pathlib.Path(__file__).resolve().parents[1]", "pathlib.Path(%r)" % str(ROOT)))
        # With the interpreter that a virtual environment is of.
        prefixes = subprocess.run([PYTHON, "-c", "import sys; print(sys.prefix); print(sys.base_prefix)"], capture_output=True, text=True,
                                  check=True).stdout.split()
        self.environment = sorted({prefix for prefix in prefixes if not prefix.startswith("/usr")})

    def add_hosts(self, names="ab", **special):
        super().add_hosts(names, **{name: {"shared": self.environment, **special.get(name, {})} for name in names})

    def command(self, *flags, hosts="a:1,b:1", name="run"):
        return ["env", "OMP_NUM_THREADS=1", BIN / "sluice", "launch", "--program=%s" % self.script, "--python=%s" % PYTHON,
                "--hosts=%s" % hosts, "--output_dir=%s" % (self.tmp / name), "--log_dir=%s" % (self.tmp / (name + ".log")),
                "--progress=plain", *flags]

    def launch_on(self, *flags, expect=0, name="run"):
        code, out = self.run_on("a", *self.command(*flags, name=name))
        self.assertEqual(code, expect, out)
        return out

    def test_a_program_trains_to_the_bits_of_one_host(self):
        self.add_hosts(b={"noisy": True})
        flags = ("--a_sync=false", "--epochs=1", "--set=train.seed=7")
        out = self.launch_on(*flags, "--ports=7100-7110")
        # What rank 0 prints is on the terminal, and the others' is in their logs.
        self.assertRegex(out, r"(?m)^rank 0 of 2: epoch 1$")
        self.assertRegex(out, r"(?m)^hosts: a \(scheduler, 1 worker\), b \(1 worker\); mutual TLS")
        result = json.loads((self.tmp / "run" / "result.json").read_text())
        one = self.run_program("sluice", "launch", "--program=%s" % self.script, "--python=%s" % PYTHON, "--server_num=2", "--worker_num=2",
                               "--output_dir=%s" % (self.tmp / "one"), "--log_dir=%s" % (self.tmp / "one.log"), *flags,
                               env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.assertEqual(one.returncode, 0, one.stdout)
        self.assertEqual(result["model_digest"], json.loads((self.tmp / "one" / "result.json").read_text())["model_digest"])
        self.assertGreater(result["eval"]["auc"], 0.85)

    def test_what_is_wrong_on_a_host_and_in_the_script_is_named(self):
        # Host b has no such interpreter, even if it lies in the tree that all hosts share.
        bin_folder = pathlib.Path(PYTHON).parent
        self.add_hosts("abc", b={"shared": [], "hidden": [bin_folder] if bin_folder.is_relative_to(ROOT) else []},
                       c={"over": {self.script: "another"}})
        code, out = self.run_on("a", *self.command(hosts="a,b,c"))
        self.assertEqual(code, 2, out)
        self.assertRegex(out, r"b: --python=\S+ does not run a program there: there is no program")
        self.assertRegex(out, r"c: --program: \S+ has 7 bytes there")
        for host in "ac":
            self.run_on(host, "mkdir", "/tmp/log")
        code, out = self.run_on("a", *self.command("--log_dir=/tmp/log", "--hosts=a,c"))
        self.assertRegex(out, r"c: --log_dir, the folder of the program's first values: \S+ is not the same folder")
        self.script.write_text("raise RuntimeError('on purpose')\n")
        out = self.launch_on("--hosts=a", expect=1, name="fails")
        self.assertRegex(out, r"RuntimeError: on purpose")
        self.assertRegex(out, r"rank 0 on a \(pid \d+\) exited with code 1")

    def test_a_shipped_program_survives_a_kill_and_leaves_nothing(self):
        self.add_hosts("ab", b={"hidden": [BIN.parent]})
        with open(self.tmp / "out", "wb") as out:
            launcher = subprocess.Popen(self.on("a", *self.command("--ship", "--a_sync=false", "--epochs=100000",
                                                                   "--set=checkpoint.every_steps=50", "--set=train.log_every=20")),
                                        stdout=out, stderr=subprocess.STDOUT)
        self._started.append(launcher)
        output = lambda: (self.tmp / "out").read_text()
        steps = lambda: len(re.findall(r"\bloss\b", output()))  # not capital_loss

        def await_steps(more):
            begun = steps()
            wait_until(lambda: self.assertIsNone(launcher.poll(), output()) or steps() >= begun + more, output)
        await_steps(1)
        self.assertRegex(output(), r"sends the programs to b \(")
        (pid, command), = self.processes_on("b", SCRIPT.name)
        self.assertIn("/script/" + SCRIPT.name, command)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: re.search(r"rank 1 on b \(pid \d+\) was killed by signal 9", output()) and
                   re.search(r"rank 1 runs again on b", output()), output)
        await_steps(2)
        self.assertEqual(self.kill_launcher("a"), 1)
        left = lambda: {h: self.daemons_on(h) + self.processes_on(h, SCRIPT.name) + self.processes_on(h, "host-guard") for h in "ab"}
        wait_until(lambda: not any(left().values()), left)


if __name__ == "__main__":
    unittest.main()
