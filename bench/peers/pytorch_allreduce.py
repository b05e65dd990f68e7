"""PyTorch's gloo all-reduce (a sum of float32) between two processes of one thread, each on a CPU of its own.

Measures as `collective/allreduce` of sluice-bench does: as many operations of each size, but no more than take about
MOST_SECONDS, once to warm up and once that counts, from the moment when both ranks are ready to the end of the last. Prints
GB/s of the array as one JSON line.
"""
import argparse
import json
import os
import tempfile
import time

import torch
import torch.distributed
import torch.multiprocessing

RANKS = 2
MOST_SECONDS = 0.5  # as kMostSeconds in collective_bench.cc
# name: (bytes of the array, operations at most), as in collective_bench.cc.
SIZES = {"4KiB": (4 << 10, 2000), "64KiB": (64 << 10, 500), "1MiB": (1 << 20, 60), "4MiB": (4 << 20, 20),
         "16MiB": (16 << 20, 8), "64MiB": (64 << 20, 3)}


def measure(values, times, kept):
    """Seconds an operation; every rank gets the same. Adds to `kept` what must outlive the process group."""
    torch.distributed.barrier()
    begin = time.monotonic()
    for _ in range(times):
        torch.distributed.all_reduce(values)
    end = time.monotonic()
    # The processes have the same clock: the first begin and the last end.
    ends = torch.tensor([-begin, end], dtype=torch.float64)
    torch.distributed.all_reduce(ends, torch.distributed.ReduceOp.MAX)
    kept += values, ends
    return float(ends.sum()) / times


def work(rank, options, folder):
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {allowed[rank % len(allowed)]})  # also of gloo's threads, which start below
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method="file://%s" % os.path.join(folder, "meet"), rank=rank,
                                         world_size=RANKS)
    # The end of the process group waits for its threads and holds the interpreter's lock (PyTorch 2.5). A thread that drops
    # the last reference to a tensor needs this lock, and would wait for ever.
    kept = []
    rates = {}
    for size in options.sizes.split(","):
        count, times = SIZES[size]
        values = torch.full((count // 4,), 0.0)  # whose sum stays the same
        times = 2 if options.quick else times
        # Every rank computes the same seconds, and so the same times.
        times = max(1, min(times, int(MOST_SECONDS / measure(values, min(times, 10), kept))))
        measure(values, times, kept)
        rates[size] = count / measure(values, times, kept) / 1e9
    if rank == 0:
        print(json.dumps({"version": torch.__version__, "gb_per_second": rates}), flush=True)
    torch.distributed.destroy_process_group()
    del kept


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--quick", action="store_true", help="two operations of each size")
    flags.add_argument("--sizes", default=",".join(SIZES), help="the arrays, separated by commas")
    options = flags.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (options, folder), nprocs=RANKS)


if __name__ == "__main__":
    main()
