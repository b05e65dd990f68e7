"""./dev bench --year: a table that is trained every day, with rows that expire beside one that keeps every row.

Each of the simulated days has new data, and a job that goes on from the checkpoint of the day before. 3 % of a day's values
never occurred before. Most of them come back for some days and are then gone; some stay, and take the place of others. The
popularity of those that stay drifts from day to day. The label depends on the values of an example, so a model is only good
while it has their rows.

On the last day both sides score the same examples of the day that follows. Rows of figures, with the bound that they keep:
`auc`: by how much the AUC differs, as a mean over the seeds; `rows`: how many times fewer rows; `flat`: by how many percent the
rows, and the bytes that rows and index take in the pservers, leave their median after day 15. Each day's job loads the rows that live
into new processes, so `flat` does not show whether the room of rows that are gone is used again within a process;
tests/server/shards/row_lifetime_test.cc does. With --kills each daemon of the side
whose rows expire is killed on ten of the days, and comes back; these days have ten times as many examples, so there is no `flat`.
`kills`: how many daemons were killed, three on each of these days. Ends with 1 when a bound is not kept. Only the standard library is
needed here.
"""
import datetime
import json
import math
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import turns

MODES = {"sync": ("--a_sync=false",), "async": ("--a_sync=true",)}
AUC_BOUND, ROWS_BOUND, FLAT_BOUND = 0.001, 3.0, 5.0
FLAT_FROM = 15  # days
FIRST_DAY = datetime.date(2026, 1, 1)
JOB = """
name: "year"
data { format: CSV csv { header: true } label { column: "label" } train_files: "train.csv" eval_files: "eval.csv" }
features { name: "user" categorical {} }
features { name: "item" categorical {} }
features { name: "hour" categorical {} }
model { wide_deep { embedding_dim: 8 hidden_units: 32 } }
optimizers { all { adagrad {} learning_rate: 0.05 } }
train { batch_size: 256 epochs: 1 seed: %d }
checkpoint { every_epochs: 1 keep: 1 }
tables { name: "embedding" num_shards: 256 %s }
"""
EXPIRE = "expire { after_days: %d }"


class Values:
    """The values of one feature: a population whose popularity drifts, and new ones that mostly go again."""
    NEW, RECENT = 0.03, 0.10  # of the values that occur
    RECENT_DAYS, REPLACED = 3, 0.01

    def __init__(self, source, prefix, population):
        self._source, self._prefix, self._next = source, prefix, 0
        self._population = [self._make() for _ in range(population)]
        self._popularity = [-math.log(1 + i) for i in range(population)]  # Zipf's law
        self._recent = [[]]
        self._sum()

    def _make(self):
        self._next += 1
        return "%s%d" % (self._prefix, self._next)

    def _sum(self):
        total, self._sums = 0.0, []
        for log in self._popularity:
            total += math.exp(log)
            self._sums.append(total)

    def next_day(self):
        for i in range(len(self._population)):
            self._popularity[i] = 0.99 * self._popularity[i] + self._source.gauss(0, 0.1)
        young = [value for day in self._recent for value in day]
        for _ in range(int(self.REPLACED * len(self._population))):
            self._population[self._source.randrange(len(self._population))] = self._source.choice(young) if young else self._make()
        self._recent = (self._recent + [[]])[-self.RECENT_DAYS:]
        self._sum()

    def draw(self):
        kind = self._source.random()
        if kind < self.NEW:
            self._recent[-1].append(self._make())
            return self._recent[-1][-1]
        if kind < self.NEW + self.RECENT:
            day = self._source.choice(self._recent)
            if day:
                return self._source.choice(day)
        return self._source.choices(self._population, cum_weights=self._sums)[0]


class Days:
    """Writes the data of one day after another."""

    def __init__(self, seed, population):
        self._source = random.Random(seed)
        self._features = [Values(self._source, "u", population), Values(self._source, "i", population)]
        self._effects = {}

    def _effect(self, value, size):
        if value not in self._effects:
            self._effects[value] = random.Random(value).gauss(0, size)
        return self._effects[value]

    def next_day(self):
        for values in self._features:
            values.next_day()

    def write(self, path, examples):
        with open(path, "w") as file:
            file.write("label,user,item,hour\n")
            for _ in range(examples):
                user, item = (values.draw() for values in self._features)
                hour = "h%d" % self._source.randrange(24)
                logit = self._effect(user, 0.8) + self._effect(item, 0.8) + self._effect(hour, 0.3) - 1.0
                file.write("%d,%s,%s,%s\n" % (self._source.random() < 1 / (1 + math.exp(-logit)), user, item, hour))


class Side:
    """The jobs of one side, day after day. `folder` has train.csv and eval.csv of the day."""

    def __init__(self, options, folder, name, mode, seed, table):
        self._options, self._folder, self._name, self._mode = options, folder, name, mode
        self._job = folder / (name + ".textproto")
        self._job.write_text(JOB % (seed, table))
        self._checkpoints, self._expires = None, bool(table)
        self.rows, self.bytes, self.auc, self.kills = [], [], math.nan, 0

    def _train(self, flags, kill):
        log = self._folder / (self._name + ".log")
        command = [self._options.bin / "sluice", "launch", "--job=%s" % self._job, "--server_num=2", "--worker_num=2",
                   "--threads=1", "--log_dir=%s" % log, *flags, *MODES[self._mode]]
        if not kill:
            turns.run(command)
            return
        program = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   start_new_session=True)
        try:
            for role in ("worker", "pserver", "scheduler"):
                self.kills += self._kill(program, log, role)
            printed, _ = program.communicate(timeout=600)
        except BaseException:
            os.killpg(program.pid, signal.SIGKILL)
            raise
        if program.returncode != 0:
            sys.exit("a day with kills ended with %d:\n%s" % (program.returncode, printed[-3000:]))

    def _kill(self, program, log, role):
        """Kills a daemon of the job once it trains. False: it was over first."""
        while program.poll() is None:
            done = subprocess.run([self._options.bin / "sluice", "status", "--json", "--log_dir=%s" % log], capture_output=True,
                                  text=True)
            jobs = json.loads(done.stdout).get("jobs", []) if done.returncode == 0 else []
            if any(job["state"] == "running" and int(job.get("global_step", 0)) > 0 and job.get("workers_alive") == 2 for job in jobs):
                lines = [line.split() for line in (log / "endpoints.log").read_text().splitlines() if line[:1] != "#"]
                try:
                    os.kill([int(fields[3]) for fields in lines if fields[0] == role][-1], signal.SIGKILL)
                    return True
                except ProcessLookupError:
                    pass  # the job ended meanwhile, or the daemon is being started again
            time.sleep(0.02)
        return False

    def day(self, number, last, kill):
        output = self._folder / ("%s-%d" % (self._name, number))
        flags = ["--output_dir=%s" % output]
        if self._expires:
            flags.append("--set=data.day=%s" % (FIRST_DAY + datetime.timedelta(days=number)))
        if self._checkpoints:
            flags.append("--set=initial_checkpoint=%s" % self._checkpoints)
        if not last:
            flags.append("--set=eval.every_epochs=0")
        if kill:
            flags.append("--set=checkpoint.every_s=1")
        self._train(flags, kill)
        if self._checkpoints:
            shutil.rmtree(self._checkpoints)
        self._checkpoints = output
        result = json.loads((output / "result.json").read_text())
        if last:
            self.auc = result["eval"]["auc"]
        newest = max((output / "checkpoints").glob("step-*"), key=lambda path: int(path.name[5:]))
        stats = json.loads(turns.run([self._options.bin / "sluice", "table", "stats", newest, "--json"]))
        self.rows.append(sum(table["rows"] for table in stats["tables"]))
        # Rows and index in the memory of the pservers at the end of the job, with the room of rows that are gone.
        self.bytes.append(sum(table["reserved_bytes"] for table in result["tables"]))


def kill_days(options):
    """Ten days, without the first, whose data is no longer than that of others."""
    return {max(1, round((i + 1) * options.days / 11)) for i in range(10)} if options.kills else set()


def measure(options, mode, seed):
    """(side that keeps all, side whose rows expire), after all days."""
    with tempfile.TemporaryDirectory(prefix="sluice_year_") as name:
        folder = pathlib.Path(name)
        days = Days(seed, options.population)
        sides = (Side(options, folder, "all", mode, seed, ""), Side(options, folder, "some", mode, seed, EXPIRE % options.after_days))
        days.write(folder / "train.csv", options.examples)
        kills = kill_days(options)
        for number in range(options.days):
            last = number == options.days - 1
            days.next_day()
            if last:
                days.write(folder / "eval.csv", options.eval_examples)
            elif number == 0:
                shutil.copy(folder / "train.csv", folder / "eval.csv")  # not read, but it must be there
            for side in sides:
                side.day(number, last, side is sides[1] and number in kills)
            print("%s seed %d day %d: %d rows in %d bytes, with expiry %d in %d" % (
                mode, seed, number + 1, sides[0].rows[-1], sides[0].bytes[-1], sides[1].rows[-1], sides[1].bytes[-1]),
                  file=sys.stderr, flush=True)
            if not last:
                # A day with kills is longer than three recoveries.
                days.write(folder / "train.csv", options.examples * (10 if number + 1 in kills else 1))
    return sides


def deviation(values):
    """Percent by which one of the values is farthest from their median."""
    median = statistics.median(values)
    return max(abs(value - median) for value in values) / median * 100 if median else math.nan


def report(options, mode, runs, rows):
    """Prints and adds the rows of a mode. The names of those whose bound is not kept."""
    difference = abs(statistics.mean(some.auc - keeps.auc for keeps, some in runs))
    fewer = [keeps.rows[-1] / some.rows[-1] for keeps, some in runs]
    figures = [("auc", "", [difference], AUC_BOUND, difference <= AUC_BOUND),
               ("rows", "x", fewer, ROWS_BOUND, statistics.median(fewer) >= ROWS_BOUND)]
    for what, series in (("rows", [some.rows for _, some in runs]), ("bytes", [some.bytes for _, some in runs])):
        late = [one[FLAT_FROM:] for one in series]
        # Days with kills are longer than others, so they bring more rows.
        if not options.kills and all(late):
            flat = [deviation(one) for one in late]
            figures.append(("flat/" + what, "%", flat, FLAT_BOUND, max(flat) <= FLAT_BOUND))
    kills, wanted = [some.kills for _, some in runs], 3 * len(kill_days(options))
    if options.kills:  # a job that was over before the kill proves nothing
        figures.append(("kills", "", kills, wanted, min(kills) >= wanted))
    for what, unit, values, bound, _ in figures:
        turns.Rows.print_row(rows.add("year/%s/%s" % (mode, what), unit, values, [bound], "the bound"))
    print("year/%s: AUC with every row %.5f, with expiry %.5f; %d kills" % (
        mode, statistics.mean(keeps.auc for keeps, _ in runs), statistics.mean(some.auc for _, some in runs),
        sum(kills)), flush=True)
    return ["%s/%s" % (mode, what) for what, _, _, _, kept in figures if not kept]


def parse():
    flags = turns.flags(__doc__, repetitions=1)
    flags.add_argument("--days", type=int, default=60)
    flags.add_argument("--seeds", type=int, default=3, help="runs of each mode, with seeds from 1")
    flags.add_argument("--examples", type=int, default=60000, help="of a day")
    flags.add_argument("--eval_examples", type=int, default=200000, help="that both sides score at the end")
    flags.add_argument("--population", type=int, default=5000, help="values of a feature that stay for long")
    flags.add_argument("--after_days", type=int, default=7, help="expire.after_days")
    flags.add_argument("--kills", action="store_true", help="kill each daemon on ten of the days")
    flags.add_argument("--quick", action="store_true", help="8 small days of one seed: shows that everything runs")
    options = flags.parse_args()
    if options.quick:
        options.days, options.seeds, options.examples, options.eval_examples, options.population = 8, 1, 6000, 6000, 600
        options.after_days = 2
    return options


def main():
    options = parse()
    wanted = [mode for mode in MODES if re.search(options.filter, "year/" + mode)]
    if not wanted:
        sys.exit("no row matches --filter=%s" % options.filter)
    rows, missed = turns.Rows(), []
    turns.Rows.print_header("value", "bound")
    for mode in wanted:
        runs = [measure(options, mode, seed) for seed in range(1, options.seeds + 1)]
        missed += report(options, mode, runs, rows)
    rows.write(options.json)
    if missed and not options.quick:
        sys.exit("not within the bound: %s" % ", ".join(missed))


if __name__ == "__main__":
    main()
