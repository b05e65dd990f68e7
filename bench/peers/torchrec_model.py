"""The standard model in TorchRec on CPUs: two ranks of one thread over gloo, the embedding table sharded over both.

DistributedModelParallel keeps the dense part in DDP, and FBGEMM's kernels apply the table's optimizer in the backward pass.
They need a width that 4 divides, hence 12 where the others have 10. Arrays are in memory. Prints examples/s of both ranks
together and the loss after warm-up, as one JSON line.
"""
import torch
import torch.distributed
import torchrec
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

import training_loop
from arguments import parse
from pytorch_model import HIDDEN

NAMES = ["c%d" % i for i in range(26)]
DIM = 12


class WideDeep(torch.nn.Module):
    def __init__(self, rows, numeric=13):
        super().__init__()
        self.embedding = EmbeddingBagCollection(device=torch.device("meta"), tables=[EmbeddingBagConfig(
            name="t", embedding_dim=DIM, num_embeddings=rows, feature_names=NAMES)])
        self.wide = torch.nn.Linear(numeric, 1)
        layers, width = [], len(NAMES) * DIM + numeric
        for units in HIDDEN:
            layers += [torch.nn.Linear(width, units), torch.nn.ReLU()]
            width = units
        self.deep = torch.nn.Sequential(*layers, torch.nn.Linear(width, 1))

    def forward(self, numeric, features):
        inputs = torch.cat((self.embedding(features).values(), numeric), dim=1)
        return torch.squeeze(self.deep(inputs) + self.wide(numeric), 1)


def features_of(ids):
    """KeyedJaggedTensor of ids [batch, 26], one value a feature and example."""
    return KeyedJaggedTensor(keys=NAMES, values=ids.t().reshape(-1), lengths=torch.ones(ids.numel(), dtype=torch.int32))


def prepare(rank, options):
    numeric, ids, label = training_loop.arrays_of(options, rank, training_loop.RANKS)
    model = WideDeep(options.rows)
    apply_optimizer_in_backward(torch.optim.SGD, model.embedding.parameters(), {"lr": 0.01})
    sharders = [EmbeddingBagCollectionSharder()]
    planner = EmbeddingShardingPlanner(topology=Topology(world_size=training_loop.RANKS, compute_device="cpu"))
    plan = planner.collective_plan(model, sharders, torch.distributed.GroupMember.WORLD)
    model = DistributedModelParallel(model, device=torch.device("cpu"), sharders=sharders, plan=plan)
    update = torch.optim.SGD([parameter for name, parameter in model.named_parameters() if "embedding" not in name], lr=0.01)
    log_loss = torch.nn.BCEWithLogitsLoss()

    def train(step):
        batch = training_loop.part_of(step, options, len(label))
        update.zero_grad()
        loss = log_loss(model(numeric[batch], features_of(ids[batch])), label[batch])
        loss.backward()
        update.step()
        return float(loss.detach())

    return train


def main():
    options = parse(__doc__)
    if options.optimizer != "sgd":
        raise SystemExit("FBGEMM has no Adam on CPUs")
    training_loop.run_ranks(options, prepare, torchrec.__version__)


if __name__ == "__main__":
    main()
