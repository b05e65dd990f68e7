"""The standard model as a PyTorch program of `sluice launch --program`.

Rank 0 prints how many microseconds its own code and torch took, forward and backward, in each step of the last epoch, as one
JSON line.
"""
import argparse
import json
import time

import torch
from torch import nn

import sluice
import sluice.torch
from pytorch_model import HIDDEN

JOB = """
name: "bench"
data { format: CRITEO_TSV train_files: "%(tsv)s" }
features { name: "I{1..13}" numeric { log: true } }
features { name: "C{1..26}" categorical { missing_is_value: true } }
optimizers { all { %(rule)s } }
train { batch_size: %(batch)d epochs: %(epochs)d seed: 1 threads: 1 }
checkpoint { save_final_model: false }
"""
EPOCHS = 2
RULES = {"sgd": "sgd {} learning_rate: 0.01", "adam": "adam {} learning_rate: 0.001"}


class WideDeep(nn.Module):
    def __init__(self, dim=10, numeric=13, categories=26):
        super().__init__()
        self.embedding = sluice.torch.EmbeddingCollection(
            "embedding", dim, features=["C%d" % (i + 1) for i in range(categories)],
            initializer={"uniform": {"min": -0.01, "max": 0.01}})
        self.wide = nn.Linear(numeric, 1)
        layers, width = [], categories * dim + numeric
        for units in HIDDEN:
            layers += [nn.Linear(width, units), nn.ReLU()]
            width = units
        self.deep = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, batch):
        inputs = torch.cat((self.embedding(batch).flatten(1), batch.numbers), dim=1)
        return torch.squeeze(self.deep(inputs) + self.wide(batch.numbers), 1)


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--tsv", required=True, help="data of Criteo's shape")
    flags.add_argument("--batch", type=int, default=2048, help="examples a worker and step")
    flags.add_argument("--optimizer", choices=sorted(RULES), default="sgd")
    options = flags.parse_args()
    job = sluice.Job(JOB % {"tsv": options.tsv, "batch": options.batch, "epochs": EPOCHS, "rule": RULES[options.optimizer]})
    torch.manual_seed(1)
    model = WideDeep()
    log_loss = nn.BCEWithLogitsLoss()
    own_us = []
    with sluice.torch.worker(model, job) as worker:
        @worker.on_epoch_end
        def end(epoch):
            if worker.is_main and epoch + 1 == EPOCHS:
                print(json.dumps({"own_us": own_us}), flush=True)
            own_us.clear()

        for batch in worker:
            begin = time.perf_counter()
            loss = log_loss(model(batch), batch.label)
            loss.backward()
            own_us.append(round((time.perf_counter() - begin) * 1e6))
            worker.step(loss)


if __name__ == "__main__":
    main()
