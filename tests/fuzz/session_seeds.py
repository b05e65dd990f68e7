"""Valid sessions as seeds for the fuzzers that are driven by choices. make_seeds.py writes them.

Each class mirrors the choices of one fuzzer; where that changes, its seeds only become less valid.
"""
import struct

from choices import Choices, double, fixed64, message, number, packed

SPARSE_SHARDS = 4
ELEMENTS, DIM = 4, 3  # of the dense block and of a row (tests/server/test_worker.h)


def shard_of(key):
    """ShardOfKey (common/base/hash.h) for SPARSE_SHARDS shards."""
    word = 2**64 - 1
    x = key ^ 0x2545F4914F6CDD1D
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & word
    x = (x ^ x >> 27) * 0x94D049BB133111EB & word
    return (x ^ x >> 31) * SPARSE_SHARDS >> 64


KEYS_OF = [[key for key in range(1, 9) if shard_of(key) == shard] for shard in range(SPARSE_SHARDS)]


class PserverSession(Choices):
    """pserver_session.cc. Streams are numbered in the order in which they were opened."""

    def __init__(self, mode, workers, wait_twice=False, staleness=None):
        super().__init__()
        self.mode, self.workers = mode, workers
        self.streams, self.lives = [], [0] * workers
        self.pick(("sync", "async", "geo").index(mode), 3).pick((1, 2, 4).index(workers), 3)
        if mode == "async":
            self.pick(2 if wait_twice else 0, 3).boolean(staleness is not None)
            if staleness is not None:
                self.number(staleness, 0, 2)

    def operation(self, kind):
        return self.number(kind, 0, 15)

    def connect(self, rank, new_life=True):
        self.operation(0).number(rank, 0, self.workers).number(int(new_life), 0, 1)
        if self.lives[rank] > 0:
            self.number(1, 0, 7)  # not an earlier life
        self.lives[rank] += int(new_life)
        self.streams.append(rank)
        return self

    def on_stream(self, stream):
        return self.number(stream, 0, len(self.streams) - 1)

    def request(self, kind, stream):
        """Of the route's generation."""
        return self.operation(kind).on_stream(stream).number(1, 0, 15)

    def push(self, stream, later=0, chunks=False, value=3):
        """All parts; `later`: 0 is the next sequence, 4 the last one again, 5 the one after the next."""
        self.request(12, stream).number(1, 0, 3)  # all shards
        for _ in range(SPARSE_SHARDS):
            self.byte(0xFF)
        self.boolean(chunks).number(1, 0, 63).pick(later, 6).number(0, 0, 9)
        if chunks:
            self.number(1, 0, 7)  # complete
        self.number(1, 0, 3)  # with the dense block
        for _ in range(ELEMENTS + DIM * sum(map(len, KEYS_OF))):
            self.number(value, -16, 16)
        return self

    def parts(self):
        self.byte(0xFF)
        for _ in range(SPARSE_SHARDS):
            self.byte(0xFF)
        return self

    def pull(self, stream, ahead=0, evaluation=False):
        """`ahead`: in sync, of the closed steps; otherwise for_push."""
        self.request(8, stream).parts().boolean(evaluation)
        return self.number(ahead, 0, 2 if self.mode == "sync" else 5)

    def commit(self, stream, with_pull=True):
        self.request(10, stream).pick(0, 5).boolean(with_pull)
        return self.parts() if with_pull else self

    def end_epoch(self, stream, epoch=0):
        return self.request(4, stream).number(epoch, 0, 2)

    def route(self, new_lives=()):
        self.operation(3).boolean(bool(new_lives))
        if new_lives:
            for rank in range(self.workers):
                self.number(int(rank in new_lives), 0, 1)
                self.lives[rank] += int(rank in new_lives)
        return self

    def advance(self, milliseconds):
        return self.operation(5).number(milliseconds, 0, 5000)

    def save(self):
        return self.operation(7).number(0, 0, 15)

    def reopen(self):
        self.streams, self.lives = [], [0] * self.workers
        return self.operation(6).number(0, 0, 7)

    def disconnect(self, stream):
        self.operation(2).on_stream(stream)
        del self.streams[stream]
        return self

    def garble(self, stream, data):
        self.operation(6).number(1, 0, 7).on_stream(stream).text(data, 40)
        del self.streams[stream]
        return self


def pserver_sessions():
    for workers in (1, 2):
        session = PserverSession("sync", workers)
        for rank in range(workers):
            session.connect(rank)
        for step in range(4):
            for rank in range(workers):
                session.push(rank, chunks=step == 1, value=step + rank)
                session.push(rank, later=4)  # again: not applied
                session.pull(rank, ahead=1)  # waits for the step
                session.commit(rank, with_pull=step != 2)
            session.advance(300)
            session.pull(0)
        session.save().end_epoch(0).pull(0, evaluation=True)
        session.push(0, later=5)  # too early
        session.reopen().connect(0).push(0).commit(0)
        yield f"session_sync_{workers}", session

    session = PserverSession("sync", 2).connect(0).connect(1).push(0).push(1).commit(0)
    session.route(new_lives=(1,)).connect(1).push(1).commit(1).pull(0).garble(0, b"\x03\x01").connect(0, new_life=False)
    yield "session_sync_new_life", session.push(0).push(1).commit(0).commit(1)

    for name, options in {"async": {}, "async_wait_2": {"wait_twice": True}, "async_staleness": {"staleness": 1}}.items():
        session = PserverSession("async", 2, **options).connect(0).connect(1)
        for step in range(5):
            for rank in range(2):
                session.pull(rank, ahead=step)
                session.push(rank, chunks=step == 2, value=step - 2)
        session.push(1, later=4).push(1, later=5).advance(2000).pull(0, ahead=5)
        session.end_epoch(0).end_epoch(1).save()
        session.route(new_lives=(0,)).connect(0).push(2).pull(2).disconnect(1).connect(1)
        yield f"session_{name}", session.push(2, chunks=True).pull(0, evaluation=True).route().pull(1)

    session = PserverSession("geo", 4)
    for rank in range(4):
        session.connect(rank)
    for step in range(3):
        for rank in range(4):
            session.push(rank, chunks=step == 1, value=rank + step).pull(rank)
    session.push(2, later=4).end_epoch(3, epoch=1).save().route(new_lives=(1, 2)).connect(2)
    yield "session_geo", session.push(4).reopen().connect(3).push(0).pull(0)


def parts(*table_shard_rows):
    return b"".join(packed(field + 1, [part[field] for part in table_shard_rows]) for field in range(3))


def encoded(value, size=4):
    """In FP32 or, with size 2, in BF16."""
    return struct.pack("<f", value)[4 - size:]


def dense(value, size=4):
    """The payload of a push of the dense block."""
    return encoded(value, size) * ELEMENTS


def values(keys, value, size=4):
    """The payload of a push of these keys of one shard."""
    return struct.pack(f"<{len(keys)}Q", *keys) + encoded(value, size) * (len(keys) * DIM)


ALL_PARTS = [(0, 0, ELEMENTS)] + [(1, shard, len(keys)) for shard, keys in enumerate(KEYS_OF)]
ALL_KEYS = b"".join(struct.pack(f"<{len(keys)}Q", *keys) for keys in KEYS_OF)


def all_values(value, size=4):
    """The payload of a push of ALL_PARTS."""
    return dense(value, size) + b"".join(values(keys, value, size) for keys in KEYS_OF)


class PserverStream(Choices):
    """pserver_stream.cc: frames on two streams, one of each rank."""

    def __init__(self, mode, bf16):
        super().__init__()
        self.bytes_of_value, self.open, self.requests = 2 if bf16 else 4, set(), 0
        self.number(("sync", "async", "geo").index(mode), 0, 2).boolean(bf16)

    def frame(self, rank, header, payload=b""):
        self.number(rank, 0, 1)
        if rank not in self.open:
            self.open.add(rank)
            self.number(1, 0, 7).number(rank, 0, 1)  # with a hello
        self.requests += 1
        self.number(1, 0, 7).boolean(False)
        self.text(number(1, self.requests) + number(3, 1) + header, 400).boolean(True)
        return self.text(payload, 200)

    def push(self, rank, sequence, value, fields=b""):
        push = number(1, sequence) + double(2, 1) + message(3, parts(*ALL_PARTS)) + number(5, 1) + fields
        return self.frame(rank, message(5, push), all_values(value, self.bytes_of_value))

    def pull(self, rank, pull=b""):
        return self.frame(rank, message(7, message(1, parts(*((t, s, 0 if t == 0 else r) for t, s, r in ALL_PARTS))) + pull), ALL_KEYS)


TOTALS = number(1, 10) + double(2, 6.5) + double(3, 10) + number(4, 1) + message(5, b"net")


def pserver_streams():
    for bf16 in (False, True):
        stream = PserverStream("sync", bf16)
        for step in (1, 2, 3):
            for rank in (0, 1):
                stream.push(rank, step, 0.5)
                commit = number(1, step) + message(3, TOTALS) + (number(2, 1) if step == 2 else b"")
                stream.frame(rank, message(6, commit))
                stream.pull(rank, number(2, step))
        yield f"stream_sync_{'bf16' if bf16 else 'fp32'}", stream
    task = number(6, 3) + number(7, 100) + number(9, 0) + message(10, TOTALS)
    stream = PserverStream("async", False)
    for step in (1, 2, 3):
        for rank in (0, 1):
            stream.pull(rank, number(4, step))
            stream.push(rank, step, -1.5, fields=task)
    yield "stream_async", stream.frame(0, message(8, number(1, 1))).frame(1, message(8, number(1, 1))).pull(0, number(3, 1))
    stream = PserverStream("geo", True)
    for step in (1, 2, 3):
        for rank in (0, 1):
            stream.push(rank, step, 0.25, fields=number(4, 1) + task)
    yield "stream_geo", stream.frame(0, message(8, number(1, 1))).pull(1)


class ReplicaStream(Choices):
    """replica_stream.cc: a primary's stream to its follower, and the stream of a successor."""

    IMAGE_MESSAGES = 21  # of five shards

    def __init__(self, geo=False, gradients_to_wait=0):
        super().__init__()
        self.boolean(geo).number(gradients_to_wait, 0, 2)

    def begin(self, read=False):
        return self.number(0 if read else 1, 0, 7)

    def image(self):
        for _ in range(self.IMAGE_MESSAGES):
            self.number(1, 0, 7)
        return self

    def complete(self, position):
        return self.number(4, 0, 7).number(position, 0, 3)

    def say(self, header, payload=b""):
        return self.number(7, 0, 7).text(header, 300).text(payload, 200)

    def changes(self, rank, sequence, position):
        """A frame of the dense block and one sparse shard. Rank 0 has pushed frame 1 to the dense block alone."""
        at = number(1, 1) + number(2, sequence) + number(3, 2) + number(4, 50) + number(5, 0) + message(6, TOTALS)
        change = message(1, parts(*ALL_PARTS[:1 if rank == 0 else 2])) + number(3, rank) + message(4, at) + double(5, 1)
        payload = dense(2) + (b"" if rank == 0 else values(KEYS_OF[0], 2))
        return self.say(message(4, change) + number(6, position), payload)

    def garble(self):
        return self.number(5, 0, 7).text(b"\x16", 300)

    def flush(self, position):
        change = message(1, parts(*((table, shard, 0) for table, shard, _ in ALL_PARTS))) + number(2, 1)
        return self.say(message(4, change) + number(6, position))


def replica_streams():
    for name, options in {"async": {}, "wait_2": {"gradients_to_wait": 2}, "geo": {"geo": True}}.items():
        stream = ReplicaStream(**options).begin().image().complete(0)
        stream.changes(0, 2, 1).changes(1, 1, 2).flush(3).changes(1, 2, 4)
        yield f"stream_{name}", stream
        # The stream ends. A successor reads the copies, and drops them.
        stream = ReplicaStream(**options).begin().image().complete(0).changes(0, 2, 1)
        stream.garble().begin(read=True).say(number(8, 1 << 20)).say(number(9, 1))
        yield f"stream_{name}_read", stream


class FollowerAnswers(Choices):
    """follower_answers.cc: a follower that answers its primary while shards change."""

    def change(self, rows):
        return self.number(0, 0, 9).number(rows, 0, 7)

    def confirm(self):
        return self.number(9, 0, 9)

    def claim(self, confirmed):
        self.number(3, 0, 9).boolean(True).numbers.extend(confirmed.to_bytes(8, "big"))
        return self

    def say(self, content):
        self.number(4, 0, 9).text(content, 60)
        return self

    def cut(self):
        return self.number(5, 0, 9)

    def route(self, has_follower):
        return self.number(7 if has_follower else 6, 0, 9)


def follower_answers():
    complete = FollowerAnswers().confirm().change(0).change(3).confirm().confirm()
    yield "complete", complete.change(2).change(0).confirm().change(5).confirm()
    broken = FollowerAnswers().confirm().confirm().change(1).cut().change(2).change(0)
    yield "broken_and_dropped", broken.route(False).change(1).route(True).confirm().confirm().change(7).confirm()
    yield "claims_all", FollowerAnswers().claim(2**64 - 1).confirm().change(1).claim(2**64 - 1).change(2)
    yield "gives_up", FollowerAnswers().confirm().confirm().change(1).say(number(10, 13)).change(1).route(False)
    behind = FollowerAnswers().confirm().confirm()
    for _ in range(20):
        behind.change(7)
    yield "too_far_behind", behind.route(False).route(True).confirm()


class CopyReading(Choices):
    """copy_reader.cc: a follower's answers to the pserver that reads its copies."""

    IMAGE, COMPLETE, DROP = 1, 6, 7

    def __init__(self, geo):
        super().__init__()
        self.boolean(geo)

    def answer(self, *kinds):
        self.number(len(kinds), 0, 8)
        for kind in kinds:
            self.number(kind, 0, 9)
        return self

    def images(self, count):
        return self.answer(*[self.IMAGE] * count)


def copy_readings():
    for name, geo in (("async", False), ("geo", True)):
        whole = CopyReading(geo).images(8).images(8).answer(*[CopyReading.IMAGE] * 5, CopyReading.COMPLETE)
        yield f"copies_{name}", whole.answer(CopyReading.DROP)
        yield f"copies_{name}_incomplete", CopyReading(geo).images(8).answer(CopyReading.COMPLETE)
        yield f"copies_{name}_dropped_early", CopyReading(geo).images(8).answer(CopyReading.DROP)
    garbled = CopyReading(False).images(3).number(1, 0, 8).number(8, 0, 9).text(b"\x16\x01", 300)
    yield "garbled", garbled


class ShardImage(Choices):
    """shard_image.cc."""

    def __init__(self, mode, sparse, rows=0, change=b"", day=None):
        """With a day, the table whose rows go."""
        super().__init__()
        self.sparse = sparse
        self.pick(mode, 3).number(int(sparse) if day is None else 2, 0, 2)
        if day is not None:
            self.boolean(True).number(day, 0, 9)
        if sparse:
            self.number(rows, 0, 8)
        self.text(change, 60)

    def block(self, records):
        """Of keys, or of values of the dense block."""
        self.number(1, 0, 7).number(len(records), 0, 6)
        for record in records:
            if self.sparse:
                self.number(record, 0, 40).byte(0x3D)
            else:
                self.byte(record)
        return self.text(b"", 3)

    def index(self):
        return self.number(5, 0, 7)


def shard_images():
    for mode, name in enumerate(("sync", "async", "geo")):
        yield f"image_dense_{name}", ShardImage(mode, False).block([0x3E, 0x3F]).block([0, 1]).index()
        yield f"image_sparse_{name}", ShardImage(mode, True, rows=5).block([1, 2, 3]).block([9, 40]).index()
    yield "image_empty", ShardImage(1, True).index()
    facts = number(1, 7) + number(2, 8) + number(3, 9) + number(4, 10) + number(5, 11)
    ranks = b"".join(message(6, number(1, 1) + number(2, rank + 3) + message(6, TOTALS)) for rank in (0,))
    days = message(8, number(1, 2) + number(2, 1)) + message(8, number(1, 4) + number(2, 6))
    gone = message(11, fixed64(1, 3) + number(2, 7)) + number(12, 5)
    change = message(10, number(4, 8) + days + gone)
    for mode, name in ((0, "sync"), (1, "async")):
        yield f"image_rows_go_{name}", ShardImage(mode, True, rows=5, change=change, day=5).block([1, 2]).block([4, 9, 40]).index()
    yield "image_facts", ShardImage(0, False, change=message(10, facts + ranks)).block([1, 2, 3, 4]).index()


class ShardFile(Choices):
    """shard_file.cc."""

    def __init__(self, sparse, records, checkpoint=False, runs=0, old=False):
        super().__init__()
        self.boolean(not sparse)
        self.pick(0, 4) if sparse else self.number(1, 0, 3)
        self.number(1, 0, 7).number(records, 0, 12).boolean(checkpoint)
        if sparse:
            self.pick(runs, 3)
        self.boolean(False)
        if sparse:
            for _ in range(records):
                self.number(2, 0, 3)
        self.number(0 if old else 1, 0, 7)

    def blocks(self, sizes, left):
        for size in sizes:
            self.number(size, 1, left)
            left -= size
        return self.number(1, 0, 3)  # the index unchanged


def shard_files():
    yield "dense_model", ShardFile(False, 12).blocks([5, 7], 12)
    yield "dense_checkpoint", ShardFile(False, 12, checkpoint=True).blocks([24], 24)
    yield "dense_old", ShardFile(False, 12, old=True)
    yield "sparse_model", ShardFile(True, 9).blocks([4, 5], 9)
    yield "sparse_checkpoint", ShardFile(True, 6, checkpoint=True).blocks([6], 6)
    yield "sparse_two_runs", ShardFile(True, 3, runs=1).blocks([1, 2], 3)
    yield "sparse_empty", ShardFile(True, 0).blocks([], 0)


class ExampleCache(Choices):
    """example_cache.cc."""

    def __init__(self, repair=True, keep_identity=True):
        super().__init__()
        self.number(int(repair), 0, 7).number(int(keep_identity), 0, 7).number(1, 0, 3)

    def header(self, offset, data):
        return self.boolean(True).number(offset, 104, 344).text(data, 64)


def example_caches():
    yield "unchanged", ExampleCache()
    yield "no_checksums", ExampleCache(repair=False)
    # Without offsets of keys: one key in each slot. The sections follow each other in the table.
    for section in range(8):
        yield f"section_{section}_empty", ExampleCache().header(152 + 24 * section + 8, bytes(8))
    yield "many_examples", ExampleCache().header(104, struct.pack("<Q", 1 << 40))


class ClientReplies(Choices):
    """client_replies.cc: the answers to two hellos, then to requests in the order in which they were sent."""

    def __init__(self):
        super().__init__()
        self.sent = 2

    def pull(self):
        self.sent += 2
        return self.number(0, 0, 7)

    def push(self):
        self.sent += 2
        return self.number(1, 0, 7)

    def reply(self, request, change=b"", copy_parts=True):
        self.number(3, 0, 7).number(request, 0, self.sent - 1).text(change, 200).boolean(copy_parts)
        return self.text(b"", 8)


def client_replies():
    yield "pull", ClientReplies().pull().reply(2).reply(3)
    yield "push_then_pull", ClientReplies().push().reply(2).reply(3).pull().reply(4).reply(5).push().reply(6).reply(7)
    codes = ClientReplies().pull().push()
    for request, code in ((2, 9), (3, 14), (4, 8), (5, 10)):
        codes.reply(request, number(3, code) + message(4, "why") + number(5, 2), copy_parts=False)
    yield "refused", codes.pull().reply(6).reply(7)
    errors = ClientReplies().push().reply(2, message(6, number(1, 0) + number(2, 0) + number(3, 2) + number(4, 1)))
    yield "part_errors", errors.reply(3, message(6, number(1, 1) + number(3, 3))).pull().reply(4).reply(5)


class SchedulerCalls(Choices):
    """scheduler_calls.cc: two pservers and two workers run one job."""

    COLLECTIVE = 2
    MOST = 4096  # bytes of a request
    # Of the dictionary of numbers, and of the numbers of entries.
    TRUE, ONE_MORE, HUGE, LARGEST = 0, 1, 7, 11
    NONE, ONE, RANKS, HUNDRED, MANY = 0, 1, 2, 4, 5

    def __init__(self, k_steps, max_losses=False, pservers=True, shrink=False):
        super().__init__()
        self.number(k_steps, -1, 2)
        if k_steps == self.COLLECTIVE:
            self.boolean(not pservers)
        self.boolean(max_losses)
        if k_steps == self.COLLECTIVE:
            self.boolean(shrink)

    def call(self, kind):
        return self.number(kind, 0, 21)

    def dictionary(self, choice):
        return self.pick(choice, 12)

    def mostly(self, otherwise=None):
        """`otherwise`: the number of the dictionary in place of the true one."""
        self.number(0 if otherwise is not None else 1, 0, 7)
        return self if otherwise is None else self.dictionary(otherwise)

    def group(self, worker, generation=None, closed_steps=TRUE, totals=RANKS, card=1, holds=True, workers=2):
        self.call(19).number(worker, 0, workers - 1).mostly().mostly().mostly(generation).pick(card, 4).boolean(holds)
        self.mostly().dictionary(closed_steps).pick(totals, 6)
        return self if totals == self.NONE else self.dictionary(self.TRUE).dictionary(self.TRUE)

    def index(self, rank, files=ONE, size=TRUE, pieces=ONE, lines=TRUE):
        self.call(20).text(b"", self.MOST).number(1, 0, 7).number(rank, 0, 1).mostly().dictionary(lines)
        self.pick(files, 6).dictionary(size)
        if files != self.NONE:
            self.dictionary(size)
        return self.pick(pieces, 6).dictionary(lines).mostly()

    def poll_all(self):
        return self.call(4)

    def advance(self, milliseconds):
        return self.call(5).number(milliseconds, 0, 20000)

    def phase(self, rank, report=b""):
        """With a report, of the phase that the rank was told last."""
        self.call(8).text(message(4, report) if report else b"", self.MOST).number(1, 0, 7).number(rank, 0, 1).number(1, 0, 7)
        return self.number(1 if report else 0, 0, 7)

    def task(self, rank):
        return self.call(10).text(number(6, 10), self.MOST).number(1, 0, 7).number(rank, 0, 1).number(1, 0, 7).number(1, 0, 7)

    def of_job(self, kind, request=b""):
        return self.call(kind).text(request, self.MOST).number(1, 0, 7)

    def leave(self, member, worker):
        return self.call(6).text(b"", self.MOST).number(1, 0, 7).boolean(worker).number(member, 0, 1)

    def any(self, kind, request):
        return self.call(kind).text(request, self.MOST)


def indexed(rank):
    """Half of a file in sync, and a file of its own in async."""
    seen = message(5, message(1, "train.csv") + number(2, 2000))
    pieces = packed(1, [0]) + packed(2, [1000 * rank]) + packed(3, [1000 * (rank + 1)]) + packed(4, [50])
    files = message(1, message(1, f"part-{rank}.csv") + number(2, 250))
    return message(2, files + number(2, 50) + seen + message(8, pieces))


TRAINED = message(3, number(1, 50) + double(4, 25) + double(5, 50) + number(6, 5))
EVALUATED = message(4, number(1, 10))


def scheduler_calls():
    for name, k_steps in (("sync", -1), ("async", 0), ("geo", 1)):
        calls = SchedulerCalls(k_steps).phase(0).phase(1).phase(0, indexed(0)).phase(1, indexed(1)).phase(0)
        for _ in range(2):
            for _ in range(5 if k_steps >= 0 else 0):
                calls.task(0).task(1)
            calls.advance(2000).poll_all()
            for report in (TRAINED, EVALUATED):
                calls.phase(0, report).phase(1, report).phase(0)
        saved = message(5, message(1, "/output/job/model") + message(2, "0" * 64))
        yield f"job_{name}", calls.phase(0, saved).phase(1, saved).poll_all().of_job(14).poll_all()
        calls = SchedulerCalls(k_steps, max_losses=True).phase(0).phase(1).phase(0, indexed(0)).phase(1, indexed(1)).poll_all()
        calls.of_job(15).advance(1000).of_job(16, number(2, 1)).poll_all().of_job(12).leave(0, True).poll_all()
        calls.any(17, number(1, 1)).poll_all().leave(1, False).advance(20000).poll_all().any(7, number(1, 3) + number(2, 1) + number(3, 1))
        yield f"losses_{name}", calls.of_job(13, message(3, "broken")).poll_all().of_job(14)
    huge = SchedulerCalls(0).phase(0).phase(1).index(0, SchedulerCalls.MANY, SchedulerCalls.HUGE)
    yield "data_with_huge_files", huge.index(1, SchedulerCalls.MANY, SchedulerCalls.LARGEST).poll_all().of_job(14)
    tasks = SchedulerCalls(1).phase(0).phase(1).index(0, SchedulerCalls.ONE, SchedulerCalls.HUGE)
    yield "data_with_too_many_tasks", tasks.index(1, SchedulerCalls.ONE).poll_all().of_job(14)
    pieces = SchedulerCalls(-1).phase(0).phase(1).index(0, pieces=SchedulerCalls.MANY)
    yield "data_with_many_pieces", pieces.index(1, pieces=SchedulerCalls.MANY).poll_all().of_job(14)
    lines = SchedulerCalls(-1).phase(0).phase(1).index(0, lines=SchedulerCalls.LARGEST)
    yield "data_whose_lines_overflow", lines.index(1, lines=SchedulerCalls.LARGEST).poll_all().of_job(14)
    for name, failure in (("cancelled", b""), ("failed_by_a_user", message(2, "1\n2" * 1000))):
        calls = SchedulerCalls(-1).phase(0).phase(1).phase(0, indexed(0)).phase(1, indexed(1)).poll_all()
        yield f"job_{name}", calls.of_job(21, failure).poll_all().of_job(21).of_job(15).phase(0).poll_all().of_job(14)
    for pservers in (False, True):
        for generation in (None, SchedulerCalls.ONE_MORE, SchedulerCalls.LARGEST):
            calls = SchedulerCalls(2, max_losses=True, pservers=pservers, shrink=True)
            calls.phase(0).phase(1).phase(0, indexed(0)).phase(1, indexed(1)).poll_all().group(0).group(1)
            calls.group(1, generation).any(7, number(1, 3) + number(2, 0) + number(3, 1) + message(4, "space")).poll_all().group(1, generation)
            steps = SchedulerCalls.TRUE if generation is None else SchedulerCalls.LARGEST
            calls.group(1, closed_steps=steps).poll_all().advance(20000).poll_all()
            name = "true" if generation is None else "later" if generation == SchedulerCalls.ONE_MORE else "last"
            yield f"groups_{'with' if pservers else 'without'}_pservers_{name}_generation", calls.of_job(14)


class EtcdReplies(Choices):
    """etcd_replies.cc."""

    TERM, END, FIND, COMMIT, SCAN = 0, 2, 3, 4, 5  # calls

    def call(self, kind):
        return self.number(kind, 0, 5)

    def value(self, choice):
        """A read of one key: the number of the dictionary, at revision 1."""
        return self.number(2, 0, 5).found(choice)

    def found(self, choice):
        return self.pick(choice, 8).number(1, 0, 3)

    def done(self):
        return self.number(7, 0, 7)

    def refused(self, *found, lacks_one=False):
        """A transaction whose reads find these numbers."""
        self.number(2 if lacks_one else 3, 0, 7)
        for choice in found:
            self.found(choice)
        return self

    def page(self, *ends, more=False):
        """Keys with these ends after the key that was asked for; None: one that repeats itself."""
        self.number(5, 0, 5).number(1, -1, 2).boolean(more).number(len(ends), 0, 3)
        for end in ends:
            self.boolean(end is None)
            if end is not None:
                self.text(end, 8)
        return self


def etcd_replies():
    def with_term():
        return EtcdReplies().call(EtcdReplies.TERM).value(0).done()
    yield "commits", with_term().call(EtcdReplies.COMMIT).done().call(EtcdReplies.COMMIT).refused(1, 1).call(EtcdReplies.FIND).page()
    yield "refused_commits", with_term().call(EtcdReplies.COMMIT).refused(2, 7).call(EtcdReplies.COMMIT).refused(1, 6).call(
        EtcdReplies.COMMIT).refused(1, 1, lacks_one=True).call(EtcdReplies.END).refused()
    yield "scan_of_two_pages", EtcdReplies().call(EtcdReplies.SCAN).page(b"a", b"ab", more=True).page(b"b").call(EtcdReplies.SCAN).value(7)
    yield "pages_that_repeat", EtcdReplies().call(EtcdReplies.SCAN).page(None, more=True).page(None, more=True).page(None)


class PserverOrders(Choices):
    """pserver_orders.cc."""

    def reply(self, mode, change=b"", save=None):
        """The job in mode 0 (sync), 1 (async) or 2 (Geo), with fields of a PollReply."""
        self.number(1, 0, 3).number(mode, 0, 2).text(change, 600).boolean(save is not None)
        return self if save is None else self.text(save, 60)


def pserver_orders():
    save = message(1, "job-1") + number(2, 1) + message(3, "/out/model") + message(5, "000000000000005a")
    output = message(3, message(2, message(4, "/out")))
    cut = message(5, message(1, "job-1") + number(3, 0) + number(4, 1) + number(5, 7))
    for mode, name in enumerate(("sync", "async", "geo")):
        orders = PserverOrders().reply(mode, output).reply(mode, output + cut, save)
        over = message(5, message(1, "job-1") + number(3, 1) + number(4, 0))
        yield f"cut_and_save_{name}", orders.reply(mode, output + message(3, message(5, number(1, 1))) + over)
    lost = message(6, number(1, 1) + message(2, number(1, 1) + message(3, TOTALS)))
    yield "commit_of_a_lost_rank", PserverOrders().reply(0).reply(0, message(5, message(1, "job-1") + number(4, 1) + lost)).reply(0)


TARGETS = {
    "pserver_session": pserver_sessions,
    "pserver_stream": pserver_streams,
    "replica_stream": replica_streams,
    "follower_answers": follower_answers,
    "copy_reader": copy_readings,
    "shard_image": shard_images,
    "shard_file": shard_files,
    "example_cache": example_caches,
    "client_replies": client_replies,
    "scheduler_calls": scheduler_calls,
    "pserver_orders": pserver_orders,
    "etcd_replies": etcd_replies,
}


def seeds():
    """(target, name, input) of all."""
    for target, sessions in TARGETS.items():
        for name, session in sessions():
            yield target, name, session.data()
