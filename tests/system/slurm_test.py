"""deploy/slurm/sluice.sbatch trains under a Slurm of one machine."""
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import unittest

from sluice_testing import BIN, PATIENCE, ROOT, SluiceTest, free_port, wait_until

SCRIPT = ROOT / "deploy" / "slurm" / "sluice.sbatch"
MISSING = [tool for tool in ("slurmctld", "slurmd", "sbatch", "munged")
           if shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin") is None]
WHY_NOT = ("there is no %s here" % ", ".join(MISSING) if MISSING else
           "slurmd runs as root" if os.getuid() != 0 else None)
CONFIGURATION = """\
ClusterName=one
KillWait=2
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={tmp}/munge.socket
MpiDefault=none
ProctrackType=proctrack/pgid
ReturnToService=2
SlurmUser=root
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmctldPidFile={tmp}/slurmctld.pid
SlurmdPidFile={tmp}/slurmd.pid
SlurmdSpoolDir={tmp}/spool
StateSaveLocation={tmp}/state
SwitchType=switch/none
TaskPlugin=task/none
SelectType=select/cons_tres
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@unittest.skipIf(WHY_NOT, WHY_NOT)
class SlurmTest(SluiceTest):
    def setUp(self):
        super().setUp()
        file = self.tmp / "slurm.conf"
        file.write_text(CONFIGURATION.format(host=socket.gethostname().split(".")[0], tmp=self.tmp,
                                             ports=[free_port(), free_port()]))
        for name in ("spool", "state"):
            (self.tmp / name).mkdir()
        key = self.tmp / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self.environment = {**os.environ, "SLURM_CONF": str(file), "PATH": "%s:/usr/sbin:%s" % (BIN, os.environ["PATH"])}
        self.start(shutil.which("munged", path=self.environment["PATH"]), "--foreground", "--force", "--key-file=%s" % key,
                   "--socket=%s/munge.socket" % self.tmp, "--pid-file=%s/munge.pid" % self.tmp, "--seed-file=%s/munge.seed" % self.tmp)
        wait_until(lambda: (self.tmp / "munge.socket").exists(), "munged is up")
        for daemon in ("slurmctld", "slurmd"):
            self.start(shutil.which(daemon, path=self.environment["PATH"]), "-D", "-f", file, env=self.environment, log=daemon + ".out")
        wait_until(lambda: "idle" in self.ask("sinfo", "-h", "-o", "%T"), "the node is ready")

    def ask(self, *command):
        return subprocess.run(command, cwd=self.tmp, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout

    def send(self, *flags):
        """Sends the job of Adult; returns its number, its folder and the file of its output."""
        sent = self.ask("sbatch", "--nodes=1", "--ntasks-per-node=2", "--cpus-per-task=1", "--parsable", SCRIPT,
                        ROOT / "configs" / "adult_wide_deep.textproto", *flags)
        self.assertRegex(sent, r"^\d+\n$")
        number = sent.strip()
        return number, self.tmp / ("sluice-" + number), self.tmp / ("sluice-%s.log" % number)

    def ends(self, number, log):
        state = lambda: re.search(r"JobState=(\w+)", self.ask("scontrol", "show", "job", number))[1]
        wait_until(lambda: state() in ("COMPLETED", "FAILED"), "the job ends", within=4 * PATIENCE)
        self.assertEqual(state(), "COMPLETED", log.read_text())

    def test_a_job_trains_and_its_certificates_end_with_it(self):
        number, folder, log = self.send("--epochs=1")
        self.ends(number, log)
        self.assertEqual(json.loads((folder / "output" / "result.json").read_text())["status"], "done")
        self.assertFalse((folder / "certs").exists())

    def test_a_requeued_job_continues_from_its_checkpoint(self):
        number, folder, log = self.send("--epochs=60", "--set", "checkpoint.every_steps=500")
        wait_until(lambda: log.exists() and "checkpoint of step" in log.read_text(), "there is a checkpoint")
        self.assertEqual(self.ask("scontrol", "requeue", number), "")
        wait_until(lambda: "JobState=PENDING" in self.ask("scontrol", "show", "job", number), "it is queued again")
        self.ask("scontrol", "update", "jobid=" + number, "StartTime=now")
        self.ends(number, log)
        result = json.loads((folder / "output" / "result.json").read_text())
        self.assertIn("/checkpoints/step-", result["recovery"]["resumed_from"])


if __name__ == "__main__":
    if WHY_NOT:
        print("SKIPPED, NOT PASSED:", WHY_NOT, file=sys.stderr)
    unittest.main()
