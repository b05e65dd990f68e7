"""An async job with a hot_row_cache trains every example about as well, pulls less and reports what it used."""
import re
import unittest
import urllib.request

from sluice_testing import ADULT_TRAIN_EXAMPLES, PATIENCE, SluiceTest

FIELD = "strategy.a_sync_configs.hot_row_cache"


def set_to(**fields):
    return ["--set=%s.%s=%s" % (FIELD, name, value) for name, value in fields.items()]


class HotRowCacheTest(SluiceTest):
    def test_a_job_with_the_cache_learns_as_well_and_reports_its_use(self):
        flags = ["--server_num=2", "--worker_num=2", "--epochs=2"]
        plain, output = self.launch(*flags, name="plain")
        self.assertNotIn("hot_rows", plain)
        self.assertNotIn("hot rows", output)
        result, output = self.launch(*flags, *set_to(rows=100000, max_staleness_steps=6), name="hot")
        self.assertEqual(result["examples"], 2 * ADULT_TRAIN_EXAMPLES)
        self.assertAlmostEqual(result["eval"]["auc"], plain["eval"]["auc"], delta=0.01)
        hot = result["hot_rows"]
        self.assertGreater(hot["hits"], hot["misses"])
        self.assertGreater(hot["hit_share"], 0.5)
        self.assertEqual(hot["staleness_max"], 6)  # never more, and over hundreds of steps some row reaches this age
        self.assertTrue(0 < hot["staleness_mean"] < 6)
        self.assertEqual(hot["whole_batches"], 0)
        self.assertRegex(output, r"(?m)^hot rows \d+\.\d% used again, \d\.\d steps old \(at most 6\)$")
        log = (self.tmp / "hot.log" / "workerlog.0").read_text()
        self.assertRegex(log, r"\b100000 hot rows .*\b6 steps")

    def test_in_a_pipeline_with_few_slots_every_example_is_trained(self):
        result, _ = self.launch("--server_num=1", "--worker_num=1", "--epochs=1", "--set=train.pipeline_depth=4",
                                *set_to(rows=258, max_staleness_steps=5))
        self.assertEqual(result["examples"], ADULT_TRAIN_EXAMPLES)
        self.assertGreater(result["eval"]["auc"], 0.85)
        hot = result["hot_rows"]
        self.assertGreater(hot["hits"], 0)
        self.assertGreater(hot["whole_batches"], 0)
        self.assertLessEqual(hot["staleness_max"], 5)
        log = (self.tmp / "run.log" / "workerlog.0").read_text()
        self.assertEqual(len(re.findall(r"hot_row_cache\.rows = 258 .*\bkeys\b", log)), 1)

    def test_a_model_without_dense_tables_may_have_nothing_to_pull(self):
        self.write_csv("train.csv", [(i % 2, i, "v%d" % (i % 4)) for i in range(400)])
        job = self.small_job(extra="strategy { a_sync_configs { hot_row_cache { max_staleness_steps: 5 } } }")
        text = job.read_text().replace("embedding_dim: 4 hidden_units: 8", "wide_numeric: false")
        job.write_text(text.replace('features { name: "x" numeric {} }\n', ""))
        result, _ = self.launch("--server_num=2", "--worker_num=1", job=job)
        self.assertEqual(result["examples"], 800)
        self.assertEqual(result["hot_rows"]["staleness_max"], 5)
        self.assertLess(result["epochs_log"][1]["loss"], result["epochs_log"][0]["loss"])

    def test_metrics_and_status_show_hits_misses_and_staleness(self):
        cluster = self.up("--server_num=1", "--worker_num=1")
        address = next(line.split()[4] for line in (cluster / "endpoints.log").read_text().splitlines()
                       if line.startswith("worker"))
        self.write_csv("train.csv", [(i % 2, i, "v%d" % (i % 5)) for i in range(4000)])
        job = self.small_job(extra="strategy { a_sync_configs { hot_row_cache { max_staleness_steps: 4 } } }")
        submitted = self.sluice("submit", cluster, "--job=%s" % job, "--output_dir=%s" % (self.tmp / "out"), "--wait")
        self.assertIn("hot rows", submitted)
        with urllib.request.urlopen("http://%s/metrics" % address, timeout=PATIENCE) as reply:
            text = reply.read().decode()
        values = dict(re.findall(r"(?m)^sluice_worker_hot_row_(\w+) (\S+)$", text))
        result = self.job_status(cluster, "small-1")["result"]["hot_rows"]
        for metric, field in (("hits_total", "hits"), ("misses_total", "misses"),
                              ("staleness_steps_total", "staleness_sum")):
            self.assertEqual(float(values[metric]), float(result[field]), metric)
        self.assertGreater(float(values["hits_total"]), float(values["misses_total"]))

    def test_contradictions_are_refused_with_line_and_fix(self):
        self.write_csv("train.csv", [(0, 1, "v")])
        job = self.small_job(extra="strategy {\n  a_sync_configs {\n    hot_row_cache {\n      rows: 0\n    }\n  }\n}")
        line = job.read_text().splitlines().index("      rows: 0") + 1
        _, output = self.launch(job=job, expect=2)
        self.assertIn("small.textproto:%d:" % line, output)
        self.assertRegex(output, re.escape(FIELD) + r"\.rows: 0 .*\b1000000000\b")
        good = self.small_job()
        for flags, text in ((["--a_sync=false"], "contradicts mode sync"),
                            (["--k_steps=5"], "geo_cache_rows"),
                            (["--max_staleness=9"], "contradicts max_staleness 9"),
                            (["--set=train.pipeline_depth=9"], "give at least 9")):
            _, output = self.launch("--set=%s={}" % FIELD, *flags, job=good, expect=2)
            self.assertIn(text, output)
            self.assertIn(FIELD, output)


if __name__ == "__main__":
    unittest.main()
