#include "client/save_shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/client/two_tables.h"
#include "tests/common/transport/in_process_transport.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

class SaveShardsTest : public ::testing::Test {
 protected:
  // The pserver at `address` answers with a file of this name, or with an error.
  void Answer(const std::string& address, absl::StatusOr<std::string> file) {
    transport_.RegisterUnary(address, "/sluice.Pserver/SaveShards",
                             [file](const std::string& text) -> absl::StatusOr<std::string> {
                               SaveShardsRequest request;
                               if (!request.ParseFromString(text) || request.generation() != 3 ||
                                   request.job_id() != "job-1") {
                                 return absl::InvalidArgumentError("not the request");
                               }
                               if (!file.ok()) return file.status();
                               SaveShardsReply reply;
                               reply.add_files()->set_name(*file);
                               return reply.SerializeAsString();
                             });
  }
  absl::StatusOr<std::vector<SavedFile>> Save(const Route& route) {
    SaveShardsRequest request;
    request.set_job_id("job-1");
    return SaveShardsOnce(&transport_, route, std::move(request));
  }

  InProcessTransport transport_;
};

TEST_F(SaveShardsTest, ReturnsTheFilesOfEveryOwnerByName) {
  Answer("a", std::string("2"));
  Answer("b", std::string("1"));
  // No pserver is at "idle", which owns no shard.
  const auto files = Save(RouteTo(3, {"a", "idle", "b"}, {0, 0, 2, 2, 0, 0, 2}));
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_EQ(files->size(), 2u);
  EXPECT_EQ((*files)[0].name(), "1");
  EXPECT_EQ((*files)[1].name(), "2");
}

TEST_F(SaveShardsTest, ReturnsThePserversErrorWithItsAddress) {
  Answer("a", std::string("1"));
  Answer("b", absl::DataLossError("disk full"));
  const absl::Status status = Save(TwoPservers(3)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("pserver at b"));
}

}  // namespace
}  // namespace sluice
