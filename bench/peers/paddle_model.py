"""The standard model under Paddle Fleet's parameter server: 1 server and 2 trainers on loopback, its native MultiSlot reader,
data in memory. The first process starts the others; prints examples/s and loss as one JSON line."""
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

from arguments import parser

TRAINERS = 2


def start_all(options):
    sockets = [socket.socket() for _ in range(1 + TRAINERS)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    shared = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", POD_IP="127.0.0.1",
                  PADDLE_TRAINERS_NUM=str(TRAINERS), PADDLE_PSERVERS_IP_PORT_LIST="127.0.0.1:%d" % ports[0],
                  PADDLE_TRAINER_ENDPOINTS=",".join("127.0.0.1:%d" % p for p in ports[1:]))
    command = [sys.executable, *sys.argv]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    server = subprocess.Popen(command, env=dict(shared, TRAINING_ROLE="PSERVER", PADDLE_PORT=str(ports[0])), **quiet)
    trainers = [subprocess.Popen(command, env=dict(shared, TRAINING_ROLE="TRAINER", PADDLE_TRAINER_ID=str(rank),
                                                   PADDLE_PORT=str(ports[1 + rank])), **quiet) for rank in range(TRAINERS)]
    try:
        results = [[line for line in t.communicate(timeout=600)[0].splitlines() if line.startswith("{")] for t in trainers]
    finally:
        for process in [server, *trainers]:
            process.kill()
            process.wait()
    if not all(results):
        sys.exit("a trainer ended without a result")
    results = [json.loads(lines[-1]) for lines in results]
    print(json.dumps({"version": results[0]["version"], "loss": None,
                      "examples_per_second": sum(r["examples_per_second"] for r in results)}))


def build(options):
    import paddle
    from paddle.distributed import fleet
    paddle.enable_static()
    fleet.init(is_collective=False)
    layers = paddle.static
    numeric = layers.data("numeric", [None, 13], "float32")
    categories = [layers.data("C%d" % (i + 1), [None, 1], "int64", lod_level=1) for i in range(26)]
    label = layers.data("label", [None, 1], "int64")
    initial = paddle.ParamAttr(name="embedding", initializer=paddle.nn.initializer.Uniform(-0.01, 0.01))

    def look_up(ids):
        lookup = layers.nn.embedding if options.k_steps else layers.nn.sparse_embedding
        extra = {"is_sparse": True} if options.k_steps else {}
        return paddle.reshape(lookup(ids, size=[options.rows, 10], param_attr=initial, **extra), [-1, 10])

    hidden = paddle.concat([look_up(ids) for ids in categories] + [numeric], axis=1)
    for _ in range(3):
        hidden = layers.nn.fc(hidden, 400, activation="relu")
    logit = layers.nn.fc(hidden, 1) + layers.nn.fc(numeric, 1)
    probability = paddle.nn.functional.sigmoid(logit)
    loss = paddle.mean(paddle.nn.functional.log_loss(probability, paddle.cast(label, "float32")))
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    if options.k_steps:
        strategy.a_sync_configs = {"k_steps": options.k_steps}
    rule = paddle.optimizer.SGD(0.01) if options.optimizer == "sgd" else paddle.optimizer.Adam(1e-3, lazy_mode=True)
    fleet.distributed_optimizer(rule, strategy).minimize(loss)
    return paddle, fleet, [numeric, *categories, label]


def train(options, paddle, fleet, inputs):
    program = paddle.static
    executor = program.Executor(paddle.CPUPlace())
    executor.run(program.default_startup_program())
    fleet.init_worker()
    data = paddle.distributed.InMemoryDataset()
    data.init(use_var=inputs, pipe_command="cat", batch_size=options.batch, thread_num=1)
    slots = pathlib.Path(options.arrays).parent / ("slots-%d" % fleet.worker_index())
    with open(slots) as lines:
        examples = sum(1 for _ in lines)
    data.set_filelist([str(slots)])
    data.load_into_memory()
    rates = []
    for _ in range(2):  # the first pass creates the rows
        start = time.perf_counter()
        executor.train_from_dataset(program.default_main_program(), data)
        rates.append(examples / (time.perf_counter() - start))
    print(json.dumps({"version": paddle.__version__, "examples_per_second": rates[-1]}), flush=True)
    fleet.stop_worker()


def main():
    flags = parser(__doc__ + " --steps and --warm_up do not apply: it measures its second pass over the data.")
    flags.add_argument("--k_steps", type=int, default=0, help="Geo with this interval; 0: asynchronous")
    options = flags.parse_args()
    if "TRAINING_ROLE" not in os.environ:
        return start_all(options)
    paddle, fleet, inputs = build(options)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
    else:
        train(options, paddle, fleet, inputs)


main()
