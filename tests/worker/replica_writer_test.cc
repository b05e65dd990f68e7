#include "worker/replica_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/common/saved_model/memory_env.h"
#include "tests/worker/fakes.h"

namespace sluice {
namespace {

constexpr char kSaveId[] = "0123456789abcdef";

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
