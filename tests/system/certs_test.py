"""sluice certs: the certificates work in TLS, an existing CA is kept, bad input is named, other files are kept."""
import datetime
import ssl
import stat
import time
import unittest

from sluice_testing import SluiceTest, wait_until

ROLES = ("worker", "pserver", "scheduler", "operator")


def names_in(certificate, kind):
    return [value for key, value in certificate["subjectAltName"] if key == kind]


def days_left(certificate):
    end = datetime.datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]))
    return (end - datetime.datetime.now()).total_seconds() / 86400


class CertsTest(SluiceTest):
    def setUp(self):
        super().setUp()
        self.dir = self.tmp / "certs"

    def certs(self, *flags, expect=0):
        done = self.run_program("sluice", "certs", self.dir, *flags)
        self.assertEqual(done.returncode, expect, done.stdout)
        return done.stdout

    def context(self, protocol, stem):
        context = ssl.SSLContext(protocol)
        context.load_cert_chain(self.dir / (stem + ".pem"), self.dir / (stem + ".key"))
        context.load_verify_locations(self.dir / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def handshake(self, client, server, host="localhost"):
        """Mutual TLS between the owners of two certificates; returns what each has seen of the other."""
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = [self.context(ssl.PROTOCOL_TLS_CLIENT, client).wrap_bio(to_client, to_server, server_hostname=host),
                self.context(ssl.PROTOCOL_TLS_SERVER, server).wrap_bio(to_server, to_client, server_side=True)]
        waiting = list(ends)
        for _ in range(10):  # a handshake takes fewer turns
            for end in list(waiting):
                try:
                    end.do_handshake()
                    waiting.remove(end)
                except ssl.SSLWantReadError:
                    pass
        self.assertEqual(waiting, [])
        return ends[1].getpeercert(), ends[0].getpeercert()

    def test_the_certificates_of_all_roles_work_in_tls(self):
        text = self.certs("--hosts=node1.example.com,10.0.0.1,localhost", "--names=worker/0,worker/11,operator/alice")
        stems = ROLES + ("worker-0", "worker-11", "operator-alice")
        self.assertEqual(sorted(path.name for path in self.dir.iterdir()),
                         sorted(stem + end for stem in stems + ("ca",) for end in (".pem", ".key")))
        for path in self.dir.iterdir():
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600 if path.suffix == ".key" else 0o644, path)
        for stem in stems:
            with self.subTest(stem):
                certificate, _ = self.handshake(stem, "scheduler", "node1.example.com")
                self.assertEqual(names_in(certificate, "URI"), ["spiffe://sluice/sluice/" + stem.replace("-", "/")])
                hosts = names_in(certificate, "DNS")
                self.assertEqual(hosts.count("localhost"), 1)
                self.assertIn("node1.example.com", hosts)
                addresses = names_in(certificate, "IP Address")
                self.assertEqual([a for a in addresses if "." in a], ["127.0.0.1", "10.0.0.1"])
                self.assertEqual(len(addresses), 3)  # and ::1
                self.assertAlmostEqual(days_left(certificate), 365, delta=0.1)
                self.assertIn(str(self.dir / stem) + ".pem", text)
        with self.assertRaises(ssl.SSLCertVerificationError):
            self.handshake("worker", "scheduler", "node2.example.com")

    def test_it_says_how_to_use_the_files_and_what_to_keep_away(self):
        text = self.certs()
        for part in ("--tls_cert=%s/worker.pem" % self.dir, "--tls_key=%s/worker.key" % self.dir,
                     "--tls_ca=%s/ca.pem" % self.dir):
            self.assertIn(part, text)
        self.assertRegex(text, r"(?s)Warning: .*%s/ca\.key" % self.dir)

    def test_an_existing_ca_is_kept_and_its_certificates_are_renewed(self):
        self.assertRegex(self.certs(), "made the certificate authority %s/ca.pem" % self.dir)
        before = {path.name: path.read_bytes() for path in self.dir.iterdir()}
        text = self.certs("--days=7", "--names=pserver/0")
        self.assertRegex(text, "kept the certificate authority %s/ca.pem" % self.dir)
        for name in ("ca.pem", "ca.key"):
            self.assertEqual((self.dir / name).read_bytes(), before[name])
        for role in ROLES:
            for end in (".pem", ".key"):
                self.assertNotEqual((self.dir / (role + end)).read_bytes(), before[role + end])
        worker, _ = self.handshake("worker", "pserver-0")
        self.assertAlmostEqual(days_left(worker), 7, delta=0.1)
        # Processes with the old certificate go on until they read the new one.
        (self.dir / "old.pem").write_bytes(before["worker.pem"])
        (self.dir / "old.key").write_bytes(before["worker.key"])
        self.handshake("old", "pserver")

    def test_bad_input_is_named_before_anything_is_made(self):
        for flag, parts in (("--days=0", ["--days=0", "3650"]), ("--days=3651", ["--days=3651", "3650"]),
                            ("--days=-1", ["--days=-1"]), ("--days=year", ["--days=year"]),
                            ("--hosts=a b", ["--hosts", "'a b'"]), ("--hosts=", ["--hosts", "''"]),
                            ("--hosts=good,DNS:x", ["--hosts", "'DNS:x'"]), ("--hosts=a:7100", ["--hosts", "'a:7100'"]),
                            ("--hosts=10.0.0", ["--hosts", "'10.0.0'"]), ("--hosts=a..b", ["--hosts", "'a..b'"]),
                            ("--hosts=[::1]", ["--hosts", "'[::1]'"]), ("--hosts=a,,b", ["--hosts", "''"]),
                            ("--names=worker", ["--names", "'worker'", "worker/0"]),
                            ("--names=worker/", ["--names", "'worker/'"]),
                            ("--names=worker/x", ["--names", "'worker/x'", "rank"]),
                            ("--names=worker/-1", ["--names", "'worker/-1'"]),
                            ("--names=pserver/01", ["--names", "'pserver/01'"]),
                            ("--names=pserver/4294967296", ["--names", "'pserver/4294967296'"]),
                            ("--names=worker/0,wroker/1", ["--names", "'wroker/1'", "did you mean 'worker'"]),
                            ("--names=operator/a/b", ["--names", "'operator/a/b'"]),
                            ("--names=operator/..", ["--names", "'operator/..'"]),
                            ("--names=operator/" + 41 * "a", ["--names", "40"])):
            with self.subTest(flag):
                text = self.certs(flag, expect=2)
                for part in parts:
                    self.assertIn(part, text)
                self.assertFalse(self.dir.exists())
        self.assertEqual(self.run_program("sluice", "certs").returncode, 2)
        self.dir.write_text("a file")
        self.assertIn(str(self.dir), self.certs(expect=2))
        self.assertEqual(self.dir.read_text(), "a file")

    def test_a_name_given_twice_is_one_certificate(self):
        self.assertIn("made 5 certificates", self.certs("--names=worker/0,worker/0"))

    def test_certificates_do_not_outlive_their_ca(self):
        self.certs("--days=3650")
        made = time.time()
        wait_until(lambda: time.time() > made + 1, "a certificate's times are whole seconds")
        self.assertIn("--days=3649", self.certs("--days=3650", expect=2))
        self.certs("--days=3649")

    def test_files_that_it_did_not_make_are_kept(self):
        self.dir.mkdir()
        for name in ("worker.pem", "operator.key"):
            path = self.dir / name
            path.write_text("mine")
            self.assertIn(str(path), self.certs(expect=2))
            self.assertEqual([p.name for p in self.dir.iterdir()], [name])
            self.assertEqual(path.read_text(), "mine")
            path.unlink()

    def test_half_a_ca_is_refused(self):
        self.certs()
        (self.dir / "ca.key").unlink()
        before = {path.name: path.read_bytes() for path in self.dir.iterdir()}
        self.assertIn(str(self.dir / "ca.key"), self.certs(expect=2))
        self.assertEqual({path.name: path.read_bytes() for path in self.dir.iterdir()}, before)


if __name__ == "__main__":
    unittest.main()
