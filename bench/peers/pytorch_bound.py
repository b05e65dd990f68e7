"""What a PyTorch program can reach at most: two processes of one thread that only run torch's forward and backward passes.

Each batch has its unique rows as a leaf tensor, with a buffer for their gradients, and an index into them, as a worker hands
them out. There are no optimizer, no pserver and no reader. Prints examples/s of both together and the loss, as one JSON line.
"""
import json
import os
import tempfile
import time

import numpy as np
import torch
import torch.distributed
import torch.multiprocessing
from torch.nn import functional as F

from arguments import parse
from pytorch_model import WideDeep

WORKERS = 2
BATCHES = 20  # of each process, used in turn


def work(rank, options, folder):
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    torch.distributed.init_process_group("gloo", init_method="file://%s" % os.path.join(folder, "meet"), rank=rank,
                                         world_size=WORKERS)
    arrays = np.load(options.arrays)
    model = WideDeep(1)
    dim = model.embedding.embedding_dim
    dense = [parameter for name, parameter in model.named_parameters() if not name.startswith("embedding")]
    made = []
    for i in range(BATCHES):
        first = (rank + WORKERS * i) * options.batch % (len(arrays["label"]) - options.batch + 1)
        part = slice(first, first + options.batch)
        numeric, ids, label = (torch.from_numpy(arrays[name][part].copy()) for name in ("numeric", "ids", "label"))
        unique, index = torch.unique(ids, return_inverse=True)
        rows = torch.empty(len(unique), dim).uniform_(-0.01, 0.01)
        made.append((numeric, index, label, rows, torch.zeros_like(rows)))
    log_loss = torch.nn.BCEWithLogitsLoss()

    def train(step):
        numeric, index, label, rows, gradient = made[step % BATCHES]
        gradient.zero_()
        leaf = rows.detach().requires_grad_()
        leaf.grad = gradient
        for parameter in dense:
            parameter.grad = None
        inputs = torch.cat((F.embedding(index, leaf).flatten(1), numeric), dim=1)
        loss = log_loss(torch.squeeze(model.deep(inputs) + model.wide(numeric), 1), label)
        loss.backward()
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
