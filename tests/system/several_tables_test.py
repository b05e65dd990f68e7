"""A job whose rows are in sparse tables of several widths trains in every mode as a float64 reference does."""
import collections
import dataclasses
import math
import random
import struct
import subprocess
import sys
import unittest

from sluice_testing import ROOT, TEST_BIN, SluiceTest

sys.path.insert(1, str(ROOT / "tests" / "chaos"))
from counts import key_of

COLLECTIVE = "--set=strategy.sync_configs.dense=COLLECTIVE"
BATCH, EXAMPLES, EVAL_EXAMPLES = 32, 310, 100  # the last batch of an epoch is short
UNITS = 8
RATE, EMBEDDING_RATE, INITIAL_SQUARES = 0.2, 0.05, 0.1

JOB = """
name: "tables"
data {
  format: CSV
  train_files: "train.csv"
  eval_files: "eval.csv"
  csv { header: true }
  label { column: "label" }
  shuffle: false
}
features { name: "price" numeric {} }
features { name: "user" categorical {} embedding_dim: 4 }
features { name: "shown" categorical {} embedding: "item" table: "item" embedding_dim: 8 }
features {
  name: "bought" categorical { multi_value_delimiter: "|" pooling: MEAN }
  embedding: "item" table: "item" embedding_dim: 8 in_wide: false
}
features { name: "tag" categorical { multi_value_delimiter: "|" weight_delimiter: ":" } }
features { name: "spot" categorical {} key: RAW embedding_dim: 16 in_wide: false }
model { wide_deep { hidden_units: %d embedding_dim: 8 } }
optimizers {
  all { sgd {} learning_rate: %g }
  embedding { adagrad { initial_accumulator: %g } learning_rate: %g }
}
train { batch_size: %d seed: 11 threads: 1 }
""" % (UNITS, RATE, INITIAL_SQUARES, EMBEDDING_RATE, BATCH)


@dataclasses.dataclass(frozen=True)
class Feature:
    """A feature of the job with keys."""
    name: str
    table: str
    width: int
    embedding: str
    wide: bool = True
    mean: bool = False


# In the order of the job, which is that of the deep part's inputs.
FEATURES = (
    Feature("user", "embedding_4", 4, "user"),
    Feature("shown", "item", 8, "item"),
    Feature("bought", "item", 8, "item", wide=False, mean=True),
    Feature("tag", "embedding_8", 8, "tag"),
    Feature("spot", "spot", 16, "", wide=False),
)
SPARSE = {feature.table: feature.width for feature in FEATURES}
# Where embeddings begin: behind the wide weight, which the rows of "spot" do not have.
BEGIN = {table: int(any(f.wide for f in FEATURES if f.table == table)) for table in SPARSE}
DENSE = ("deep/0/weight", "deep/0/bias", "deep/1/weight", "deep/1/bias", "wide/weight", "wide/bias")


def keys_of(feature, cell):
    """(key, how often it counts) of each value of a cell."""
    keys = []
    for value in filter(None, cell.split("|")):
        value, _, times = value.partition(":")
        key = key_of(feature.embedding, value) if feature.embedding else int(value) & 0xFFFFFFFFFFFFFFFF
        keys.append((key, float(times or 1)))
    return keys


class Example:
    def __init__(self, row):
        cells = dict(zip(("label", "price", "user", "shown", "bought", "tag", "spot"), row))
        self.label = int(cells["label"])
        self.price = struct.unpack("f", struct.pack("f", float(cells["price"])))[0]
        self.keys = [keys_of(feature, cells[feature.name]) for feature in FEATURES]

    @staticmethod
    def share(feature, keys):
        """The factor of all embeddings of a cell."""
        times = sum(t for _, t in keys)
        return 1 / times if feature.mean and times > 0 else 1


class Reference:
    """The model and its optimizers, in float64. `values`: by table, then by key or by element, as lists."""

    def __init__(self, values):
        self.rows = {table: {key: list(row) for key, row in values[table].items()} for table in SPARSE}
        self.dense = {table: [values[table][i][0] for i in range(len(values[table]))] for table in DENSE}
        self.squares = collections.defaultdict(lambda: INITIAL_SQUARES)  # by (table, key, element of the embedding)

    def inputs(self, example):
        x = []
        for feature, keys in zip(FEATURES, example.keys):
            share = Example.share(feature, keys)
            rows = [(self.rows[feature.table][key], times * share) for key, times in keys]
            at = BEGIN[feature.table]
            x += [sum(row[at + j] * times for row, times in rows) for j in range(feature.width)]
        return x + [example.price]

    def units(self, x):
        weight = self.dense["deep/0/weight"]
        return [max(0.0, self.dense["deep/0/bias"][u] + sum(v * weight[i * UNITS + u] for i, v in enumerate(x)))
                for u in range(UNITS)]

    def logit(self, example, hidden=None):
        hidden = hidden or self.units(self.inputs(example))
        logit = self.dense["wide/bias"][0] + self.dense["wide/weight"][0] * example.price + self.dense["deep/1/bias"][0]
        logit += sum(h * w for h, w in zip(hidden, self.dense["deep/1/weight"]))
        for feature, keys in zip(FEATURES, example.keys):
            logit += sum(self.rows[feature.table][key][0] * times for key, times in keys if feature.wide)
        return logit

    def probability(self, example):
        return 1 / (1 + math.exp(-self.logit(example)))

    def step(self, batch):
        """Trains one batch: the gradient is the mean over its examples."""
        dense = {table: [0.0] * len(values) for table, values in self.dense.items()}
        rows = collections.defaultdict(lambda: collections.defaultdict(float))  # by (table, key), then by element
        for example in batch:
            x = self.inputs(example)
            hidden = self.units(x)
            error = (1 / (1 + math.exp(-self.logit(example, hidden))) - example.label) / len(batch)
            dense["wide/bias"][0] += error
            dense["wide/weight"][0] += error * example.price
            dense["deep/1/bias"][0] += error
            d_units = [error * w if h > 0 else 0.0 for h, w in zip(hidden, self.dense["deep/1/weight"])]
            for u in range(UNITS):
                dense["deep/1/weight"][u] += error * hidden[u]
                dense["deep/0/bias"][u] += d_units[u]
                for i, v in enumerate(x):
                    dense["deep/0/weight"][i * UNITS + u] += v * d_units[u]
            weight = self.dense["deep/0/weight"]
            d_x = [sum(weight[i * UNITS + u] * d_units[u] for u in range(UNITS)) for i in range(len(x))]
            begin = 0
            for feature, keys in zip(FEATURES, example.keys):
                share = Example.share(feature, keys)
                for key, times in keys:
                    row = rows[feature.table, key]
                    if feature.wide:
                        row[0] += error * times
                    for j in range(feature.width):
                        row[BEGIN[feature.table] + j] += d_x[begin + j] * times * share
                begin += feature.width
        for table, gradient in dense.items():
            self.dense[table] = [w - RATE * g for w, g in zip(self.dense[table], gradient)]
        for (table, key), gradient in rows.items():
            row = self.rows[table][key]
            for j, g in gradient.items():
                if j < BEGIN[table]:
                    row[j] -= RATE * g
                    continue
                self.squares[table, key, j] += g * g
                row[j] -= EMBEDDING_RATE * g / (math.sqrt(self.squares[table, key, j]) + 1e-10)

    def train(self, examples, epochs):
        for _ in range(epochs):
            for at in range(0, len(examples), BATCH):
                self.step(examples[at:at + BATCH])

    def values(self):
        dense = {table: dict(enumerate([value] for value in values)) for table, values in self.dense.items()}
        return {**self.rows, **dense}


def distance(a, b):
    """The norm of the difference over that of b, of two tables with the same keys."""
    difference = math.fsum((x - y) ** 2 for key, row in b.items() for x, y in zip(a[key], row))
    return math.sqrt(difference / math.fsum(y * y for row in b.values() for y in row))


class SeveralTablesTest(SluiceTest):
    def setUp(self):
        super().setUp()
        source = random.Random(3)
        rows = [self.draw(source) for _ in range(EXAMPLES)]
        # Evaluation only meets values of the training data, since the reference knows no others.
        more = source.sample(rows, EVAL_EXAMPLES)
        header = "label,price,user,shown,bought,tag,spot"
        self.write_csv("train.csv", rows, header=header)
        self.write_csv("eval.csv", more, header=header)
        self.job = self.tmp / "tables.textproto"
        self.job.write_text(JOB)
        self.examples = [Example(row) for row in rows]
        self.evaluated = [Example(row) for row in more]

    @staticmethod
    def draw(source):
        item = lambda: "i%d" % source.randrange(30)
        user = source.randrange(20)
        shown, spot = item(), source.choice((-7, 0, 1, 2, 12, -(1 << 63), (1 << 64) - 1))
        bought = "|".join(item() for _ in range(source.randrange(4)))
        tag = "|".join("%s:%s" % (source.choice("abcdef"), source.choice(("0.5", "1", "2"))) for _ in range(source.randrange(3)))
        label = int(source.random() < (0.7 if shown in bought.split("|") or user % 3 == 0 else 0.3))
        return (label, "%.3f" % source.gauss(0, 1), "u%d" % user if source.random() < 0.9 else "", shown, bought, tag,
                str(spot) if source.random() < 0.9 else "")

    def train(self, name, *flags, workers=1, epochs=2):
        result, out = self.launch("--worker_num=%d" % workers, "--batch_size=%d" % (BATCH // workers), "--server_num=2",
                                  "--epochs=%d" % epochs, *flags, job=self.job, name=name)
        self.assertEqual((result["status"], result["examples"]), ("done", epochs * EXAMPLES), out)
        return result

    def sync(self, name, *flags, lanes=1, **kwargs):
        return self.train(name, "--a_sync=false", "--set=data.shuffle_lanes=%d" % lanes, *flags, **kwargs)

    def values(self, name):
        """The values of a saved model: by table, then by key or by element, as lists."""
        done = subprocess.run([TEST_BIN / "model_values", self.tmp / name / "model"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        values = collections.defaultdict(dict)
        for line in done.stdout.splitlines():
            table, key, *row = line.split()
            values[table][int(key)] = [float(value) for value in row]
        self.assertEqual(set(values), {*SPARSE, *DENSE})
        for table, width in SPARSE.items():
            self.assertEqual({len(row) for row in values[table].values()}, {BEGIN[table] + width}, table)
        return values

    def start(self):
        """Trains one epoch; returns the flag that starts another job from the model, and its values."""
        self.sync("start", epochs=1)
        return "--set=initial_model=%s" % (self.tmp / "start" / "model"), self.values("start")

    def assert_trained(self, name, start, epochs):
        """The model has the values of the reference after so many epochs from `start`, and has moved in every table."""
        reference = Reference(start)
        reference.train(self.examples, epochs)
        values = self.values(name)
        for table, expected in reference.values().items():
            self.assertEqual(set(values[table]), set(expected), table)
            self.assertGreater(distance(start[table], expected), 1e-3, table)
            self.assertLessEqual(distance(values[table], expected), 1e-5, table)

    def test_a_dry_run_names_the_tables_and_their_features(self):
        _, out = self.launch("--dry_run", job=self.job)
        self.assertIn("table item: rows of 9 values for shown, bought", out)

    def test_every_mode_trains_as_the_reference(self):
        flag, start = self.start()
        one_step = ("--a_sync=true", "--set=train.pipeline_depth=1")
        for name, flags in (("sync", ("--a_sync=false", "--set=data.shuffle_lanes=1")),
                            ("collective", ("--a_sync=false", "--set=data.shuffle_lanes=1", COLLECTIVE)),
                            ("merged", ("--a_sync=false", "--set=data.shuffle_lanes=1", "--batch_size=%d" % (BATCH // 4),
                                        "--set=strategy.sync_configs.gradient_merge_steps=4")),
                            ("async", one_step), ("geo", ("--a_sync=true", "--k_steps=3"))):
            with self.subTest(name):
                self.train(name, flag, *flags)
                self.assert_trained(name, start, epochs=2)

    def test_hot_rows_of_several_tables_train_about_as_well(self):
        plain = self.train("plain", "--a_sync=true", epochs=3)
        hot = self.train("hot", "--a_sync=true", "--set=strategy.a_sync_configs.hot_row_cache={rows: 400}", epochs=3)
        self.assertGreater(hot["hot_rows"]["hits"], 0)
        self.assertLess(abs(hot["eval"]["log_loss"] - plain["eval"]["log_loss"]), 0.05)

    def test_workers_add_up_to_one_worker(self):
        for name, flags in (("pserver", ()), ("collective", (COLLECTIVE,))):
            with self.subTest(name):
                self.sync(name + "1", *flags, lanes=2)
                self.sync(name + "2", *flags, lanes=2, workers=2)
                # The biases end near 0, where rounding weighs more.
                self.assert_models_close(name + "1", name + "2", tolerance=1e-5, tables=len(SPARSE) + len(DENSE))

    def test_a_resumed_job_ends_as_one_that_never_stopped(self):
        every = "--set=checkpoint.every_epochs=1"
        modes = ("--a_sync=false", "--set=data.shuffle_lanes=1"), ("--a_sync=true", "--k_steps=3")
        for name, flags in zip(("sync", "geo"), modes):
            with self.subTest(name):
                whole = self.train(name + ".whole", *flags, every, epochs=3)
                self.train(name, *flags, every, epochs=2)
                resumed = self.train(name, *flags, every, "--resume", epochs=3)
                self.assertNotEqual(resumed["recovery"]["resumed_from"], "")
                self.assertEqual(resumed["model_digest"], whole["model_digest"])
                self.assertEqual(resumed["eval"], whole["eval"])
                folder = max((self.tmp / name / "checkpoints").glob("step-*"))
                verified = self.run_program("sluice", "ckpt", "verify", str(folder))
                self.assertEqual(verified.returncode, 0, verified.stdout)

    def test_scores_agree_with_the_evaluation_and_with_the_reference(self):
        trained = self.sync("run")
        model = Reference(self.values("run"))
        for workers in (1, 2):
            output = self.tmp / ("scores%d" % workers)
            done = self.run_program("sluice", "predict", "--model=%s" % (self.tmp / "run" / "model"),
                                    "--data=%s" % (self.tmp / "eval.csv"), "--output=%s" % output,
                                    "--worker_num=%d" % workers)
            self.assertEqual(done.returncode, 0, done.stdout)
            scores = [float(line) for line in output.read_text().splitlines()]
            self.assertEqual(len(scores), EVAL_EXAMPLES)
            for score, example in zip(scores, self.evaluated):
                self.assertLessEqual(abs(score - model.probability(example)), 1e-5)
            loss = -math.fsum(math.log(s if e.label else 1 - s) for s, e in zip(scores, self.evaluated)) / EVAL_EXAMPLES
            self.assertLessEqual(abs(loss - trained["eval"]["log_loss"]), 1e-6)
        again = self.launch("--set=evaluate_only=true", "--set=initial_model=%s" % (self.tmp / "run" / "model"),
                            "--worker_num=2", "--server_num=1", job=self.job, name="again")[0]
        self.assertEqual(again["eval"], trained["eval"])


if __name__ == "__main__":
    unittest.main()
