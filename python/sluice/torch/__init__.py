"""PyTorch modules as networks of jobs.

A script builds any ``nn.Module``, whose embeddings are ``EmbeddingCollection``s, and trains it in a loop::

    model = Net()
    job = sluice.Job.from_file("adult.textproto")
    with sluice.torch.worker(model, job, predict=model) as worker:
        for batch in worker:
            loss = F.binary_cross_entropy_with_logits(model(batch), batch.label)
            worker.backward(loss)

``sluice launch --program=FILE.py --worker_num=2`` runs the script once for each worker. Rows of embeddings and all
parameters live on the parameter servers, which also run the optimizers. ``load`` brings the model that a job has saved
back into its module, for predictions without a cluster; ``export`` writes it as a file of PyTorch.
"""

import os

from .. import _process
from ._declare import Optimizer
from ._embedding import Batch, EmbeddingCollection, Jagged
from ._saved import Saved, export, load
from ._worker import Worker, train, worker

__all__ = ["Batch", "EmbeddingCollection", "Jagged", "Optimizer", "Saved", "Worker", "export", "load", "train", "worker"]

if os.environ.get("SLUICE_PDB") == "1":
    # Also for errors before the loop.
    _process.show_errors_once()
