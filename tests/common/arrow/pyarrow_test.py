"""Parquet files of every kind that pyarrow writes come back from common/arrow as they were, also through its writer."""
import base64
import datetime
import decimal
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
    import pyarrow.parquet.encryption as pe
except ImportError as error:
    print("SKIPPED, NOT PASSED: pyarrow_test needs pyarrow (./dev arrow): %s" % error, file=sys.stderr)
    sys.exit(77)

COPY = pathlib.Path(os.environ.get("SLUICE_TEST_BIN_DIR", "build/release/tests/bin")) / "parquet_copy"
ROWS = 700


def columns_of_every_type():
    """A table of ROWS rows; each seventh value is null."""
    day = datetime.datetime(2026, 2, 3, 4, 5, 6)

    def column(kind, make):
        return pa.array([None if row % 7 == 3 else make(row) for row in range(ROWS)], kind)

    columns = {}
    for name in ("int8", "int16", "int32", "int64"):
        columns[name] = column(getattr(pa, name)(), lambda row: row % 250 - 125)
        columns["u" + name] = column(getattr(pa, "u" + name)(), lambda row: row % 250)
    columns["uint64_large"] = column(pa.uint64(), lambda row: 2**64 - 1 - row)
    columns["bool"] = column(pa.bool_(), lambda row: row % 3 == 0)
    columns["float"] = column(pa.float32(), lambda row: float("nan") if row == 5 else row / 7)
    columns["double"] = column(pa.float64(), lambda row: float("inf") if row == 5 else row / 7)
    columns["half"] = column(pa.float32(), lambda row: row / 8).cast(pa.float16())
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        columns[str(kind)] = column(kind, lambda row: "" if row % 4 == 0 else "text %d é" % (row % 20))
    for kind in (pa.binary(), pa.large_binary(), pa.binary(4)):
        columns[str(kind)] = column(kind, lambda row: b"\0\xff%02d" % (row % 50))
    columns["date32"] = column(pa.date32(), lambda row: day.date() + datetime.timedelta(row))
    columns["time32"] = column(pa.time32("ms"), lambda row: datetime.time(row % 24, 1, 2, 3000))
    columns["time64"] = column(pa.time64("us"), lambda row: datetime.time(row % 24, 1, 2, 3))
    for unit in ("ms", "us", "ns"):
        columns["timestamp " + unit] = column(pa.timestamp(unit), lambda row: day + datetime.timedelta(hours=row))
        columns["zoned " + unit] = column(pa.timestamp(unit, "Europe/Vienna"), lambda row: day + datetime.timedelta(hours=row))
    columns["duration"] = column(pa.duration("us"), lambda row: datetime.timedelta(seconds=row))
    columns["decimal128"] = column(pa.decimal128(12, 3), lambda row: decimal.Decimal(row * 1001).scaleb(-3))
    columns["decimal256"] = column(pa.decimal256(50, 3), lambda row: decimal.Decimal(row * 10**30 + 7).scaleb(-3))
    columns["texts"] = column(pa.list_(pa.string()), lambda row: ["t%d" % (i % 5) if i % 3 else None for i in range(row % 6)])
    columns["numbers"] = column(pa.large_list(pa.int64()), lambda row: list(range(row % 6)))
    columns["weights"] = pa.array([[row / 3, row / 5, -row] for row in range(ROWS)], pa.list_(pa.float32(), 3))
    columns["struct"] = column(pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]),
                               lambda row: {"a": row, "b": ["x"] * (row % 3)})
    columns["map"] = column(pa.map_(pa.string(), pa.float32()), lambda row: [("k%d" % i, float(i)) for i in range(row % 4)])
    columns["category"] = column(pa.string(), lambda row: "c%d" % (row % 9)).dictionary_encode()
    columns["nothing"] = pa.nulls(ROWS)
    return pa.table(columns)


class PyarrowTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.source = os.path.join(self.folder.name, "source.parquet")
        self.target = os.path.join(self.folder.name, "target.parquet")

    def copy(self, compression="zstd", group=300, batch=128, dictionaries=0, columns=()):
        return subprocess.run([COPY, self.source, self.target, compression, *map(str, (group, batch, dictionaries)),
                               *map(str, columns)], capture_output=True, text=True, timeout=60)

    def copied(self, **options):
        ended = self.copy(**options)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return pq.read_table(self.target)

    def assert_equal(self, a, b):
        self.assertEqual(a.column_names, b.column_names)
        for name in a.column_names:
            with self.subTest(name):
                self.assertEqual(a[name].type, b[name].type)
                # NaN equals nothing.
                self.assertEqual(str(a[name].to_pylist()), str(b[name].to_pylist()))

    def test_times_of_int96_may_have_any_year(self):
        times = pa.array([datetime.datetime(9999, 12, 31), datetime.datetime(1600, 6, 1, 1, 2, 3, 4), datetime.datetime(2026, 1, 1), None],
                         pa.timestamp("us"))
        pq.write_table(pa.table({"t": times}), self.source, use_deprecated_int96_timestamps=True)
        self.assertEqual(self.copied()["t"].to_pylist(), times.to_pylist())

    def test_every_type_comes_back(self):
        table = columns_of_every_type()
        pq.write_table(table, self.source, row_group_size=250)
        wanted = pq.read_table(self.source)
        for compression in ("none", "snappy", "zstd", "gzip", "lz4"):
            with self.subTest(compression):
                self.assert_equal(self.copied(compression=compression), wanted)
                metadata = pq.read_metadata(self.target)
                self.assertEqual([metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)], [300, 300, 100])
                self.assertEqual(metadata.row_group(0).column(0).compression,
                                 {"none": "UNCOMPRESSED", "lz4": "LZ4"}.get(compression, compression.upper()))

    def test_all_ways_to_store_them_are_read(self):
        table = columns_of_every_type()
        plain = table.select(["int64", "double", "float", "string", "texts"])
        for options in ({"version": "1.0"}, {"data_page_version": "2.0"}, {"use_dictionary": False}, {"compression": "brotli"},
                        {"data_page_size": 64}, {"write_statistics": False}, {"store_schema": False},
                        {"use_dictionary": False, "column_encoding": {
                            "int64": "DELTA_BINARY_PACKED", "double": "BYTE_STREAM_SPLIT", "float": "PLAIN",
                            "string": "DELTA_BYTE_ARRAY", "texts.list.element": "DELTA_LENGTH_BYTE_ARRAY"}}):
            with self.subTest(options):
                pq.write_table(plain, self.source, row_group_size=250, **options)
                self.assert_equal(self.copied(), pq.read_table(self.source))

    def test_dictionaries_and_chosen_columns_keep_their_values(self):
        table = columns_of_every_type()
        pq.write_table(table, self.source, row_group_size=250)
        names = ["texts", "category", "string", "map", "large_string", "int64"]
        copied = self.copied(dictionaries=1, columns=[table.column_names.index(name) for name in names])
        self.assertEqual(copied.column_names, names)
        self.assertEqual(str(copied["string"].type), "dictionary<values=string, indices=int32, ordered=0>")
        for name in names:
            self.assertEqual(copied[name].to_pylist(), table[name].to_pylist(), name)

    def test_a_long_row_group_of_nested_columns_is_read_in_batches(self):
        table = pa.table({"texts": [["a", "b", None], None, [], ["c"]] * 50000})
        pq.write_table(table, self.source)
        for batch in (999, 65536):
            self.assert_equal(self.copied(batch=batch, group=10**6), table)

    def test_an_empty_file_has_columns_and_no_rows(self):
        table = columns_of_every_type().slice(0, 0)
        pq.write_table(table, self.source)
        self.assert_equal(self.copied(), pq.read_table(self.source))

    def test_encrypted_files_are_refused(self):
        class Keys(pe.KmsClient):
            def __init__(self, _):
                pe.KmsClient.__init__(self)

            def wrap_key(self, key, _):
                return base64.b64encode(key)

            def unwrap_key(self, key, _):
                return base64.b64decode(key)

        table = pa.table({"open": [1, 2, 3], "secret": [4, 5, 6]})
        for plaintext_footer in (False, True):
            with self.subTest(plaintext_footer=plaintext_footer):
                config = pe.EncryptionConfiguration(footer_key="footer", column_keys={"column": ["secret"]},
                                                    plaintext_footer=plaintext_footer)
                properties = pe.CryptoFactory(Keys).file_encryption_properties(pe.KmsConnectionConfig(), config)
                with pq.ParquetWriter(self.source, table.schema, encryption_properties=properties) as writer:
                    writer.write_table(table)
                ended = self.copy()
                self.assertEqual(ended.returncode, 1)
                self.assertIn("UNIMPLEMENTED", ended.stderr)
                self.assertIn("encrypted", ended.stderr)


if __name__ == "__main__":
    unittest.main()
