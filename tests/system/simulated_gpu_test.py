"""Whole jobs on GPU workers, without a GPU: the programs' CUDA calls go to simulated devices
(tests/model/wide_deep/cuda/simulated), whose streams run in any order that events allow."""
import os
import re
import subprocess
import unittest
import urllib.request

# Set before sluice_testing reads it: these programs, and the usual scheduler and pserver.
FOLDER = os.environ.get("SLUICE_SIMULATED_BIN_DIR", "build/release/tests/simulated")
WHY_NOT = None if os.path.exists(os.path.join(FOLDER, "sluice-worker")) else "this build has no CUDA backend, or its simulated programs are not built"
if WHY_NOT is None:
    os.environ["SLUICE_BIN_DIR"] = FOLDER

from sluice_testing import ADULT, ADULT_TRAIN_EXAMPLES, PATIENCE, SluiceTest, free_port, processes_naming, wait_until  # noqa: E402

MODEL_DIFF = os.path.abspath(os.path.join(os.environ.get("SLUICE_TEST_BIN_DIR", "build/release/tests/bin"), "model_diff"))


@unittest.skipIf(WHY_NOT, WHY_NOT)
class SimulatedGpuTest(SluiceTest):
    def setUp(self):
        super().setUp()
        self.simulate("devices=2,pace=any_order")
        self.addCleanup(os.environ.pop, "SIMULATED_CUDA")

    def simulate(self, what):
        """Sets the devices for this test only (see tests/model/wide_deep/cuda/simulated/world.h)."""
        os.environ["SIMULATED_CUDA"] = "host=%d,%s" % (os.getpid(), what)

    def log(self, name, rank=0):
        return (self.tmp / (name + ".log") / ("workerlog.%d" % rank)).read_text()

    def test_every_mode_learns_on_two_gpus(self):
        flags = ["--gpus=0,1", "--server_num=2", "--epochs=1"]
        for name, mode, auc in (("async", ["--a_sync=true"], 0.910), ("geo", ["--k_steps=20"], 0.900),
                                ("sync", ["--a_sync=false"], 0.908)):
            with self.subTest(name):
                result, output = self.launch(*flags, *mode, name=name)
                self.assertEqual(result["mode"], name)
                self.assertEqual(result["examples"], ADULT_TRAIN_EXAMPLES)
                self.assertGreater(result["eval"]["auc"], auc)
                for rank in (0, 1):
                    self.assertIn("worker %d on cuda:%d: a simulated device" % (rank, rank), output)
                    self.assertRegex(self.log(name, rank), r"cuda:%d: .*\bf32\b.*\b2\.8 GiB" % rank)

    def diff(self, a, b):
        """Returns for each table the norm of the difference divided by the norm."""
        done = subprocess.run([MODEL_DIFF, self.tmp / a / "model", self.tmp / b / "model"], stdout=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        return [float(line.split()[-1]) for line in done.stdout.splitlines()]

    def test_sync_steps_agree_with_the_cpu_and_two_runs_are_equal_to_the_bit(self):
        # Enough steps to see a wrong gradient. Over more steps, rounding differences grow with training.
        self.write_csv("train.csv", [(i * 7 % 11 // 6, i % 13 / 13, "v%d" % (i * i % 29)) for i in range(1000)])
        job = self.small_job()
        flags = ["--a_sync=false", "--server_num=2", "--set=train.batch_size=50", "--epochs=1"]
        cpu, _ = self.launch(*flags, "--worker_num=2", job=job, name="cpu")
        gpu, _ = self.launch(*flags, "--gpus=0,1", job=job, name="gpu")
        again, _ = self.launch(*flags, "--gpus=1,0", job=job, name="again")
        self.assertEqual(again["model_digest"], gpu["model_digest"])
        self.assertNotEqual(cpu["model_digest"], gpu["model_digest"])  # the GPU sums in another order
        differences = self.diff("cpu", "gpu")
        self.assertEqual(len(differences), 7)
        self.assertLess(max(differences), 1e-5)
        self.assertAlmostEqual(gpu["epochs_log"][0]["loss"], cpu["epochs_log"][0]["loss"], places=6)

    def test_nccl_exchanges_the_gradients_of_two_gpus_with_the_bits_of_shared_memory(self):
        flags = ["--gpus=0,1", "--a_sync=false", "--server_num=1", "--epochs=1", "--set=strategy.sync_configs.dense=COLLECTIVE",
                 "--set=strategy.sync_configs.fuse_layers=2"]
        results = {}
        for name, more in (("shm", ["engine=SHM"]), ("nccl", ["engine=NCCL"])):
            with self.subTest(name):
                results[name], _ = self.launch(*flags, *["--set=strategy.sync_configs." + one for one in more], name=name)
                self.assertEqual(results[name]["examples"], ADULT_TRAIN_EXAMPLES)
                self.assertEqual(results[name]["model_digest"], results["shm"]["model_digest"])

    def test_without_the_library_of_nccl_the_job_fails_and_names_it(self):
        os.environ["SIMULATED_NCCL"] = "absent"
        self.addCleanup(os.environ.pop, "SIMULATED_NCCL")
        _, output = self.launch("--gpus=0,1", "--a_sync=false", "--server_num=1", "--epochs=1",
                                "--set=strategy.sync_configs.dense=COLLECTIVE", "--set=strategy.sync_configs.engine=NCCL",
                                name="absent", expect=1)
        self.assertIn("cannot load", output)

    # The rows are looked up in the worker's memory, and Geo's optimizer runs there.
    def test_dense_categories_train_on_gpus(self):
        self.write_csv("train.csv", [(i * 7 % 11 // 6, i % 13 / 13, "v%d" % (i * i % 29)) for i in range(1000)])
        job = self.small_job()
        job.write_text(job.read_text().replace("categorical {}", "categorical { hash_buckets: 20 dense: true }"))
        flags = ["--server_num=2", "--set=train.batch_size=50", "--epochs=1"]
        for name, mode in (("sync", ["--a_sync=false"]), ("async", ["--a_sync=true"]), ("geo", ["--k_steps=3"]),
                           ("collective", ["--a_sync=false", "--set=strategy.sync_configs.dense=COLLECTIVE"])):
            with self.subTest(name):
                cpu, _ = self.launch(*flags, *mode, "--worker_num=1", job=job, name=name + ".cpu")
                gpu, _ = self.launch(*flags, *mode, "--gpus=0", job=job, name=name + ".gpu")
                differences = self.diff(name + ".cpu", name + ".gpu")
                self.assertEqual(len(differences), 8)
                self.assertLess(max(differences), 1e-5)
                self.assertAlmostEqual(gpu["epochs_log"][0]["loss"], cpu["epochs_log"][0]["loss"], places=6)

    def test_merged_batches_agree_with_one_larger_batch(self):
        self.write_csv("train.csv", [(i * 7 % 11 // 6, i % 13 / 13, "v%d" % (i * i % 29)) for i in range(1000)])
        job = self.small_job()
        flags = ["--a_sync=false", "--server_num=2", "--epochs=1", "--gpus=0,1"]
        merge = "--set=strategy.sync_configs.gradient_merge_steps=4"
        self.launch(*flags, "--batch_size=48", job=job, name="large")
        merged, _ = self.launch(*flags, "--batch_size=12", merge, job=job, name="merged")
        again, _ = self.launch(*flags, "--batch_size=12", merge, job=job, name="again")
        self.assertEqual(merged["global_step"], 11)
        self.assertEqual(again["model_digest"], merged["model_digest"])
        self.assertLess(max(self.diff("large", "merged")), 1e-5)
        # fp16 scales the loss pass by pass; an overflow would skip a whole step.
        half, _ = self.launch(*flags, "--batch_size=12", merge, "--set=train.compute_dtype=FP16", job=job, name="half")
        self.assertEqual((half["status"], half["global_step"]), ("done", 11))

    def test_gpus_and_cpus_serve_one_job(self):
        result, output = self.launch("--gpus=1", "--cpu_workers=2", "--server_num=1", "--epochs=1")
        self.assertEqual(result["examples"], ADULT_TRAIN_EXAMPLES)
        self.assertGreater(result["eval"]["auc"], 0.91)
        self.assertIn("worker 0 on cuda:1: ", output)
        self.assertIn("computes on cuda:1: ", self.log("run", 0))
        for rank in (1, 2):
            self.assertNotIn("cuda", self.log("run", rank))

    def test_precisions_hot_rows_and_batches_copied_ahead(self):
        flags = ["--gpus=0", "--server_num=1", "--epochs=1", "--batch_size=256"]
        for name, more, auc in (("tf32", ["--set=train.compute_dtype=TF32"], 0.90),
                                ("bf16", ["--set=train.compute_dtype=BF16"], 0.90),
                                ("fp16", ["--set=train.compute_dtype=FP16"], 0.90),
                                ("hot", ["--set=strategy.a_sync_configs.hot_row_cache.max_staleness_steps=6"], 0.90),
                                ("deep", ["--set=train.pipeline_depth=3"], 0.90)):
            with self.subTest(name):
                result, _ = self.launch(*flags, *more, name=name)
                self.assertEqual(result["examples"], ADULT_TRAIN_EXAMPLES)
                self.assertGreater(result["eval"]["auc"], auc)
                if name.endswith("16"):
                    self.assertIn("products in " + name, self.log(name))
                if name == "hot":
                    self.assertRegex(self.log(name), r"\d+ hot rows .*\bdevice\b")
                    self.assertEqual(result["hot_rows"]["staleness_max"], 6)

    def test_several_sparse_tables_are_refused_by_name(self):
        self.write_csv("train.csv", [(i % 2, i % 5, "ab"[i % 3 == 0]) for i in range(40)])
        job = self.small_job(extra='features { name: "d" categorical { column: "c" } embedding_dim: 8 }')
        _, output = self.launch("--gpus=0", "--epochs=1", job=job, name="refused", expect=None)
        for text in ("embedding_4", "embedding_8", "--device=cpu"):
            self.assertIn(text, output)
        self.assertFalse((self.tmp / "refused" / "model").exists())
        self.launch("--worker_num=1", "--epochs=1", job=job, name="cpu")

    def test_workers_take_the_next_free_gpu_and_the_third_is_refused(self):
        cluster = self.up("--server_num=1", "--worker_num=2", "--device=cuda")
        self.assertEqual(sorted(m["device"] for m in self.status(cluster)["members"]), ["", "cuda:0", "cuda:1"])
        third = self.run_program("sluice-worker", "--rank=2", "--scheduler=127.0.0.1:%d" % free_port(), "--device=cuda")
        self.assertEqual(third.returncode, 1, third.stdout)
        self.assertRegex(third.stdout, r"sluice-worker: .*cuda:0.*cuda:1")

        self.sluice("submit", cluster, "--job=%s" % ADULT, "--epochs=100", "--detach",
                    "--output_dir=%s" % (self.tmp / "out"))
        address = next(line.split()[4] for line in (cluster / "endpoints.log").read_text().splitlines()
                       if line.startswith("worker"))

        def figures():
            with urllib.request.urlopen("http://%s/metrics" % address, timeout=PATIENCE) as reply:
                found = re.findall(r'(?m)^sluice_worker_device_(\w+)\{device="cuda:[01]",job="adult-1",rank="\d"\} (\S+)$', reply.read().decode())
            values = {name: float(value) for name, value in found}
            return values if values.get("busy_share", 0) > 0 else None
        values = wait_until(figures, "a worker's metrics tell that its device is busy")
        self.assertGreater(values["busy_seconds_total"], 0)
        self.assertTrue(0 < values["bytes"] <= values["limit_bytes"], values)
        self.assertGreater(values["steps_ahead_total"], 0)
        wait_until(lambda: re.search(r"GPU \d+%.* of 2\.8 GiB, [1-9][\d,]* of [\d,]+ batches", self.sluice("status", cluster)),
                   lambda: "status tells how busy devices are: " + self.sluice("status", cluster))
        self.sluice("cancel", cluster, "adult-1")

    def test_visible_devices_are_counted_from_0(self):
        os.environ["CUDA_VISIBLE_DEVICES"] = "1"
        self.addCleanup(os.environ.pop, "CUDA_VISIBLE_DEVICES")
        result, _ = self.launch("--gpus=0", "--epochs=1")
        self.assertEqual(result["examples"], ADULT_TRAIN_EXAMPLES)
        _, output = self.launch("--gpus=0,1", name="two", expect=2)
        self.assertRegex(output, r"--gpus=0,1: cuda:1 .* cuda:0 \(a simulated device\)")

    def test_too_little_device_memory_fails_the_job_with_the_field_to_change(self):
        self.simulate("memory_mb=256")
        cluster = self.up("--server_num=1", "--worker_num=1", "--gpus=0")
        submit = ["--job=%s" % ADULT, "--worker_num=1", "--epochs=1", "--output_dir=%s" % (self.tmp / "out"), "--wait"]
        said = self.sluice("submit", cluster, *submit, "--set=train.device_memory_fraction=0.01", expect=1)
        self.assertRegex(said, r"cuda:0: .*\b2684354\b.*device_memory_fraction")
        self.sluice("submit", cluster, *submit)  # the worker still lives

    def test_a_worker_ends_when_its_device_no_longer_answers(self):
        self.simulate("breaks=3000")
        cluster = self.up("--server_num=1", "--worker_num=1", "--gpus=0")
        said = self.sluice("submit", cluster, "--job=%s" % ADULT, "--worker_num=1", "--epochs=1",
                           "--output_dir=%s" % (self.tmp / "out"), expect=1)
        self.assertIn("a simulated error", said)
        wait_until(lambda: not [p for p in processes_naming(str(cluster)) if "sluice-worker" in p[1]], "the worker ends")
        self.assertRegex((cluster / "workerlog.0").read_text(), "cuda:0 .*cudaSetDevice: a simulated error")

    def test_a_job_without_memory_for_a_second_batch_continues_and_logs_it_once(self):
        self.simulate("memory_mb=256")
        flags = ["--gpus=0", "--server_num=1", "--epochs=2", "--a_sync=false", "--batch_size=8192"]
        roomy, _ = self.launch(*flags, name="roomy")
        # A step of this size takes 0.213 of 256 MiB, and 0.229 with a second block of input.
        tight, _ = self.launch(*flags, "--set=train.device_memory_fraction=0.221", name="tight")
        short = "device memory is short"
        self.assertEqual((self.log("roomy").count(short), self.log("tight").count(short)), (0, 1))
        self.assertEqual(tight["model_digest"], roomy["model_digest"])


if __name__ == "__main__":
    unittest.main()
