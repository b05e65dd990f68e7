#include "common/saved_model/manifest.h"

#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

Manifest CheckpointManifest() {
  Manifest manifest;
  manifest.set_version(3);
  manifest.set_job_id("a-1");
  manifest.mutable_checkpoint()->set_global_step(40);
  manifest.mutable_checkpoint()->add_workers()->set_net_state(
      std::string("\0\xff\n\"crc32c: 1", 14));
  return manifest;
}

TEST(ManifestTest, AManifestIsReadBackWithItsChecksumChecked) {
  const Manifest manifest = CheckpointManifest();
  const auto text = PrintManifest("p", manifest);
  ASSERT_TRUE(text.ok());
  EXPECT_TRUE(absl::StrContains(*text, "\ncrc32c: ")) << *text;
  const auto read = ParseManifest("p", *text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(*read, manifest));
}

TEST(ManifestTest, EveryPrefixAndEveryFlippedBitIsDataLossThatNamesTheFile) {
  google::protobuf::LogSilencer silencer;
  const std::string good = *PrintManifest("dir/MANIFEST", CheckpointManifest());
  std::vector<std::string> bad;
  for (size_t size = 0; size < good.size(); ++size) bad.push_back(good.substr(0, size));
  for (size_t i = 0; i < 8 * good.size(); ++i) {
    bad.push_back(good);
    bad.back()[i / 8] = static_cast<char>(bad.back()[i / 8] ^ (1 << i % 8));
  }
  for (const std::string& text : bad) {
    const absl::Status status = ParseManifest("dir/MANIFEST", text).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << status << "\n" << text;
    ASSERT_THAT(std::string(status.message()), HasSubstr("dir/MANIFEST"));
  }
}

TEST(ManifestTest, AnErrorOfAnyTextNamesFileAndPlace) {
  JobConfig job;
  const absl::Status status = ParseModelText("dir/job.textproto", "name: \"a\"\nnone: 1\n", &job);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("dir/job.textproto"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("line 2"));
}

}  // namespace
}  // namespace sluice
