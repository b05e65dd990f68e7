"""Checkpoints of running jobs: made on time and on demand, kept, checked, and never in the way of training."""
import errno
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import time
import unittest
import urllib.request

from sluice_testing import BIN, ENDED, PATIENCE, TEST_BIN, TIME_SCALE, SluiceTest, free_port, wait_until

FLAGS = ["--a_sync=false", "--worker_num=2", "--threads=1", "--batch_size=8", "--set=data.shuffle_lanes=7"]
GEO_FLAGS = ["--a_sync=true", "--k_steps=5", "--worker_num=2", "--threads=1", "--batch_size=8",
             "--set=data.task_bytes=2500"]
LONG = ["--epochs=100000"]
STEPS = 125  # of an epoch: 2000 lines, batches of 16


class CheckpointTest(SluiceTest):
    def setUp(self):
        super().setUp()
        rows = [(int((i * 7 % 4 < 3) == (i % 5 < 2)), i % 3, "v%d" % (i * i % 331)) for i in range(2000)]
        self.write_csv("train.csv", rows)
        self.job = self.small_job(train="train.csv", evaluation="train.csv")

    def folders(self, name="run"):
        """The folders of complete checkpoints by step, the oldest first."""
        found = {int(path.parent.name[len("step-"):]): path.parent
                 for path in (self.tmp / name / "checkpoints").glob("step-*/MANIFEST")}
        return dict(sorted(found.items()))

    def train(self, *flags, name="run", expect=0):
        return self.launch("--server_num=2", *FLAGS, "--epochs=8", *flags, job=self.job, name=name, expect=expect)

    def verify(self, folder, expect=0):
        done = self.run_program("sluice", "ckpt", "verify", folder)
        self.assertEqual(done.returncode, expect, done.stdout)
        return done.stdout

    # ---------------------------------------------------------------------------------- making and keeping

    def test_checkpoints_do_not_change_training_and_the_newest_are_kept(self):
        none, _ = self.train("--set=checkpoint.keep=0", name="none")
        self.assertEqual(self.folders("none"), {})
        many, _ = self.train("--set=checkpoint.every_s=0", "--set=checkpoint.every_epochs=2", "--set=checkpoint.keep=3")
        self.assertEqual(many["model_digest"], none["model_digest"])
        self.assertEqual([(e["loss"], e["examples"]) for e in many["epochs_log"]],
                         [(e["loss"], e["examples"]) for e in none["epochs_log"]])
        steps = list(self.folders())
        self.assertEqual(steps, [4 * STEPS, 6 * STEPS, 8 * STEPS], "no epoch is left out")
        for folder in self.folders().values():
            self.verify(folder)
        self.assertEqual(sorted(path.name for path in (self.tmp / "run" / "checkpoints").iterdir()),
                         sorted("step-%d" % step for step in steps), "nothing else is left behind")

    def test_multiples_are_exact_and_a_later_job_starts_from_the_end(self):
        every = ["--set=checkpoint.every_s=0", "--set=checkpoint.every_steps=100", "--set=checkpoint.keep=20"]
        self.train(*every, "--epochs=7")
        steps = list(self.folders())
        self.assertEqual([step for step in steps[:-1] if step % 100 != 0], [])
        self.assertEqual(steps[-1], 7 * STEPS, "the job's end")
        self.train("--epochs=1", "--set=initial_checkpoint=%s" % (self.tmp / "run"), name="next")
        for name, flags in (("async", ["--k_steps=0"]), ("geo", ["--k_steps=5"])):
            self.launch("--server_num=2", "--a_sync=true", "--worker_num=2", "--threads=1", "--batch_size=8", "--epochs=2",
                        *flags, job=self.job, name=name)
            self.assertEqual(list(self.folders(name)), [2 * STEPS], "the mean of the workers' steps")
        self.train("--epochs=1", "--set=checkpoint.at_end=false", name="without")
        self.assertEqual(self.folders("without"), {})
        _, out = self.train("--epochs=1", "--set=initial_checkpoint=%s" % (self.tmp / "without"), name="refused", expect=2)
        self.assertIn("at_end", out)

    def test_a_checkpoint_on_demand(self):
        log_dir = self.up("--server_num=2", "--worker_num=2")
        out = self.sluice("submit", log_dir, "--job=%s" % self.job, "--output_dir=%s" % (self.tmp / "run"), *FLAGS, *LONG,
                          "--detach")
        job_id = re.search(r"small-\d+", out).group()
        self.await_job(log_dir, job_id, lambda job: int(job.get("global_step", 0)) > 0 or int(job.get("epoch", 0)) > 0,
                       "training")
        made = self.sluice("checkpoint", log_dir, job_id)
        folders = self.folders()
        self.assertEqual(len(folders), 1, made)
        step, folder = next(iter(folders.items()))
        self.assertIn(str(folder), made)
        self.verify(folder)
        status = self.job_status(log_dir, job_id)["checkpoint"]
        self.assertEqual(int(status["step"]), step)
        self.assertEqual(int(status["made"]), 1)
        self.sluice("checkpoint", log_dir, job_id)
        self.assertGreater(max(self.folders()), step)
        self.sluice("cancel", log_dir, job_id)
        done = self.run_program("sluice", "checkpoint", "--log_dir=%s" % log_dir, job_id)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn(job_id, done.stdout)

    # -------------------------------------------------------------------------------------------- damage

    def test_every_damage_to_any_file_is_found_and_named(self):
        self.train("--epochs=1", "--set=checkpoint.every_epochs=1")
        whole = next(iter(self.folders().values()))
        self.assertIn("intact", self.verify(whole).lower())
        copy = self.tmp / "copy"
        names = sorted(path.name for path in whole.iterdir())
        self.assertGreater(len(names), 4)

        def flip(path, at):
            data = bytearray(path.read_bytes())
            data[at] ^= 0x10
            path.write_bytes(data)

        def another(path):
            return path.with_name(names[names.index(path.name) - 1])

        damages = {
            "truncate": lambda path: path.write_bytes(path.read_bytes()[:-1]),
            "zero": lambda path: path.write_bytes(bytes(path.stat().st_size)),
            "another file in its place": lambda path: shutil.copyfile(another(path), path),
            "flip in the middle": lambda path: flip(path, path.stat().st_size // 2),
            "flip at the start": lambda path: flip(path, 0),
            "flip at the end": lambda path: flip(path, path.stat().st_size - 2),
            "delete": lambda path: path.unlink(),
        }
        for name in names:
            for damage, apply in damages.items():
                with self.subTest("%s: %s" % (name, damage)):
                    shutil.rmtree(copy, ignore_errors=True)
                    shutil.copytree(whole, copy)
                    apply(copy / name)
                    self.assertIn(name, self.verify(copy, expect=1))
        self.verify(whole)

    def test_a_damaged_newest_checkpoint_is_refused_by_name_and_an_older_one_taken_when_asked(self):
        whole, _ = self.train("--set=checkpoint.every_epochs=4", "--set=checkpoint.keep=2")
        older, newest = list(self.folders().items())
        self.assertEqual((older[0], newest[0]), (4 * STEPS, 8 * STEPS))
        shard = max(newest[1].glob("*.shard"), key=lambda path: path.stat().st_size)
        data = bytearray(shard.read_bytes())
        data[len(data) // 2] ^= 1
        shard.write_bytes(data)
        resume = ["--set=checkpoint.every_epochs=4", "--resume"]
        _, out = self.train(*resume, expect=None)
        self.assertIn(shard.name, out)
        self.assertNotIn('"done"', json.dumps(json.loads((self.tmp / "run" / "result.json").read_text())["status"]))
        result, out = self.train(*resume, "--allow_older")
        self.assertEqual(result["model_digest"], whole["model_digest"])
        self.assertIn(str(older[1]), json.dumps(result))
        self.assertIn(shard.name, out)
        # The checkpoint of the last step was made again, and is whole now.
        self.verify(self.folders()[8 * STEPS])
        # A checkpoint that has lost its manifest is damaged, too.
        lost = self.folders()[8 * STEPS] / "MANIFEST"
        lost.unlink()
        self.assertIn(str(lost), self.verify(self.tmp / "run", expect=1))
        _, out = self.train(*resume, expect=None)
        self.assertIn(str(lost), out)
        self.assertFalse(lost.exists())
        result, out = self.train(*resume, "--allow_older")
        self.assertEqual(result["model_digest"], whole["model_digest"])
        self.assertIn(str(lost), out)

    def swap(self, one, other):
        """Exchanges the contents of two files."""
        first, second = one.read_bytes(), other.read_bytes()
        self.assertNotEqual(first, second)
        one.write_bytes(second)
        other.write_bytes(first)

    def resume_damaged(self, name, whole, damage, files, *flags):
        """Resumes a copy of the output folder `whole` in which `damage(checkpoint folder)` was done. The job must fail
        and name one of the files."""
        shutil.copytree(whole, self.tmp / name)
        damage(list(self.folders(name).values())[-1])
        # What the sizes of files tell is refused (2) before a process starts, the rest when pservers have read the files.
        _, out = self.launch(*flags, "--resume", job=self.job, name=name, expect=(1, 2))
        self.assertTrue(any(file in out for file in files), out)
        self.assertIn("damaged", out)

    def test_zeroed_and_swapped_shard_files_are_refused_by_name(self):
        flags = ["--server_num=2", *FLAGS, "--set=checkpoint.every_epochs=1"]
        self.launch(*flags, "--epochs=1", job=self.job, name="whole")
        folder = next(iter(self.folders("whole").values()))
        shards = sorted(folder.glob("*.shard"), key=lambda path: path.stat().st_size)
        self.assertGreater(len(shards), 1)
        flags.append("--epochs=2")
        for i, shard in enumerate(shards):
            other = shards[i - 1]
            names = (shard.name, other.name)
            with self.subTest(shard.name):
                self.resume_damaged("zeroed-%d" % i, self.tmp / "whole",
                                    lambda at: (at / names[0]).write_bytes(bytes(shard.stat().st_size)), names[:1], *flags)
                self.resume_damaged("swapped-%d" % i, self.tmp / "whole",
                                    lambda at: self.swap(at / names[0], at / names[1]), names, *flags)

    def test_damaged_and_swapped_files_of_geo_ranks_are_refused_by_name(self):
        # Each rank has every key in files of its own, however the machine shares its time between them.
        shutil.copyfile(self.tmp / "train.csv", self.tmp / "train1.csv")
        self.job = self.small_job(train="train*.csv", evaluation="train.csv", data_extra="assignment: PER_RANK_FILES")
        flags = ["--server_num=2", "--worker_num=2", "--threads=1", "--batch_size=8", "--set=data.task_bytes=2500",
                 "--set=strategy.a_sync_configs.k_steps=5", "--set=optimizers.all={adam {} learning_rate: 0.01}",
                 "--set=checkpoint.every_steps=100", "--set=checkpoint.keep=4"]
        self.launch(*flags, "--epochs=20", job=self.job, name="whole")
        *earlier, folder = list(self.folders("whole").values())
        files = sorted(folder.glob("worker-*"))
        self.assertEqual(len(files), 2)
        # Both ranks have seen every key, so nothing but the checksum in the manifest tells the files apart.
        self.assertEqual(len({path.stat().st_size for path in files}), 1)
        names = [path.name for path in files]
        flags.append("--epochs=22")
        for i, name in enumerate(names):
            with self.subTest(name):
                self.resume_damaged("zeroed-%d" % i, self.tmp / "whole",
                                    lambda at: (at / name).write_bytes(bytes(files[i].stat().st_size)), [name], *flags)
                # An intact file of the same rank in an earlier checkpoint. A rank that had ended its epoch by then has the same
                # bytes in both.
                older = next(path for one in reversed(earlier) for path in one.glob("worker-%d.*" % i)
                             if path.read_bytes() != files[i].read_bytes())
                self.assertEqual(older.stat().st_size, files[i].stat().st_size)
                self.resume_damaged("older-%d" % i, self.tmp / "whole", lambda at: shutil.copyfile(older, at / name), [name],
                                    *flags)
        self.resume_damaged("swapped", self.tmp / "whole", lambda at: self.swap(at / names[0], at / names[1]), names, *flags)
        # Nothing else keeps the job from going on.
        shutil.copytree(self.tmp / "whole", self.tmp / "intact")
        result, _ = self.launch(*flags, "--resume", job=self.job, name="intact")
        self.assertEqual((result["status"], result["epochs"]), ("done", 22))

    def test_a_full_disk_fails_checkpoints_and_not_the_job(self):
        whole, _ = self.train("--set=checkpoint.every_s=0", name="whole")
        folder = self.tmp / "disk"
        folder.mkdir()
        launch = "%s launch --job=%s --output_dir=%s --log_dir=%s --server_num=2 %s --epochs=8" % (
            BIN / "sluice", self.job, self.tmp / "run", self.tmp / "log", " ".join(FLAGS))
        script = ("set -e; mount -t tmpfs -o size=16k none %s || exit 77; "
                  "%s --set=checkpoint.every_s=0 --set=checkpoint.every_epochs=2 --set=checkpoint.dir=%s/checkpoints; "
                  "find %s -type f" % (folder, launch, folder, folder))
        done = subprocess.run(["unshare", "-m", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=4 * PATIENCE * TIME_SCALE)
        if done.returncode == 77 or "unshare" in done.stdout:
            self.skipTest("a small file system cannot be mounted here: %s" % done.stdout.strip())
        self.assertEqual(done.returncode, 0, done.stdout)
        result = json.loads((self.tmp / "run" / "result.json").read_text())
        self.assertEqual((result["status"], result["model_digest"]), ("done", whole["model_digest"]))
        self.assertIn("No space left", json.dumps(result["warnings"]))
        self.assertNotIn(".shard", done.stdout.split("No space left")[-1], "the unfinished files are removed")

    def start_on_small_disk(self, *flags, earlier=None, name="run"):
        """Starts `sluice launch` with its output on a small file system that only its processes see, in a copy of the
        output folder `earlier`. Waits until its curve begins. Returns a process that ends with the launcher's exit
        code, and the output folder as a path from here, which is good until then. At the end the folder is copied to
        tmp/<name>."""
        disk = self.tmp / "disk"
        disk.mkdir(exist_ok=True)
        script = "mount -t tmpfs -o size=16m none %s || exit 77; %s; %s launch --job=%s --output_dir=%s --log_dir=%s %s; code=$?; cp -r %s/. %s; exit $code" % (
            disk, "cp -r %s %s" % (earlier, disk / name) if earlier else ":", BIN / "sluice", self.job, disk / name, self.tmp / (name + ".log"),
            " ".join(("--server_num=2",) + tuple(FLAGS) + flags), disk / name, self.tmp / name)
        with open(self.tmp / (name + ".out"), "wb") as out:
            process = subprocess.Popen(["unshare", "-m", "sh", "-c", script], stdout=out, stderr=subprocess.STDOUT,
                                       cwd=self.tmp)
        self._started.append(process)
        folder = pathlib.Path("/proc/%d/root%s" % (process.pid, disk / name))

        def begun():
            if process.poll() == 77 or "unshare:" in self.output(name):
                self.skipTest("a small file system cannot be mounted here: %s" % self.output(name))
            self.assertIsNone(process.poll(), self.output(name))
            return list(folder.glob("rerun-1/events.*" if earlier else "events.*"))

        wait_until(begun, "the curve begins")
        return process, folder

    def output(self, name="run"):
        return (self.tmp / (name + ".out")).read_text()

    @staticmethod
    def fill(disk):
        """Fills the file system of a folder; returns the file to remove."""
        filler = disk / "filler"
        with open(filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError as error:
                assert error.errno == errno.ENOSPC, error
        return filler

    def metric(self, role, name, run="run"):
        """The values of a metric of all processes of a role."""
        found = []
        for line in (self.tmp / (run + ".log") / "endpoints.log").read_text().splitlines():
            fields = line.split()
            if fields[0] != role:
                continue
            with urllib.request.urlopen("http://%s/metrics" % fields[4], timeout=PATIENCE) as reply:
                found += [float(value) for value in re.findall(r"^%s(?:\{.*\})? (\S+)$" % name, reply.read().decode(),
                                                               re.MULTILINE)]
        return found

    def test_a_full_disk_under_the_output_folder_does_not_fail_the_job(self):
        # Long enough to see what is awaited below while the disk is full.
        process, folder = self.start_on_small_disk("--epochs=200", "--set=checkpoint.every_steps=50")
        curve = next(folder.glob("events.*"))
        filler = self.fill(folder.parent)
        log_dir = self.tmp / "run.log"
        status = self.await_job(
            log_dir, "small-1", lambda job: any("curve lacks points" in w for w in job["warnings"])
            and "No space left" in job["checkpoint"]["last_error"], "the disk is full")
        warning = next(w for w in status["warnings"] if "curve lacks points" in w)
        for part in (curve.name, "No space left"):
            self.assertIn(part, warning)
        self.assertGreater(int(status["checkpoint"]["failed"]), 0)
        wait_until(lambda: sum(self.metric("scheduler", "sluice_scheduler_checkpoints_failed_total")) > 0,
                   "the scheduler's metric of failed checkpoints")
        wait_until(lambda: 1 in self.metric("pserver", "sluice_pserver_checkpoint_failed"),
                   "the pserver's metric of a failed checkpoint")
        full = curve.stat().st_size
        filler.unlink()
        wait_until(lambda: curve.stat().st_size > full, "the curve continues")
        wait_until(lambda: list(folder.glob("checkpoints/step-*/MANIFEST")), "checkpoints continue")
        self.assertEqual(self.exit_code(process, within=4 * PATIENCE), 0, self.output())
        result = json.loads((self.tmp / "run" / "result.json").read_text())
        self.assertEqual(result["status"], "done")
        self.assertIn(warning, result["warnings"])
        self.assertTrue((self.tmp / "run" / "model" / "MANIFEST").exists())
        records = (self.tmp / "run" / curve.name).read_bytes()
        at = 0
        while at < len(records):
            at += 16 + struct.unpack_from("<Q", records, at)[0]
        self.assertEqual(at, len(records), "all records of the curve are whole")

    def start_on_bad_disk(self, name, victim, failpoint, pattern, *flags):
        """Starts daemons and submits a job with output in tmp/<name>. As long as the returned file exists, changes of the
        victim to files of checkpoints that match the pattern fail or are slow, as `failpoint` says. Returns the file and
        the log folder."""
        scheduler = "127.0.0.1:%d" % free_port()
        bad, log_dir = self.tmp / "bad", self.tmp / (name + ".log")
        bad.write_text("")
        log_dir.mkdir()
        environment = dict(os.environ, FAILPOINT=failpoint, FAILPOINT_WHILE=str(bad),
                           FAILPOINT_PATH=str(self.tmp / name / "checkpoints" / "step-*" / pattern))
        daemons = {"scheduler": ["--bind=%s" % scheduler, "--server_num=2", "--worker_num=2"]}
        for rank in range(2):
            daemons["pserver %d" % rank] = ["--rank=%d" % rank, "--scheduler=%s" % scheduler, "--bind=127.0.0.1:0"]
            daemons["worker %d" % rank] = ["--rank=%d" % rank, "--scheduler=%s" % scheduler]
        for daemon, arguments in daemons.items():
            role = daemon.split()[0]
            program = TEST_BIN / ("failpoint_" + role) if daemon == victim else "sluice-" + role
            self.start(program, *arguments, "--log_dir=%s" % log_dir, log="%s.%s.out" % (name, daemon.replace(" ", "")),
                       env=environment if daemon == victim else None)
        wait_until(lambda: any(e.role == "scheduler" for e in self.endpoints(name)), "the scheduler listens")
        # The commands do not take a process of another name for the scheduler of endpoints.log.
        os.environ["SLUICE_SCHEDULER"] = scheduler
        self.addCleanup(os.environ.pop, "SLUICE_SCHEDULER", None)
        out = self.sluice("submit", log_dir, "--job=%s" % self.job, "--output_dir=%s" % (self.tmp / name), "--detach",
                          *flags)
        self.assertIn("small-1", out)
        return bad, log_dir

    def finish_on_mended_disk(self, name, bad, log_dir):
        """Mends the disk, waits for the end of the job and stops the daemons. Returns result.json."""
        bad.unlink()
        wait_until(lambda: self.job_status(log_dir, "small-1")["state"] in ENDED, "the end of the job", 4 * PATIENCE)
        self.sluice("down", log_dir)
        del os.environ["SLUICE_SCHEDULER"]
        result = json.loads((self.tmp / name / "result.json").read_text())
        self.assertEqual(result["status"], "done", result.get("message"))
        return result

    def test_an_io_error_fails_checkpoints_and_not_the_job(self):
        # Enough epochs that the job outlives all that is asked of it, also on a fast machine whose other tests slow the questions.
        cases = {"pserver": ("pserver 0", "*.shard", FLAGS, 200), "scheduler": ("scheduler", "MANIFEST*", FLAGS, 200),
                 "worker": ("worker 0", "worker-*", GEO_FLAGS, 500)}
        whole, _ = self.train("--epochs=200", "--set=checkpoint.every_s=0", name="whole")
        for role, (victim, pattern, flags, epochs) in cases.items():
            with self.subTest(role):
                bad, log_dir = self.start_on_bad_disk(role, victim, "fail", pattern, *flags, "--epochs=%d" % epochs,
                                                      "--set=checkpoint.every_s=0", "--set=checkpoint.every_steps=50")
                failed = self.await_job(log_dir, "small-1", lambda job: int(job.get("checkpoint", {}).get("failed", 0)) > 1,
                                        "failed checkpoints")
                self.assertIn("Input/output error", failed["checkpoint"]["last_error"])
                self.assertTrue(any("Input/output error" in warning for warning in failed["warnings"]), failed["warnings"])
                text = self.sluice("status", log_dir)
                for part in ("checkpoints failed", "Input/output error"):
                    self.assertIn(part, text)
                wait_until(lambda: sum(self.metric("scheduler", "sluice_scheduler_checkpoints_failed_total", role)) > 0,
                           "the scheduler's metric of failed checkpoints")
                if role == "pserver":
                    wait_until(lambda: 1 in self.metric("pserver", "sluice_pserver_checkpoint_failed", role),
                               "the pserver's metric of a failed checkpoint")
                self.assertEqual(self.folders(role), {})
                self.await_job(log_dir, "small-1", lambda job: int(job["examples"]) > int(failed["examples"]),
                               "training goes on")
                result = self.finish_on_mended_disk(role, bad, log_dir)
                self.assertGreater(result["checkpoints"]["failed"], 1)
                self.assertGreater(result["checkpoints"]["made"], 0)
                self.assertTrue(any("Input/output error" in warning for warning in result["warnings"]), result["warnings"])
                self.assertEqual(result["epochs"], epochs)
                if flags is FLAGS:
                    self.assertEqual(result["model_digest"], whole["model_digest"])
                for folder in (self.tmp / role / "checkpoints").iterdir():
                    self.verify(folder)  # nothing is left of those that failed

    def test_a_slow_disk_delays_a_checkpoint_and_not_the_training(self):
        bad, log_dir = self.start_on_bad_disk("run", "pserver 0", "slow:1000", "*.shard", *FLAGS, "--epochs=300",
                                              "--set=checkpoint.every_s=0", "--set=checkpoint.every_steps=50")
        begun = self.await_job(log_dir, "small-1", lambda job: "writing step" in job.get("checkpoint", {}).get("doing", ""),
                               "a checkpoint is being written")
        doing = begun["checkpoint"]["doing"].split(" (")[0]
        step = int(doing.split()[-1])
        later = self.await_job(log_dir, "small-1", lambda job: int(job["global_step"]) > step + 100, "training goes on")
        self.assertIn(doing, later["checkpoint"]["doing"], "the same checkpoint is still being written")
        self.assertIn(doing, self.sluice("status", log_dir))
        made = self.await_job(log_dir, "small-1", lambda job: int(job["checkpoint"].get("made", 0)) > 0, "the checkpoint")
        self.assertEqual(int(made["checkpoint"]["step"]), step)
        self.assertGreater(made["checkpoint"]["seconds"], 1)
        self.assertGreater(max(self.metric("scheduler", "sluice_scheduler_checkpoint_seconds")), 1)
        result = self.finish_on_mended_disk("run", bad, log_dir)
        self.assertEqual((result["checkpoints"]["failed"], result["warnings"]), (0, []))
        for folder in self.folders().values():
            self.verify(folder)

    def test_a_disk_that_stays_full_fails_the_job_at_its_end_and_keeps_the_earlier_model(self):
        self.train("--set=checkpoint.every_s=0", name="first")
        process, folder = self.start_on_small_disk("--epochs=30", "--set=checkpoint.every_s=0",
                                                   earlier=self.tmp / "first")
        self.fill(folder.parent)
        self.assertNotEqual(self.exit_code(process, within=4 * PATIENCE), 0, self.output())
        last = self.output().splitlines()[-1]
        for part in ("small-1 failed", str(self.tmp / "disk" / "run" / "model"), "No space left"):
            self.assertIn(part, last)
        first, run = self.tmp / "first", self.tmp / "run"
        for path in (first / "model").iterdir():
            self.assertEqual((run / "model" / path.name).read_bytes(), path.read_bytes(), path.name)
        self.assertEqual(len(list((run / "model").iterdir())), len(list((first / "model").iterdir())))
        self.assertIn((first / "result.json").read_text(),
                      [path.read_text() for path in run.glob("*result.json")])

    # ------------------------------------------------------------------------------------------ killing

    def test_killing_the_processes_at_any_time_leaves_only_whole_checkpoints(self):
        for i, role in enumerate(("pserver", "worker", "scheduler")):
            with self.subTest(role):
                name = "killed-%s" % role
                launcher = self.start_launch("--server_num=2", *FLAGS, *LONG, "--set=checkpoint.every_steps=10",
                                             "--set=recovery.max_losses=0", job=self.job, name=name)

                def made():
                    self.assertIsNone(launcher.poll(), (self.tmp / (name + ".out")).read_text())
                    return self.folders(name)

                wait_until(made, "a checkpoint of " + name)
                time.sleep(0.05 * i)
                victim = next(e for e in self.endpoints(name) if e.role == role)
                subprocess.run(["kill", "-KILL", str(victim.pid)], check=True)
                if role == "scheduler":  # it is started again
                    launcher.kill()
                self.assertNotEqual(self.exit_code(launcher), 0)
                self.await_none_left()
                self.assertGreaterEqual(len(self.folders(name)), 1)
                for folder in self.folders(name).values():
                    self.verify(folder)


if __name__ == "__main__":
    unittest.main()
