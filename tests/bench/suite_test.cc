#include "bench/suite.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "common/optimizer/update_rule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::bench {
namespace {

google::protobuf::ListValue Parse(const std::string& json) {
  google::protobuf::ListValue list;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(json, &list).ok()) << json;
  return list;
}

TEST(BenchTest, FirstRepetitionDoesNotCount) {
  int calls = 0;
  Benchmark benchmark{"n", "GB/s", "limit", [&](const Settings&) {
                        return std::function<Sample()>([&] {
                          const double values[] = {100, 5, 1, 3};
                          return Sample{values[calls++], 10};
                        });
                      }};
  Settings settings;
  settings.repetitions = 3;
  auto row = bench::Run(benchmark, settings);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->value, 3);
  EXPECT_EQ(row->min, 1);
  EXPECT_EQ(row->max, 5);
  EXPECT_EQ(row->limit, 10);
  EXPECT_DOUBLE_EQ(row->ratio, 0.3);
  EXPECT_EQ(row->repetitions, 3);
}

TEST(BenchTest, DescribesTheMachine) {
  Settings settings;
  settings.repetitions = 7;
  settings.malloc = "glibc, SOME_SETTING 1";
  const std::string text = DescribeMachine(settings);
  for (const char* part :
       {" CPUs; build type ", "; malloc: glibc, SOME_SETTING 1; ", "median of 7 repetitions"}) {
    EXPECT_THAT(text, ::testing::HasSubstr(part));
  }
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("--quick")));
  settings.quick = true;
  EXPECT_THAT(DescribeMachine(settings), ::testing::HasSubstr("WARNING: --quick"));
#ifndef NDEBUG
  EXPECT_THAT(text, ::testing::HasSubstr("WARNING: asserts are on"));
#else
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("asserts")));
#endif
}

TEST(BenchTest, RowsTakeTurns) {
  std::string order;
  const auto row = [&order](char name, int few) {
    Benchmark benchmark;
    benchmark.name = name;
    benchmark.few_repetitions = few;
    benchmark.prepare = [&order, name](const Settings&) -> absl::StatusOr<std::function<Sample()>> {
      return std::function<Sample()>([&order, name] {
        order += name;
        return Sample{static_cast<double>(order.size()), 1};
      });
    };
    return benchmark;
  };
  const Benchmark a = row('a', 0), b = row('b', 2);
  Settings settings;
  settings.repetitions = 3;
  const auto rows = bench::RunInTurns({&a, &b}, settings);
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(order, "aababa");  // the first run of each row is a warm-up
  ASSERT_EQ(rows->size(), 2);
  EXPECT_EQ((*rows)[0].value, 4);  // the median of 2, 4, 6
  EXPECT_EQ((*rows)[1].value, 4);  // the median of 3, 5
  EXPECT_EQ((*rows)[1].name, "b");
  EXPECT_EQ((*rows)[1].repetitions, 2);
}

TEST(BenchTest, FailedMeasurementNamesItsRow) {
  const Benchmark broken = {"broken", "s", "limit", [](const Settings&) {
                              return std::function<Sample()>([] { return Sample(); });
                            }};
  const auto row = bench::Run(broken, Settings());
  EXPECT_THAT(std::string(row.status().message()), testing::HasSubstr("broken"));
}

TEST(BenchTest, QuickRunWritesEveryRowWithItsLimit) {
  const char* bin = std::getenv("SLUICE_BIN_DIR");
  ASSERT_NE(bin, nullptr) << "run by ctest, or set SLUICE_BIN_DIR to the folder of sluice-bench";
  const std::string json = absl::StrCat(::testing::TempDir(), "/sluice_bench_", getpid(), ".json");
  // The filter keeps one row per mode of those that launch a job.
  ASSERT_EQ(
      std::system(
          absl::StrCat(
              bin, "/sluice-bench --quick '--filter=^(?!train/)|batch512/sgd|async/adult' --json=",
              json, " > /dev/null")
              .c_str()),
      0);
  std::stringstream text;
  text << std::ifstream(json).rdbuf();
  unlink(json.c_str());
  std::set<std::string> names;
  const google::protobuf::ListValue rows = Parse(text.str());
  for (const auto& value : rows.values()) {
    const auto& row = value.struct_value().fields();
    names.insert(row.at("name").string_value());
    EXPECT_EQ(row.size(), 9);
    for (const char* field : {"value", "limit", "ratio", "min", "max", "repetitions"}) {
      const double x = row.at(field).number_value();
      EXPECT_TRUE(std::isfinite(x) && x > 0)
          << row.at("name").string_value() << " " << field << " " << x;
    }
    EXPECT_FALSE(row.at("unit").string_value().empty());
    EXPECT_FALSE(row.at("limit_name").string_value().empty());
  }
  for (const std::string& rule : RuleNames())
    EXPECT_EQ(names.count(absl::StrCat("kernel/", rule, "/f32")), 1) << rule;
  for (const char* name : {"row_store/pull/dim16",
                           "row_store/pull/dim10",
                           "row_store/push_sgd/dim10",
                           "row_store/push_adagrad/dim16",
                           "round_trip/4KiB",
                           "stream_push/4MiB",
                           "dense_push/4MiB",
                           "dense_pull/256MiB",
                           "dense_push_pull/4KiB",
                           "sparse_pull/dim10/zipf",
                           "sparse_push/dim16/uniform",
                           "workers4/sparse_push/dim10/zipf",
                           "workers4/dense_push/4MiB",
                           "round_trip/shm/4KiB",
                           "dense_push/shm/64MiB",
                           "dense_pull/shm/4MiB/memcpy",
                           "sparse_push/dim16/uniform/shm",
                           "train_step/async/batch2048/f32",
                           "dedup/host/standard/batch16384",
                           "collective/allreduce/shm/4KiB/ranks2",
                           "train/async/batch512/sgd/f32",
                           "train/sync/batch512/sgd/f32",
                           "train/sync/batch512/sgd/f32/shm",
                           "train/sync/batch512/sgd/f32/collective_dense",
                           "train/async/adult/shm",
                           "tls/train/async/batch2048/sgd/f32/shm",
                           "train/geo100/batch512/sgd/f32"}) {
    EXPECT_EQ(names.count(name), 1) << name;
  }
}

TEST(BenchTest, GpuRowsAreSkippedWithAReason) {
  const char* bin = std::getenv("SLUICE_BIN_DIR");
  ASSERT_NE(bin, nullptr);
  const std::string json = absl::StrCat(::testing::TempDir(), "/sluice_gpu_", getpid(), ".json");
  const std::string out = json + ".out";
  // Hides all devices of the machine.
  ASSERT_EQ(std::system(absl::StrCat("CUDA_VISIBLE_DEVICES= ", bin,
                                     "/sluice-bench --quick --filter=train_step/gpu --json=", json,
                                     " > ", out)
                            .c_str()),
            0);
  const auto read = [](const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    std::remove(path.c_str());
    return text.str();
  };
  EXPECT_THAT(read(out), testing::HasSubstr(
                             "train_step/gpu/standard/batch65536/f32  skipped: no CUDA device"));
  EXPECT_EQ(Parse(read(json)).values_size(), 0);
}

TEST(BenchTest, FilterThatMatchesNothingFails) {
  const char* bin = std::getenv("SLUICE_BIN_DIR");
  ASSERT_NE(bin, nullptr);
  EXPECT_NE(std::system(
                absl::StrCat(
                    bin, "/sluice-bench --quick --filter=nothing_so_named 2> /dev/null > /dev/null")
                    .c_str()),
            0);
}

}  // namespace
}  // namespace sluice::bench
