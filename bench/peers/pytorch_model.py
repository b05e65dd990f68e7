"""The standard model in one PyTorch process, every array in memory: examples/s and loss after warm-up, as one JSON line."""
import torch

import training_loop
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
    numeric, ids, label = training_loop.arrays_of(options)
    model = WideDeep(options.rows)
    updates = optimizers(model, options.optimizer)
    log_loss = torch.nn.BCEWithLogitsLoss()

    def train(step):
        part = training_loop.part_of(step, options, len(label))
        loss = log_loss(model(numeric[part], ids[part]), label[part])
        for update in updates:
            update.zero_grad()
        loss.backward()
        for update in updates:
            update.step()
        return float(loss.detach())

    training_loop.run(options, train, torch.__version__)


if __name__ == "__main__":
    main()
