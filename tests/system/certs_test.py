"""sluice certs: the certificates work in TLS, an existing CA is kept, bad input is named, other files are kept."""
import datetime
import random
import shutil
import ssl
import stat
import subprocess
import time
import unittest

from sluice_testing import SluiceTest

ROLES = ("worker", "pserver", "scheduler", "operator")


def names_in(certificate, kind):
    return [value for key, value in certificate["subjectAltName"] if key == kind]


def days_left(certificate):
    end = datetime.datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]))
    return (end - datetime.datetime.now()).total_seconds() / 86400


def hosts_in(certificate):
    return sorted(names_in(certificate, "DNS") + names_in(certificate, "IP Address"))


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

    def certificate(self, stem):
        """The certificate, as a peer that trusts ca.pem sees it."""
        return self.handshake(stem, "scheduler")[0]

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
        text = self.certs("--hosts=node1.example.com,10.0.0.1,localhost")
        self.assertEqual(sorted(path.name for path in self.dir.iterdir()),
                         sorted(stem + end for stem in ROLES + ("ca",) for end in (".pem", ".key")))
        for path in self.dir.iterdir():
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600 if path.suffix == ".key" else 0o644, path)
        for stem in ROLES:
            with self.subTest(stem):
                certificate, _ = self.handshake(stem, "scheduler", "node1.example.com")
                self.assertEqual(names_in(certificate, "URI"), ["spiffe://sluice/sluice/" + stem])
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
        text = self.certs()
        self.assertRegex(text, "kept the certificate authority %s/ca.pem" % self.dir)
        for name in ("ca.pem", "ca.key"):
            self.assertEqual((self.dir / name).read_bytes(), before[name])
        for role in ROLES:
            self.assertNotEqual((self.dir / (role + ".pem")).read_bytes(), before[role + ".pem"])
            self.assertEqual((self.dir / (role + ".key")).read_bytes(), before[role + ".key"])
            self.assertIn("renewed %s/%s.pem" % (self.dir, role), text)
        self.handshake("worker", "pserver")
        # Processes with the old certificate go on until they read the new one.
        (self.dir / "old.pem").write_bytes(before["worker.pem"])
        (self.dir / "old.key").write_bytes(before["worker.key"])
        self.handshake("old", "pserver")

    def test_a_renewal_keeps_hosts_and_adds_those_that_are_given(self):
        self.certs("--hosts=node1.example.com,10.0.0.1")
        before = {role: hosts_in(self.certificate(role)) for role in ROLES}
        self.assertIn("10.0.0.1", before["worker"])
        self.certs()
        self.assertEqual({role: hosts_in(self.certificate(role)) for role in ROLES}, before)
        self.certs("--hosts=10.0.0.2,10.0.0.1")
        for role in ROLES:
            self.assertEqual(hosts_in(self.certificate(role)), sorted(before[role] + ["10.0.0.2"]), role)

    def test_a_certificate_that_cannot_be_renewed_is_named_before_anything_is_made(self):
        self.certs()
        before = {path.name: path.read_bytes() for path in self.dir.iterdir()}
        others = self.tmp / "others"
        self.assertEqual(self.run_program("sluice", "certs", others).returncode, 0)

        def foreign():
            for end in (".pem", ".key"):
                shutil.copy(others / ("operator" + end), self.dir / ("operator" + end))

        def unreadable():
            (self.dir / "operator.pem").write_text("no PEM")

        def without_key():
            (self.dir / "operator.key").unlink()

        def unreadable_key():
            (self.dir / "operator.key").write_text("no PEM")

        def unreadable_key_alone():
            unreadable_key()
            (self.dir / "operator.pem").unlink()

        def hosts_that_are_no_text():
            names = self.tmp / "names.cnf"
            names.write_bytes(b"subjectAltName=URI:spiffe://sluice/sluice/operator,DNS:a\x1b[2J\n")
            request = self.tmp / "operator.csr"
            subprocess.run(["openssl", "req", "-new", "-key", self.dir / "operator.key", "-subj", "/CN=x", "-out", request],
                           check=True)
            subprocess.run(["openssl", "x509", "-req", "-in", request, "-CA", self.dir / "ca.pem", "-CAkey",
                            self.dir / "ca.key", "-extfile", names, "-out", self.dir / "operator.pem"], check=True,
                           stderr=subprocess.DEVNULL)

        for spoil, named in ((foreign, "operator.pem"), (unreadable, "operator.pem"), (without_key, "operator.pem"),
                             (unreadable_key, "operator.key"), (unreadable_key_alone, "operator.key"),
                             (hosts_that_are_no_text, "operator.pem")):
            with self.subTest(spoil.__name__):
                spoil()
                text = self.certs(expect=2)
                self.assertIn(named, self.error_of(text))
                self.assertNotIn("\x1b", text)
                for name in before:
                    if not name.startswith("operator"):
                        self.assertEqual((self.dir / name).read_bytes(), before[name], name)
                for end in (".pem", ".key"):
                    (self.dir / ("operator" + end)).write_bytes(before["operator" + end])
        # The way out: a new pair.
        for end in (".pem", ".key"):
            (self.dir / ("operator" + end)).unlink()
        self.assertIn("made %s/operator.pem" % self.dir, self.certs())
        self.handshake("operator", "scheduler")

    def test_files_beside_those_of_the_roles_stay_as_they_are(self):
        self.certs()
        self.sign_certificate(self.dir, "worker", 0)
        before = (self.dir / "worker-0.pem").read_bytes()
        shutil.copy(self.dir / "worker-0.pem", self.dir / "\x1b[2J\n.pem")
        warnings = [line for line in self.certs().splitlines() if line.startswith("Warning: not renewed")]
        self.assertEqual(len(warnings), 1)
        self.assertIn("%s/worker-0.pem" % self.dir, warnings[0])
        self.assertIn("%s/\\x1b[2J" % self.dir, warnings[0])
        self.assertNotIn("%s/worker.pem" % self.dir, warnings[0])
        self.assertEqual((self.dir / "worker-0.pem").read_bytes(), before)
        worker, _ = self.handshake("worker-0", "pserver")
        self.assertEqual(names_in(worker, "URI"), ["spiffe://sluice/sluice/worker/0"])

    def error_of(self, text):
        """The last message, which says what went wrong and what to do."""
        return text[text.rindex("sluice: "):]

    def test_a_renewal_that_is_killed_loses_no_pair(self):
        """Killed at any moment, also by several at once: each key is that of its certificate."""
        self.certs()
        begun = time.monotonic()
        self.certs()
        whole = time.monotonic() - begun
        chance, changed = random.Random(1), 0
        for round in range(200):
            if round >= 20 and changed > 0:
                break
            before = {stem: (self.dir / (stem + ".pem")).read_bytes() for stem in ROLES}
            runs = [self.start("sluice", "certs", self.dir, log="killed.out") for _ in range(2)]
            time.sleep(chance.uniform(0.2, 1) * whole)
            for run in runs:
                run.kill()
                run.wait()
            for stem in ROLES:
                self.context(ssl.PROTOCOL_TLS_CLIENT, stem)  # fails for a certificate and the key of another one
            after = {stem: (self.dir / (stem + ".pem")).read_bytes() for stem in ROLES}
            changed += any(after[stem] != before[stem] for stem in ROLES) and any(after[s] == before[s] for s in ROLES)
        self.assertGreater(changed, 0, "no renewal was killed between two certificates")
        self.certs()
        for stem in ROLES:
            self.certificate(stem)
        self.assertEqual(list(self.dir.glob("*.unfinished")), [], "the next renewal removes what a killed one left")

    def test_bad_input_is_named_before_anything_is_made(self):
        for flag, parts in (("--hosts=a b", ["--hosts", "'a b'"]), ("--hosts=", ["--hosts", "''"]),
                            ("--hosts=good,DNS:x", ["--hosts", "'DNS:x'"]), ("--hosts=a:7100", ["--hosts", "'a:7100'"]),
                            ("--hosts=10.0.0", ["--hosts", "'10.0.0'"]), ("--hosts=a..b", ["--hosts", "'a..b'"]),
                            ("--hosts=[::1]", ["--hosts", "'[::1]'"]), ("--hosts=a,,b", ["--hosts", "''"])):
            with self.subTest(flag):
                text = self.certs(flag, expect=2)
                for part in parts:
                    self.assertIn(part, text)
                self.assertFalse(self.dir.exists())
        self.assertEqual(self.run_program("sluice", "certs").returncode, 2)
        self.dir.write_text("a file")
        self.assertIn(str(self.dir), self.certs(expect=2))
        self.assertEqual(self.dir.read_text(), "a file")

    def sign_authority(self, days):
        """Gives the folder's CA a certificate that ends so many days from now."""
        subprocess.run(["openssl", "x509", "-in", self.dir / "ca.pem", "-signkey", self.dir / "ca.key", "-days", str(days),
                        "-out", self.dir / "ca.pem.new"], check=True, stderr=subprocess.DEVNULL)
        (self.dir / "ca.pem.new").rename(self.dir / "ca.pem")

    def test_certificates_do_not_outlive_their_ca(self):
        self.certs()
        self.sign_authority(days=7)
        self.certs()
        self.assertAlmostEqual(days_left(self.certificate("worker")), 7, delta=0.1)
        self.sign_authority(days=-1)
        before = (self.dir / "worker.pem").read_bytes()
        self.assertIn("%s/ca.pem" % self.dir, self.error_of(self.certs(expect=2)))
        self.assertEqual((self.dir / "worker.pem").read_bytes(), before)

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
