"""`sluice plan` with real processes: what it measures and what it writes."""
import json
import re
import sys
import time
import unittest

from sluice_testing import ADULT, PATIENCE, SluiceTest, wait_until

# A number, and a category with BUCKETS keys in a dense table.
BUCKETS, DIM = 1000, 16
DENSE_JOB = """
name: "dense_categories"
data { format: CSV train_files: "%s" csv { header: true } label { column: "label" } }
features { name: "a" numeric {} }
features { name: "k" categorical { hash_buckets: %d dense: true } }
model { wide_deep { hidden_units: 8 embedding_dim: %d } }
strategy { a_sync: false }
train { batch_size: 64 seed: 1 threads: 1 }
"""
COLLECTIVE = "--set=strategy.sync_configs.dense=COLLECTIVE"


class PlanTest(SluiceTest):
    def plan(self, *flags, job=ADULT, expect=0):
        done = self.run_program("sluice", "plan", "--job=%s" % job, *flags, timeout=4 * PATIENCE)
        self.assertEqual(done.returncode, expect, done.stdout)
        return done.stdout

    def test_a_plan_measures_writes_and_is_read_again(self):
        out = self.plan("--measure_s=2", "--json=plan.json", "--output=cluster.textproto")
        plan = json.loads((self.tmp / "plan.json").read_text())
        costs = plan["costs"]
        for field in ("step_s", "worker_cpu_s", "pserver_cpu_s", "pushed_bytes", "pulled_bytes", "dense_bytes", "rows",
                      "row_memory_bytes"):
            self.assertGreater(costs[field], 0, field)
        self.assertGreater(costs["geo"]["step_s"], 0)
        self.assertEqual(costs["transport"], "shm")
        self.assertFalse(costs["sampled"])  # the whole data set is smaller than the sample
        self.assertLess(costs["wait_s"], costs["step_s"])
        best = plan["rows"][plan["best"]]
        self.assertIn("best: %d pserver" % best["pservers"], out)
        cluster = (self.tmp / "cluster.textproto").read_text()
        self.assertEqual(len(re.findall(r"^pservers:", cluster, re.M)), best["pservers"])
        self.assertIn("worker_num: %d" % best["workers"], cluster)
        # The same costs give the same answer, at once.
        begin = time.monotonic()
        again = self.plan("--costs=plan.json", "--json=again.json")
        self.assertNotIn("warning", again)
        print("a plan of known costs takes %.2f s" % (time.monotonic() - begin), file=sys.stderr)
        self.assertEqual(json.loads((self.tmp / "again.json").read_text())["rows"], plan["rows"])
        # A file that exists is kept.
        self.plan("--costs=plan.json", "--json=again.json", expect=2)
        self.plan("--costs=plan.json", "--json=again.json", "--overwrite")
        self.simulate()

    def simulate(self):
        out = self.plan("--costs=plan.json", "--simulate", "--bandwidth=10G", "--svg=curve.svg", "--json=curve.json")
        points = json.loads((self.tmp / "curve.json").read_text())["points"]
        self.assertRegex(out, "warning: --costs=plan.json: .*--costs out")  # measured through shared memory
        self.assertEqual((max(p["workers"] for p in points), max(p["pservers"] for p in points)), (10000, 1000))
        self.assertTrue(all(0 < p["sync"] <= 1.01 * p["ideal"] for p in points))
        self.assertIn("half of ideal", out)
        self.assertIn("</svg>", (self.tmp / "curve.svg").read_text())

    def test_a_plan_for_several_hosts_is_measured_over_grpc(self):
        for i, hosts in enumerate((["--bandwidth=10G"], ["--hosts=a:2,b:2"], ["--bandwidth=10G", "--tls_ca=ca.pem"])):
            self.plan("--measure_s=1", "--workers=1,2", "--json=plan%d.json" % i, *hosts)
            costs = json.loads((self.tmp / ("plan%d.json" % i)).read_text())["costs"]
            self.assertEqual((costs["transport"], costs["tls"]), ("grpc", "--tls_ca=ca.pem" in hosts))
            self.assertGreater(costs["pushed_bytes"], 0)
        self.assertNotIn("warning: --costs", self.plan("--costs=plan0.json", "--bandwidth=1G"))
        self.assertIn("warning: --costs", self.plan("--costs=plan0.json"))

    def test_the_daemons_of_the_cluster_file_train(self):
        self.plan("--measure_s=2", "--output=cluster.textproto", "--workers=1", "--pservers=2")
        flags = ["--cluster=cluster.textproto", "--log_dir=log"]
        self.start("sluice-scheduler", *flags)
        for rank in range(2):
            self.start("sluice-pserver", *flags, "--rank=%d" % rank)
        self.start("sluice-worker", *flags, "--rank=0")
        address = re.search(r'^scheduler: "(.*)"', (self.tmp / "cluster.textproto").read_text(), re.M).group(1)
        wait_until(lambda: self.run_program("sluice", "status", "--scheduler=" + address).returncode == 0, "the scheduler")
        done = self.run_program("sluice", "submit", "--job=%s" % ADULT, "--scheduler=" + address, "--worker_num=1",
                                "--epochs=1", "--output_dir=%s" % (self.tmp / "out"))
        self.assertEqual(done.returncode, 0, done.stdout)
        self.run_program("sluice", "down", "--scheduler=" + address)

    def test_impossible_questions_are_refused(self):
        for flags in (["--bandwidth=fast"], ["--hosts=a"], ["--simulate"], ["--svg=x.svg"], ["--costs=missing.json"],
                      ["--latency_us=5"], ["--measure_s=0"], ["--workers=0"], ["--output=c", "--bandwidth=1G"]):
            self.plan(*flags, expect=2)
        # Without TLS, only --insecure allows a cluster of several hosts.
        (self.tmp / "costs.json").write_text('{"costs": {"examples": 10, "step_s": 0.01}}')
        hosts = ["--costs=costs.json", "--hosts=a:4,b:4", "--output=c.textproto"]
        self.plan(*hosts, expect=2)
        self.plan(*hosts, "--insecure")

    def test_launch_chooses_the_number_of_pservers(self):
        result, out = self.launch("--server_num=auto", "--worker_num=2", "--epochs=1")
        self.assertEqual(result["status"], "done")
        chosen = int(re.search(r"--server_num=auto chooses (\d+) pserver", out).group(1))
        self.assertIn("%d pserver" % chosen, out.split("chooses", 1)[1])
        self.assertEqual(len([e for e in self.endpoints() if e.role == "pserver"]), chosen)
        self.assertIn("through shared memory", out)
        _, out = self.launch("--server_num=automatic", name="refused", expect=2)

    def test_launch_measures_with_its_own_transport(self):
        for flags, measured in ((["--transport=grpc"], "over gRPC:"), (["--transport=grpc", "--tls"], "over gRPC with TLS:"),
                                (["--tls"], "through shared memory:")):
            result, out = self.launch("--server_num=auto", "--worker_num=1", "--epochs=1", *flags,
                                      name="measured" + "".join(flags))
            self.assertEqual(result["status"], "done")
            self.assertIn(measured, out)

    def test_launch_measures_a_collective_job_with_sparse_tables(self):
        _, out = self.launch("--server_num=auto", "--worker_num=2", "--epochs=1", "--a_sync=false", COLLECTIVE)
        self.assertGreaterEqual(int(re.search(r"--server_num=auto chooses (\d+) pserver", out).group(1)), 1)
        self.assertIn("measured for", out)


class CollectivePlanTest(SluiceTest):
    """A job whose workers keep all tables."""

    def setUp(self):
        super().setUp()
        self.write_csv("train.csv", [(i % 2, "%.3f" % (i % 17 / 17), "k%d" % (i * 7919 % 5000)) for i in range(20000)],
                       header="label,a,k")
        self.job = self.tmp / "job.textproto"
        self.job.write_text(DENSE_JOB % (self.tmp / "train.csv", BUCKETS, DIM))

    def plan(self, *flags, job=None, expect=0):
        done = self.run_program("sluice", "plan", "--job=%s" % (job or self.job), *flags, timeout=4 * PATIENCE)
        self.assertEqual(done.returncode, expect, done.stdout)
        return done.stdout

    def plan_json(self, name, *flags):
        out = self.plan("--json=%s.json" % name, *flags)
        return json.loads((self.tmp / (name + ".json")).read_text()), out

    def test_predictions_are_those_of_the_same_job_with_pservers(self):
        question = ("--bandwidth=1M", "--workers=1,4", "--measure_s=3")
        collective, _ = self.plan_json("collective", COLLECTIVE, *question)
        pserver, _ = self.plan_json("pserver", *question)
        self.assertEqual((collective["mode"], pserver["mode"]), ("collective", "sync"))
        # An embedding and a wide weight for each bucket; the layers have hardly any values.
        values = BUCKETS * (DIM + 1)
        for plan in (collective, pserver):
            costs = plan["costs"]
            self.assertTrue(4 * values <= costs["dense_bytes"] <= 4.1 * values, costs["dense_bytes"])
            # On average over windows, whose ends may lie inside a step.
            for direction in ("pushed_bytes", "pulled_bytes"):
                self.assertAlmostEqual(costs[direction] / costs["dense_bytes"], 1, delta=0.2, msg=direction)
        for with_pservers, row in zip(pserver["rows"], collective["rows"]):
            self.assertEqual((row["workers"], row["pservers"]), (with_pservers["workers"], 0))
            self.assertGreaterEqual(with_pservers["pservers"], 1)
        # Four workers exchange 1.5 times the dense bytes. That takes 0.8 s, much longer than a step computes even on a
        # busy machine.
        of_both = [plan["rows"][1]["collective"] for plan in (collective, pserver)]
        for prediction in of_both:
            self.assertGreater(prediction["examples_per_second"], 0)
            self.assertLess(prediction["examples_per_second"], 1.2 * 4 * 64 / (1.5 * 4 * values * 8 / 1e6))
        self.assertAlmostEqual(of_both[0]["examples_per_second"] / of_both[1]["examples_per_second"], 1, delta=0.2)

    def test_the_answer_and_its_cluster_have_no_pservers(self):
        plan, out = self.plan_json("auto", COLLECTIVE, "--measure_s=2", "--output=cluster.textproto")
        self.assertEqual({row["pservers"] for row in plan["rows"]}, {0})
        best = plan["rows"][plan["best"]]
        self.assertIn("best: 0 pservers and %d worker" % best["workers"], out)
        cluster = (self.tmp / "cluster.textproto").read_text()
        self.assertNotIn("pserver", cluster)
        self.assertIn("worker_num: %d" % best["workers"], cluster)
        # As with a launch, a sync job without sparse tables becomes collective when it is to have no pservers.
        asked, _ = self.plan_json("asked", "--pservers=0", "--costs=auto.json")
        self.assertEqual(asked["rows"], plan["rows"])
        both, _ = self.plan_json("both", COLLECTIVE, "--pservers=0,1", "--workers=2", "--costs=auto.json")
        self.assertEqual([row["pservers"] for row in both["rows"]], [0, 1])
        simulated = self.plan(COLLECTIVE, "--costs=auto.json", "--simulate", "--bandwidth=1G", "--pservers=0", "--workers=1,10")
        self.assertIn("0 pservers: collective", simulated)

    def test_jobs_that_need_pservers_are_refused_without(self):
        (self.tmp / "costs.json").write_text('{"costs": {"examples": 10, "step_s": 0.01}}')
        self.plan("--costs=costs.json", "--pservers=0", job=ADULT, expect=2)
        self.plan("--costs=costs.json", "--pservers=0", "--a_sync=false", job=ADULT, expect=2)
        self.plan("--costs=costs.json", "--pservers=0", "--a_sync=true", expect=2)
        self.plan("--costs=costs.json", "--pservers=0")


if __name__ == "__main__":
    unittest.main()
