"""Clusters with mutual TLS: they train as without it, and nobody gets in without the right certificate."""
import os
import re
import shutil
import signal
import socket
import ssl
import unittest

from sluice_testing import ADULT, SluiceTest, free_port, kill_unless_over, processes_naming, wait_until


def tls_flags(folder, role):
    return ["--tls_cert=%s/%s.pem" % (folder, role), "--tls_key=%s/%s.key" % (folder, role),
            "--tls_ca=%s/ca.pem" % folder]


class TlsTest(SluiceTest):
    def test_a_job_has_the_same_bits_with_and_without_tls(self):
        flags = ("--a_sync=false", "--epochs=1", "--server_num=2", "--worker_num=2")
        plain, _ = self.launch(*flags, name="plain")
        encrypted, _ = self.launch("--tls", *flags, name="encrypted")
        self.assertEqual(encrypted["status"], "done")
        self.assertEqual(encrypted["model_digest"], plain["model_digest"])

    def test_replicas_and_other_modes_train_with_tls(self):
        for name, flags in (("async", ("--set=recovery.replicas=1",)), ("geo", ("--k_steps=20",))):
            with self.subTest(mode=name):
                result, _ = self.launch("--tls", "--epochs=1", "--server_num=2", "--worker_num=2", *flags, name=name)
                self.assertEqual((result["status"], result["mode"]), ("done", name))

    def test_a_cluster_serves_only_operators_of_its_authority(self):
        log_dir = self.up("--tls", "--server_num=1", "--worker_num=1")
        own = log_dir / "cluster_tls"
        self.assertEqual((own / "ca.key").stat().st_mode & 0o077, 0)
        self.assertEqual(len(self.status(log_dir)["members"]), 2)  # with the certificate of log_dir
        address = next(e.address for e in self.endpoints_of(log_dir) if e.role == "scheduler")

        def status(*flags):
            done = self.run_program("sluice", "status", "--scheduler=%s" % address, "--log_dir=%s" % self.tmp, *flags)
            return done.returncode, done.stdout
        self.assertEqual(status(*tls_flags(own, "operator"))[0], 0)
        self.assertEqual(status()[0], 3, "a client without TLS")
        code, output = status(*tls_flags(own, "worker"))
        self.assertNotEqual(code, 0)
        self.assertIn("operator", output)
        others = self.tmp / "others"
        self.assertEqual(self.run_program("sluice", "certs", str(others)).returncode, 0)
        self.assertEqual(status(*tls_flags(others, "operator"))[0], 3, "an operator of another authority")
        done = self.run_program("sluice", "submit", "--job=%s" % ADULT, "--scheduler=%s" % address,
                                "--log_dir=%s" % self.tmp, *tls_flags(others, "operator"))
        self.assertEqual(done.returncode, 3, done.stdout)
        self.assertIn("certificate", done.stdout.split("--tls_cert")[0].lower(), "the cause, not only the advice")
        # Neither does a process of another authority, or of another role, become a member.
        for role, flags in (("worker", tls_flags(others, "worker")), ("worker", tls_flags(own, "operator"))):
            stranger = self.start("sluice-" + role, "--rank=0", "--scheduler=%s" % address, "--log_dir=%s" % self.tmp,
                                  *flags, log="stranger.out")
            self.assertEqual([m["role"] for m in self.status(log_dir)["members"]], ["ROLE_PSERVER", "ROLE_WORKER"])
            kill_unless_over(stranger.pid)
            stranger.wait()
        self.assertIn("is down", self.sluice("down", log_dir))

    def test_certificates_are_replaced_while_a_job_trains(self):
        log_dir = self.up("--tls", "--server_num=2", "--worker_num=2")
        out = self.sluice("submit", log_dir, "--job=%s" % ADULT, "--worker_num=2", "--detach", "--epochs=60",
                          "--set=eval.every_epochs=0", "--output_dir=%s" % (self.tmp / "out"))
        job_id = re.search(r"^submitted (\S+)", out, re.M).group(1)
        self.await_job(log_dir, job_id, lambda job: int(job["global_step"]) > 50, "it trains")
        before = (log_dir / "cluster_tls" / "worker.pem").read_bytes()
        done = self.run_program("sluice", "certs", str(log_dir / "cluster_tls"))
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertNotEqual((log_dir / "cluster_tls" / "worker.pem").read_bytes(), before)
        # The worker that takes over shows the new certificate to processes that began with the old one.
        pid = next(pid for pid, command in processes_naming(str(log_dir))
                   if "sluice-worker" in command and "--rank=1" in command)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self.job_status(log_dir, job_id)["state"] == "JOB_DONE",
                   lambda: "done: %s" % self.job_status(log_dir, job_id))
        self.assertEqual(int(self.job_status(log_dir, job_id)["recovery"]["worker_losses"]), 1)

    def test_certificates_of_a_user_are_not_replaced(self):
        folder = self.tmp / "run.log" / "cluster_tls"
        folder.parent.mkdir()
        self.assertEqual(self.run_program("sluice", "certs", str(folder)).returncode, 0)
        before = (folder / "ca.key").read_bytes()
        _, said = self.launch("--tls", "--epochs=1", expect=2)
        self.assertIn(str(folder), said)
        self.assertEqual((folder / "ca.key").read_bytes(), before)
        shutil.rmtree(folder)
        self.launch("--tls", "--epochs=1")
        own = (folder / "ca.key").read_bytes()
        self.assertEqual(folder.stat().st_mode & 0o077, 0)
        self.launch("--epochs=1")  # a cluster without TLS leaves the folder alone
        self.assertEqual((folder / "ca.key").read_bytes(), own)
        self.launch("--tls", "--epochs=1")
        self.assertNotEqual((folder / "ca.key").read_bytes(), own, "every cluster has a CA of its own")

    def test_old_versions_of_tls_are_refused(self):
        log_dir = self.up("--tls", "--server_num=1", "--worker_num=1")
        address = next(e.address for e in self.endpoints_of(log_dir) if e.role == "scheduler")

        def version_with(newest):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.set_ciphers("ALL:@SECLEVEL=0")  # else the client itself would refuse old versions
            context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, newest
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.load_cert_chain(log_dir / "cluster_tls" / "operator.pem", log_dir / "cluster_tls" / "operator.key")
            context.set_alpn_protocols(["h2"])
            with socket.create_connection(address.split(":")) as raw, context.wrap_socket(raw) as wrapped:
                return wrapped.version()
        self.assertEqual(version_with(ssl.TLSVersion.TLSv1_2), "TLSv1.2")
        with self.assertRaises((ssl.SSLError, ConnectionError)):
            version_with(ssl.TLSVersion.TLSv1_1)

    def test_wrong_files_are_refused_at_start(self):
        folder = self.tmp / "certificates"
        made = self.run_program("sluice", "certs", str(folder), "--names=worker/0")
        self.assertEqual(made.returncode, 0, made.stdout)
        worker = ["sluice-worker", "--rank=0", "--scheduler=127.0.0.1:%d" % free_port(), "--log_dir=%s" % self.tmp]

        def refusal(*flags):
            done = self.run_program(*worker, *flags)
            self.assertEqual(done.returncode, 2, done.stdout)
            return done.stdout
        self.assertIn("--tls_key", refusal("--tls_cert=%s/worker.pem" % folder, "--tls_ca=%s/ca.pem" % folder))
        self.assertIn("nothing.pem", refusal("--tls_cert=%s/nothing.pem" % folder, *tls_flags(folder, "worker")[1:]))
        self.assertIn("pserver.key", refusal("--tls_key=%s/pserver.key" % folder, tls_flags(folder, "worker")[0],
                                             tls_flags(folder, "worker")[2]))
        (folder / "worker-0.key").chmod(0o644)
        self.assertIn("chmod 600", refusal(*tls_flags(folder, "worker-0")))


if __name__ == "__main__":
    unittest.main()
