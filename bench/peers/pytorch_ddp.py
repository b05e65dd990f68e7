"""The standard model in PyTorch's DistributedDataParallel: two processes of one thread that exchange gradients over gloo.

The embedding table has dense gradients, so a step moves all of its rows. Arrays are in memory. Prints examples/s of both
processes together and the loss after warm-up, as one JSON line.
"""
import torch

import training_loop
from arguments import parse
from pytorch_model import WideDeep


def prepare(rank, options):
    numeric, ids, label = training_loop.arrays_of(options, rank, training_loop.RANKS)
    ids %= options.rows
    model = torch.nn.parallel.DistributedDataParallel(WideDeep(options.rows, sparse=False))
    make = {"sgd": lambda p: torch.optim.SGD(p, lr=0.01), "adam": lambda p: torch.optim.Adam(p, lr=1e-3)}[options.optimizer]
    update = make(model.parameters())
    log_loss = torch.nn.BCEWithLogitsLoss()

    def train(step):
        batch = training_loop.part_of(step, options, len(label))
        loss = log_loss(model(numeric[batch], ids[batch]), label[batch])
        update.zero_grad()
        loss.backward()
        update.step()
        return float(loss.detach())

    return train


if __name__ == "__main__":
    training_loop.run_ranks(parse(__doc__), prepare, torch.__version__)
