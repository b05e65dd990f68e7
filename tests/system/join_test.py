"""sluice join with the environments that the operators of TFJob and PaddleJob and Slurm give to processes."""
import json
import os
import signal
import subprocess
import unittest

from sluice_testing import ADULT, BIN, SluiceTest, free_port, wait_until


def tf_config(cluster, kind, index):
    """As kubeflow's training-operator writes it (pkg/controller.v1/tensorflow/tensorflow.go)."""
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}, "environment": "cloud"})}


def paddle(role, index, port, pservers, trainers):
    """As paddle-operator sets it (controllers/paddlejob_helper.go), with PADDLE_PORT of the pod."""
    return {"TRAINING_ROLE": role, "PADDLE_TRAINING_ROLE": role, "PADDLE_TRAINER_ID": str(index), "POD_IP": "127.0.0.1",
            "PADDLE_PORT": str(port), "TRAINER_PORTS_NUM": "20", "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(pservers),
            "PADDLE_TRAINER_ENDPOINTS": ",".join(trainers), "PADDLE_TRAINERS": ",".join(t.split(":")[0] for t in trainers),
            "PADDLE_TRAINERS_NUM": str(len(trainers))}


class JoinTest(SluiceTest):
    def join(self, name, variables, *flags):
        """Starts `sluice join` as a container would, with the same command for all."""
        return self.start("sluice", "join", "--job=%s" % ADULT, "--log_dir=%s" % (self.tmp / "log"),
                          *flags, "--", "--epochs=1", "--a_sync=false", "--output_dir=%s" % (self.tmp / "run"),
                          "--progress=plain", log=name + ".out", env={**os.environ, **variables})

    def output(self, name):
        return (self.tmp / (name + ".out")).read_text()

    def assert_trained(self, processes):
        for name, process in processes.items():
            self.assertEqual(self.exit_code(process, 180), 0, name + ": " + self.output(name))
        return json.loads((self.tmp / "run" / "result.json").read_text())

    def test_the_pods_of_a_tfjob_train(self):
        at = lambda: "127.0.0.1:%d" % free_port()
        cluster = {"chief": [at()], "ps": [at(), at()], "worker": [at()]}
        processes = {"%s-%d" % (kind, i): self.join("%s-%d" % (kind, i), tf_config(cluster, kind, i))
                     for kind in ("ps", "worker", "chief") for i in range(len(cluster[kind]))}
        # The operator leaves the evaluator out of the cluster.
        processes["evaluator"] = self.join("evaluator", tf_config(cluster, "evaluator", 0))
        result = self.assert_trained(processes)
        self.assertEqual(result["status"], "done")
        one, _ = self.launch("--epochs=1", "--a_sync=false", "--server_num=2", "--worker_num=2", name="one")
        self.assertEqual(result["model_digest"], one["model_digest"])

    def test_the_pods_of_a_paddlejob_train(self):
        ports = [free_port() for _ in range(4)]
        addresses = ["127.0.0.1:%d" % port for port in ports]
        environment = lambda role, index, place: paddle(role, index, ports[place], addresses[:2], addresses[2:])
        self.assert_trained({"trainer-0": self.join("trainer-0", environment("TRAINER", 0, 2)),
                             "trainer-1": self.join("trainer-1", environment("TRAINER", 1, 3)),
                             "ps-1": self.join("ps-1", environment("PSERVER", 1, 1)),
                             "ps-0": self.join("ps-0", environment("PSERVER", 0, 0))})

    def test_the_tasks_of_slurm_train(self):
        port, of_pserver = free_port(), free_port()
        while of_pserver != port + 1:  # some other process has that one
            port, of_pserver = of_pserver, free_port()
        environment = lambda task: {"SLURM_JOB_ID": "7", "SLURM_PROCID": str(task), "SLURM_NTASKS": "2", "SLURM_NODEID": "0",
                                    "SLURM_LOCALID": str(task), "SLURM_JOB_NODELIST": "localhost"}
        self.assert_trained({"task-%d" % task: self.join("task-%d" % task, environment(task), "--port=%d" % port)
                             for task in (0, 1)})

    def test_a_role_makes_it_that_daemon(self):
        # The process itself becomes the daemon: whoever has started it sends signals to that.
        port = free_port()
        with open(self.tmp / "scheduler.out", "wb") as out:
            scheduler = subprocess.Popen([BIN / "sluice", "join"], stdout=out, stderr=subprocess.STDOUT, cwd=self.tmp,
                                         env={**os.environ, "SLUICE_ROLE": "scheduler", "SLUICE_BIND": "127.0.0.1:%d" % port,
                                              "SLUICE_LOG_DIR": str(self.tmp / "log")})
        self._started.append(scheduler)
        wait_until(lambda: (scheduler.pid, port) in [(e.pid, int(e.address.split(":")[1]))
                                                     for e in self.endpoints_of(self.tmp / "log")],
                   lambda: self.output("scheduler"))
        scheduler.terminate()
        self.assertEqual(self.exit_code(scheduler), 143)

    def test_flags_that_a_role_would_ignore_are_refused(self):
        done = subprocess.run([BIN / "sluice", "join", "--insecure"], env={**os.environ, "SLUICE_ROLE": "worker"},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.tmp)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("--insecure with SLUICE_ROLE=worker", done.stdout)

    def test_the_end_of_a_pod_reaches_its_daemons(self):
        cluster = {"ps": ["127.0.0.1:%d" % free_port()], "worker": ["127.0.0.1:%d" % free_port()]}
        pod = self.join("ps", tf_config(cluster, "ps", 0))
        wait_until(lambda: (self.tmp / "log" / "serverlog.0").exists(), "its log")
        pod.send_signal(signal.SIGTERM)
        self.assertEqual(self.exit_code(pod), 143)

    def test_without_a_place_it_says_what_to_set(self):
        done = self.run_program("sluice", "join")
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("TF_CONFIG", done.stdout)


if __name__ == "__main__":
    unittest.main()
