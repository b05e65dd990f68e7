#include "common/base/file_origin.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace sluice {
namespace {

constexpr FileKind kKinds[] = {FileKind::kJobConfig, FileKind::kClusterConfig, FileKind::kEndpoints,
                               FileKind::kResult,    FileKind::kEvents,        FileKind::kTrace,
                               FileKind::kShard,     FileKind::kGeoState,      FileKind::kManifest};

class FileOriginTest : public ::testing::Test {
 protected:
  FileOriginTest() {
    std::string pattern = ::testing::TempDir() + "/file_origin_test.XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
  }
  ~FileOriginTest() override { std::filesystem::remove_all(dir_); }
  std::string Write(const std::string& text) {
    const std::string path = dir_ + "/file";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  std::string dir_;
  Env* const env_ = Env::Real();
};

// How files of each kind begin or end. The tests of their writers check that they do.
const std::string kConfig = std::string(kOwnConfigLine) + "version: 1\nname: \"a\"\n";
const std::string kResult =
    "{\n  \"job\": \"a-1\",\n  \"mode\": \"sync\",\n  \"k_steps\": 0,\n  \"status\": \"done\",\n"
    "  \"global_step\": 3,\n  \"model_dir\": \"/m\",\n  \"model_digest\": \"00\"\n}\n";
const std::string kTrace =
    std::string(
        "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n], \"otherData\": {\"job\": \"a\"") +
    kOwnTraceEnd;
const std::string kManifest = "version: 1\njob_id: \"a-1\"\nmodel_digest: \"00\"\n";

TEST_F(FileOriginTest, EachKindIsRecognisedByItsContentsAlone) {
  const std::pair<FileKind, std::string> own[] = {
      {FileKind::kJobConfig, kConfig},
      {FileKind::kClusterConfig, std::string(kOwnClusterLine) + "version: 1\n"},
      {FileKind::kEndpoints, std::string(kOwnEndpointsLine) + "worker 0 - 7 -\n"},
      {FileKind::kResult, kResult},
      {FileKind::kTrace, kTrace},
      {FileKind::kShard, "SLSHARD1...."},
      {FileKind::kGeoState, std::string(kOwnGeoStateMagic) + "...."},
      {FileKind::kManifest, kManifest}};
  for (const auto& [kind, text] : own) {
    const std::string path = Write(text);
    for (const FileKind other : kKinds) EXPECT_EQ(IsOwnFile(env_, path, other), other == kind);
  }
}

TEST_F(FileOriginTest, FilesThatOnlyLookAlikeAreNotOurs) {
  const std::string foreign[] = {
      "",
      "version: 1\nname: \"a\"\n",                   // a user's job file
      "# my job\n" + kConfig,                        // our line is not the first
      "{\"job\": \"a-1\", \"status\": \"done\"}\n",  // another program's result
      "{\n  \"job\": \"a-1\",\n  \"mode\": \"sync\"\n}\n",
      "{\"traceEvents\": [], \"otherData\": {}}\n",  // another program's trace
      kTrace + "\n",                                 // text was appended to it
      std::string(12, '\0') +
          "\t12345678\x1a\x0d"
          "brain.Event:2",  // TensorFlow leaves out step 0
      "version: 1\n",
  };
  for (const std::string& text : foreign) {
    const std::string path = Write(text);
    for (const FileKind kind : kKinds) EXPECT_FALSE(IsOwnFile(env_, path, kind)) << text;
  }
  for (const FileKind kind : kKinds) {
    EXPECT_FALSE(IsOwnFile(env_, dir_, kind));
    EXPECT_FALSE(IsOwnFile(env_, dir_ + "/absent", kind));
  }
}

TEST_F(FileOriginTest, OnlyOwnOrEmptyFilesAreReplacedWithoutOverwrite) {
  const auto replaceable = [&](const std::string& path, bool overwrite) {
    return CheckReplaceable(env_, path, FileKind::kResult, overwrite, "output_dir").code();
  };
  EXPECT_EQ(replaceable(dir_ + "/absent", false), absl::StatusCode::kOk);
  EXPECT_EQ(replaceable(Write(kResult), false), absl::StatusCode::kOk);
  EXPECT_EQ(replaceable(Write(""), false), absl::StatusCode::kOk);
  EXPECT_EQ(replaceable(Write("mine"), true), absl::StatusCode::kOk);
  EXPECT_EQ(replaceable(Write("mine"), false), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(replaceable(dir_, true), absl::StatusCode::kAlreadyExists);  // a folder
  const absl::Status why =
      CheckReplaceable(env_, Write("mine"), FileKind::kResult, false, "output_dir");
  for (const std::string& word :
       {std::string("output_dir"), dir_ + "/file", std::string("--overwrite")})
    EXPECT_NE(std::string(why.message()).find(word), std::string::npos) << why;
}

TEST_F(FileOriginTest, FileOfUnknownKindIsReplacedOnlyWithOverwrite) {
  EXPECT_TRUE(CheckNothingThere(env_, dir_ + "/absent", false, "--output").ok());
  EXPECT_TRUE(CheckNothingThere(env_, Write(""), false, "--output").ok());
  EXPECT_TRUE(CheckNothingThere(env_, Write("0.5\n"), true, "--output").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(CheckNothingThere(env_, Write("0.5\n"), false, "--output")));
}

}  // namespace
}  // namespace sluice
