"""The standard model in PyTorch's DistributedDataParallel: two processes of one thread that exchange gradients over gloo.

The embedding table has dense gradients, so a step moves all of its rows. Arrays are in memory. Prints examples/s of both
processes together and the loss after warm-up, as one JSON line.
"""
import json
import os
import tempfile
import time

import numpy as np
import torch
import torch.distributed
import torch.multiprocessing

from arguments import parse
from pytorch_model import WideDeep

WORKERS = 2


def work(rank, options, folder):
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    torch.distributed.init_process_group("gloo", init_method="file://%s" % os.path.join(folder, "meet"), rank=rank,
                                         world_size=WORKERS)
    arrays = np.load(options.arrays)
    part = slice(rank, None, WORKERS)
    numeric, ids, label = (torch.from_numpy(np.ascontiguousarray(arrays[name][part])) for name in ("numeric", "ids", "label"))
    ids %= options.rows
    model = torch.nn.parallel.DistributedDataParallel(WideDeep(options.rows, sparse=False))
    make = {"sgd": lambda p: torch.optim.SGD(p, lr=0.01), "adam": lambda p: torch.optim.Adam(p, lr=1e-3)}[options.optimizer]
    update = make(model.parameters())
    log_loss = torch.nn.BCEWithLogitsLoss()
    batches = len(label) // options.batch

    def train(step):
        batch = slice(step % batches * options.batch, (step % batches + 1) * options.batch)
        loss = log_loss(model(numeric[batch], ids[batch]), label[batch])
        update.zero_grad()
        loss.backward()
        update.step()
        return float(loss.detach())

    for step in range(options.warm_up):
        train(step)
    torch.distributed.barrier()
    start = time.perf_counter()
    steps = max(options.steps // WORKERS, 1)  # --steps counts those of all workers
    losses = [train(options.warm_up + step) for step in range(steps)]
    torch.distributed.barrier()
    seconds = time.perf_counter() - start
    if rank == 0:
        print(json.dumps({"version": torch.__version__, "examples_per_second": WORKERS * steps * options.batch / seconds,
                          "loss": sum(losses) / len(losses)}), flush=True)
    torch.distributed.destroy_process_group()


def main():
    options = parse(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (options, folder), nprocs=WORKERS)


if __name__ == "__main__":
    main()
