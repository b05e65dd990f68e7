"""Turns Criteo TSV into what the peers read, once: DIR/arrays.npz, and DIR/slots-R for Paddle's rank R.

arrays.npz: numeric float32 [N, 13] = log(1 + max(value, 0)), ids int64 [N, 26] in [0, ROWS), label float32 [N].
slots-R: MultiSlot text of the examples R, R + 2, ...: the numbers, one id for each category, the label.
"""
import pathlib
import zlib

import numpy as np

NUMERIC, CATEGORICAL = 13, 26
ROWS = 1_000_001  # of the peers' embedding table: they need a bound, a value's id is its hash modulo this
TRAINERS = 2


def _example(line):
    fields = line.rstrip("\n").split("\t")
    numeric = [max(float(v), 0.0) if v else 0.0 for v in fields[1:1 + NUMERIC]]
    ids = [zlib.crc32(b"%d %s" % (slot, v.encode())) % ROWS for slot, v in enumerate(fields[1 + NUMERIC:])]
    if len(numeric) != NUMERIC or len(ids) != CATEGORICAL:
        raise ValueError("a line with %d fields; Criteo's have %d" % (len(fields), 1 + NUMERIC + CATEGORICAL))
    return float(fields[0]), numeric, ids


def _write_slots(path, numeric, ids, label):
    with open(path, "w") as out:
        for x, row, y in zip(numeric, ids, label):
            out.write("%d %s " % (NUMERIC, " ".join("%.4f" % v for v in x)))
            out.write(" ".join("1 %d" % i for i in row))
            out.write(" 1 %d\n" % y)


def convert(tsv, folder):
    """Returns the folder; does nothing when it was made from this file before."""
    folder = pathlib.Path(folder)
    done = folder / "arrays.npz"
    if done.exists() and done.stat().st_mtime >= pathlib.Path(tsv).stat().st_mtime:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with open(tsv) as lines:
        label, numeric, ids = zip(*map(_example, lines))
    label, numeric = np.array(label, np.float32), np.log1p(np.array(numeric, np.float32))
    ids = np.array(ids, np.int64)
    for rank in range(TRAINERS):
        part = slice(rank, None, TRAINERS)
        _write_slots(folder / ("slots-%d" % rank), numeric[part], ids[part], label[part])
    np.savez(folder / "writing.npz", numeric=numeric, ids=ids, label=label)
    (folder / "writing.npz").rename(done)
    return folder


if __name__ == "__main__":
    import sys
    convert(sys.argv[1], sys.argv[2])
