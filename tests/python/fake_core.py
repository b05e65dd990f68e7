"""A stand-in for sluice._core: one worker whose tables are NumPy arrays, updated by plain SGD.

It hands out the batches of a test in order, so that the loop and the modules can be tested without a cluster.
"""
import json
import queue
import re
import zlib

import numpy as np


class JobEnded(RuntimeError):
    pass


class StateTurn:
    """Asks for the program's state."""
    saves, trains, begins = True, False, False


class Attempt:
    """Among the batches: the next one is the first of another attempt of the job."""

    def __init__(self, restored=None):
        self.restored = restored


class NextEpoch:
    """Among the batches: those after it are of the next epoch."""


class EndOfEpoch:
    """A turn without a batch, as an item of Core.batches."""

    ends_epoch, trains, saves = True, False, False

    begins, restored = False, None

    def __init__(self, epoch):
        self.epoch = epoch


class Turn:
    saves = ends_epoch = False
    given_as = 0

    def __init__(self, core, example_keys, label, numbers, step, trains=True):
        self.core, self.trains, self.step, self.epoch, self.seed = core, trains, step, core.epoch, 7
        self.begins, self.restored = core.begins and (trains or core.restored is not None), core.restored
        self.logged, self.sums = [], []
        self.example_keys = example_keys  # [examples][slots]: lists of keys
        self._label = np.array(label, np.float32)
        self._numbers = np.array(numbers, np.float32).reshape(len(label), -1 if len(label) else 0)
        self.examples = len(label)
        self._weight = np.ones(len(label), np.float32)
        self._logits = np.zeros(len(label), np.float32)
        self.unique, self._values, self._row_gradients = [], [], []
        for t, table in enumerate(core.tables_):
            unique = sorted({k for row in example_keys for s, keys in enumerate(row) if core.slots[s][1] == t for k in keys})
            self.unique.append(unique)
            self._values.append(np.stack([table.setdefault(k, core.initial(t, k)) for k in unique])
                                if unique else np.zeros((0, core.dims[t]), np.float32))
            self._row_gradients.append(np.zeros_like(self._values[-1]))
        self._gradients = [np.zeros_like(value) for value in core.dense]
        self._dense = [value.copy() for value in core.dense]

    single = property(lambda self: all(len(keys) == 1 for row in self.example_keys for keys in row))
    label = lambda self: self._label
    weight = lambda self: self._weight
    unweighted = property(lambda self: bool((self._weight == 1).all()))
    numbers = lambda self: self._numbers
    logits = lambda self: self._logits
    log = lambda self, name, value: self.logged.append((name, value))
    measure = lambda self, name, sum, weight: self.sums.append((name, sum, weight))
    rows = lambda self, t: self._values[t]
    keys = lambda self, t: np.array(self.unique[t], np.uint64)
    row_gradients = lambda self, t: self._row_gradients[t]
    parameter = lambda self, i: self._dense[i]
    parameter_gradient = lambda self, i: self._gradients[i]
    parameter_addresses = lambda self: [value.ctypes.data for value in self._dense]
    gradient_addresses = lambda self: [value.ctypes.data for value in self._gradients]

    def slot_rows(self, s):
        unique = self.unique[self.core.slots[s][1]]
        return np.array([unique.index(k) for row in self.example_keys for k in row[s]], np.int64)

    def slot_offsets(self, s):
        return np.cumsum([0] + [len(row[s]) for row in self.example_keys]).astype(np.int64)

    def all_rows(self):
        return np.stack([self.slot_rows(s) for s in range(len(self.core.slots))])

    def copy_rows(self, table, slot, first, to):
        to[:] = self.rows(table)[self.slot_rows(slot)][:, first:first + to.shape[1]]

    def add_row_gradients(self, table, slot, first, gradients):
        bad = np.flatnonzero(~np.isfinite(gradients).all(axis=1))
        if len(bad):
            return int(bad[0])
        np.add.at(self.row_gradients(table)[:, first:first + gradients.shape[1]], self.slot_rows(slot), gradients)
        return -1


class ArrowRows:
    """The batches of a rank. `stream` is a list of what give_batch takes after the batch's number."""

    def __init__(self, stream, batch_rows, rank, world_size, start):
        self.batch_rows = batch_rows
        self.rows = sum(batch[0] for batch in stream)
        self.batches = stream[rank::world_size][start:]


class Core:
    """The module and its only worker. `slots`: (feature, table) by slot. `means`: features whose rows are averaged."""

    JobEnded = JobEnded

    def __init__(self, slots, rate=0.5, workers=1, asynchronous=False, means=()):
        self.means = means
        self.slots, self.rate, self.workers, self.asynchronous = slots, rate, workers, asynchronous
        self.batches, self.events, self.logits_seen = [], [], []
        self.begins, self.restored = True, None  # of the next batch to train
        self.epoch = 0
        self.states, self.sums, self.logged, self.keeps_state = [], [], [], False
        self.requests, self.given = queue.Queue(), queue.Queue()  # of a source of the script
        self.source_states = {}  # by epoch and number of batches
        self.rows_of_batch = 512  # of a table
        self.unwanted = set()  # requests whose batches nobody wants
        self.turn, self.left, self.has_job = None, False, True
        self.folder = ""  # of the job's output
        # What the other ranks give: gives(epochs_done, number, what, own) returns what all give, or None.
        self.gives = lambda epochs_done, number, what, own: [own]

    def declare(self, job, base_dir, program, source=False, eval_source=False, batches=False, table=False):
        self.sources = source, eval_source, batches
        self.program = json.loads(program)
        self.begins = True
        tables = 1 + max((t for _, t in self.slots), default=-1)
        self.columns = [[] for _ in range(tables)]
        self.dims = [0] * tables
        for c in self.program["collections"]:
            for t in sorted({dict(self.slots)[f] for f in c["features"]}):
                self.columns[t].append((c["name"], self.dims[t]))
                self.dims[t] += c["dim"]
        self.tables_ = [{} for _ in range(tables)]
        return job, "digest"

    def initial(self, table, key):
        return np.random.default_rng([table, key % 2**64]).normal(size=self.dims[table]).astype(np.float32)

    def offer(self, folder, job, values):
        self.dense = [np.array(value, np.float32).reshape(parameter["shape"])
                      for (_, value), parameter in zip(values, self.program["parameters"])]

    def is_offered(self, folder, job):
        return True

    def Worker(self, job, epoch_steps=0):
        self.epoch_steps = epoch_steps
        return self

    # ---- the worker

    def take(self):
        if self.turn is not None:
            raise AssertionError("the last turn is not answered")
        if self.left:
            self.batches = [batch for batch in self.batches if not isinstance(batch, tuple) or not (*batch, True)[4]]
        if not self.batches:
            return self.take_given()
        batch = self.batches.pop(0)
        if isinstance(batch, Attempt):
            self.begins, self.restored = True, batch.restored
            batch = self.batches.pop(0)
        if isinstance(batch, NextEpoch):
            self.epoch += 1
            batch = self.batches.pop(0)
        if isinstance(batch, EndOfEpoch):
            batch.begins, batch.restored = self.begins, self.restored
            self.begins, self.restored = False, None
        if isinstance(batch, (EndOfEpoch, StateTurn)):
            self.turn = batch
            return batch
        self.turn = Turn(self, *batch) if not isinstance(batch, BaseException) else None
        if self.turn is None:
            raise batch
        if self.turn.trains or self.turn.begins:
            self.begins, self.restored = False, None
        return self.turn

    def poll(self, seconds):
        turn = self.take()
        return False if turn is None else turn

    def keep_state(self):
        self.keeps_state = True

    def answer_state(self, state):
        self.turn = None
        self.states.append(state)

    def take_given(self):
        """The next batch that the script's source gives; None without one."""
        given = self.given.get(timeout=60) if self.sources[0] else None
        if given is None:
            return None
        if isinstance(given, Exception):
            raise given
        given_as, examples, label, weight, numbers, values = given
        keys = keys_by_example(examples, values)
        label = np.zeros(examples, np.float32) if label is None else label
        self.turn = Turn(self, keys, label, np.stack(numbers, axis=1) if numbers else np.zeros((examples, 0)), 0)
        self.turn.given_as = given_as
        if weight is not None:
            self.turn._weight = weight
        return self.turn

    def await_source(self):
        return self.requests.get()

    def keep_source_state(self, epoch, batches, state):
        self.source_states[epoch, batches] = state
        return len(state) < 1 << 20

    def source_state_before(self, epoch, batches):
        before = [at for of, at in self.source_states if of == epoch and at <= batches]
        return (max(before), self.source_states[epoch, max(before)]) if before else None

    def counted_source(self, number, batches):
        self.events.append(("count", number, batches))

    def give_batch(self, number, *batch):
        if number in self.unwanted:
            return False
        self.given.put(batch)
        return True

    def seed(self):
        return 7

    def batch_rows(self):
        return self.rows_of_batch

    def table_rows(self, stream, rank, world_size, start):
        return ArrowRows(stream, self.rows_of_batch, rank, world_size, start)

    def give_rows(self, number, given_as, rows):
        if not rows.batches:
            return None
        self.events.append(("rows", rows.batch_rows))
        return self.give_batch(number, given_as, *rows.batches.pop(0))

    def end_batches(self, number):
        self.given.put(None)

    def fail_source(self, why):
        self.given.put(JobEnded(why))

    def features(self):
        return [name for name, _ in self.slots]

    def answer(self, loss_sum, weight_sum):
        turn, self.turn = self.turn, None
        self.events.append(("step", loss_sum, weight_sum))
        self.last = turn
        self.logged.append(turn.logged)
        for table, unique, gradients in zip(self.tables_, turn.unique, turn._row_gradients):
            for key, gradient in zip(unique, gradients):
                table[key] = table[key] - self.rate * gradient
        for value, gradient, parameter in zip(self.dense, turn._gradients, self.program["parameters"]):
            rate = parameter.get("optimizer", {}).get("learning_rate", self.rate)
            value -= (1 if parameter.get("buffer") else rate) * gradient

    def skip(self):
        self.logged.append(self.turn.logged)
        self.turn = None
        self.events.append(("skip",))

    def answer_logits(self):
        self.logits_seen.append(self.turn._logits.copy())
        self.sums.append(self.turn.sums)
        self.turn = None

    def answer_end(self, done):
        self.events.append(("end", self.turn.epoch, done))
        self.turn = None

    def gather(self, epochs_done, number, what, rank, data):
        self.events.append(("gather", epochs_done, number, what))
        given = self.gives(epochs_done, number, what, data)
        if isinstance(given, Exception):
            raise given
        return given

    def pass_on(self, epochs_done, number, what):
        self.passed = (epochs_done, number, what)

    def fail(self, why):
        self.turn = None
        self.events.append(("fail", why))
        return self.has_job

    def abandon(self):
        self.events.append(("abandon",))

    def leave(self):
        self.turn, self.left = None, True
        self.events.append(("leave",))

    def cancel(self):
        self.events.append(("cancel",))

    def stop(self):
        self.events.append(("stop",))
        self.requests.put(None)

    def place(self):
        return "job-1", 0, self.workers, self.asynchronous

    output_dir = lambda self: self.folder

    def lookups(self):
        found = []
        for c in self.program["collections"]:
            places = []
            for feature in c["features"]:
                slot = [name for name, _ in self.slots].index(feature)
                table = self.slots[slot][1]
                places.append((table, slot, dict(self.columns[table])[c["name"]], feature in self.means))
            found.append((c["name"], places))
        return found

    def numbers(self):
        return [("age", 0)]

    def parameters(self):
        return [parameter["name"] for parameter in self.program["parameters"]]

    def tables(self):
        return len(self.tables_)


class ClientCore(Core):
    """Hands out the batches that the client gives for its newest request."""

    def __init__(self, mode="async", start=0):
        super().__init__([], rate=0.5)
        self.mode_, self.number, self.coming = mode, 0, [("train", 0, start)]
        self.queue, self.ended, self.epochs_ = [], False, 1
        # Whether the pservers have acknowledged what was pushed, or None; and how often one may ask in vain.
        self.acknowledged, self.patience = False, 100

    def declare(self, job, base_dir, program, source=False, eval_source=False, batches=False, table=False):
        self.job = job
        self.slots = [(name, t) for t, name in enumerate(re.findall(r'features { name: "(\w+)" key: RAW', job))]
        return super().declare(job, base_dir, program, source, eval_source, batches, table)

    def await_source(self, wait=True):
        assert not wait, "the client has one thread"
        if not self.coming:
            return None
        kind, epoch, start = self.coming.pop(0)
        self.number += 1
        self.queue, self.ended = [], False
        return self.number, kind, 0, self.workers, epoch, start

    def go_back(self, step):
        """The open request is over, and the next one begins with this step. Nothing of the new attempt is acknowledged."""
        self.number += 1
        self.coming.append(("train", 0, step))
        self.queue, self.begins, self.acknowledged = [], True, False

    def give_batch(self, number, *batch):
        if number != self.number:
            return False
        self.queue.append(batch)
        return True

    def end_batches(self, number):
        self.ended = number == self.number

    def poll(self, seconds):
        if self.batches:
            return self.take()
        if self.queue:
            self.given.put(self.queue.pop(0))
            self.turn = self.take_given()
            self.turn.begins, self.begins = self.begins, False
            return self.turn
        if self.ended:
            if self.ended == "again":
                return False
            self.ended = "again"
            self.turn = EndOfEpoch(0)
            return self.turn
        return None

    def await_acknowledged(self, push, seconds):
        self.events.append(("acknowledged", push))
        self.patience -= 1
        assert self.patience > 0, "the client waits for ever"
        return self.acknowledged

    def mode(self):
        return self.mode_

    def epochs(self):
        return self.epochs_


def keys_by_example(examples, values):
    """The keys of each slot of each example, of (values, offsets) by slot."""
    keys = [[] for _ in range(examples)]
    for slot, offsets in values:
        at = np.arange(examples + 1) if offsets is None else offsets
        for i in range(examples):
            keys[i].append([int(key) for key in slot[at[i]:at[i + 1]]])
    return keys


def key_of(word):
    return int(word) if word.isdigit() else zlib.crc32(word.encode())


class Rows:
    """The rows of a table of a saved model."""

    def __init__(self, core, table):
        self.core, self.table = core, table

    def keys(self):
        return np.array(sorted(self.core.tables_[self.table]), np.uint64)

    def values(self):
        return self.find(self.keys())

    def find(self, keys):
        rows = [self.core.tables_[self.table].get(int(key), self.core.initial(self.table, int(key))) for key in keys]
        return np.stack(rows) if rows else np.zeros((0, self.core.dims[self.table]), np.float32)


class SavedModel:
    """A module whose only saved model has the values of `core`. A column's cell has the keys of its slot."""

    job, job_id, step, epochs, digest = "a job", "job-1", 20, 1, "d1"
    own_data = False  # the program gave the data

    def __init__(self, core, folder="model"):
        self.core, self.folder = core, folder

    def open_model(self, folder):
        if folder != self.folder:
            raise KeyError("%s is not a saved model" % folder)
        return self

    def dense(self, name):
        return self.core.dense[self.core.parameters().index(name)].ravel()

    def rows(self, name):
        return Rows(self.core, self.tables().index(name))

    def ExampleSource(self, job):
        return self

    def tables(self):
        return ["table%d" % t for t in range(len(self.core.tables_))]

    def lookups(self):
        return self.core.lookups()

    def numbers(self):
        return self.core.numbers()

    def parameters(self):
        return [(parameter["name"], parameter["shape"]) for parameter in self.core.program["parameters"]]

    def collections(self):
        return [(c["name"], c["dim"], c["features"]) for c in self.core.program["collections"]]

    def vector_columns(self):
        return []

    def from_columns(self, columns):
        self.columns = columns
        cells = dict(columns)
        names = [feature for feature, _ in self.core.slots]
        keys = [[[key_of(word) for word in (cells[name][i] or "").split()] for name in names] for i in range(len(cells["age"]))]
        return self.examples(keys, [float(age or 0) for age in cells["age"]])

    def features(self):
        return self.core.features()

    def from_given(self, examples, label, weight, numbers, values):
        self.given = examples, label, weight, numbers, values
        return self.examples(keys_by_example(examples, values), numbers[0])

    def read(self, files, batch_size):
        self.files = [self.examples([[[1], [2], [3]]] * batch_size, [0.5] * batch_size) for _ in files]
        return self

    def next(self):
        return self.files.pop(0) if self.files else None

    def examples(self, keys, ages):
        return Turn(self.core, keys, [0] * len(keys), ages, 0, trains=False)
