"""Without TLS, daemons on loopback serve only the user who runs them, and root."""
import json
import os
import unittest

from sluice_testing import BIN, SluiceTest

NOBODY = 65534


@unittest.skipUnless(os.geteuid() == 0, "only root can run a program as another user")
class LocalUsersTest(SluiceTest):
    def as_nobody(self, *args):
        """Runs a program as a user who owns nothing here; returns it when it has ended."""
        program = os.open(BIN / args[0], os.O_RDONLY)  # that user may not search the folders above it
        os.set_inheritable(program, True)
        try:
            return self.run_program("/proc/self/fd/%d" % program, *args[1:], pass_fds=[program],
                                    preexec_fn=lambda: (os.chdir("/"), os.setgroups([]), os.setgid(NOBODY),
                                                        os.setuid(NOBODY)))
        finally:
            os.close(program)

    def address_of(self, log_dir, role):
        return next(e.address for e in self.endpoints_of(log_dir) if e.role == role)

    def test_another_user_can_neither_look_nor_submit_nor_join(self):
        log_dir = self.up("--server_num=1", "--worker_num=1")
        scheduler = "--scheduler=%s" % self.address_of(log_dir, "scheduler")
        known = sorted((m["role"], m["rank"], m["pid"]) for m in self.status(log_dir)["members"])

        looked = self.as_nobody("sluice", "status", scheduler)
        self.assertNotEqual(looked.returncode, 0, looked.stdout)
        self.assertIn("user %d" % NOBODY, looked.stdout)
        cancelled = self.as_nobody("sluice", "cancel", "no-1", scheduler)
        self.assertNotEqual(cancelled.returncode, 0, cancelled.stdout)
        folder = self.tmp / "of_nobody"
        folder.mkdir()
        os.chown(folder, NOBODY, NOBODY)
        os.chmod(self.tmp, 0o711)
        joined = self.as_nobody("sluice-worker", scheduler, "--rank=0", "--log_dir=%s" % folder)
        self.assertNotEqual(joined.returncode, 0, joined.stdout)
        self.assertEqual(sorted((m["role"], m["rank"], m["pid"]) for m in self.status(log_dir)["members"]), known)
        refused = [line for path in log_dir.glob("scheduleraudit.*")
                   for line in map(json.loads, path.read_text().splitlines()) if line["event"] == "refusal"]
        self.assertEqual({line["method"].rsplit("/", 1)[1] for line in refused}, {"GetStatus", "CancelJob", "Register"})
        self.assertEqual({line["reason"] for line in refused}, {"user"})

    def test_any_local_user_opens_a_cluster_to_all(self):
        log_dir = self.up("--server_num=1", "--worker_num=1", "--any_local_user")
        looked = self.as_nobody("sluice", "status", "--scheduler=%s" % self.address_of(log_dir, "scheduler"))
        self.assertEqual(looked.returncode, 0, looked.stdout)
        self.assertIn("worker", looked.stdout)


if __name__ == "__main__":
    unittest.main()
