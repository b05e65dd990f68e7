"""Wide and deep on flights, as configs/flights_wide_deep.textproto, which says where the data is from.

    sluice launch --program=examples/flights_wide_deep.py --server_num=1 --worker_num=2
"""

import pathlib
import re

import torch
from torch import nn
from torch.nn import functional as F

import sluice
import sluice.torch

ROOT = pathlib.Path(__file__).resolve().parents[1]
NUMBERS = ["distance", "time_of_day"]
CATEGORIES = ["day_of_year", "day_of_week", "hour", "origin", "destination", "origin_x_destination", "origin_x_day",
              "destination_x_day", "origin_x_day_x_hour", "destination_x_day_x_hour"]


class WideDeep(nn.Module):
    def __init__(self, dim: int = 8) -> None:
        super().__init__()
        # Rules of their own, because most crosses occur only a few times.
        self.embedding = sluice.torch.EmbeddingCollection(
            "embedding", dim, features=CATEGORIES, optimizer=sluice.torch.Optimizer("adagrad", learning_rate=0.3))
        self.wide = sluice.torch.EmbeddingCollection(
            "wide", 1, features=CATEGORIES, initializer={"constant": 0},
            optimizer=sluice.torch.Optimizer("adagrad", learning_rate=0.15))
        self.linear = nn.Linear(len(NUMBERS), 1)
        self.deep = nn.Sequential(
            nn.Linear(len(CATEGORIES) * dim + len(NUMBERS), 100), nn.ReLU(), nn.Linear(100, 50), nn.ReLU(),
            nn.Linear(50, 1))

    def forward(self, batch: sluice.torch.Batch) -> torch.Tensor:
        deep = self.deep(torch.cat([self.embedding(batch).flatten(1), batch.numbers], dim=1))
        wide = self.wide(batch).sum(1) + self.linear(batch.numbers)
        return (deep + wide).squeeze(1)


def main() -> None:
    file = ROOT / "configs" / "flights_wide_deep.textproto"
    # The file's data and features, but not its model and the rules of its parts.
    text = re.sub(r"^model \{.*?^\}\n|^  (embedding|wide) \{[^\n]*\n", "", file.read_text(), flags=re.M | re.S)
    job = sluice.Job(text, base_dir=str(file.parent))
    torch.manual_seed(1)
    model = WideDeep()
    with sluice.torch.worker(model, job, predict=model) as worker:
        for batch in worker:
            worker.backward(F.binary_cross_entropy_with_logits(model(batch), batch.label))


if __name__ == "__main__":
    main()
