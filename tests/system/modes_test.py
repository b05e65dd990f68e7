"""Each mode trains Adult through `sluice launch` and leaves exactly the files that users rely on."""
import collections
import concurrent.futures
import glob
import gzip
import pathlib
import random
import re
import statistics
import struct
import unittest

from sluice_testing import ADULT, ADULT_TEST_EXAMPLES, ADULT_TRAIN_EXAMPLES, SluiceTest

MODES = {"sync": ["--a_sync=false"], "async": ["--a_sync=true"], "geo": ["--a_sync=true", "--k_steps=20"]}
EVAL_FIELDS = {"auc": float, "log_loss": float, "accuracy": float, "mae": float, "rmse": float, "examples": int}
STAGES = ["read", "dedup", "pull_wait", "compute", "push_wait"]
RESULT_FIELDS = {"job": str, "mode": str, "k_steps": int, "status": str, "epochs": int, "global_step": int,
                 "examples": int, "bad_lines": int, "seconds": float, "examples_per_second": float, "eval": dict,
                 "epochs_log": list, "stages": dict, "model_dir": str, "model_digest": str}
WORKER_LINE = re.compile(r"rank (\d+) epoch (\d+) step (\d+) loss (\S+) examples/s (\d+)$", re.M)
LAUNCHER_LINE = re.compile(r"^worker (\d+): epoch (\d+) step ([\d,]+) loss (\S+) ([\d,]+) examples/s$", re.M)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 & -(crc & 1))
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_records(path):
    """Returns the payloads of a TFRecord file; raises ValueError when a length or a checksum is wrong."""
    data, records, at = pathlib.Path(path).read_bytes(), [], 0
    while at < len(data):
        head = data[at:at + 8]
        size, head_crc = struct.unpack("<QI", data[at:at + 12])
        body = data[at + 12:at + 12 + size]
        if masked(head) != head_crc or len(body) != size:
            raise ValueError("bad record at %d" % at)
        if struct.unpack("<I", data[at + 12 + size:at + 16 + size])[0] != masked(body):
            raise ValueError("bad payload at %d" % at)
        records.append(body)
        at += 16 + size
    return records


def read_points(records):
    """Parses an event file's records (time, step, then values with tag and float) to {tag: [(step, value), ...]}."""
    points = collections.defaultdict(list)
    for record in records:
        step, at = 0, 10
        if record[9:10] == b"\x10":
            for shift in range(0, 64, 7):
                step |= (record[at] & 0x7F) << shift
                at += 1
                if record[at - 1] < 0x80:
                    break
        for tag, value in re.findall(rb"\n.([a-z_/]+)\x15(.{4})", record[at:], re.S):
            points[tag.decode()].append((step, struct.unpack("<f", value)[0]))
    return points


class ModesTest(SluiceTest):
    def assert_type(self, value, kind, name):
        self.assertIs(type(value), kind, "%s is %r" % (name, value))

    def assert_eval(self, evaluation):
        for field, kind in EVAL_FIELDS.items():
            self.assert_type(evaluation[field], kind, field)
        self.assertEqual(evaluation["examples"], ADULT_TEST_EXAMPLES)
        self.assertTrue(0.5 < evaluation["auc"] < 1)

    def assert_result(self, result, mode, epochs):
        for field, kind in RESULT_FIELDS.items():
            self.assertIn(field, result)
            self.assert_type(result[field], kind, field)
        self.assertEqual(result["mode"], mode)
        self.assertEqual(result["k_steps"], 20 if mode == "geo" else 0)
        self.assertEqual(result["status"], "done")
        self.assertEqual(result["epochs"], epochs)
        self.assertEqual(result["examples"], ADULT_TRAIN_EXAMPLES * epochs)
        self.assertEqual(result["bad_lines"], 0)
        self.assertGreater(result["global_step"], 0)
        self.assertGreater(result["examples_per_second"], 0)
        self.assert_eval(result["eval"])
        self.assertEqual(len(result["epochs_log"]), epochs)
        for number, epoch in enumerate(result["epochs_log"], start=1):
            self.assertEqual(epoch["epoch"], number)
            self.assertEqual(epoch["examples"], ADULT_TRAIN_EXAMPLES)
            self.assert_type(epoch["seconds"], float, "seconds")
            self.assert_type(epoch["loss"], float, "loss")
            self.assert_eval(epoch["eval"])
        for stage in STAGES:
            self.assert_type(result["stages"][stage], float, stage)
            self.assertGreaterEqual(result["stages"][stage], 0)
        self.assertGreater(result["stages"]["compute"], 0)
        self.assertRegex(result["model_digest"], "^[0-9a-f]{64}$")

    def assert_files(self, name, result):
        output, logs = self.tmp / name, self.tmp / (name + ".log")
        self.assertEqual(result["model_dir"], str(output / "model"))
        self.assertGreater((output / "model" / "MANIFEST").stat().st_size, 0)
        self.assertIn("wide_deep", (output / "job.textproto").read_text())
        events = glob.glob(str(output / "events.out.tfevents.*"))
        self.assertEqual(len(events), 1)
        records = read_records(events[0])
        self.assertIn(b"brain.Event:2", records[0])
        points = read_points(records)
        self.assertGreater(len(points["train/loss"]), 0)
        for tag in ("train/epoch_loss", "eval/auc"):
            self.assertEqual([step for step, _ in points[tag]], list(range(1, result["epochs"] + 1)), tag)
        speeds = [value for _, value in points["train/examples_per_second"]]
        self.assertTrue(all(speed > 0 for speed in speeds), speeds)
        if result["mode"] == "sync":  # in other modes a rank may have fewer steps
            self.assertGreater(len(speeds), 0)
        for file in ("schedulerlog.0", "serverlog.0", "serverlog.1", "workerlog.0", "workerlog.1"):
            self.assertTrue((logs / file).exists(), file)
        endpoints = self.endpoints(name)
        self.assertEqual(sorted((e.role, e.rank) for e in endpoints),
                         [("pserver", 0), ("pserver", 1), ("scheduler", 0), ("worker", 0), ("worker", 1)])
        self.assertEqual(len({e.pid for e in endpoints}), 5)
        for e in endpoints:
            if e.role != "worker":
                self.assertRegex(e.address, r"^127\.0\.0\.1:\d+$")

    def assert_progress(self, name, output, log_every, sync=False):
        """Every log has a line each log_every steps, and the launcher prints the same figures."""
        lines = []
        for rank in (0, 1):
            text = (self.tmp / (name + ".log") / ("workerlog.%d" % rank)).read_text()
            found = [match for match in WORKER_LINE.findall(text)]
            self.assertEqual([int(step) for _, _, step, _, _ in found],
                             [log_every * (i + 1) for i in range(len(found))])
            for number, epoch, _, loss, speed in found:
                self.assertEqual((number, epoch), (str(rank), "1"))
                self.assertTrue(0 < float(loss) < 2)
                self.assertGreater(int(speed), 0)
            lines += found
        self.assertGreater(len(lines), 0)
        if sync:  # in other modes a slow rank may find no task left
            self.assertEqual({number for number, *_ in lines}, {"0", "1"})
        printed = [tuple(field.replace(",", "") for field in line) for line in LAUNCHER_LINE.findall(output)]
        self.assertEqual(sorted(printed), sorted(lines))

    def run_mode(self, mode, *flags, name="run"):
        result, output = self.launch("--server_num=2", "--worker_num=2", "--epochs=1", *MODES[mode], *flags, name=name)
        self.assert_result(result, mode, 1)
        self.assert_files(name, result)
        return result, output

    def test_sync_leaves_everything(self):
        _, output = self.run_mode("sync")
        self.assert_progress("run", output, 30, sync=True)

    def test_async_leaves_everything(self):
        _, output = self.run_mode("async", "--log_every=7")
        self.assert_progress("run", output, 7)

    def test_geo_leaves_everything(self):
        _, output = self.run_mode("geo", "--log_every=10")
        self.assert_progress("run", output, 10)

    def test_async_waits_for_gradients(self):
        result, _ = self.run_mode("async", "--gradients_to_wait=3")
        self.assertGreater(result["eval"]["auc"], 0.85)

    def test_async_staleness_is_bounded(self):
        for bound, depth in ((0, 1), (1, 1), (1, 2)):
            result, _ = self.run_mode("async", "--max_staleness=%d" % bound, "--set=train.pipeline_depth=%d" % depth,
                                      name="bound%d-depth%d" % (bound, depth))
            self.assertGreater(result["staleness"]["pushes"], 0)
            # Between a pull for step t and its push, the other worker moves at most from t - bound to t + bound + 1.
            self.assertLessEqual(result["staleness"]["max"], 2 * bound + 1)


class QualityTest(SluiceTest):
    """Trains the shipped configuration unchanged."""

    def train(self, mode):
        result, _ = self.launch(*MODES[mode])
        self.assertEqual(result["examples"], ADULT_TRAIN_EXAMPLES * result["epochs"])
        self.assertGreaterEqual(result["eval"]["auc"], 0.910)
        self.assertGreaterEqual(result["eval"]["accuracy"], 0.855)

    def test_sync_learns_adult(self):
        self.train("sync")

    def test_async_learns_adult(self):
        self.train("async")

    def test_geo_learns_adult(self):
        self.train("geo")


class OrderTest(SluiceTest):
    """Lines sorted by label train a model as good as that of shuffled lines."""

    SEEDS = range(1, 6)
    MOST_WORSE = 0.004  # log loss, median of the seeds: the goal is 0.003, and the medians vary by 0.001

    def setUp(self):
        super().setUp()
        with gzip.open(ADULT.parent.parent / "data" / "adult" / "adult.data.gz", "rt") as data:
            lines = [line for line in data if line.strip()]
        random.Random(3).shuffle(lines)
        (self.tmp / "shuffled.csv").write_text("".join(lines))
        (self.tmp / "sorted.csv").write_text("".join(sorted(lines, key=lambda line: line.rsplit(",", 1)[1])))

    def log_loss(self, order, mode, seed, *flags):
        result, _ = self.launch("--server_num=1", "--worker_num=2", "--threads=1", "--epochs=1", *MODES[mode],
                                "--set=train.seed=%d" % seed, "--set=data.train_files=%s" % (self.tmp / (order + ".csv")),
                                *flags, name="%s-%s-%d" % (order, mode, seed))
        return result["eval"]["log_loss"]

    def medians(self, mode, *flags):
        """The median log loss of shuffled and of sorted data."""
        # Most of a launch is waiting for processes to start.
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            losses = {order: [pool.submit(self.log_loss, order, mode, seed, *flags) for seed in self.SEEDS]
                      for order in ("shuffled", "sorted")}
            return [statistics.median(loss.result() for loss in losses[order]) for order in ("shuffled", "sorted")]

    def test_the_order_of_the_lines_matters_little_in_async_and_geo(self):
        for mode in ("async", "geo"):
            shuffled, in_order = self.medians(mode)
            self.assertLess(in_order, shuffled + self.MOST_WORSE, mode)
        # Tasks of consecutive lines, leased in their order, are what costs.
        consecutive = self.log_loss("sorted", "geo", 0, "--set=data.shuffle=false", "--set=data.task_bytes=65536")
        self.assertGreater(consecutive, shuffled + 10 * self.MOST_WORSE)


if __name__ == "__main__":
    unittest.main()
