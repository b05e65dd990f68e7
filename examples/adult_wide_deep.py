"""Wide and deep on Adult, as configs/adult_wide_deep.textproto, with a network of its own in PyTorch.

    sluice launch --program=examples/adult_wide_deep.py --server_num=1 --worker_num=2
"""

import argparse
import pathlib
import re

import torch
from torch import nn
from torch.nn import functional as F

import sluice
import sluice.torch

ROOT = pathlib.Path(__file__).resolve().parents[1]
NUMBERS = ["age", "education_num", "capital_gain", "capital_loss", "hours_per_week"]
CATEGORIES = ["age", "capital_gain", "capital_loss", "hours_per_week", "workclass", "education", "marital_status",
              "occupation", "relationship", "race", "sex", "native_country"]
CROSSES = ["education_x_occupation", "age_x_education", "marital_status_x_occupation", "relationship_x_sex"]


class WideDeep(nn.Module):
    def __init__(self, dim: int = 8) -> None:
        super().__init__()
        self.embedding = sluice.torch.EmbeddingCollection("embedding", dim, features=CATEGORIES)
        self.wide = sluice.torch.EmbeddingCollection(
            "wide", 1, features=CATEGORIES + CROSSES, initializer={"constant": 0})
        self.linear = nn.Linear(len(NUMBERS), 1)
        self.deep = nn.Sequential(
            nn.Linear(len(CATEGORIES) * dim + len(NUMBERS), 100), nn.ReLU(), nn.Linear(100, 50), nn.ReLU(),
            nn.Linear(50, 1))

    def forward(self, batch: sluice.torch.Batch) -> torch.Tensor:
        deep = self.deep(torch.cat([self.embedding(batch).flatten(1), batch.numbers], dim=1))
        wide = self.wide(batch).sum(1) + self.linear(batch.numbers)
        return (deep + wide).squeeze(1)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--epochs", type=int, default=2)
    epochs = arguments.parse_args().epochs
    file = ROOT / "configs" / "adult_wide_deep.textproto"
    # The file's data and features, but not its model.
    text = re.sub(r"^model \{.*?^\}\n", "", file.read_text(), flags=re.M | re.S)
    job = sluice.Job(text.replace("epochs: 8", f"epochs: {epochs}"), base_dir=str(file.parent))
    torch.manual_seed(1)
    model = WideDeep()
    with sluice.torch.worker(model, job, predict=model) as worker:
        for batch in worker:
            if batch.first_of_epoch:
                print(f"rank {worker.rank} of {worker.world_size}: epoch {batch.epoch + 1}")
            loss = F.binary_cross_entropy_with_logits(model(batch), batch.label)
            worker.backward(loss)


if __name__ == "__main__":
    main()
