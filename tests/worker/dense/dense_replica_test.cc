// The worker's copy of a dense table against the pserver's shards, to the bit.
#include "worker/dense/dense_replica.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/optimizer/update_rule.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/saved_model.h"
#include "server/checkpoints/model_loader.h"
#include "server/shards/shard.h"
#include "tests/common/optimizer/every_rule.h"
#include "tests/common/saved_model/memory_env.h"
#include "tests/worker/fakes.h"

namespace sluice {
namespace {

constexpr char kSaveId[] = "0123456789abcdef";
constexpr uint64_t kReplicaRows = 300;  // two blocks
constexpr uint64_t kReplicaColumns = 1000;

TableLayouts DenseReplicaTables(const OptimizerConfig& optimizer,
                                TableConfig::UpdateAt at = TableConfig::COLLECTIVE) {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  for (const char* name : {"large", "small"}) {
    TableConfig* const table = tables.Add();
    table->set_name(name);
    table->set_kind(TableConfig::DENSE);
    if (name[0] == 'l') table->add_shape(kReplicaRows);
    table->add_shape(name[0] == 'l' ? kReplicaColumns : 7);
    table->mutable_initializer()->mutable_uniform()->set_max(1);
    *table->mutable_optimizer() = optimizer;
    table->set_update_at(at);
  }
  return *CreateTableLayouts(tables, /*seed=*/3);
}

std::vector<float> Gradient(uint64_t seed, size_t n) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> gradient(n);
  for (float& value : gradient) value = normal(random);
  return gradient;
}

// The shards of the same tables on one pserver, in sync with one worker.
struct Pserver {
  explicit Pserver(const OptimizerConfig& optimizer)
      : layouts(DenseReplicaTables(optimizer, TableConfig::PSERVER)) {
    UpdatePolicy policy;
    policy.mode = Mode::kSync;
    for (const auto& table : layouts) {
      shards.emplace_back();
      for (uint32_t s = 0; s < table->num_shards(); ++s)
        shards.back().push_back(MakeDenseShard(table, s, policy));
    }
  }
  void Step(uint64_t step, const std::vector<std::vector<float>>& gradients) {
    for (size_t t = 0; t < layouts.size(); ++t) {
      for (const auto& shard : shards[t]) {
        const uint64_t first = shard->index() * layouts[t]->block_elements();
        PushPart part;
        part.rows = static_cast<uint32_t>(layouts[t]->ShardElements(shard->index()));
        part.values.assign(gradients[t].begin() + first, gradients[t].begin() + first + part.rows);
        FrameId frame;
        frame.incarnation = 1;
        frame.sequence = step + 1;
        frame.weight = 4;
        EXPECT_EQ(shard->Apply(frame, &part).status, PART_OK);
        shard->CloseStep(step + 1);
      }
    }
  }
  std::vector<float> Values(size_t t) {
    std::vector<float> values(layouts[t]->elements());
    for (const auto& shard : shards[t]) {
      shard->Read(nullptr, 0,
                  reinterpret_cast<uint8_t*>(values.data() +
                                             shard->index() * layouts[t]->block_elements()));
    }
    return values;
  }
  // Writes a checkpoint (or a model) of the shards as they are.
  void Save(const std::string& dir, bool state, uint64_t step, Env* env) {
    std::vector<SavedFile> files;
    for (const auto& table : shards) {
      for (const auto& shard : table) {
        CutOptions options;
        options.state = state;
        const auto cut = shard->BeginCut(options);
        const auto file =
            WriteShardFile(dir, shard->table(), shard->index(), cut.get(), env, kSaveId);
        ASSERT_TRUE(file.ok()) << file.status();
        files.push_back(*file);
      }
    }
    Commit(dir, layouts, files, state, step, env);
  }
  static void Commit(const std::string& dir, const TableLayouts& layouts,
                     const std::vector<SavedFile>& files, bool state, uint64_t step, Env* env) {
    Manifest manifest;
    manifest.set_global_step(step);
    for (const auto& table : layouts) *manifest.add_tables() = table->config();
    for (const SavedFile& file : files) *manifest.add_files() = file;
    if (!state) {
      const auto model = FinishModel(dir, JobConfig(), manifest, env, kSaveId);
      ASSERT_TRUE(model.ok()) << model.status();
      return;
    }
    manifest.mutable_checkpoint()->set_mode("sync");
    manifest.mutable_checkpoint()->set_worker_num(1);
    manifest.mutable_checkpoint()->set_global_step(step);
    const absl::Status committed = CommitCheckpoint(dir, JobConfig(), manifest, env, kSaveId);
    ASSERT_TRUE(committed.ok()) << committed;
  }

  TableLayouts layouts;
  ShardTable shards;
};

std::vector<float> Values(const DenseReplica& replica, size_t t) {
  return {replica.values(t), replica.values(t) + replica.tables()[t]->elements()};
}

std::vector<std::vector<float>> Gradients(uint64_t step) {
  return {Gradient(2 * step, kReplicaRows * kReplicaColumns), Gradient(2 * step + 1, 7)};
}

void Step(DenseReplica* replica, uint64_t step) {
  const auto gradients = Gradients(step);
  for (size_t t = 0; t < 2; ++t) replica->Update(t, gradients[t].data());
  replica->CloseStep();
}

void SaveReplica(const DenseReplica& replica, const std::string& dir, bool state, Env* env) {
  const auto files = DenseReplica::Write(replica.Copy(state), dir, kSaveId, env);
  ASSERT_TRUE(files.ok()) << files.status();
  Pserver::Commit(dir, replica.tables(), *files, state, replica.closed(), env);
}

TEST(DenseReplicaTest, UpdatesAreThoseOfThePserverForEveryRuleAndSchedule) {
  for (const std::string& rule : RuleNames()) {
    for (const char* schedule : kSchedules) {
      SCOPED_TRACE(absl::StrCat(rule, " ", schedule));
      OptimizerConfig optimizer = Optimizer(rule, schedule);
      optimizer.set_clip_row_norm(20);
      Pserver pserver(optimizer);
      DenseReplica replica(DenseReplicaTables(optimizer));
      EXPECT_EQ(Values(replica, 0), pserver.Values(0));
      for (uint64_t step = 0; step < 4; ++step) {
        pserver.Step(step, Gradients(step));
        Step(&replica, step);
      }
      for (size_t t = 0; t < 2; ++t) EXPECT_EQ(Values(replica, t), pserver.Values(t));
    }
  }
}

TEST(DenseReplicaTest, AStepWithoutAnUpdateMovesTheScheduleOnly) {
  const OptimizerConfig optimizer = Optimizer("adam", "exponential");
  DenseReplica all(DenseReplicaTables(optimizer)), later(DenseReplicaTables(optimizer));
  const std::vector<float> before = Values(all, 1);
  all.CloseStep();
  EXPECT_EQ(Values(all, 1), before);
  Step(&all, 1);
  Step(&later, 1);
  EXPECT_NE(Values(all, 1), Values(later, 1)) << "the rate is that of the second step";
}

TEST(DenseReplicaTest, ContinuesFromItsOwnCheckpointAndThatOfPservers) {
  for (const std::string& rule : RuleNames()) {
    SCOPED_TRACE(rule);
    const OptimizerConfig optimizer = Optimizer(rule, "polynomial");
    MemoryEnv env;
    Pserver pserver(optimizer);
    DenseReplica whole(DenseReplicaTables(optimizer));
    for (uint64_t step = 0; step < 3; ++step) {
      pserver.Step(step, Gradients(step));
      Step(&whole, step);
    }
    pserver.Save("/pserver", /*state=*/true, 3, &env);
    SaveReplica(whole, "/replica", /*state=*/true, &env);
    for (uint64_t step = 3; step < 6; ++step) Step(&whole, step);
    for (const char* dir : {"/pserver", "/replica"}) {
      DenseReplica resumed(DenseReplicaTables(optimizer));
      const absl::Status loaded =
          resumed.Load({dir, /*state=*/true, /*new_job=*/false, /*step=*/3}, &env);
      ASSERT_TRUE(loaded.ok()) << loaded;
      EXPECT_EQ(resumed.closed(), 3u);
      for (uint64_t step = 3; step < 6; ++step) Step(&resumed, step);
      for (size_t t = 0; t < 2; ++t) EXPECT_EQ(Values(resumed, t), Values(whole, t)) << dir;
    }
  }
}

TEST(DenseReplicaTest, PserversContinueFromItsCheckpoint) {
  const OptimizerConfig optimizer = Optimizer("adam", "cosine");
  MemoryEnv env;
  DenseReplica replica(DenseReplicaTables(optimizer));
  for (uint64_t step = 0; step < 3; ++step) Step(&replica, step);
  SaveReplica(replica, "/replica", /*state=*/true, &env);
  Pserver pserver(optimizer);
  LoadProgress progress;
  ModelLoader::Options options;
  options.directory = "/replica";
  options.state = true;
  options.step = 3;
  options.env = &env;
  options.progress = &progress;
  const absl::Status loaded = ModelLoader(options, pserver.layouts, &pserver.shards).Load();
  ASSERT_TRUE(loaded.ok()) << loaded;
  Step(&replica, 3);
  pserver.Step(3, Gradients(3));
  for (size_t t = 0; t < 2; ++t) EXPECT_EQ(Values(replica, t), pserver.Values(t));
}

TEST(DenseReplicaTest, PserversLeaveItsTablesOut) {
  const OptimizerConfig optimizer = Optimizer("adam", "constant");
  MemoryEnv env;
  SaveReplica(DenseReplica(DenseReplicaTables(optimizer)), "/replica", /*state=*/true, &env);
  const TableLayouts layouts = DenseReplicaTables(optimizer);
  EXPECT_EQ(layouts[0]->num_shards(), 0u);
  ShardTable shards(layouts.size());
  LoadProgress progress;
  ModelLoader::Options options;
  options.directory = "/replica";
  options.state = true;
  options.env = &env;
  options.progress = &progress;
  EXPECT_TRUE(ModelLoader(options, layouts, &shards).Load().ok());
  EXPECT_EQ(progress.planned(), 0u);
}

TEST(DenseReplicaTest, ModelsHaveTheValuesAlone) {
  const OptimizerConfig optimizer = Optimizer("momentum", "constant");
  MemoryEnv env;
  DenseReplica replica(DenseReplicaTables(optimizer));
  for (uint64_t step = 0; step < 2; ++step) Step(&replica, step);
  SaveReplica(replica, "/model", /*state=*/false, &env);
  DenseReplica loaded(DenseReplicaTables(optimizer)), fresh(DenseReplicaTables(optimizer));
  ASSERT_TRUE(loaded.Load({"/model", false, false, {}}, &env).ok());
  EXPECT_EQ(Values(loaded, 0), Values(replica, 0));
  EXPECT_EQ(loaded.closed(), 0u);
  // The same gradient moves the values as it moves fresh ones: there is no momentum yet.
  const std::vector<float> before = Values(loaded, 1), start = Values(fresh, 1);
  Step(&loaded, 5);
  Step(&fresh, 5);
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_NEAR(Values(loaded, 1)[i] - before[i], Values(fresh, 1)[i] - start[i], 1e-6);
  EXPECT_EQ(loaded.Load({"/model", true, false, {}}, &env).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(DenseReplicaTest, ANewJobTakesStateAndScheduleButNoSteps) {
  const OptimizerConfig optimizer = Optimizer("adam", "exponential");
  MemoryEnv env;
  DenseReplica first(DenseReplicaTables(optimizer));
  for (uint64_t step = 0; step < 4; ++step) Step(&first, step);
  SaveReplica(first, "/day1", /*state=*/true, &env);
  DenseReplica second(DenseReplicaTables(optimizer));
  ASSERT_TRUE(second.Load({"/day1", true, /*new_job=*/true, {}}, &env).ok());
  EXPECT_EQ(second.closed(), 0u);
  Step(&first, 4);
  Step(&second, 4);
  EXPECT_EQ(Values(second, 0), Values(first, 0));
}

TEST(DenseReplicaTest, RowsOfANewJobComeFromWhereItsFeaturesWere) {
  const OptimizerConfig optimizer = Optimizer("adam", "exponential");
  MemoryEnv env;
  DenseReplica first(DenseReplicaTables(optimizer));
  for (uint64_t step = 0; step < 4; ++step) Step(&first, step);
  SaveReplica(first, "/day1", /*state=*/true, &env);
  // Rows 260 to 299, 3 new rows, rows 0 to 255: one block more is not needed, and borders move.
  google::protobuf::RepeatedPtrField<TableConfig> configs;
  for (const auto& table : DenseReplicaTables(optimizer)) *configs.Add() = table->config();
  configs[0].set_shape(0, 299);
  TableStart* const start = configs[0].mutable_start();
  start->set_table("large");
  for (const auto& [from, to, count] :
       {std::array<uint64_t, 3>{260, 0, 40}, std::array<uint64_t, 3>{0, 43, 256}}) {
    TableStart::Run* const run = start->add_rows();
    run->set_from(from), run->set_to(to), run->set_count(count);
  }
  const TableLayouts tables = *CreateTableLayouts(configs, 3);
  const auto expect = [&](DenseReplica* second, size_t arrays) {
    const DenseReplica fresh(tables);
    const auto from = first.Arrays(), to = second->Arrays();  // large, its state, small, its state
    const size_t now = 299 * kReplicaColumns, was = kReplicaRows * kReplicaColumns;
    for (size_t array = 0; array < 3; ++array) {
      const float* const a = array == 0 ? from[0].data() : from[1].data() + (array - 1) * was;
      const float* const b = array == 0 ? to[0].data() : to[1].data() + (array - 1) * now;
      const bool moved = array < arrays;
      const auto same = [&](size_t old_row, size_t row, size_t rows) {
        return std::memcmp(a + old_row * kReplicaColumns, b + row * kReplicaColumns,
                           rows * kReplicaColumns * sizeof(float)) == 0;
      };
      EXPECT_EQ(same(260, 0, 40), moved) << array;
      EXPECT_EQ(same(0, 43, 256), moved) << array;
      if (array == 0) {
        EXPECT_EQ(std::memcmp(fresh.values(0) + 40 * kReplicaColumns, b + 40 * kReplicaColumns,
                              3 * kReplicaColumns * sizeof(float)),
                  0);
      } else {
        EXPECT_EQ(std::count(b + 40 * kReplicaColumns, b + 43 * kReplicaColumns, 0.0f),
                  3 * kReplicaColumns);
      }
    }
    EXPECT_EQ(Values(*second, 1), Values(first, 1));
  };
  DenseReplica second(tables);
  ASSERT_TRUE(second.Load({"/day1", true, /*new_job=*/true, {}}, &env).ok());
  expect(&second, 3);
  EXPECT_EQ(second.Counts()[1], first.Counts()[1]);
  DenseReplica values(tables);
  ASSERT_TRUE(values.Load({"/day1", false, false, {}}, &env).ok());
  expect(&values, 1);
  // A job that continues has its own tables.
  EXPECT_EQ(DenseReplica(tables).Load({"/day1", true, false, {}}, &env).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(DenseReplicaTest, RefusesOtherTablesRulesAndSteps) {
  const OptimizerConfig adam = Optimizer("adam", "constant");
  MemoryEnv env;
  SaveReplica(DenseReplica(DenseReplicaTables(adam)), "/replica", /*state=*/true, &env);
  DenseReplica other(DenseReplicaTables(Optimizer("sgd", "constant")));
  EXPECT_EQ(other.Load({"/replica", true, false, {}}, &env).code(),
            absl::StatusCode::kInvalidArgument);
  DenseReplica same((DenseReplicaTables(adam)));
  EXPECT_EQ(same.Load({"/replica", true, false, 8}, &env).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(same.Load({"/nowhere", true, false, {}}, &env).code(), absl::StatusCode::kNotFound);
}

TEST(DenseReplicaTest, ADamagedFileIsNamed) {
  const OptimizerConfig adam = Optimizer("adam", "constant");
  MemoryEnv env;
  SaveReplica(DenseReplica(DenseReplicaTables(adam)), "/replica", /*state=*/true, &env);
  const std::string name = absl::StrCat("large-1.", kSaveId, ".shard");
  std::string bytes = env.Get("/replica/" + name);
  ASSERT_GT(bytes.size(), 1000u);
  bytes[bytes.size() / 2] ^= 1;
  env.Put("/replica/" + name, bytes);
  DenseReplica replica((DenseReplicaTables(adam)));
  const absl::Status status = replica.Load({"/replica", true, false, {}}, &env);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(name));
}

TEST(DenseReplicaTest, AnImageStaysAsItWas) {
  const OptimizerConfig adam = Optimizer("adam", "constant");
  MemoryEnv env;
  DenseReplica replica((DenseReplicaTables(adam)));
  Step(&replica, 0);
  const std::vector<float> then = Values(replica, 0);
  const DenseReplica::Image image = replica.Copy(/*state=*/true);
  Step(&replica, 1);
  const auto files = DenseReplica::Write(image, "/image", kSaveId, &env);
  ASSERT_TRUE(files.ok()) << files.status();
  Pserver::Commit("/image", replica.tables(), *files, true, 1, &env);
  DenseReplica loaded((DenseReplicaTables(adam)));
  ASSERT_TRUE(loaded.Load({"/image", true, false, 1}, &env).ok());
  EXPECT_EQ(Values(loaded, 0), then);
}

// A disk on which files wait until they may be written.
class SlowEnv : public MemoryEnv {
 public:
  absl::Status WriteFile(const std::string& path,
                         absl::Span<const absl::string_view> pieces) override {
    if (may_write.has_value()) may_write->wait();
    return MemoryEnv::WriteFile(path, pieces);
  }
  std::optional<std::shared_future<void>> may_write;
};

class ReplicaWriterTest : public ::testing::Test {
 protected:
  static DenseReplica MakeReplica() {
    google::protobuf::RepeatedPtrField<TableConfig> tables;
    *tables.Add() = SgdTable("dense", TableConfig::DENSE, 2, 1.0f);
    return DenseReplica(*CreateTableLayouts(tables, 1));
  }
  ReplicaWriter::Done Into(absl::StatusOr<std::vector<SavedFile>>* files) {
    return [files](const auto& written) { *files = written; };
  }

  SlowEnv env_;
  DenseReplica replica_ = MakeReplica();
  absl::StatusOr<std::vector<SavedFile>> first_ = absl::UnknownError("not yet");
  absl::StatusOr<std::vector<SavedFile>> second_ = absl::UnknownError("not yet");
  std::optional<ReplicaWriter> writer_{std::in_place, &env_};
};

TEST_F(ReplicaWriterTest, WritesTheReplicaAsItIsAtTheCall) {
  std::promise<void> go;
  env_.may_write = go.get_future().share();
  writer_->Start(replica_, "/a", kSaveId, Into(&first_));
  const float gradient[] = {1, 1};
  replica_.Update(0, gradient);
  go.set_value();
  writer_.reset();  // waits for the files
  ASSERT_TRUE(first_.ok()) << first_.status();
  writer_.emplace(&env_);
  writer_->Start(MakeReplica(), "/b", kSaveId, Into(&second_));
  writer_.reset();
  ASSERT_TRUE(second_.ok()) << second_.status();
  ASSERT_EQ(first_->size(), 1u);
  EXPECT_EQ((*first_)[0].SerializeAsString(), (*second_)[0].SerializeAsString());
}

TEST_F(ReplicaWriterTest, AValueThatAnUpdateMadeInfiniteIsNamedAndNotWritten) {
  EXPECT_TRUE(replica_.finite().ok());
  const float gradient[] = {1, INFINITY};
  replica_.Update(0, gradient);
  EXPECT_EQ(replica_.finite().code(), absl::StatusCode::kOutOfRange);
  EXPECT_NE(replica_.finite().message().find("element 1 "), std::string::npos);
  writer_->Start(replica_, "/a", kSaveId, Into(&first_));
  writer_.reset();  // waits for the files
  EXPECT_EQ(first_.status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(ReplicaWriterTest, ASecondCheckpointIsRefusedWhileTheFirstIsWritten) {
  std::promise<void> go;
  env_.may_write = go.get_future().share();
  writer_->Start(replica_, "/a", kSaveId, Into(&first_));
  writer_->Start(replica_, "/b", kSaveId, Into(&second_));
  EXPECT_TRUE(absl::IsUnavailable(second_.status())) << second_.status();
  go.set_value();
  writer_.reset();
  EXPECT_TRUE(first_.ok()) << first_.status();
}

// The callback runs without the writer's lock, and after its work.
TEST_F(ReplicaWriterTest, DoneMayStartTheNextFiles) {
  writer_->Start(replica_, "/a", kSaveId, [&, writer = &*writer_](const auto& written) {
    first_ = written;
    writer->Start(replica_, "/b", kSaveId, Into(&second_));
  });
  writer_.reset();
  EXPECT_TRUE(first_.ok()) << first_.status();
  EXPECT_TRUE(second_.ok()) << second_.status();
}

TEST_F(ReplicaWriterTest, ARefusedCallMayStartAnotherOne) {
  std::promise<void> go;
  env_.may_write = go.get_future().share();
  writer_->Start(replica_, "/a", kSaveId, Into(&first_));
  bool refused_twice = false;
  writer_->Start(replica_, "/b", kSaveId, [&](const auto&) {
    writer_->Start(replica_, "/c", kSaveId,
                   [&](const auto& files) { refused_twice = absl::IsUnavailable(files.status()); });
  });
  EXPECT_TRUE(refused_twice);
  go.set_value();
  writer_.reset();
  EXPECT_TRUE(first_.ok()) << first_.status();
}

}  // namespace
}  // namespace sluice
