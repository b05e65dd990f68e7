"""Predictions of `sluice plan` against jobs behind limited links, which are measured."""
import concurrent.futures
import json
import math
import shutil
import statistics
import subprocess
import sys
import time
import unittest

from sluice_testing import BIN, PATIENCE, TIME_SCALE, SluiceTest, wait_until
from net_namespaces import NetNamespaces, why_no_namespaces

NO_LIMITS = why_no_namespaces(limits=True)
if NO_LIMITS:
    print("skipped: " + NO_LIMITS, file=sys.stderr)

# A wide table and hardly any computing, so that the links bind and not the cores.
NARROW_NET = """
name: "wide_rows"
data { format: CRITEO_TSV train_files: "%s" }
features { name: "C{1..26}" categorical { missing_is_value: true } }
model { wide_deep { wide_numeric: false wide_categorical: false hidden_units: 4 embedding_dim: 16 } }
optimizers { all { sgd {} learning_rate: 0.01 } }
strategy { a_sync: true }
train { batch_size: 1024 epochs: 1000 seed: 1 threads: 1 }
"""
# The same with dense tables of 26 features, which the workers exchange.
COLLECTIVE_NET = NARROW_NET.replace("missing_is_value: true", "missing_is_value: true hash_buckets: 500 dense: true").replace(
    "a_sync: true", "a_sync: false sync_configs { dense: COLLECTIVE engine: GLOO }")
SYNC_NET = NARROW_NET.replace("a_sync: true", "a_sync: false")
# Few steps between exchanges, so that a measurement has many of them.
GEO_NET = NARROW_NET.replace("a_sync: true", "a_sync: true a_sync_configs { k_steps: 4 }")
MBIT = 50
TOLERANCE = 0.20
ATTEMPTS = 5
WINDOWS, WINDOW_S = 3, 3  # in which a running job is measured; the median of the windows counts


@unittest.skipIf(NO_LIMITS, NO_LIMITS)
class PredictionTest(SluiceTest):
    """Predictions against measured jobs whose hosts have links of MBIT each way."""

    def setUp(self):
        super().setUp()
        done = self.run_program("sluice", "data", "gen", "--examples=300000", "--output=train.tsv")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.job = self.tmp / "job.textproto"
        self.job.write_text(NARROW_NET % (self.tmp / "train.tsv"))

    def predict(self, mode, workers, pservers):
        done = self.run_program("sluice", "plan", "--job=%s" % self.job, "--bandwidth=%dM" % MBIT, "--workers=" + workers,
                                "--pservers=" + pservers, "--measure_s=8", "--json=plan.json", "--overwrite", timeout=4 * PATIENCE)
        self.assertEqual(done.returncode, 0, done.stdout)
        print(done.stdout, file=sys.stderr)
        plan = json.loads((self.tmp / "plan.json").read_text())
        return {(row["pservers"], row["workers"]): row[mode] for row in plan["rows"]}

    def daemon(self, net, folder, host, role, *flags):
        out = open(folder / ("%s.out" % host), "ab")
        process = subprocess.Popen(net.command(host, [BIN / ("sluice-" + role), "--cluster=%s" % (folder / "cluster"),
                                                      "--log_dir=%s" % (folder / ("log-" + host)), *flags]),
                                   stdout=out, stderr=subprocess.STDOUT, cwd=folder)
        out.close()
        self._started.append(process)
        return process

    def start_cluster(self, net, folder, pservers, workers):
        """Starts a scheduler, pservers and workers on hosts of their own; returns the processes."""
        (folder / "cluster").write_text(
            'name: "links"\nscheduler: "%s:7100"\nworker_num: %d\nlimits { heartbeat_ms: 100 }\nsecurity { insecure: true }\n' % (net.address("s"), workers)
            + "".join('pservers: "%s:7200"\n' % net.address("p%d" % i) for i in range(pservers)))
        started = [self.daemon(net, folder, "s", "scheduler")]
        started += [self.daemon(net, folder, "p%d" % i, "pserver", "--rank=%d" % i) for i in range(pservers)]
        started += [self.daemon(net, folder, "w%d" % i, "worker", "--rank=%d" % i, "--threads=1") for i in range(workers)]
        for host in ["p%d" % i for i in range(pservers)] + ["w%d" % i for i in range(workers)]:
            net.limit(host, MBIT * 10 ** 6)
            net.limit_arrivals(host, MBIT * 10 ** 6)
        return started

    def sluice_on(self, net, *args):
        return subprocess.run(net.command("s", [BIN / "sluice", *args]), capture_output=True, text=True,
                              timeout=PATIENCE * TIME_SCALE, cwd=self.tmp)

    def examples(self, net, scheduler):
        done = self.sluice_on(net, "status", "--insecure", "--scheduler=" + scheduler, "--json")
        jobs = json.loads(done.stdout)["jobs"] if done.returncode == 0 else []
        return int(jobs[0]["examples"]) if jobs else 0

    def next_report(self, net, scheduler):
        """The time at which the number of examples changes, and what it is then."""
        before, found = self.examples(net, scheduler), []

        def changed():
            found[:] = [time.monotonic(), self.examples(net, scheduler)]
            return found[1] > before
        wait_until(changed, "more examples")
        return found

    def measure(self, pservers, workers, predicted):
        """Examples per second of a running job, in each window until they decide about the prediction."""
        folder = self.tmp / ("%d-%d" % (pservers, workers))
        folder.mkdir()
        started, net = [], NetNamespaces(["s"] + ["p%d" % i for i in range(pservers)] + ["w%d" % i for i in range(workers)])
        try:
            started += self.start_cluster(net, folder, pservers, workers)
            scheduler = net.address("s") + ":7100"
            wait_until(lambda: self.sluice_on(net, "status", "--insecure", "--scheduler=" + scheduler).returncode == 0, "the scheduler")
            done = self.sluice_on(net, "submit", "--insecure", "--job=%s" % self.job, "--scheduler=" + scheduler, "--detach",
                                  "--worker_num=%d" % workers, "--output_dir=%s" % (folder / "out"))
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            wait_until(lambda: self.examples(net, scheduler) > 4096 * workers, "training")
            reports, rates = [self.next_report(net, scheduler)], []
            while len(rates) < WINDOWS:
                time.sleep(WINDOW_S)
                reports.append(self.next_report(net, scheduler))
                (begin, before), (end, after) = reports[-2:]
                rates.append((after - before) / (end - begin))
                # Two windows that confirm the prediction decide: the median of three lies between them or on one of them.
                if len(rates) == 2 and all(abs(predicted / rate - 1) <= TOLERANCE for rate in rates):
                    break
            return rates
        finally:
            for process in started:
                process.kill()
                process.wait()
            net.close()
            shutil.rmtree(folder)

    def test_predictions_are_within_a_fifth_of_what_is_measured(self):
        self.compare("async", "1,2,4", "1,2")

    def test_sync_predictions_are_within_a_fifth_of_what_is_measured(self):
        self.job.write_text(SYNC_NET % (self.tmp / "train.tsv"))
        # One worker alone differs from async by a round trip only.
        self.compare("sync", "2,4", "1,2")

    def test_a_geo_prediction_is_within_a_fifth_of_what_is_measured(self):
        self.job.write_text(GEO_NET % (self.tmp / "train.tsv"))
        self.compare("geo", "2", "1")

    def test_collective_predictions_are_within_a_fifth_of_what_is_measured(self):
        self.job.write_text(COLLECTIVE_NET % (self.tmp / "train.tsv"))
        self.compare("collective", "2,4", "0")  # one worker alone exchanges nothing

    def compare(self, mode, workers, pservers):
        # The links bind and the cores are mostly idle, so two places are measured at a time. Other load on the machine disturbs a
        # measurement: a place whose error is out of the bound gets two more, alone, with costs that are measured again, and then two
        # more. The median of its errors counts.
        errors = {}
        for side_by_side in [2] + [1] * (ATTEMPTS - 1):
            predictions = self.predict(mode, workers, pservers)
            left = [place for place in predictions if not self.is_right(errors.get(place))]
            with concurrent.futures.ThreadPoolExecutor(side_by_side) as threads:
                found = list(threads.map(lambda place: self.error(place, predictions[place]), left))
            for place, error in zip(left, found):
                errors.setdefault(place, []).append(error)
            if all(self.is_right(errors[place]) for place in left):
                return
        self.fail("errors of predictions: %s" % {place: of for place, of in errors.items() if not self.is_right(of)})

    @staticmethod
    def is_right(errors):
        return errors is not None and len(errors) % 2 == 1 and abs(statistics.median(errors)) <= TOLERANCE

    def error(self, place, predicted):
        pservers, workers = place
        rate, windows = predicted["examples_per_second"], self.measure(pservers, workers, predicted["examples_per_second"])
        measured = statistics.median(windows)
        error = rate / measured - 1
        print("%d pservers, %d workers: predicted %.0f, bound by %s, measured %.0f examples/s (%+.1f%%), of %s" % (
            pservers, workers, rate, predicted["binds"], measured, 100 * error, ", ".join("%.0f" % w for w in windows)),
            file=sys.stderr)
        return error if predicted["binds"] == "network" else math.inf


if __name__ == "__main__":
    unittest.main()
