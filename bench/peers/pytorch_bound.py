"""What a PyTorch program can reach at most: two processes of one thread that only run torch's forward and backward passes.

Each batch has its unique rows as a leaf tensor, with a buffer for their gradients, and an index into them, as a worker hands
them out. There are no optimizer, no pserver and no reader. Prints examples/s of both together and the loss, as one JSON line.
"""
import torch
from torch.nn import functional as F

import training_loop
from arguments import parse
from pytorch_model import WideDeep

BATCHES = 20  # of each process, used in turn


def prepare(rank, options):
    model = WideDeep(1)
    dim = model.embedding.embedding_dim
    dense = [parameter for name, parameter in model.named_parameters() if not name.startswith("embedding")]
    numeric, ids, label = training_loop.arrays_of(options)
    made = []
    for i in range(BATCHES):
        first = (rank + training_loop.RANKS * i) * options.batch % (len(label) - options.batch + 1)
        part = slice(first, first + options.batch)
        unique, index = torch.unique(ids[part], return_inverse=True)
        rows = torch.empty(len(unique), dim).uniform_(-0.01, 0.01)
        made.append((numeric[part].clone(), index, label[part].clone(), rows, torch.zeros_like(rows)))
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

    return train


if __name__ == "__main__":
    training_loop.run_ranks(parse(__doc__), prepare, torch.__version__)
