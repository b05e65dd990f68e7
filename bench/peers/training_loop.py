"""The training loop that the peers in PyTorch share: warm-up, then steps against the clock, and one JSON line.

With ranks, each is a process of one thread, and they meet over gloo:

    def prepare(rank, options):
        ...
        return train  # train(step) makes a step and returns its loss

    training_loop.run_ranks(options, prepare, torch.__version__)
"""
import json
import os
import tempfile
import time

import numpy as np
import torch
import torch.distributed
import torch.multiprocessing

RANKS = 2


def arrays_of(options, rank=0, ranks=1):
    """Numbers, ids and labels of every ranks-th example, from `rank` on."""
    arrays = np.load(options.arrays)
    return tuple(torch.from_numpy(np.ascontiguousarray(arrays[name][rank::ranks])) for name in ("numeric", "ids", "label"))


def part_of(step, options, examples):
    """The examples of a step. Batches come in turn, all of one size."""
    begin = step % (examples // options.batch) * options.batch
    return slice(begin, begin + options.batch)


def run(options, train, version, ranks=1, rank=0, barrier=lambda: None):
    """--steps counts those of all ranks. Rank 0 prints."""
    for step in range(options.warm_up):
        train(step)
    steps = max(options.steps // ranks, 1)
    barrier()
    start = time.perf_counter()
    losses = [train(options.warm_up + step) for step in range(steps)]
    barrier()
    seconds = time.perf_counter() - start
    if rank == 0:
        print(json.dumps({"version": version, "examples_per_second": ranks * steps * options.batch / seconds,
                          "loss": sum(losses) / len(losses)}), flush=True)


def run_ranks(options, prepare, version):
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_work, (options, prepare, version, folder), nprocs=RANKS)


def _work(rank, options, prepare, version, folder):
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    # TorchRec's planner reads them.
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(RANKS))
    torch.distributed.init_process_group("gloo", init_method="file://%s" % os.path.join(folder, "meet"), rank=rank,
                                         world_size=RANKS)
    run(options, prepare(rank, options), version, RANKS, rank, torch.distributed.barrier)
    torch.distributed.destroy_process_group()
