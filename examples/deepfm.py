"""DeepFM (Guo et al., 2017) on Adult: a factorization machine and a network over the same embeddings.

    sluice launch --program=examples/deepfm.py --server_num=1 --worker_num=2
"""

import torch
from torch import nn
from torch.nn import functional as F

import sluice.torch
from adult import CATEGORIES, NUMBERS, job


class DeepFM(nn.Module):
    def __init__(self, dim: int = 8) -> None:
        super().__init__()
        self.embedding = sluice.torch.EmbeddingCollection("embedding", dim, features=CATEGORIES)
        self.first_order = sluice.torch.EmbeddingCollection(
            "first_order", 1, features=CATEGORIES, initializer={"constant": 0})
        self.linear = nn.Linear(len(NUMBERS), 1)
        self.deep = nn.Sequential(
            nn.Linear(len(CATEGORIES) * dim + len(NUMBERS), 100), nn.ReLU(), nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, 1))

    def forward(self, batch: sluice.torch.Batch) -> torch.Tensor:
        rows = self.embedding(batch)  # [examples, features, dim]
        # The sum of the products of all pairs is half of (square of the sum - sum of the squares).
        pairs = (rows.sum(1).square() - rows.square().sum(1)).sum(1) / 2
        first_order = self.first_order(batch).sum((1, 2)) + self.linear(batch.numbers).squeeze(1)
        deep = self.deep(torch.cat([rows.flatten(1), batch.numbers], dim=1)).squeeze(1)
        return first_order + pairs + deep


def main() -> None:
    torch.manual_seed(1)
    model = DeepFM()
    with sluice.torch.worker(model, job(), predict=model) as worker:
        for batch in worker:
            worker.backward(F.binary_cross_entropy_with_logits(model(batch), batch.label))


if __name__ == "__main__":
    main()
