"""How and where a worker computes. bf16 factors cost no quality on Adult, pinned threads change no bit, and a missing
device is named before anything runs."""
import os
import unittest

from sluice_testing import ADULT, SluiceTest, free_port

# Every reason for which a machine lacks the device with this number.
NO_DEVICE = "built without CUDA|no NVIDIA driver|update the driver|shows no CUDA device|cuda:1023 (is not there|does not exist)"

SYNC = ["--server_num=1", "--worker_num=2", "--epochs=2", "--a_sync=false"]


class ComputeOptionsTest(SluiceTest):
    def logs(self, name):
        return [(self.tmp / (name + ".log") / ("workerlog.%d" % rank)).read_text() for rank in (0, 1)]

    def test_bf16_is_as_good_as_f32_and_pinning_changes_no_bit(self):
        plain, _ = self.launch(*SYNC, name="plain")
        pinned, _ = self.launch(*SYNC, "--set", "train.pin_threads=true", name="pinned")
        self.assertEqual(pinned["model_digest"], plain["model_digest"])
        for text in self.logs("pinned"):
            self.assertRegex(text, r"computes on CPU \d")
        for text in self.logs("plain"):
            self.assertNotIn("computes on CPU", text)

        bf16, _ = self.launch(*SYNC, "--set", "train.compute_dtype=BF16", name="bf16")
        self.assertNotEqual(bf16["model_digest"], plain["model_digest"])
        # Other seeds change these figures by about 0.0005 and 0.001.
        self.assertAlmostEqual(bf16["eval"]["auc"], plain["eval"]["auc"], delta=0.001)
        self.assertAlmostEqual(bf16["eval"]["log_loss"], plain["eval"]["log_loss"], delta=0.002)
        for exact, rounded in zip(plain["epochs_log"], bf16["epochs_log"]):
            self.assertAlmostEqual(rounded["loss"], exact["loss"], delta=0.002)

    def test_unknown_type_is_refused(self):
        _, output = self.launch("--set", "train.compute_dtype=FP8", expect=2)
        self.assertIn("compute_dtype", output)
        self.assertIn("BF16", output)

    # -------------------------------------------------------------------------------------------- devices

    def no_gpu_environment(self):
        """These processes see no GPU, even on a machine that has some."""
        return {**os.environ, "CUDA_VISIBLE_DEVICES": ""}

    def test_a_worker_without_its_device_ends_before_it_joins(self):
        nobody = "--scheduler=127.0.0.1:%d" % free_port()  # a worker that joins would wait for it
        for args, variables in ((["--device=cuda:1023"], {}), ([], {"SLUICE_DEVICE": "cuda:1023"}),
                                (["--device=cuda"], {"CUDA_VISIBLE_DEVICES": ""})):
            done = self.run_program("sluice-worker", "--rank=0", nobody, *args, env={**os.environ, **variables})
            self.assertIn(done.returncode, (1, 2), done.stdout)
            asked = args[0] if args else "SLUICE_DEVICE=cuda:1023"
            self.assertRegex(done.stdout, "^sluice-worker: %s: .*(%s).*--device=cpu" % (asked, NO_DEVICE))
        done = self.run_program("sluice-worker", "--rank=0", nobody, "--device=gpu")
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stdout, r"--device: 'gpu' .*cuda:N or auto")

    def test_auto_without_a_device_computes_on_the_cpu_and_says_why(self):
        done = self.run_program("sluice", "launch", "--job=%s" % ADULT, "--device=auto", "--epochs=1", "--worker_num=1",
                                "--output_dir=%s" % (self.tmp / "auto"), "--log_dir=%s" % (self.tmp / "log"),
                                env=self.no_gpu_environment())
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex((self.tmp / "log" / "workerlog.0").read_text(),
                         "computes on the CPU, .*device auto.*(%s)(?!.*--device=cpu)" % NO_DEVICE)

    def test_launch_and_up_refuse_missing_devices(self):
        launch = ["launch", "--job=%s" % ADULT]
        for args in (launch + ["--gpus=1023"], launch + ["--device=cuda:1023", "--worker_num=1"], ["up", "--gpus=1023"]):
            done = self.run_program("sluice", *args)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertRegex(done.stdout, "^sluice: %s: .*(%s)" % (args[2] if args[0] == "launch" else args[1], NO_DEVICE))
        self.assertFalse((self.tmp / "log").exists())  # nothing was started
        for args, wrong in ((["--gpus=0,0"], "--gpus=0,0: device 0"),
                            (["--gpus=0", "--cpu_workers=1", "--worker_num=3"], "2 workers"),
                            (["--gpus=0", "--device=cpu"], "--gpus=0: contradicts --device=cpu"),
                            (["--cpu_workers=2"], "--cpu_workers=2: "),
                            (["--set=train.compute_dtype=TF32"], "train.compute_dtype: TF32"),
                            (["--set=train.device_memory_fraction=0.5"], "train.device_memory_fraction: "),
                            (["--set=train.device_memory_fraction=1.5"], "train.device_memory_fraction: 1.5")):
            done = self.run_program("sluice", *launch, *args)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(wrong, done.stdout)

    def test_workers_of_a_cluster_show_their_device_and_refuse_what_it_cannot_do(self):
        log_dir = self.up("--server_num=1", "--worker_num=1", "--device=cpu")
        self.assertEqual([m["device"] for m in self.status(log_dir)["members"]], ["", "cpu"])
        self.assertRegex(self.sluice("status", log_dir), r"worker +0 +alive .* cpu\b")
        submit = ["--job=%s" % ADULT, "--worker_num=1", "--epochs=1", "--output_dir=%s" % (self.tmp / "out")]
        said = self.sluice("submit", log_dir, *submit, "--set=train.compute_dtype=FP16", expect=1)
        self.assertIn("train.compute_dtype: FP16", said)
        self.sluice("submit", log_dir, *submit, "--set=train.device_memory_fraction=0.5")
        self.assertIn("train.device_memory_fraction", (log_dir / "workerlog.0").read_text())


if __name__ == "__main__":
    unittest.main()
