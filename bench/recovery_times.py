"""./dev bench --recovery: how long a job takes to notice the loss of a process and to continue, next to the lease.

For every mode and role, a process of a running job is killed (the process that started it notices at once) or stopped for
longer than its lease (only the lease tells). Two times count, from the signal on: until the scheduler has counted the loss
(`noticed`), and until all ranks and shards are served again and the job trains (`goes_on`). A scheduler that was killed has
no lease: `goes_on` is the time until the next one has adopted the job. Only the standard library is needed here.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import turns

MODES = {"sync": ["--a_sync=false"], "async": ["--a_sync=true"], "geo": ["--a_sync=true", "--k_steps=20"]}
CASES = [(role, way) for role in ("worker", "pserver") for way in ("kill", "stop")] + [("scheduler", "kill")]
LEASE_S = 10.0
PATIENCE_S = 120.0


class Cluster:
    def __init__(self, programs, folder):
        self._programs, self._folder, self._log = programs, folder, folder / "log"
        self.run("up", "--server_num=2", "--worker_num=2", "--threads=1", "--lease_ms=%d" % (1000 * LEASE_S))

    def run(self, command, *flags, check=True):
        done = subprocess.run([self._programs / "sluice", command, "--log_dir=%s" % self._log, *flags],
                              capture_output=True, text=True)
        if check and done.returncode != 0:
            sys.exit("sluice %s ended with %d:\n%s" % (command, done.returncode, done.stdout + done.stderr))
        return done

    def submit(self, mode):
        self.run("submit", "--detach", "--job=%s" % turns.ADULT, "--epochs=100000",
                 "--output_dir=%s" % (self._folder / mode), "--set=checkpoint.every_s=2", *MODES[mode])
        return self.await_job(lambda job: self.trains(job) and job.get("checkpoint", {}).get("made"))["job_id"]

    def job(self):
        """The job that runs; None when the scheduler does not answer."""
        done = self.run("status", "--json", check=False)
        jobs = json.loads(done.stdout)["jobs"] if done.returncode == 0 else []
        return next((job for job in jobs if job["state"] in ("running", "recovering", "starting")), None)

    def await_job(self, condition):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            job = self.job()
            if job and condition(job):
                return job
        sys.exit("not within %d s; the job: %s" % (PATIENCE_S, json.dumps(job)[:2000]))

    @staticmethod
    def trains(job):
        return (job["state"] == "running" and job.get("workers_alive") == 2 and not job.get("message") and
                int(job.get("global_step", 0)) > 0 and "waits for" not in job.get("recovery", {}).get("last", ""))

    def pid(self, role, rank):
        lines = [line.split() for line in (self._log / "endpoints.log").read_text().splitlines() if line[:1] != "#"]
        return [int(f[3]) for f in lines if (f[0], int(f[1])) == (role, rank)][-1]


def losses(job, role):
    return int(job.get("recovery", {}).get({"scheduler": "scheduler_restarts"}.get(role, role + "_losses"), 0))


def measure(cluster, role, way):
    """Seconds until the loss is noticed, and until the job continues."""
    before = cluster.await_job(cluster.trains)
    pid = cluster.pid(role, 0 if role == "scheduler" else 1)
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL if way == "kill" else signal.SIGSTOP)
    seen = cluster.await_job(lambda job: losses(job, role) > losses(before, role))
    noticed = time.monotonic() - began
    if way == "stop":
        os.kill(pid, signal.SIGCONT)
    seen = cluster.await_job(cluster.trains)
    cluster.await_job(lambda job: cluster.trains(job) and int(job["global_step"]) > int(seen["global_step"]))
    return noticed, time.monotonic() - began


def main():
    options = turns.flags(__doc__, repetitions=3).parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice_recovery_"))
    cluster = Cluster(options.bin, folder)
    rows = turns.Rows()
    try:
        turns.Rows.print_header("seconds", "lease")
        for mode in MODES:
            job_id = None
            for role, way in CASES:
                name = "recovery/%s/%s/%s" % (role, way, mode)
                if not re.search(options.filter, name):
                    continue
                job_id = job_id or cluster.submit(mode)
                times = []
                for _ in range(options.repetitions):
                    times.append(measure(cluster, role, way))
                    time.sleep(12)  # processes that die too often within a minute are not started again
                for what, values in zip(("noticed", "goes_on"), zip(*times)):
                    turns.Rows.print_row(rows.add("%s/%s" % (name, what), "s", values, [LEASE_S], "lease"))
            if job_id:
                cluster.run("cancel", job_id)
    finally:
        cluster.run("down", check=False)
        shutil.rmtree(folder, ignore_errors=True)
    rows.write(options.json)


if __name__ == "__main__":
    main()
