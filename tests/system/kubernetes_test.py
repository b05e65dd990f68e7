"""The Kubernetes manifests describe a cluster that trains, and whose jobs survive when the kubelet restarts containers."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import unittest

import yaml

import places_test
from sluice_testing import ADULT, BIN, ROOT, SluiceTest, free_port, wait_until

MANIFEST = ROOT / "deploy" / "kubernetes" / "sluice.yaml"
TLS_MANIFEST = MANIFEST.with_name("sluice_tls.yaml")
STORE_MANIFEST = MANIFEST.with_name("sluice_store.yaml")
POD_INDEX = "metadata.labels['apps.kubernetes.io/pod-index']"


def objects(kind, manifest=MANIFEST):
    return [one for one in yaml.safe_load_all(manifest.read_text()) if one["kind"] == kind]


def container_of(workload):
    container, = workload["spec"]["template"]["spec"]["containers"]
    return container


def mib(quantity):
    number, unit = re.fullmatch(r"(\d+)(Mi|Gi)", quantity).groups()
    return int(number) * {"Mi": 1, "Gi": 1024}[unit]


class Pod:
    """One container of a StatefulSet: its command, environment and folders as the manifest says, but on loopback."""

    def __init__(self, workload, index, substitute):
        self.name = "%s-%d" % (workload["metadata"]["name"], index)
        self.data = pathlib.Path(substitute(self.name, "/data"))  # the only folder with room for files
        container = container_of(workload)
        self.command = [substitute(self.name, word) for word in container["command"] + container["args"]]
        self.environment = {}
        for variable in container["env"]:
            if "value" in variable:
                self.environment[variable["name"]] = substitute(self.name, variable["value"])
            else:
                assert variable["valueFrom"] == {"fieldRef": {"fieldPath": POD_INDEX}}, variable
                self.environment[variable["name"]] = str(index)
        self.process = None


class PodsTest(SluiceTest):
    """Runs the pods of a manifest."""

    def setUp(self):
        super().setUp()
        self.config, = objects("ConfigMap")
        self.cluster = self.config["data"]["cluster.textproto"]
        self.addresses = re.findall(r'"([\w.-]+:\d+)"', self.cluster)

    def start_pods(self, manifest=MANIFEST):
        ports = {address: free_port() for address in self.addresses}
        shared = manifest != STORE_MANIFEST
        self.scheduler = "127.0.0.1:%d" % ports[self.addresses[0]]

        def substitute(pod, text):
            for address, port in ports.items():
                text = text.replace(address, "127.0.0.1:%d" % port)
                if address.startswith(pod + "."):
                    text = text.replace("0.0.0.0:" + address.split(":")[1], "0.0.0.0:%d" % port)
            text = text.replace("0.0.0.0:7190", "127.0.0.1:0").replace("/var/log/sluice", str(self.tmp / "log" / pod))
            text = text.replace("/etc/sluice/", "%s/" % (self.tmp / "etc" / pod)).replace("/var/lib/sluice", str(self.tmp / "state"))
            text = re.sub(r"(?<!/)/data\b", str(self.tmp / "data" / ("" if shared else pod)), text)  # no bucket
            # The Secret of the pod's role.
            role = pod.split("-")[1]
            for name, file in (("tls.crt", role + ".pem"), ("tls.key", role + ".key"), ("ca.crt", "ca.pem")):
                text = text.replace("/etc/sluice-tls/" + name, str(self.tmp / "certs" / file))
            return text
        (self.tmp / "state").mkdir()
        self.pods = {}
        for workload in objects("StatefulSet", manifest):
            for index in range(workload["spec"]["replicas"]):
                pod = Pod(workload, index, substitute)
                self.pods[pod.name] = pod
                pod.data.mkdir(parents=True, exist_ok=True)
                cluster = self.tmp / "etc" / pod.name / "cluster.textproto"
                cluster.parent.mkdir(parents=True)
                cluster.write_text(substitute(pod.name, self.cluster))
        self.tend()

    def tend(self):
        """Starts what does not run, as the kubelet does."""
        for pod in self.pods.values():
            if pod.process is not None and pod.process.poll() is None:
                continue
            program, *flags = pod.command
            with open(self.tmp / (pod.name + ".out"), "ab") as out:
                pod.process = subprocess.Popen([str(BIN / program), *flags], stdout=out, stderr=subprocess.STDOUT,
                                               env={**os.environ, **pod.environment}, cwd=pod.data)
            self._started.append(pod.process)


class KubernetesTest(PodsTest):
    # ----------------------------------------------------------------------------------------------- the manifest

    def test_addresses_and_counts_agree(self):
        workloads = {one["metadata"]["name"]: one for one in objects("StatefulSet")}
        self.assertEqual(sorted(workloads), ["sluice-pserver", "sluice-scheduler", "sluice-worker"])
        services = {one["metadata"]["name"]: one["spec"] for one in objects("Service")}
        expected = []
        for name in ("sluice-scheduler", "sluice-pserver"):
            spec = workloads[name]["spec"]
            port, = services[name]["ports"]
            bind = {v["name"]: v.get("value") for v in container_of(workloads[name])["env"]}["SLUICE_BIND"]
            self.assertEqual(bind, "0.0.0.0:%d" % port["port"])
            expected += ["%s-%d.%s:%d" % (name, i, spec["serviceName"], port["port"]) for i in range(spec["replicas"])]
            # Pods must find each other before they are ready: readiness waits for all members.
            self.assertEqual((services[name]["clusterIP"], services[name]["publishNotReadyAddresses"]), ("None", True))
        self.assertEqual(self.addresses, expected)
        worker_num = int(re.search(r"worker_num: (\d+)", self.cluster).group(1))
        self.assertEqual(worker_num, workloads["sluice-worker"]["spec"]["replicas"])
        for name, workload in workloads.items():
            spec, pod = workload["spec"], workload["spec"]["template"]
            self.assertEqual(spec["selector"]["matchLabels"], pod["metadata"]["labels"])
            self.assertEqual(services[spec["serviceName"]]["selector"], pod["metadata"]["labels"])

    def test_containers_are_restarted_and_can_write_where_they_must(self):
        for workload in objects("StatefulSet"):
            with self.subTest(workload["metadata"]["name"]):
                pod, container = workload["spec"]["template"]["spec"], container_of(workload)
                self.assertEqual(pod["restartPolicy"], "Always")
                # --drain_s of a pserver is 30 s, and a daemon ends itself 20 s after a signal.
                drain = 30 if container["name"] == "pserver" else 0
                self.assertGreater(pod["terminationGracePeriodSeconds"], drain + 20)
                claims = [one["metadata"]["name"] for one in workload["spec"].get("volumeClaimTemplates", [])]
                volumes = {one["name"]: one for one in pod["volumes"]}
                mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
                self.assertEqual(set(mounts.values()), set(volumes) | set(claims))
                self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"])
                for path in re.findall(r"=(/[\w/.]+)", " ".join(container["args"])):
                    self.assertTrue(any(path.startswith(mount) for mount in mounts), path)
                self.assertIn("persistentVolumeClaim", volumes[mounts["/data"]])
                if container["name"] == "scheduler":  # its state must outlive the pod
                    state = re.search(r'state_store: "rocksdb:([^"]+)"', self.cluster).group(1)
                    self.assertEqual(claims, [mounts[os.path.dirname(state)]])
                for probe in ("livenessProbe", "readinessProbe"):
                    if probe in container:
                        self.assertEqual(container[probe]["httpGet"]["port"], "admin")
                # A daemon that is busy, or that somebody floods with connections, must not be restarted for that.
                alive = container["livenessProbe"]
                self.assertEqual(alive["httpGet"]["path"], "/livez")
                self.assertGreaterEqual(alive["timeoutSeconds"], 5)
                self.assertGreaterEqual(alive["periodSeconds"] * alive["failureThreshold"], 60)
        known = (ROOT / "common" / "daemon" / "identity.h").read_text()
        for workload in objects("StatefulSet"):
            for variable in container_of(workload)["env"]:
                self.assertIn(variable["name"], known)

    def test_containers_have_a_memory_limit(self):
        # gRPC 1.51 lets callers use memory without end; the node and its other pods must outlive that.
        for manifest in (MANIFEST, TLS_MANIFEST, STORE_MANIFEST):
            for workload in objects("StatefulSet", manifest):
                for container in workload["spec"]["template"]["spec"]["containers"]:
                    with self.subTest("%s: %s" % (manifest.name, container["name"])):
                        resources = container["resources"]
                        self.assertIn("memory", resources.get("limits", {}))
                        limit = mib(resources["limits"]["memory"])
                        self.assertGreaterEqual(limit, mib(resources["requests"]["memory"]))
                        # The scheduler's gRPC may hold 1 GiB of what its callers have sent.
                        self.assertGreaterEqual(limit, 2048)

    def test_the_manifest_with_tls_is_the_same_cluster_with_certificates(self):
        plain, encrypted = (list(yaml.safe_load_all(file.read_text())) for file in (MANIFEST, TLS_MANIFEST))
        for one in encrypted:
            if one["kind"] != "StatefulSet":
                continue
            container, pod = container_of(one), one["spec"]["template"]["spec"]
            files = {v["name"]: v["value"] for v in container["env"] if v["name"].startswith("SLUICE_TLS_")}
            self.assertEqual(sorted(files), ["SLUICE_TLS_CA", "SLUICE_TLS_CERT", "SLUICE_TLS_KEY"])
            container["env"] = [v for v in container["env"] if v["name"] not in files]
            mount, = (m for m in container["volumeMounts"] if m["name"] == "tls")
            self.assertEqual({os.path.dirname(path) for path in files.values()}, {mount["mountPath"]})
            volume, = (v for v in pod["volumes"] if v["name"] == "tls")
            # Each role its own: a worker that could read the pserver's key could be one.
            self.assertEqual(volume["secret"]["secretName"], "sluice-%s-tls" % container["name"])
            self.assertEqual(volume["secret"]["defaultMode"] & 0o007, 0)
            container["volumeMounts"].remove(mount)
            pod["volumes"].remove(volume)
            for probe in ("livenessProbe", "readinessProbe"):
                if probe in container:
                    self.assertEqual(container[probe]["httpGet"].pop("scheme"), "HTTPS")
        for cluster in (plain, encrypted):
            config, = (one for one in cluster if one["kind"] == "ConfigMap")
            text, found = re.subn(r"\n *insecure: true.*", "", config["data"]["cluster.textproto"])
            self.assertEqual(found, cluster is plain)
            config["data"]["cluster.textproto"] = text
        self.assertEqual(encrypted, plain)

    def test_the_manifest_with_a_store_is_the_same_cluster_without_a_shared_volume(self):
        plain, stored = (list(yaml.safe_load_all(file.read_text())) for file in (MANIFEST, STORE_MANIFEST))
        for one in stored:
            if one["kind"] == "StatefulSet":
                # Each process asks the store, so each needs its credentials.
                self.assertEqual(container_of(one).pop("envFrom"), [{"secretRef": {"name": "sluice-store"}}])
                data, = (v for v in one["spec"]["template"]["spec"]["volumes"] if v["name"] == "data")
                del data["emptyDir"]
                data["persistentVolumeClaim"] = {"claimName": "sluice-data"}
        config, = (one for one in stored if one["kind"] == "ConfigMap")
        text, found = re.subn(r' *output_root: "s3://[^"]+".*\n', "", config["data"]["cluster.textproto"])
        self.assertEqual(found, 1)
        expected = [one for one in plain if one["kind"] != "PersistentVolumeClaim"]
        self.assertEqual(len(expected), len(plain) - 1)
        before, = (one for one in expected if one["kind"] == "ConfigMap")
        without_notes = [re.sub(r"  # jobs .*", "", one) for one in (text, before["data"]["cluster.textproto"])]
        self.assertEqual(*without_notes)
        config["data"] = before["data"]
        self.assertEqual(stored, expected)

    # ------------------------------------------------------------------------------------------------- a cluster

    def test_the_cluster_with_tls_serves_an_operator(self):
        certs = self.tmp / "certs"
        self.assertEqual(self.run_program("sluice", "certs", str(certs)).returncode, 0)
        config, = objects("ConfigMap", TLS_MANIFEST)
        self.cluster = config["data"]["cluster.textproto"]
        self.start_pods(TLS_MANIFEST)

        def status(*flags):
            self.tend()
            return self.run_program("sluice", "status", "--scheduler=%s" % self.scheduler, "--json", *flags)

        def alive():
            done = status("--tls_cert=%s/operator.pem" % certs, "--tls_key=%s/operator.key" % certs,
                          "--tls_ca=%s/ca.pem" % certs)
            return done.returncode == 0 and sum(m["alive"] for m in json.loads(done.stdout)["members"]) == 4
        wait_until(alive, "four members")
        self.assertNotEqual(status().returncode, 0, "without a certificate")

    def test_a_job_survives_the_death_of_each_container(self):
        self.start_pods()
        # The pods read only below /data.
        job = self.tmp / "data" / "configs" / ADULT.name
        shutil.copytree(ROOT / "data" / "adult", self.tmp / "data" / "data" / "adult")
        job.parent.mkdir()
        shutil.copy(ADULT, job)
        out = self.tmp / "submit.out"
        with open(out, "wb") as file:
            submit = subprocess.Popen([str(BIN / "sluice"), "submit", "--job=%s" % job, "--scheduler=%s" % self.scheduler,
                                       "--output_dir=%s" % (self.tmp / "data" / "out"), "--worker_num=2", "--a_sync=true",
                                       "--epochs=40", "--batch_size=128", "--set=checkpoint.every_s=1", "--progress=plain"],
                                      stdout=file, stderr=subprocess.STDOUT, cwd=self.tmp)
        self._started.append(submit)

        def lines():
            self.tend()
            self.assertIsNone(submit.poll(), out.read_text())
            return len(re.findall(r"step ", out.read_text()))

        def losses(kind):
            self.tend()
            done = subprocess.run([str(BIN / "sluice"), "status", "--json", "--scheduler=%s" % self.scheduler], cwd=self.tmp,
                                  capture_output=True, text=True, timeout=60)
            jobs = json.loads(done.stdout).get("jobs", []) if done.returncode == 0 else []
            return sum(int(one.get("recovery", {}).get(kind, 0)) for one in jobs)
        for name, kind in (("sluice-worker-0", "worker_losses"), ("sluice-pserver-1", "pserver_losses"),
                           ("sluice-scheduler-0", None)):
            before = lines()
            wait_until(lambda: lines() > before + 1, lambda: "progress before %s is killed:\n%s" % (name, out.read_text()))
            os.kill(self.pods[name].process.pid, signal.SIGKILL)
            self.pods[name].process.wait()
            if kind:  # a loss of which the scheduler has not heard when it dies itself is counted by nobody
                wait_until(lambda: losses(kind) == 1, lambda: "%s of %s:\n%s" % (kind, name, out.read_text()))

        def ended():
            self.tend()
            return submit.poll() is not None
        wait_until(ended, lambda: "the job's end:\n%s" % out.read_text(), within=180)
        self.assertEqual(submit.returncode, 0, out.read_text())
        result = json.loads((self.tmp / "data" / "out" / "result.json").read_text())
        self.assertEqual(result["status"], "done")
        recovery = result["recovery"]
        self.assertEqual((recovery["worker_losses"], recovery["pserver_losses"], recovery["scheduler_restarts"]), (1, 1, 1),
                         recovery)


@unittest.skipUnless(places_test.has_store(), "needs moto in build/python-env or in SLUICE_MOTO_PYTHON")
class StorePodsTest(places_test.StoreTest, PodsTest):
    def test_pods_that_share_no_folder_train(self):
        config, = objects("ConfigMap", STORE_MANIFEST)
        self.cluster = config["data"]["cluster.textproto"].replace("s3://BUCKET/FOLDER", "s3://data")
        self.start_pods(STORE_MANIFEST)
        data = "s3://data/day=*/*.csv"
        done = self.run_program("sluice", "submit", "--job=%s" % ADULT, "--scheduler=%s" % self.scheduler, "--epochs=1",
                                "--output_dir=s3://data/jobs/run", "--worker_num=2", "--set=checkpoint.every_epochs=1",
                                "--set=data.train_files=" + data, "--set=data.eval_files=" + data)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(json.loads(self.text("jobs/run/result.json"))["status"], "done")
        self.assertTrue([name for name in self.objects("jobs/run/checkpoints/") if name.endswith("/MANIFEST")])
        self.assertEqual([path for pod in self.pods.values() for path in pod.data.iterdir()], [])


if __name__ == "__main__":
    unittest.main()
