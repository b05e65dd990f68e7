"""In sync mode a worker reads only its share of the data and holds little of it, whatever the size of the data."""
import gzip
import pathlib
import threading
import time
import unittest

from sluice_testing import ROOT, TIME_SCALE, SluiceTest, processes_naming

CRITEO = ROOT / "configs" / "criteo_wide_deep.textproto"
EXAMPLES = 100000
TEXT_BYTES = 0


class WorkerUse(threading.Thread):
    """Watches the workers of the job in `folder` until stopped: peak memory and bytes read, by process."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self._folder, self._stopped = str(folder), threading.Event()
        self.peak, self.read = {}, {}

    def run(self):
        while not self._stopped.is_set():
            for pid, command in processes_naming(self._folder):
                if "sluice-worker" in command:
                    self._look(pid)
            time.sleep(0.02)

    def _look(self, pid):
        try:
            status = pathlib.Path("/proc/%d/status" % pid).read_text()
            io = pathlib.Path("/proc/%d/io" % pid).read_text()
        except OSError:
            return
        for line in status.splitlines():
            if line.startswith("VmHWM:"):
                self.peak[pid] = int(line.split()[1]) * 1024
        self.read[pid] = int(io.split("rchar: ")[1].split()[0])

    def stop(self):
        self._stopped.set()
        self.join()


@unittest.skipIf(TIME_SCALE > 1, "a sanitizer's own memory hides that of the data")
class SyncMemoryTest(SluiceTest):
    def setUp(self):
        super().setUp()
        done = self.run_program("sluice", "data", "gen", "--examples=%d" % EXAMPLES, "--output=train.tsv")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.text_bytes = (self.tmp / "train.tsv").stat().st_size

    def use(self, name, *flags):
        """Runs a job on four workers; returns (peak memory of any worker, most bytes read by any worker)."""
        watch = WorkerUse(self.tmp)
        watch.start()
        result, _ = self.launch("--a_sync=false", "--worker_num=4", "--server_num=1", "--batch_size=512", "--threads=1",
                                "--set=model.wide_deep.hidden_units=8", "--set=data.train_files=%s" % (self.tmp / "train.tsv"),
                                "--set=data.eval_files=", "--set=data.cache=false", "--set=checkpoint.save_final_model=false",
                                *flags, job=CRITEO, name=name)
        watch.stop()
        self.assertEqual(result["examples"], EXAMPLES)
        self.assertEqual(len(watch.read), 4)
        return max(watch.peak.values()), max(watch.read.values())

    def test_a_worker_reads_its_share_and_holds_windows(self):
        whole, _ = self.use("whole", "--set=data.shuffle_window=100000")
        held, read = self.use("windows", "--set=data.shuffle_window=64")
        # A quarter to count the lines, a quarter to train them, and programs and configuration.
        self.assertLess(read, 0.5 * self.text_bytes + (4 << 20))
        # A quarter of the examples takes more memory parsed than as text. Holding all of them would take four times that.
        self.assertLess(held, whole - 0.1 * self.text_bytes)


if __name__ == "__main__":
    unittest.main()
