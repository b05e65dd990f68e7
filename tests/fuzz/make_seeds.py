#!/usr/bin/env python3
"""Writes the seeds in tests/fuzz/corpus that are made by hand or from files of the tree, and config.dict.

Inputs that a fuzzer reads with FuzzedDataProvider end with the bytes of its numbers: what it asks first is last.
Files with other names, such as those of inputs that once crashed, stay as they are.
"""

import gzip
import pathlib
import random
import re
import struct

import session_seeds
from choices import Choices

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests/fuzz/corpus"


def seed(target, name, data):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def without_comments(path):
    lines = [line.split("#")[0].rstrip() for line in path.read_text().splitlines()]
    return "\n".join(line for line in lines if line) + "\n"


def configs():
    for name in ("adult_wide_deep", "criteo_wide_deep", "flights_wide_deep"):
        seed("job_config", name, without_comments(ROOT / f"configs/{name}.textproto"))
    seed("job_config", "sync_with_crosses", """
name: "s" worker_num: 4
data { train_files: "/d/*.gz" eval_files: "/e" format: CSV csv { header: true } label { column: "y" } shuffle_lanes: 8 }
features { name: "a" numeric { boundaries: [1, 2, 3] } }
features { name: "b" categorical { vocabulary: ["u", "v"] } }
features { name: "m" categorical { multi_value_delimiter: "|" } }
features { name: "ab" cross { features: ["a", "b"] hash_buckets: 100 } }
model { wide_deep { hidden_units: [8, 4] embedding_dim: 4 dropout: 0.5 } }
optimizers { all { adam {} learning_rate: 0.01 } wide { ftrl { l1: 1 } } }
strategy { a_sync: false sync_configs { on_worker_loss: SHRINK } }
train { batch_size: 32 epochs: 2 } checkpoint { every_steps: 100 keep: 3 } recovery { max_losses: 2 }
""")
    seed("job_config", "geo_multi_slot", """
name: "g" data { train_files: "/d" format: MULTI_SLOT slots { name: "y" type: FLOAT dim: 1 } slots { name: "c" } label { column: "y" } }
features { name: "c" categorical {} } model { wide_deep { hidden_units: 4 embedding_dim: 2 } }
strategy { a_sync: true a_sync_configs { k_steps: 10 geo_merge: SUM } } tables { name: "embedding" num_shards: 3 }
""")
    seed("job_config", "csv_all_options", """
name: "all" worker_num: 3 output_dir: "out" trace_file: "t.json" overwrite: true initial_model: "models/m"
data {
  format: CSV train_files: ["a.csv", "/b/*.gz"] eval_files: "e.csv" weight_column: "w" max_bad_lines: 9 drop_last: true shuffle: true
  csv { delimiter: ";" columns: ["y", "w", "n", "c", "d", "t"] missing: ["?", "NA"] comment_prefix: "#" trim: false }
  label { column: "y" positive: ["1", ">50K"] negative: "0" } assignment: GLOBAL task_bytes: 1000000 cache: true cache_dir: "cache"
  cache_max_bytes: 1000000 shuffle_lanes: 4 shuffle_window: 4096
}
features { name: "n" numeric { log: true min_max { min: 0 max: 9 } default_value: 0.5 } in_wide: true }
features { name: "z" numeric { column: "n" z_score { mean: 1 stddev: 2 } } in_deep: true }
features { name: "nb" numeric { column: "n" boundaries: [1, 2.5, 7] keep_numeric: true } }
features { name: "c" categorical { multi_value_delimiter: "|" pooling: MEAN hash_buckets: 1000 missing_is_value: true } embedding_dim: 4 }
features { name: "d" categorical { vocabulary: ["u", "v"] } in_deep: false }
features { name: "t" categorical { date_part: DAY_OF_WEEK } }
features { name: "hour" numeric { column: "t" date_part: HOUR } }
features { name: "x" cross { features: ["nb", "d"] hash_buckets: 50 } }
model { wide_deep { wide_numeric: true wide_categorical: true hidden_units: [16, 8] embedding_dim: 4 dropout: 0.25 embedding_initializer { normal { mean: 0 stddev: 0.1 } } } }
optimizers {
  all { adam { beta1: 0.8 beta2: 0.99 epsilon: 1e-7 } learning_rate: 0.01 weight_decay: 1e-4 clip_value: 5 schedule { cosine { steps: 1000 end: 0.1 } warmup_steps: 10 warmup_start: 0.1 } }
  dense { momentum { momentum: 0.8 nesterov: true } learning_rate: 0.1 schedule { exponential { steps: 100 rate: 0.9 staircase: true } } }
  embedding { adagrad { initial_accumulator: 0.1 epsilon: 1e-6 } clip_row_norm: 2 schedule { polynomial { steps: 100 end: 0.001 power: 2 } } }
  wide { ftrl { l1: 0.1 l2: 0.2 beta: 1 } schedule { inverse_time { steps: 10 rate: 0.5 } } }
  lr_scale: WORKERS
}
strategy { a_sync: true a_sync_configs { gradients_to_wait: 2 hot_row_cache { rows: 100 max_staleness_steps: 4 } } }
train { batch_size: 64 epochs: 3 seed: 7 log_every: 10 prefetch_batches: 3 reader_threads: 2 pipeline_depth: 2 threads: 4 step_timeout_s: 60 pin_threads: true }
eval { every_epochs: 2 batch_size: 100 }
checkpoint { save_final_model: true dir: "ckpt" every_steps: 100 keep: 2 }
recovery { max_losses: 3 wait_s: 20 replicas: 1 }
""")
    for name, options in {
            "sync_sgd": "a_sync: false sync_configs { on_worker_loss: WAIT } } optimizers { all { sgd {} schedule { noam { warmup: 10 model_dim: 8 } } } clip_global_norm: 1 }",
            "geo_cache": "a_sync: true a_sync_configs { k_steps: 5 geo_merge: MEAN geo_cache_rows: 100 } } optimizers { all { sgd {} schedule { cosine_restarts { first_steps: 10 multiplier: 2 decay: 0.9 end: 0.1 } } } }",
            "staleness_bf16": "a_sync: true a_sync_configs { max_staleness: 3 } } tables { name: \"embedding\" num_shards: 5 wire_type: BF16 max_rows: 1000 } optimizers { all { schedule { natural_exponential { steps: 9 rate: 0.1 } } } }",
    }.items():
        seed("job_config", name, f"""
name: "{name}" worker_num: 2 initial_checkpoint: "c"
data {{ train_files: "/d" format: LIBSVM }} checkpoint {{ every_s: 60 every_epochs: 1 }}
features {{ name: "n{{1..3}}" numeric {{ column: "1" }} }} features {{ name: "c" categorical {{ column: "2" }} }}
model {{ wide_deep {{ hidden_units: 4 embedding_dim: 2 embedding_initializer {{ uniform {{ min: -0.1 max: 0.1 }} }} }} }}
strategy {{ {options}
train {{ compute_dtype: BF16 device_memory_fraction: 0.5 }}
""")
    seed("job_config", "evaluate_only", """
name: "e" evaluate_only: true initial_model: "/m" data { eval_files: "/e" format: TSV csv { header: true } label { column: "y" positive_at_least: 4 } }
features { name: "c*" categorical {} } model { wide_deep { hidden_units: 2 embedding_dim: 2 } } checkpoint { save_final_model: false }
""")
    seed("job_config", "custom_model", 'name: "c" data { train_files: "/d" format: CRITEO_TSV } features { name: "I1" numeric {} } model { custom { name: "mine" options: "x: 1" } }')
    for name, text in {"ipv4": "10.0.0.1:7000", "ipv6": "[::1]:80", "list": "a:1,b.example:65535", "port_0": "localhost:0"}.items():
        seed("address", name, text)
    seed("cluster_config", "two_hosts", without_comments(ROOT / "configs/two_hosts_cluster.textproto"))
    seed("cluster_config", "all_options", """
version: 1 name: "c" scheduler: "h:7000" pservers: ["h:7001", "[::1]:7002"] worker_num: 2 worker_hosts: ["h", "g"] worker_devices: ["cpu", "cuda:0"]
limits { lease_ms: 3000 heartbeat_ms: 500 wait_s: 60 max_message_mib: 64 max_streams: 100 max_queued_mib: 64 }
security { tls_cert: "/c" tls_key: "/k" tls_ca: "/a" data_root: "/d" output_root: ["/o", "/p"] any_local_user: true }
state_store: "etcd://h:2379/p"
""")
    seed("cluster_config", "limits", 'name: "c" pserver_num: 2 worker_num: 3 security { insecure: true } limits { max_streams: 5 }\n')
    for i, text in enumerate((
            "train.batch_size=512", "data.train_files=a,b", "features[0].numeric.boundaries=[1, 2.5]",
            "strategy={ a_sync: false a_sync_configs { k_steps: 3 } }", "tables[0].columns[0].dim=4",
            "data.format=LIBSVM", "optimizers.all.learning_rate=1e-3", "model.wide_deep.hidden_units=8,4",
            "train.batch_size=64k", "name=x y", "features[7].name=q")):
        seed("config_override", f"path_{i}", text)


def peers():
    seed("peer_uris", "worker", "spiffe://sluice/sluice/worker/3")
    seed("peer_uris", "others_and_pserver", "https://example.com/x\nspiffe://d/other/operator\nspiffe://d/sluice/pserver")
    seed("peer_uris", "operator", "spiffe://sluice/sluice/operator/alice")
    seed("peer_uris", "two_roles", "spiffe://d/sluice/worker\nspiffe://d/sluice/operator")
    for name, text in {
            "metrics": "GET /metrics HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip, br\r\n\r\n",
            "status": "HEAD /api/v1/status?x=%41&y HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
            "statusz": "GET /statusz HTTP/1.0\r\n\r\n",
            "ranges": "GET /statusz HTTP/1.1\r\nRange: bytes=0-1,2-3,-5\r\n\r\n",
            "post": "POST /livez HTTP/1.1\r\nContent-Length: 3\r\nContent-Type: multipart/form-data; boundary=b\r\n\r\nabc",
            "expect": "PUT /readyz HTTP/1.1\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            "proxy": "GET http://a/../livez HTTP/1.1\r\nX-Forwarded-For: 1\r\nAuthorization: Basic YTpi\r\n\r\n",
    }.items():
        seed("http_request", name, text)


def field(number, kind, payload):
    return bytes([number << 3 | kind]) + payload


def message(number, body):
    return field(number, 2, bytes([len(body)]) + body)


def frames():
    def frame(header, payload):
        return b"\x0dSLU1" + message(2, header) + (message(3, payload) if payload else b"")

    parts = message(1, b"\x00\x01") + message(2, b"\x00\x02") + message(3, b"\x02\x01")
    push = field(1, 0, b"\x01") + field(2, 1, struct.pack("<d", 3)) + message(3, parts)
    values = struct.pack("<2fQ3f", 1, -2, 77, 0.5, float("inf"), 4)
    hello = field(1, 0, b"\x01") + message(2, b"job-1") + field(4, 0, b"\x01")
    numbers = b"\x01\x0a"  # float32, slices of 11 bytes
    seed("wire_frame", "push", frame(field(1, 0, b"\x05") + field(3, 0, b"\x01") + message(5, push), values) + numbers)
    seed("wire_frame", "hello", frame(field(3, 0, b"\x01") + message(4, hello), b"") + numbers)
    seed("wire_frame", "reply", frame(field(1, 0, b"\x05") + field(3, 0, b"\x07") + message(4, b"why") + message(7, parts), values) + b"\x00\x03")
    seed("wire_frame", "replica_seed", frame(message(2, field(2, 0, b"\x01") + field(13, 0, b"\x01")), values) + numbers)
    seed("wire_frame", "tls_client", b"\x16\x03\x01\x02\x00\x01" + numbers)


def zstd_frame(blocks):
    """Blocks are (text, repeats): repeats > 0 is a block of one repeated byte."""
    out = b"\x28\xb5\x2f\xfd\x00\x58"
    for i, (text, repeats) in enumerate(blocks):
        size = repeats or len(text)
        out += struct.pack("<I", (i + 1 == len(blocks)) | (2 if repeats else 0) | size << 3)[:3] + text
    return out


def data():
    csv = "# comment\ny,n,c\n0,1.5,a|b\n1,2,\"b\"\"c\"\n1,x,bad\n0,3\n0,,a\n"
    lines = {
        "csv_header": (0, csv),
        "csv_names": (1, ">50K,1,2,a\n<=50K,0.5,?,b|c\n\"x\",1,1,1\n"),
        "tsv": (2, "1\t2\ta|b\r\n0\t\t\r\n\r\n1\t1e3\tc"),
        "multi_slot": (3, "1 1 1 0.5 2 17 18\n1 0 1 2 1 99\n1 1 1\n"),
        "libsvm": (4, "+1 1:0.5 2:3 # c\n-1 qid:3 2:1\n0 1:x\n"),
        "libffm": (6, "1 0:7:1 7:9:0.5 # c\n-1 0:7:-2\n0:1:1\n0 0:1\n"),
        "libsvm_indices": (7, "1 1:2 54686452:1\n-1:0.5 07:1\n0 8:x\n"),
        "slot_value": (8, "y:1 n:0.5 n:2 c:17 c:018 z:3\ny:0 c:4\ny:1 n:1\n"),
        "json_lines": (9, '{"y":1,"o":{"n":0.5},"k":-7,"c":["a",null,2]}\n{"y":false,"k":18446744073709551615,"c":"?|b"}\n{"y":1}}\n'),
        "criteo": (5, "1\t5" + "\t" * 12 + "\t68fd1e64" + "\t" * 24 + "\tlast\n0" + "\t" * 39 + "\n"),
    }
    for name, (kind, text) in lines.items():
        seed("data_reader", name, text.encode() + b"\x00\x14" + bytes([kind]))
    numbers = struct.pack("<I", 20)[:3] + struct.pack("<I", 7)[:3]
    gz = gzip.compress(csv.encode(), mtime=0)
    zst = zstd_frame([(b"y,n,c\n0,1,a\n", 0), (b"z", 1000), (b"\n1,2,b\n", 0)])
    seed("data_reader", "gzip_csv_header", gz + b"\x00\x14\x00")
    seed("data_reader", "zstd_csv_header", zst + b"\x00\x14\x00")
    bomb = gzip.compress(bytes(8 << 20), mtime=0)
    large = struct.pack("<I", 20)[:3] + struct.pack("<I", 50000)[:3]  # reads of 50000 bytes
    seed("compressed_text", "plain", csv.encode() + numbers)
    seed("compressed_text", "gzip_two_members", gz + gz + numbers)
    seed("compressed_text", "gzip_truncated", gz[:-9] + numbers)
    seed("compressed_text", "gzip_bomb", bomb[:3000] + large)
    seed("compressed_text", "zstd_two_frames", zst + zst + numbers)
    seed("compressed_text", "zstd_truncated", zst[:-3] + numbers)
    seed("compressed_text", "zstd_bomb", zstd_frame([(b"\n", 128 << 10)] * 900) + large)
    # A window of 2 TiB, which a reader must not allocate.
    seed("compressed_text", "zstd_huge_window", b"\x28\xb5\x2f\xfd\x00\xf8\x01\x00\x00" + numbers)


def manifests():
    model = """version: 3
job_id: "j-1"
global_step: 5
epochs: 1
tables { name: "w" kind: DENSE shape: 6 optimizer { sgd {} learning_rate: 0.5 } }
tables { name: "e/x" kind: SPARSE num_shards: 1 columns { name: "c" dim: 2 } }
files { name: "w-0.000000000000005a.shard" bytes: 10 crc32c: 7 }
files { name: "e.x-0.000000000000005a.shard" bytes: 20 crc32c: 8 }
"""
    job = 'name: "j" worker_num: 2 train { seed: 3 }\n'
    seed("manifest", "model", model + f'model_digest: "{"0" * 64}"\n')
    seed("manifest", "checkpoint_with_job",
         model + 'files { name: "job.000000000000005a.textproto" bytes: 42 crc32c: 9 }\ncheckpoint { save_id: "000000000000005a" }\n\0' + job)
    seed("manifest", "version_1", "version: 1\n" + model.split("\n", 1)[1] + f'model_digest: "{"0" * 64}"\n')


def dictionaries():
    words = set(re.findall(r"[A-Za-z_]\w+(?= = \d+;)", (ROOT / "proto/config.proto").read_text()))
    (CORPUS.parent / "config.dict").write_text("".join(f'"{word}"\n' for word in sorted(words)))


def random_length(data):
    """As ConsumeRandomLengthString reads it."""
    return data.replace(b"\\", b"\\\\") + b"\\ "


def orders():
    def reply(spec):
        return random_length(message(3, spec))

    numbers = bytes([0, 1, 1])  # a known async job, merged with these fields; no save
    lives = message(9, b"\x01\x01")
    seed("pserver_orders", "follower_outside_of_the_route",
         reply(lives + message(10, b"") + message(11, b"\x05")) + numbers)
    seed("pserver_orders", "later_route_with_more_ranks",
         reply(b"") + reply(field(4, 0, b"\x03") + message(5, field(1, 0, b"\x02")) + message(9, b"\x02\x02\x02")) + numbers * 2)
    seed("pserver_orders", "four_billion_workers", reply(field(4, 0, b"\xff\xff\xff\xff\x0f")) + numbers)


def choices():
    """For fuzzers whose input is a list of choices: valid sessions, and random ones."""
    for target, name, data in session_seeds.seeds():
        seed(target, name, data)
    for target in ("pserver_session", "pserver_stream", "pserver_orders", "replica_stream", "follower_answers", "copy_reader", "scheduler_calls",
                   "client_replies",
                   "example_cache", "shard_file", "shard_image", "stored_jobs", "geo_state", "collective_peers", "worker_orders",
                   "etcd_replies", "export_chain"):
        for number in range(3):
            seed(target, f"random_{number}", random.Random(number).randbytes(200 << 2 * number))


def requests():
    """Wire format; the first byte chooses the call, in the order of proto/scheduler.proto and then proto/pserver.proto."""
    def field(number, wire_type, content):
        tag = number << 3 | wire_type
        return bytes([tag] if tag < 128 else [tag & 127 | 128, tag >> 7]) + content

    def text(number, content):
        return field(number, 2, bytes([len(content)]) + content)

    for call in range(18):
        numbers = b"".join(field(number, 0, b"\x01") for number in range(1, 20))
        texts = b"".join(text(number, b"\x08\x01") for number in range(1, 30))
        seed("request_bytes", f"call_{call}_with_numbers", bytes([call]) + numbers)
        seed("request_bytes", f"call_{call}_with_texts", bytes([call]) + texts)
    for call, name in ((1, "poll"), (4, "phase"), (8, "submit")):
        seed("request_bytes", f"{name}_with_empty_parts", bytes([call]) + b"".join(text(n, b"") * 20 for n in range(1, 30)))
        nested = b""
        for _ in range(30):
            nested = text(1, nested)
        seed("request_bytes", f"{name}_with_nested_parts", bytes([call]) + nested)
    groups = b"".join(field(100 + n, 3, b"") for n in range(40)) + b"".join(field(139 - n, 4, b"") for n in range(40))
    seed("request_bytes", "unknown_groups", b"\x01" + groups)
    seed("request_bytes", "truncated", b"\x01" + text(5, b"abc")[:-1])


def greetings():
    """One stranger or impostor of each kind, whose bytes come at once."""
    for whole, name in ((True, "strangers"), (False, "impostor")):
        def wrong(to):
            to.boolean(whole)
            return to.number(1, 0, 6) if whole else to.boolean(True).boolean(False)
        def sent(to):
            to.number(39, 1, 60)
            return to.boolean(True).data() if whole else to.data()
        for field, at in (("magic", 0), ("generation", 8), ("sender", 16), ("receiver", 20), ("secret", 39)):
            seed("tcp_greetings", f"{name}_with_a_wrong_{field}", sent(wrong(Choices()).number(2, 0, 3).number(at, 0, 39).number(1, 1, 255).text(b"", 20)))
        seed("tcp_greetings", f"{name}_with_half_a_greeting", sent(wrong(Choices()).number(1, 0, 3).number(20, 0, 39)))
        seed("tcp_greetings", f"{name}_with_any_bytes", sent(wrong(Choices()).number(0, 0, 3).text(b"GET / HTTP/1.1\r\n\r\n", 100)))
    for number in range(3):
        seed("tcp_greetings", f"random_{number}", random.Random(number).randbytes(200 << 2 * number))


def gloo_messages():
    """Peers of a Gloo group that are right, and some that change one thing: see tests/fuzz/gloo_peers.cc for the order of choices."""
    weighted_mean, all_reduce, reduce_scatter, all_gather, broadcast, barrier = range(1, 7)
    sizes = (1, 0, 7, 100, 16384, 16385, 32769, 34000, 70000)

    def group(rank, *operations):
        to = Choices().number(rank, 0, 1).number(len(operations), 1, 3)
        for kind, n, *more in operations:
            to.pick(sizes.index(n), len(sizes)).number(kind, weighted_mean, barrier).number(0, 0, 3)
            for value, most in zip(more, (3, 1) if kind == weighted_mean else (1,)):
                to.number(value, 0, most)
        return to.number(0, 0, 15).number(0, 0, 7)

    def change(to, piece, what):
        for _ in range(piece):
            to.number(0, 0, 19)
        return to.number(what, 0, 19)

    seed("gloo_peers", "small_arrays", group(0, (weighted_mean, 100, 0, 0), (all_gather, 7), (barrier, 1)).data())
    seed("gloo_peers", "mean_in_bf16_in_pieces", group(1, (weighted_mean, 70000, 0, 1), (barrier, 1)).data())
    seed("gloo_peers", "reduction_and_broadcast_in_parts", group(0, (all_reduce, 34000), (broadcast, 16385, 1)).data())
    seed("gloo_peers", "parts_scattered_and_gathered", group(1, (reduce_scatter, 16385), (all_gather, 34000)).data())
    cut = change(group(0, (all_reduce, 16385)), 4, 4)  # in the values that the peer brings
    seed("gloo_peers", "values_cut_short", cut.number(20000, 0, 2 * 48 + 4 * 8208).data())
    seed("gloo_peers", "last_words", change(group(1, (barrier, 1)), 2, 8).number(0, 0, 7).number(2, 0, 6).number(2, 0, 3).number(1, 0, 300).data())


def shared_memory():
    """Streams beside an honest peer, one whose memory changes, one that goes, and each other kind of input."""
    def stream(server, lent=False):
        return Choices().number(7, 0, 7).boolean(server).boolean(False).boolean(lent)

    def message(to, size):
        return to.number(0, 0, 15).number(size, 0, 3000)

    def turn(to, what=0):
        return to.number(8, 0, 15).number(what, 0, 7)

    for server in (False, True):
        name = "server" if server else "client"
        honest = stream(server)
        for size in (0, 10, 3000, 900, 1):
            turn(turn(message(honest, size), 3), 4)
        seed("shm_stream", name + "_with_an_honest_peer", honest.data())
        lent = stream(server, lent=True)
        for size in (10, 2000, 3000, 1500, 1):
            turn(message(lent, size))
            if size <= 2048:
                lent.number(size // 3, 0, size).number(size // 2, 0, size - size // 3)
        seed("shm_stream", name + "_that_is_lent_messages", lent.data())
        changed = turn(message(stream(server, lent=True).number(5, 0, 15).number(1, 0, 3), 100))
        changed.number(10, 0, 100).number(90, 0, 90).boolean(True).number(3, 0, 3)
        changed.number(4096 + (0 if server else 4096) + 50, 0, 3 * 4096 - 1).text(b"!" * 60, 64)
        changed.number(1, 0, 3).boolean(False).number(0, 0, 2).number(1, 0, (1 << 32) - 1)
        seed("shm_stream", name + "_whose_lent_message_changes", turn(message(changed, 200)).data())
        changed = stream(server).number(5, 0, 15).number(3, 0, 3).number(6, 0, 15).boolean(True)
        for size in (100, 200):
            turn(message(changed, size))
        changed.number(0, 0, 3).boolean(True).number(2, 0, 2).number(1, -32768, 32767)
        for size in (300, 400):
            turn(message(changed, size))
        seed("shm_stream", name + "_whose_memory_changes_in_a_turn", changed.data())
        sends = stream(server)
        for size in (20000, 5000):
            turn(sends.number(8, 0, 15).number(6, 0, 7).number(size, 0, 20000)).number(7, 0, 15)
        turn(sends, 7).boolean(True)
        seed("shm_stream", name + "_that_sends_and_closes", sends.data())
        head = stream(server).number(2, 0, 15).number(2, 0, 3).boolean(True).boolean(True).number(0, 0, 65535).boolean(False).text(b"", 100)
        seed("shm_stream", name + "_whose_peer_ends", turn(head).data())
        packet = stream(server).number(4, 0, 15).text(b"e\x05gone", 40)
        seed("shm_stream", name + "_that_is_told_to_end", turn(packet, 4).data())
    hello = Choices().number(1, 0, 7).boolean(False).boolean(False).boolean(True).number(16, 0, 16).text(b"t" * 16, 40)
    hello.number(1, 0, 2).boolean(True).number(3, 0, 4)
    seed("shm_stream", "hello", hello.data())
    answer = Choices().number(2, 0, 7).boolean(True).text(b"t" * 16, 40).boolean(True).boolean(False).boolean(False)
    answer.front += b"k"
    seed("shm_stream", "accepted", answer.data())
    for number in range(3):
        seed("shm_stream", f"random_{number}", random.Random(number).randbytes(200 << 2 * number))


choices()
greetings()
gloo_messages()
requests()
shared_memory()
orders()
configs()
dictionaries()
peers()
frames()
data()
manifests()
