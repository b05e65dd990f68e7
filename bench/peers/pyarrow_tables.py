"""Tables in pyarrow, for tables.py: makes a file of rows, writes it, reads it and compares it with another; prints CPU seconds as
one JSON line.

A row is a key (uint64) and 16 weights (a list of float32, of fixed size), as `sluice table export` writes them.
"""
import argparse
import json
import resource
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DIM = 16


def flags():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("make", "write", "read", "compare"))
    parser.add_argument("file", help="make: the file that is made. write, read, compare: the file whose rows are taken")
    parser.add_argument("--rows", type=int, default=0, help="make: how many")
    parser.add_argument("--output", help="write: the file that is written")
    parser.add_argument("--other", help="compare: the file that must have the same rows, in any order")
    return parser.parse_args()


def make(path, rows):
    random = np.random.default_rng(1)
    keys = random.permutation(rows).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # distinct: the factor is odd
    weights = pa.array((random.standard_normal(rows * DIM) * 0.01).astype(np.float32))
    pq.write_table(pa.table({"key": keys, "weights": pa.FixedSizeListArray.from_arrays(weights, DIM)}), path)


def by_key(path):
    """The keys, and the rows of weights as they are in memory, in the order of the keys."""
    keys, weights = (column.combine_chunks() for column in pq.read_table(path).columns)
    keys, weights = keys.to_numpy(), weights.flatten().to_numpy().reshape(-1, DIM)
    order = np.argsort(keys)
    return keys[order], weights[order].view(np.uint32)


def compare(path, other):
    for name, one, its in zip(("keys", "weights"), by_key(path), by_key(other)):
        if not np.array_equal(one, its):
            sys.exit("%s and %s have other %s" % (path, other, name))


def cpu_seconds(call):
    """The processor time of a call, of all threads."""
    def used():
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime

    before = used()
    call()
    return used() - before


def main():
    options = flags()
    if options.what == "make":
        make(options.file, options.rows)
        return
    if options.what == "compare":
        compare(options.file, options.other)
        return
    if options.what == "read":
        seconds = cpu_seconds(lambda: pq.read_table(options.file))
    else:
        table = pq.read_table(options.file)
        seconds = cpu_seconds(lambda: pq.write_table(table, options.output, compression="zstd"))
    print(json.dumps({"cpu_seconds": seconds}))


main()
