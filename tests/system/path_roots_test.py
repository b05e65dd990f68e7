"""Daemons with roots read and write for jobs only below them; what is refused harms neither files nor the cluster."""
import json
import os
import shutil
import unittest

from sluice_testing import SluiceTest, free_port, wait_until

ROWS = [(i % 2, i, "abc"[i % 3]) for i in range(60)]


class PathRootsTest(SluiceTest):
    def setUp(self):
        super().setUp()
        for name in ("data", "out", "outside"):
            (self.tmp / name).mkdir()
        self.write_csv("data/train.csv", ROWS)
        self.write_csv("outside/train.csv", ROWS)
        self.roots = ["--data_root=%s" % (self.tmp / "data"), "--output_root=%s" % (self.tmp / "out")]
        self.job = self.small_job(train=self.tmp / "data" / "train.csv")

    def start_cluster(self, scheduler=(), pserver=(), worker=()):
        self.address = "127.0.0.1:%d" % free_port()
        log = "--log_dir=%s" % (self.tmp / "log")
        to = "--scheduler=" + self.address
        self.daemons = [
            self.start("sluice-scheduler", "--bind=" + self.address, "--server_num=1", "--worker_num=1", log,
                       *scheduler),
            self.start("sluice-pserver", "--rank=0", to, log, *pserver),
            self.start("sluice-worker", "--rank=0", "--threads=1", to, log, *worker)]
        wait_until(lambda: self.run_program("sluice", "status", to).stdout.count(" alive ") == 3, "all members")

    def stop_cluster(self):
        """Every daemon still runs and ends well."""
        self.assertEqual([daemon.poll() for daemon in self.daemons], [None, None, None])
        self.run_program("sluice", "down", "--scheduler=" + self.address)
        self.assertEqual([self.exit_code(daemon) for daemon in self.daemons], [0, 0, 0])

    def submit(self, output, *flags):
        """Submits a job and waits for its end. Returns its exit code and output."""
        done = self.run_program("sluice", "submit", "--job=%s" % self.job, "--scheduler=" + self.address,
                                "--output_dir=%s" % output, *flags)
        return done.returncode, done.stdout

    def assert_runs(self, output, *flags):
        code, text = self.submit(output, *flags)
        self.assertEqual(code, 0, text)
        self.assertEqual(json.loads((output / "result.json").read_text())["status"], "done")
        self.assertTrue((output / "model" / "MANIFEST").exists())

    def assert_refused(self, output, *flags, names):
        code, text = self.submit(output, *flags)
        self.assertNotEqual(code, 0, text)
        for name in (str(names), "_root"):
            self.assertIn(name, text)
        return text

    def outside(self):
        return sorted(str(path.relative_to(self.tmp / "outside")) for path in (self.tmp / "outside").rglob("*"))

    def test_jobs_use_what_lies_below_the_roots_and_nothing_else(self):
        self.start_cluster(self.roots, self.roots, self.roots)
        out, outside = self.tmp / "out", self.tmp / "outside"
        good = out / "good"
        self.assert_runs(good, "--trace=%s" % (out / "traces" / "t.json"), "--set=data.cache_dir=%s" % (out / "cache"),
                         "--set=checkpoint.every_epochs=1", "--set=checkpoint.dir=%s" % (out / "kept"))
        self.assertTrue((out / "traces" / "t.json").exists())
        self.assertTrue(list((out / "kept").glob("step-*/MANIFEST")))
        shutil.copytree(good / "model", outside / "model")
        shutil.copytree(out / "kept", outside / "kept")
        (outside / "notes.txt").write_text("mine")
        (out / "link").symlink_to(outside)
        before = self.outside()

        self.assert_refused(outside / "job", names=outside / "job")
        self.assert_refused(out / "link" / "job", names=out / "link" / "job")
        self.assert_refused(self.tmp / "data" / "job", names=self.tmp / "data" / "job")
        self.assert_refused(out / "a", "--trace=%s" % (outside / "t.json"), names=outside)
        self.assert_refused(out / "b", "--trace=%s" % (outside / "notes.txt"), "--overwrite", names=outside)
        self.assert_refused(out / "c", "--set=checkpoint.dir=%s" % (outside / "new"), names=outside / "new")
        self.assert_refused(out / "d", "--set=initial_model=%s" % (outside / "model"), names=outside / "model")
        self.assert_refused(out / "e", "--set=initial_checkpoint=%s" % (outside / "kept"), names=outside / "kept")
        for number, (files, name) in enumerate(((outside / "train.csv", outside), (outside / "*.csv", outside),
                                                (out / "link" / "train.csv", out / "link"),
                                                ("%s/../outside/*.csv" % out, "outside"))):
            self.assert_refused(out / ("f%d" % number), "--set=data.train_files=%s" % files, names=name)
        # A cache only saves time, so the job runs without it.
        self.assert_runs(out / "g", "--set=data.cache_dir=%s" % (outside / "cache"))
        self.assertEqual(self.outside(), before)
        self.assertEqual((outside / "notes.txt").read_text(), "mine")

        self.assert_runs(out / "last", "--set=initial_model=%s" % (good / "model"))
        self.stop_cluster()

    def test_each_daemon_has_its_own_roots(self):
        # As if the other hosts had no roots: the pserver still writes only below its own.
        self.start_cluster(pserver=self.roots)
        elsewhere = self.tmp / "outside" / "job"
        code, text = self.submit(elsewhere)
        self.assertNotEqual(code, 0, text)
        self.assertIn("--output_root", text)
        self.assertEqual(json.loads((elsewhere / "result.json").read_text())["status"], "failed")
        self.assertEqual(list(elsewhere.rglob("*.shard")), [])
        self.assert_runs(self.tmp / "out" / "job")
        self.stop_cluster()

    def test_roots_that_cannot_hold_are_refused_at_the_start(self):
        missing = self.tmp / "none"
        for flags, name in ((["--output_root=%s" % missing], str(missing)), (["--output_root=out"], "out"),
                            ([self.roots[0]], "--output_root")):
            for program in ("sluice-scheduler", "sluice-pserver", "sluice-worker"):
                member = [] if program == "sluice-scheduler" else ["--rank=0", "--scheduler=127.0.0.1:1"]
                done = self.run_program(program, "--log_dir=%s" % (self.tmp / "log"), *flags, *member)
                self.assertEqual(done.returncode, 2, done.stdout)
                self.assertIn(name, done.stdout)
        self.assertFalse(missing.exists())

    def test_roots_come_from_the_environment_and_the_cluster_file(self):
        cluster = self.tmp / "cluster.textproto"
        cluster.write_text('version: 1\nsecurity { output_root: "%s" }\n' % (self.tmp / "none"))
        command = ["sluice-scheduler", "--cluster=%s" % cluster, "--log_dir=%s" % (self.tmp / "log")]
        done = self.run_program(*command)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn(str(self.tmp / "none"), done.stdout)
        roots = "%s,%s" % (self.tmp / "out", self.tmp / "gone")
        done = self.run_program(*command, env={**os.environ, "SLUICE_OUTPUT_ROOT": roots})
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn(str(self.tmp / "gone"), done.stdout)

    def test_a_cluster_of_one_host_has_roots_too(self):
        out, size = self.tmp / "out", ("--server_num=1", "--worker_num=1")
        given = {"SLUICE_DATA_ROOT": str(self.tmp / "data"), "SLUICE_OUTPUT_ROOT": str(out)}
        for number, (flags, variables) in enumerate(((self.roots, {}), ((), given),
                                                     (self.roots, {"SLUICE_OUTPUT_ROOT": str(self.tmp / "gone")}))):
            log_dir = self.up(*size, *flags, name="log%d" % number, env={**os.environ, **variables})
            self.address = next(one.address for one in self.endpoints_of(log_dir) if one.role == "scheduler")
            self.assert_runs(out / ("job%d" % number))
            self.assert_refused(self.tmp / "outside" / "job", names=self.tmp / "outside" / "job")
            self.assert_refused(out / ("other%d" % number), "--set=data.train_files=%s" % (self.tmp / "outside" / "train.csv"),
                                names=self.tmp / "outside")
            self.sluice("down", log_dir)
        for flags in (["--output_root=out"], [self.roots[0]]):
            done = self.run_program("sluice", "up", "--log_dir=%s" % (self.tmp / "log"), *size, *flags)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn("output_root", done.stdout)


if __name__ == "__main__":
    unittest.main()
