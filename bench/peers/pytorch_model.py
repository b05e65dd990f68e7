"""The standard model in one PyTorch process, every array in memory: examples/s and loss after warm-up, as one JSON line."""
import json
import time

import numpy as np
import torch

from arguments import parse

HIDDEN = (400, 400, 400)


class WideDeep(torch.nn.Module):
    def __init__(self, rows, dim=10, numeric=13, categories=26, sparse=True):
        super().__init__()
        self.embedding = torch.nn.Embedding(rows, dim, sparse=sparse)
        torch.nn.init.uniform_(self.embedding.weight, -0.01, 0.01)
        self.wide = torch.nn.Linear(numeric, 1)
        layers, width = [], categories * dim + numeric
        for units in HIDDEN:
            layers += [torch.nn.Linear(width, units), torch.nn.ReLU()]
            width = units
        self.deep = torch.nn.Sequential(*layers, torch.nn.Linear(width, 1))

    def forward(self, numeric, ids):  # [B, 13], [B, 26] -> [B]
        inputs = torch.cat((torch.flatten(self.embedding(ids), 1), numeric), dim=1)
        return torch.squeeze(self.deep(inputs) + self.wide(numeric), 1)


def optimizers(model, kind):
    embedding = list(model.embedding.parameters())
    dense = [p for name, p in model.named_parameters() if not name.startswith("embedding")]
    if kind == "adam":
        return [torch.optim.SparseAdam(embedding, lr=1e-3), torch.optim.Adam(dense, lr=1e-3)]
    return [torch.optim.SGD(embedding + dense, lr=0.01)]


def main():
    options = parse(__doc__)
    torch.set_num_threads(2)
    torch.manual_seed(options.seed)
    arrays = np.load(options.arrays)
    numeric, ids, label = (torch.from_numpy(arrays[name]) for name in ("numeric", "ids", "label"))
    model = WideDeep(options.rows)
    updates = optimizers(model, options.optimizer)
    log_loss = torch.nn.BCEWithLogitsLoss()
    batches = len(label) // options.batch

    def train(step):
        part = slice(step % batches * options.batch, (step % batches + 1) * options.batch)
        loss = log_loss(model(numeric[part], ids[part]), label[part])
        for update in updates:
            update.zero_grad()
        loss.backward()
        for update in updates:
            update.step()
        return float(loss)

    for step in range(options.warm_up):
        train(step)
    start = time.perf_counter()
    losses = [train(options.warm_up + step) for step in range(options.steps)]
    seconds = time.perf_counter() - start
    print(json.dumps({"version": torch.__version__, "examples_per_second": options.steps * options.batch / seconds,
                      "loss": sum(losses) / len(losses)}))


if __name__ == "__main__":
    main()
