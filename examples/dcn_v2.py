"""DCN-v2 (Wang et al., 2021) on Adult: layers that cross all inputs, before a network.

    sluice launch --program=examples/dcn_v2.py --server_num=1 --worker_num=2
"""

import torch
from torch import nn
from torch.nn import functional as F

import sluice.torch
from adult import CATEGORIES, NUMBERS, job


class Cross(nn.Module):
    """x0 * (W x + b) + x, where W has a low rank."""

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.down = nn.Linear(width, rank, bias=False)
        self.up = nn.Linear(rank, width)

    def forward(self, x0: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return x0 * self.up(self.down(x)) + x


class DCN(nn.Module):
    def __init__(self, dim: int = 8, layers: int = 3, rank: int = 16) -> None:
        super().__init__()
        self.embedding = sluice.torch.EmbeddingCollection("embedding", dim, features=CATEGORIES)
        width = len(CATEGORIES) * dim + len(NUMBERS)
        self.crosses = nn.ModuleList(Cross(width, rank) for _ in range(layers))
        self.deep = nn.Sequential(nn.Linear(width, 100), nn.ReLU(), nn.Dropout(0.1), nn.Linear(100, 50), nn.ReLU())
        self.out = nn.Linear(50, 1)

    def forward(self, batch: sluice.torch.Batch) -> torch.Tensor:
        x0 = torch.cat([self.embedding(batch).flatten(1), batch.numbers], dim=1)
        x = x0
        for cross in self.crosses:
            x = cross(x0, x)
        return self.out(self.deep(x)).squeeze(1)


def main() -> None:
    torch.manual_seed(1)
    model = DCN()
    # The crosses learn more slowly than the rest.
    slow = sluice.torch.Optimizer("adam", learning_rate=0.001)
    with sluice.torch.worker(model, job(), predict=model, optimizers={"crosses.*": slow}) as worker:
        for batch in worker:
            worker.backward(F.binary_cross_entropy_with_logits(model(batch), batch.label))


if __name__ == "__main__":
    main()
