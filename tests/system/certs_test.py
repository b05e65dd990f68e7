"""sluice certs: the certificates work in TLS, an existing CA is kept, bad input is named, other files are kept."""
import datetime
import random
import shutil
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
            self.assertNotEqual((self.dir / (role + ".pem")).read_bytes(), before[role + ".pem"])
            self.assertEqual((self.dir / (role + ".key")).read_bytes(), before[role + ".key"])
        worker, _ = self.handshake("worker", "pserver-0")
        self.assertAlmostEqual(days_left(worker), 7, delta=0.1)
        # Processes with the old certificate go on until they read the new one.
        (self.dir / "old.pem").write_bytes(before["worker.pem"])
        (self.dir / "old.key").write_bytes(before["worker.key"])
        self.handshake("old", "pserver")

    def test_a_renewal_keeps_names_and_hosts(self):
        self.certs("--hosts=node1.example.com,10.0.0.1", "--names=worker/0,operator/alice", "--days=30")
        shutil.copy(self.dir / "worker-0.pem", self.dir / "copy.pem")  # any STEM.pem, whatever it is called
        shutil.copy(self.dir / "worker-0.key", self.dir / "copy.key")
        stems = ROLES + ("worker-0", "operator-alice", "copy")
        before = {stem: self.certificate(stem) for stem in stems}
        text = self.certs("--days=60")
        for stem in stems:
            with self.subTest(stem):
                after = self.certificate(stem)
                self.assertEqual(after["subjectAltName"], before[stem]["subjectAltName"])
                self.assertIn("10.0.0.1", names_in(after, "IP Address"))
                self.assertAlmostEqual(days_left(after), 60, delta=0.1)
                self.assertIn("%s.pem" % (self.dir / stem), text)
        self.assertRegex(text, "renewed 7 certificates")
        self.assertNotIn("Warning: %s" % self.dir, text)

    def test_a_new_rank_changes_the_hosts_of_no_other_and_gets_those_of_its_role(self):
        self.certs("--hosts=node1.example.com")
        before = {stem: hosts_in(self.certificate(stem)) for stem in ROLES}
        text = self.certs("--names=worker/4")
        self.assertRegex(text, "renewed 4 certificates and made 1 certificate")
        self.assertEqual({stem: hosts_in(self.certificate(stem)) for stem in ROLES}, before)
        self.assertEqual(names_in(self.certificate("worker-4"), "URI"), ["spiffe://sluice/sluice/worker/4"])
        self.assertEqual(hosts_in(self.certificate("worker-4")), before["worker"])

    def test_hosts_of_a_renewal_are_added(self):
        self.certs("--hosts=10.0.0.1", "--names=worker/0")
        before = hosts_in(self.certificate("worker"))
        self.certs("--hosts=10.0.0.2,10.0.0.1", "--names=worker/1")
        for stem in ROLES + ("worker-0", "worker-1"):
            self.assertEqual(hosts_in(self.certificate(stem)), sorted(before + ["10.0.0.2"]), stem)

    def test_what_is_not_renewed_is_named_with_its_end(self):
        self.certs("--names=worker/0,worker/1,worker/2")
        others = self.tmp / "others"
        self.assertEqual(self.run_program("sluice", "certs", others, "--days=9").returncode, 0)
        for end in (".pem", ".key"):
            shutil.copy(others / ("pserver" + end), self.dir / ("pserver" + end))
        (self.dir / "worker-0.pem").write_text("no PEM")
        (self.dir / "worker-1.key").unlink()
        (self.dir / "worker-2.key").write_text("no PEM")
        kept = {path.name: path.read_bytes() for path in self.dir.iterdir()
                if path.name.startswith(("pserver.", "worker-"))}
        text = self.certs(expect=1)
        warnings = {line.split()[1]: line for line in text.splitlines() if line.startswith("Warning: %s" % self.dir)}
        stems = ("pserver", "worker-0", "worker-1", "worker-2")
        self.assertEqual(sorted(warnings), ["%s.pem" % (self.dir / stem) for stem in stems])
        today = datetime.datetime.now(datetime.timezone.utc).date()
        for stem, days in (("pserver", 9), ("worker-1", 365), ("worker-2", 365)):
            self.assertIn(str(today + datetime.timedelta(days)), warnings["%s.pem" % (self.dir / stem)])
        self.assertEqual({name: (self.dir / name).read_bytes() for name in kept}, kept)
        self.assertRegex(text, "renewed 3 certificates")
        for stem in ("worker", "scheduler", "operator"):
            self.certificate(stem)
        error = self.error_of(text)
        for stem in stems:
            self.assertIn("%s.pem" % (self.dir / stem), error)
        # One that is asked for by its name is refused before anything is renewed.
        before = (self.dir / "worker.pem").read_bytes()
        self.assertIn("worker-0.pem", self.certs("--names=worker/0", expect=2))
        self.assertEqual((self.dir / "worker.pem").read_bytes(), before)

    def error_of(self, text):
        """The last message, which says what went wrong and what to do."""
        return text[text.rindex("sluice: "):]

    def test_a_replaced_ca_that_leaves_certificates_behind_is_an_error_with_a_way_out(self):
        self.certs("--names=worker/0")
        new = self.tmp / "new"
        self.assertEqual(self.run_program("sluice", "certs", new).returncode, 0)
        old = {name: (self.dir / name).read_bytes() for name in ("ca.pem", "ca.key")}
        for name in old:
            shutil.copy(new / name, self.dir / name)
        before = {path.name: path.read_bytes() for path in self.dir.iterdir()}
        error = self.error_of(self.certs(expect=1))
        for stem in ROLES + ("worker-0",):
            self.assertIn("%s.pem" % (self.dir / stem), error)
        self.assertIn("%s/ca.key" % self.dir, error)
        self.assertEqual({path.name: path.read_bytes() for path in self.dir.iterdir()}, before)
        # The first way out: the old CA again.
        for name, content in old.items():
            (self.dir / name).write_bytes(content)
        self.certs()
        # The second one: new certificates of the new CA.
        for name in old:
            shutil.copy(new / name, self.dir / name)
        for stem in ROLES + ("worker-0",):
            for end in (".pem", ".key"):
                (self.dir / (stem + end)).rename(self.tmp / ("old-" + stem + end))
        self.certs("--names=worker/0")
        self.handshake("worker-0", "pserver")

    def test_a_renewal_that_fails_in_the_middle_says_what_is_renewed_and_what_is_not(self):
        self.certs()
        before = {role: (self.dir / (role + ".pem")).read_bytes() for role in ROLES}
        (self.dir / "worker-0.key").write_text("no PEM")
        text = self.certs("--names=worker/0,worker/1", expect=2)
        self.assertRegex(text, "renewed 4 certificates")
        for role in ROLES:
            self.assertNotEqual((self.dir / (role + ".pem")).read_bytes(), before[role])
            self.assertNotIn("%s/%s.pem" % (self.dir, role), self.error_of(text))
        for name in ("worker-0.key", "worker-0.pem", "worker-1.pem"):
            self.assertIn("%s/%s" % (self.dir, name), self.error_of(text))
        self.assertFalse((self.dir / "worker-1.pem").exists())

    def test_a_renewal_that_is_killed_loses_no_pair(self):
        """Killed at any moment, also by several at once: each key is that of its certificate."""
        self.certs("--names=worker/0,worker/1")
        stems = ROLES + ("worker-0", "worker-1")
        begun = time.monotonic()
        self.certs()
        whole = time.monotonic() - begun
        chance, changed = random.Random(1), 0
        for round in range(200):
            if round >= 20 and changed > 0:
                break
            before = {stem: (self.dir / (stem + ".pem")).read_bytes() for stem in stems}
            runs = [self.start("sluice", "certs", self.dir, log="killed.out") for _ in range(2)]
            time.sleep(chance.uniform(0.2, 1) * whole)
            for run in runs:
                run.kill()
                run.wait()
            for stem in stems:
                self.context(ssl.PROTOCOL_TLS_CLIENT, stem)  # fails for a certificate and the key of another one
            after = {stem: (self.dir / (stem + ".pem")).read_bytes() for stem in stems}
            changed += any(after[stem] != before[stem] for stem in stems) and any(after[s] == before[s] for s in stems)
        self.assertGreater(changed, 0, "no renewal was killed between two certificates")
        self.certs()
        for stem in stems:
            self.certificate(stem)
        self.assertEqual(list(self.dir.glob("*.unfinished")), [], "the next renewal removes what a killed one left")

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
