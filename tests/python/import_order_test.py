"""sluice shares a process with torch, grpcio and TensorFlow, whichever is imported first: each brings libraries of its own.

Tests the orders of those that the interpreter has; needs torch. SLUICE_MODULE_DIR: the folder of the package.
"""
import importlib.util
import itertools
import os
import subprocess
import sys
import unittest

# What each must be able to do once all are imported.
USES = {
    "torch": """
value = torch.ones(3, requires_grad=True)
(value * value).sum().backward()
assert value.grad.tolist() == [2, 2, 2]
""",
    "grpc": """
from concurrent import futures
class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request + b"!")
server = grpc.server(futures.ThreadPoolExecutor(1))
server.add_generic_rpc_handlers((Echo(),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
with grpc.insecure_channel("127.0.0.1:%d" % port) as channel:
    assert channel.unary_unary("/a/b")(b"x", timeout=60) == b"x!"
server.stop(None).wait()
""",
    "tensorflow": """
assert tensorflow.reduce_sum(tensorflow.ones((2, 2)) @ tensorflow.ones((2, 2))).numpy() == 8
""",
    # Protobuf's text formats, abseil and gRPC.
    "sluice": """
from sluice._load import load_core
job = sluice.Job('data { format: CSV train_files: "a.csv" label { column: "b" } } features { name: "c" categorical {} } '
                 'optimizers { all { sgd {} learning_rate: 0.1 } }').set("train.epochs", 7)
assert "epochs: 7" in job.text
try:
    job.set("train.epoch", 7)
except sluice.UsageError as error:
    assert "epoch" in str(error)
else:
    raise AssertionError("a field that does not exist was set")
program = '{"collections": [{"name": "c", "dim": 2, "features": ["c"]}], "parameters": []}'
text, digest = load_core().declare(job.text, "", program)
worker = load_core().Worker(text)  # asks for a scheduler in the background
worker.stop()
""",
}
MODULES = os.environ.pop("SLUICE_MODULE_DIR")  # a worker refuses variables that it does not know
LIBRARIES = [name for name in USES if importlib.util.find_spec(name) or name == "sluice"]
if "torch" not in LIBRARIES:
    print("SKIPPED, NOT PASSED: import_order_test needs torch (./dev python)", file=sys.stderr)
    sys.exit(77)
for lacking in sorted(set(USES) - set(LIBRARIES)):
    print("SKIPPED, NOT PASSED: all orders with %s, which %s lacks" % (lacking, sys.executable), file=sys.stderr)


class ImportOrderTest(unittest.TestCase):
    def test_every_order_works(self):
        env = dict(os.environ, PYTHONPATH=MODULES, OMP_NUM_THREADS="1", TF_CPP_MIN_LOG_LEVEL="2",
                   SLUICE_SCHEDULER="127.0.0.1:1", SLUICE_RANK="0")
        for order in itertools.permutations(LIBRARIES):
            with self.subTest(order=order):
                script = "".join("import %s\n" % name for name in order) + "".join(USES[name] for name in order) + "print('done')\n"
                done = subprocess.run([sys.executable, "-B", "-c", script], env=env, text=True, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, timeout=300)
                self.assertEqual(done.returncode, 0, done.stdout)
                self.assertIn("done", done.stdout.splitlines())  # gRPC may log after it


if __name__ == "__main__":
    unittest.main()
