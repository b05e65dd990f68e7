"""Two towers on Adult: a vector of the person and one of the work, whose product is the logit.

    sluice launch --program=examples/two_tower.py --server_num=1 --worker_num=2

A search for candidates keeps the vectors of one tower in an index, and computes those of the other for each request.
"""

import torch
from torch import nn
from torch.nn import functional as F

import sluice.torch
from adult import job

PERSON = ["marital_status", "relationship", "race", "sex", "native_country"]
WORK = ["workclass", "education", "occupation"]


class Tower(nn.Module):
    def __init__(self, name: str, features: list[str], numbers: list[str], dim: int = 8, width: int = 16) -> None:
        super().__init__()
        self.numbers = numbers
        self.embedding = sluice.torch.EmbeddingCollection(name, dim, features=features)
        self.deep = nn.Sequential(nn.Linear(len(features) * dim + len(numbers), 64), nn.ReLU(), nn.Linear(64, width))

    def forward(self, batch: sluice.torch.Batch) -> torch.Tensor:
        numbers = torch.stack([batch.number(name) for name in self.numbers], dim=1)
        return self.deep(torch.cat([self.embedding(batch).flatten(1), numbers], dim=1))


class TwoTower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.person = Tower("person", PERSON, ["age"])
        self.work = Tower("work", WORK, ["education_num", "hours_per_week"])
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, batch: sluice.torch.Batch) -> torch.Tensor:
        return (self.person(batch) * self.work(batch)).sum(1) + self.bias


def loss(logits: torch.Tensor, batch: sluice.torch.Batch) -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(logits, batch.label)


if __name__ == "__main__":
    torch.manual_seed(1)
    sluice.torch.train(TwoTower(), loss, job())
