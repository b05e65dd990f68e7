#include "scheduler/job/seen_files.h"

#include <gmock/gmock.h>

#include <tuple>
#include <vector>

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Files = std::vector<std::tuple<std::string, uint64_t, uint32_t>>;

IndexReport SeenFilesReport(const std::string& host, const Files& train, const Files& eval = {}) {
  IndexReport report;
  report.set_host(host);
  const auto add = [](const Files& files, auto* to) {
    for (const auto& [path, bytes, crc] : files) {
      SeenFile* file = to->Add();
      file->set_path(path);
      file->set_bytes(bytes);
      file->set_sample_crc32c(crc);
    }
  };
  add(train, report.mutable_train_seen());
  add(eval, report.mutable_eval_seen());
  return report;
}

std::string Difference(const IndexReport& first, const IndexReport& second) {
  SeenFiles seen;
  EXPECT_TRUE(seen.Take(1, first).ok());
  const absl::Status status = seen.Take(4, second);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  return std::string(status.message());
}

const Files kFiles = {{"/d/a", 10, 1}, {"/d/b", 20, 2}, {"/d/c", 30, 3}};

TEST(SeenFilesTest, TheSameFilesEverywherePass) {
  SeenFiles seen;
  for (const uint32_t rank : {2, 0, 1})
    EXPECT_TRUE(seen.Take(rank, SeenFilesReport("h", kFiles, {{"/d/t", 5, 5}})).ok());
}

TEST(SeenFilesTest, AMissingFileIsNamedWithBothHosts) {
  const Files fewer = {{"/d/a", 10, 1}, {"/d/c", 30, 3}};
  for (const bool first_has : {true, false}) {
    const std::string text =
        first_has ? Difference(SeenFilesReport("left", kFiles), SeenFilesReport("right", fewer))
                  : Difference(SeenFilesReport("right", fewer), SeenFilesReport("left", kFiles));
    EXPECT_THAT(text, AllOf(HasSubstr("/d/b is missing for rank"), HasSubstr("host left"),
                            HasSubstr("host right"), HasSubstr("data.train_files")));
    EXPECT_LT(text.find("host right"), text.find("host left"));  // where it is missing
  }
  EXPECT_THAT(Difference(SeenFilesReport("left", kFiles), SeenFilesReport("right", {})),
              HasSubstr("(2 more"));
  EXPECT_THAT(Difference(SeenFilesReport("left", {}), SeenFilesReport("right", kFiles)),
              HasSubstr("/d/a is missing"));
}

TEST(SeenFilesTest, DifferencesInSizeAndContentAreReported) {
  EXPECT_THAT(Difference(SeenFilesReport("l", kFiles),
                         SeenFilesReport("r", {kFiles[0], {"/d/b", 21, 2}, kFiles[2]})),
              AllOf(HasSubstr("/d/b "), HasSubstr("20 bytes for rank 1 on host l"),
                    HasSubstr("21 bytes for rank 4 on host r")));
  EXPECT_THAT(Difference(SeenFilesReport("l", kFiles),
                         SeenFilesReport("r", {kFiles[0], kFiles[1], {"/d/c", 30, 9}})),
              AllOf(HasSubstr("/d/c "), HasSubstr("content"), HasSubstr("rank 4 on host r"),
                    HasSubstr("30 bytes")));
}

TEST(SeenFilesTest, NamesOfFilesStayOnTheLineOfTheMessage) {
  EXPECT_THAT(
      Difference(SeenFilesReport("l", {{"/d/a\nI1125 forged", 1, 1}}), SeenFilesReport("r", {})),
      HasSubstr("/d/a\\x0aI1125 forged"));
}

TEST(SeenFilesTest, EvaluationFilesAreComparedToo) {
  EXPECT_THAT(
      Difference(SeenFilesReport("l", kFiles, {{"/d/t", 5, 5}}), SeenFilesReport("r", kFiles)),
      AllOf(HasSubstr("/d/t is missing for rank 4"), HasSubstr("data.eval_files")));
}

}  // namespace
}  // namespace sluice
