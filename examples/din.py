"""A deep interest network (Zhou et al., 2018): items of a user's history count as they resemble the item that is shown.

    sluice launch --program=examples/din.py --server_num=1 --worker_num=2

The program makes its data: users who like two of ten kinds of items, and click on what they like.
"""

import argparse
import os
import pathlib
import random

import torch
from torch import nn
from torch.nn import functional as F

import sluice
import sluice.torch

JOB = """
name: "din"
data { format: CSV train_files: "train.csv" eval_files: "test.csv" csv { header: true } label { column: "clicked" } }
features { name: "item" embedding: "item" categorical {} }
features { name: "history" embedding: "item" categorical { multi_value_delimiter: "|" } }
optimizers { all { adam {} learning_rate: 0.005 } }
train { batch_size: 128 epochs: %d }
eval { every_epochs: 1 }
"""


class DIN(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.items = sluice.torch.EmbeddingCollection("items", dim, features=["item", "history"], pooled=False,
                                                     initializer={"normal": {"stddev": 0.3}})
        self.attention = nn.Sequential(nn.Linear(4 * dim, 32), nn.ReLU(), nn.Linear(32, 1))
        self.deep = nn.Sequential(nn.Linear(2 * dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, batch: sluice.torch.Batch) -> torch.Tensor:
        rows = self.items(batch)
        item, history = rows["item"].values, rows["history"].values  # [examples, dim], [items of all histories, dim]
        owner = torch.repeat_interleave(torch.arange(len(batch)), rows["history"].offsets.diff())  # example of each
        shown = item[owner]
        weight = self.attention(torch.cat([history, shown, history - shown, history * shown], dim=1))
        interest = torch.zeros_like(item).index_add(0, owner, weight * history)
        return self.deep(torch.cat([item, interest], dim=1)).squeeze(1)


def make_data(file: pathlib.Path, examples: int, seed: int) -> None:
    draw = random.Random(seed)
    lines = ["clicked,item,history"]
    for _ in range(examples):
        likes = draw.sample(range(10), 2)
        # Item i is of kind i % 10.
        history = [draw.choice(likes) + 10 * draw.randrange(30) for _ in range(draw.randint(2, 8))]
        kind = draw.choice(likes) if draw.random() < 0.5 else draw.randrange(10)
        clicked = draw.random() < (0.8 if kind in likes else 0.1)
        lines.append(f"{int(clicked)},{kind + 10 * draw.randrange(30)},{'|'.join(map(str, history))}")
    file.write_text("\n".join(lines) + "\n")


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--epochs", type=int, default=8)
    arguments.add_argument("--data", type=pathlib.Path, default=pathlib.Path("output/din_data"))
    given = arguments.parse_args()
    if os.environ.get("SLUICE_RANK", "0") == "0" and not (given.data / "test.csv").exists():
        given.data.mkdir(parents=True, exist_ok=True)
        make_data(given.data / "train.csv", 40_000, seed=1)
        make_data(given.data / "test.csv", 8_000, seed=2)
    torch.manual_seed(1)
    model = DIN()
    with sluice.torch.worker(model, sluice.Job(JOB % given.epochs, base_dir=str(given.data)), predict=model) as worker:
        for batch in worker:
            worker.backward(F.binary_cross_entropy_with_logits(model(batch), batch.label))


if __name__ == "__main__":
    main()
