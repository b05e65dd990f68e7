"""Data whose keys are counted outside of Sluice, and the comparison of these counts with a trained counting model.

The counting model (tests/model/counting_model) changes each value by the number of times it was trained. So an update
that was applied twice, or not at all, is seen in the values of its keys.
"""
import collections
import dataclasses
import random
import subprocess

_MASK = (1 << 64) - 1
TOTALS = 4  # equal dense tables of the counting model: the number of examples, and the sum of x


def _mix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def hash_bytes(data, seed):
    """The frozen hash of common/base/hash.h."""
    a, b = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93

    def fold(x, y):
        product = x * y
        return (product & _MASK) ^ (product >> 64)

    h = seed ^ (len(data) * b & _MASK)
    whole = len(data) // 8 * 8
    for at in range(0, whole, 8):
        h = (fold(h ^ int.from_bytes(data[at:at + 8], "little") ^ a, b) + a) & _MASK
    tail = int.from_bytes(data[whole:], "little")
    return _mix((fold(h ^ tail ^ a, b) + a) & _MASK)


def key_of(feature, value):
    """The key of a categorical value (model/features/feature_compiler.h)."""
    return hash_bytes(value.encode(), hash_bytes(feature.encode(), 0))


class CountedData:
    """Lines with an id that no other line has, a group that many have, and a small number x.

    FILES files of LINES lines. Unless lines are shuffled, a file is a task of async and Geo, and holds only full
    batches of up to 16 examples, so that a lost update of async loses the same number of examples whichever it is.
    """
    FILES, LINES, GROUPS = 8, 512, 50

    def __init__(self, seed):
        source = random.Random("data %d" % seed)
        self.rows = [(i % 2, source.randrange(4), "e%d" % i, "g%d" % int(source.random() ** 3 * self.GROUPS))
                     for i in range(self.FILES * self.LINES)]
        self.ids = [("count", key_of("id", row[2])) for row in self.rows]  # the keys that one line has
        self._groups = {name: ("count", key_of("group", name)) for _, _, _, name in self.rows}

    def write(self, folder, equal_updates=False):
        """Writes the files and the job; returns the path of the job. With `equal_updates`, an update of one table is one
        update of a shard, and all have the same number of examples."""
        for i in range(self.FILES):
            rows = self.rows[i * self.LINES:(i + 1) * self.LINES]
            (folder / ("train%d.csv" % i)).write_text(
                "label,x,id,group\n" + "".join("%d,%d,%s,%s\n" % row for row in rows))
        path = folder / "counting.textproto"
        path.write_text("""
name: "counting"
data { format: CSV train_files: "train*.csv" csv { header: true } label { column: "label" }%s }
features { name: "x" numeric {} }
features { name: "id" categorical {} }
features { name: "group" categorical {} }
model { custom { name: "counting" } }
optimizers { all { sgd {} learning_rate: 1 } }
train { batch_size: 8 threads: 1 }
%s""" % ((" shuffle: false", 'tables { name: "count" num_shards: 1 }\n') if equal_updates else ("", "")))
        return path

    def expected(self, epochs):
        """The value of each (table, key) when every example is trained once an epoch."""
        counts = collections.Counter()
        for key, (_, x, _, group) in zip(self.ids, self.rows):
            counts[key] += epochs
            counts[self._groups[group]] += epochs
            for i in range(TOTALS):
                counts["total/%d" % i, 0] += epochs
                counts["total/%d" % i, 1] += x * epochs
        return dict(counts)


def read_values(program, model):
    """The value of each (table, key) of a saved model; `program` is model_values."""
    done = subprocess.run([program, model], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    lines = (line.split() for line in done.stdout.splitlines())
    return {(table, int(key)): float(value) for table, key, value in lines}


@dataclasses.dataclass(frozen=True)
class Recovery:
    """What a job says about its losses: the fields of result.json's `recovery` that bound the counts."""
    losses: int = 0  # of workers, pservers, the scheduler and the launcher
    examples_replayed: int = 0
    updates_lost: int = 0
    frame_examples: int = 8  # at most so many in a frame of one worker
    # Each table is one shard, and every frame has frame_examples: so many examples are missing for each lost update.
    exact: bool = False

    @staticmethod
    def of(result, frame_examples, exact=False, resumed=0):
        """`resumed`: how often the job was resumed, which begins its counts anew."""
        recovery = result["recovery"]
        losses = sum(recovery[name] for name in ("worker_losses", "pserver_losses", "scheduler_restarts"))
        return Recovery(losses + resumed, recovery["examples_replayed"], recovery["updates_lost"], frame_examples, exact)


@dataclasses.dataclass
class Comparison:
    problems: list  # what a correct system cannot do; empty: none
    extra: int = 0  # examples counted more than once, by their ids
    missing: int = 0  # examples not counted: by their ids, and by each of the dense tables


def compare(data, values, epochs, mode, recovery):
    """Compares the values of a trained model with the expected ones.

    Sync, and without losses any mode: equal. Async and Geo with losses:
    - At most examples_replayed examples are counted again, and none of them more often than there were losses.
    - An update is one frame of one rank on one shard, and with updates_lost of them up to frame_examples examples each
      are missing. If nothing was replayed, which can hide a missing example, and `exact` holds, exactly so many are.
    """
    expected = data.expected(epochs)
    found = Comparison([])
    if values.keys() != expected.keys():
        lacking, unknown = expected.keys() - values.keys(), values.keys() - expected.keys()
        if unknown or mode == "sync" or not recovery.updates_lost:
            found.problems.append("%d keys are missing and %d are unknown" % (len(lacking), len(unknown)))
    moved = {key: values.get(key, 0.0) - count for key, count in expected.items()}
    broken = [key for key, by in moved.items() if not by.is_integer()]
    if broken:
        found.problems.append("%d values are no integers, such as %s: %r" % (
            len(broken), broken[0], values[broken[0]]))
        return found
    moved = {key: int(by) for key, by in moved.items()}

    ids = [moved[key] for key in data.ids]
    totals = [moved["total/%d" % i, 0] for i in range(TOTALS)]
    found.extra = sum(by for by in ids if by > 0)
    found.missing = -sum(by for by in ids + totals if by < 0)

    changed = {key: by for key, by in moved.items() if by}
    if mode == "sync" or recovery.losses == 0:
        if changed:
            key, by = next(iter(changed.items()))
            found.problems.append("%d values are wrong, such as %s: %+d" % (len(changed), key, by))
        return found

    explained = "%d were replayed, and %d updates of %d lost" % (
        recovery.examples_replayed, recovery.updates_lost, recovery.frame_examples)
    if max(ids) > recovery.losses:
        found.problems.append("an example was counted %d times too often after %d losses" % (max(ids), recovery.losses))
    counts = sum(by for key, by in moved.items() if by > 0 and key[0] == "count") // 2  # an id and a group each
    for what, most in (("ids", found.extra), ("totals", max(totals)), ("counts", counts)):
        if most > recovery.examples_replayed:
            found.problems.append("%s: %d examples were counted again; %s" % (what, most, explained))
    groups = -sum(by for key, by in moved.items() if by < 0 and key[0] == "count") + sum(by for by in ids if by < 0)
    lost = recovery.updates_lost * recovery.frame_examples
    if found.missing > lost or groups > lost:
        found.problems.append("%d examples are missing, %d of groups; %s" % (found.missing, groups, explained))
    if recovery.exact and recovery.examples_replayed == 0 and found.missing != lost:
        found.problems.append("%d examples are missing, not exactly the lost ones; %s" % (found.missing, explained))
    return found
