"""The standard model under TensorFlow's ParameterServerStrategy, asynchronous: 1 parameter server and 2 workers, one compute
thread each, on loopback, every array in memory. The chief starts the others; prints examples/s and loss as one JSON line."""
import json
import os
import socket
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import numpy as np
import tensorflow as tf

from arguments import parser

WIDTHS = (273, 400, 400, 400, 1)
LEARNING_RATE = 0.01


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class WideDeep:
    def __init__(self, rows):
        self.embedding = tf.Variable(tf.random.uniform((rows, 10), -0.01, 0.01))
        self.wide = tf.Variable(tf.zeros((13, 1)))
        self.weights = [tf.Variable(tf.random.normal((n, m), stddev=n ** -0.5)) for n, m in zip(WIDTHS, WIDTHS[1:])]
        self.biases = [tf.Variable(tf.zeros((m,))) for m in WIDTHS[1:]]
        self.variables = [self.embedding, self.wide, *self.weights, *self.biases]

    def loss(self, numeric, ids, label):  # [B, 13], [B, 26], [B]
        rows = tf.nn.embedding_lookup(self.embedding, tf.reshape(ids, (-1,)))
        h = tf.concat((tf.reshape(rows, (-1, 260)), numeric), axis=1)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1]):
            h = tf.nn.relu(tf.linalg.matmul(h, weight) + bias)
        logit = tf.linalg.matmul(h, self.weights[-1]) + self.biases[-1] + tf.linalg.matmul(numeric, self.wide)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(label, tf.squeeze(logit, 1)))

    def train(self, numeric, ids, label):
        with tf.GradientTape() as tape:
            loss = self.loss(numeric, ids, label)
        for variable, gradient in zip(self.variables, tape.gradient(loss, self.variables)):
            if isinstance(gradient, tf.IndexedSlices):
                variable.scatter_sub(tf.IndexedSlices(LEARNING_RATE * gradient.values, gradient.indices))
            else:
                variable.assign_sub(LEARNING_RATE * gradient)
        return loss


def batches(arrays, batch):
    names = ("numeric", "ids", "label")
    return lambda: tf.data.Dataset.from_tensor_slices(tuple(arrays[n] for n in names)).repeat().batch(
        batch, drop_remainder=True).prefetch(4)


def serve(cluster, role, index):
    server = tf.distribute.Server(cluster, job_name=role, task_index=index, protocol="grpc", start=True)
    sys.stdin.read()  # until the chief is gone
    del server
    os._exit(0)


def measure(options, cluster):
    strategy = tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc"))
    with strategy.scope():
        model = WideDeep(options.rows)

    @tf.function
    def step(iterator):
        return strategy.run(model.train, args=next(iterator))

    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    data = iter(coordinator.create_per_worker_dataset(batches(np.load(options.arrays), options.batch)))

    def train(steps):
        losses = [coordinator.schedule(step, args=(data,)) for _ in range(steps)]
        coordinator.join()
        return losses

    train(options.warm_up)
    start = time.perf_counter()
    losses = train(options.steps)
    seconds = time.perf_counter() - start
    return {"version": tf.__version__, "examples_per_second": options.steps * options.batch / seconds,
            "loss": float(np.mean([loss.fetch() for loss in losses]))}


def main():
    flags = parser(__doc__)
    flags.add_argument("--role", default="chief")
    flags.add_argument("--ports", default="")
    options = flags.parse_args()
    if options.optimizer != "sgd":
        sys.exit("tensorflow_model.py measures sgd only")
    ports = [int(p) for p in options.ports.split(",")] if options.ports else free_ports(3)
    at = ["127.0.0.1:%d" % p for p in ports]
    cluster = tf.train.ClusterSpec({"ps": at[:1], "worker": at[1:]})
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    if options.role != "chief":
        role, index = options.role.split(":")
        serve(cluster, role, int(index))
    children = [subprocess.Popen([sys.executable, __file__, "--arrays", options.arrays, "--role", role, "--ports",
                                  ",".join(map(str, ports))], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
                for role in ("ps:0", "worker:0", "worker:1")]
    try:
        print(json.dumps(measure(options, cluster)), flush=True)
    finally:
        for child in children:
            child.kill()
            child.wait()
    os._exit(0)  # the coordinator's threads would wait for the servers


main()
