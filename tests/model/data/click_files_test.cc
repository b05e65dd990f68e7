#include "model/data/click_files.h"

#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/output_target.h"
#include "gmock/gmock.h"
#include "model/data/text_reader.h"
#include "tests/common/base/planted.h"
#include "tests/model/data/files_for_test.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

std::string TextOf(const std::string& path) {
  auto reader = TextReader::Open(path, Env::Real());
  EXPECT_TRUE(reader.ok()) << reader.status();
  std::string text, buffer(1 << 16, '\0');
  while (true) {
    const auto got = (*reader)->Read(&buffer[0], buffer.size());
    EXPECT_TRUE(got.ok()) << got.status();
    if (!got.ok() || *got == 0) return text;
    text.append(buffer, 0, *got);
  }
}

ClickFiles Options(const TempFolder& folder, size_t files) {
  ClickFiles options;
  options.examples = 10001;
  options.data.cardinality = 1000;
  for (size_t f = 0; f < files; ++f)
    options.paths.push_back(folder.Path("part-" + std::to_string(f)));
  return options;
}

std::string Generated(const ClickFiles& options) {
  ClickSums sums;
  std::string text;
  ClickGenerator(options.data).Append(options.skip, options.examples, &text, &sums);
  return text;
}

TEST(ClickFilesTest, LinesDoNotDependOnFilesThreadsOrCompression) {
  const TempFolder folder;
  for (const Compression compression :
       {Compression::kNone, Compression::kGzip, Compression::kZstd}) {
    for (const int threads : {1, 3}) {
      ClickFiles options = Options(folder, threads == 1 ? 1 : 5);
      options.compression = compression;
      options.threads = threads;
      const auto summary = WriteClickFiles(options);
      ASSERT_TRUE(summary.ok()) << summary.status();
      std::string text;
      uint64_t bytes = 0;
      for (const std::string& path : options.paths) {
        text += TextOf(path);
        bytes += *Env::Real()->FileSize(path);
        EXPECT_FALSE(Env::Real()->Exists(path + kUnfinishedSuffix));
      }
      EXPECT_TRUE(text == Generated(options));
      EXPECT_EQ(summary->sums.examples(), options.examples);
      EXPECT_EQ(summary->text_bytes, text.size());
      EXPECT_EQ(summary->file_bytes, bytes);
    }
  }
}

TEST(ClickFilesTest, ALinkUnderTheUnfinishedNameIsNotFollowed) {
  const TempFolder folder;
  Planted planted(folder.Path("victim"));
  const ClickFiles options = Options(folder, 1);
  planted.Link(UnfinishedName(options.paths[0]));
  ASSERT_TRUE(WriteClickFiles(options).ok());
  EXPECT_TRUE(TextOf(options.paths[0]) == Generated(options));
  EXPECT_TRUE(planted.VictimIsUnchanged());
}

TEST(ClickFilesTest, SkipContinuesInTheSameData) {
  const TempFolder folder;
  ClickFiles options = Options(folder, 1);
  options.skip = 7;
  options.examples = 100;
  ASSERT_TRUE(WriteClickFiles(options).ok());
  ClickFiles from_zero = options;
  from_zero.skip = 0;
  from_zero.examples = 107;
  const std::string all = Generated(from_zero), tail = TextOf(options.paths[0]);
  ASSERT_LT(tail.size(), all.size());
  EXPECT_EQ(all.substr(all.size() - tail.size()), tail);
}

TEST(ClickFilesTest, ExistingFilesAreReplacedOnlyOnRequest) {
  const TempFolder folder;
  ClickFiles options = Options(folder, 1);
  options.examples = 10;
  options.replace = false;
  options.paths = {folder.Write("mine", "mine")};
  EXPECT_EQ(WriteClickFiles(options).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(TextOf(options.paths[0]), "mine");
  EXPECT_EQ(Env::Real()->List(folder.path())->size(), 1);
  options.replace = true;
  EXPECT_TRUE(WriteClickFiles(options).ok());
  EXPECT_EQ(TextOf(options.paths[0]), Generated(options));
}

TEST(ClickFilesTest, LinkStillPointsAtTheFile) {
  const TempFolder folder;
  ClickFiles options = Options(folder, 1);
  options.paths = {folder.Path("link")};
  std::filesystem::create_symlink("there", options.paths[0]);
  ASSERT_TRUE(WriteClickFiles(options).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(options.paths[0]));
  EXPECT_EQ(TextOf(folder.Path("there")), Generated(options));
}

TEST(ClickFilesTest, FailureNamesTheFileAndLeavesNoUnfinishedOne) {
  const TempFolder folder;
  ClickFiles options = Options(folder, 3);
  options.threads = 3;
  options.paths[1] = folder.Path("absent/part-1");
  const auto summary = WriteClickFiles(options);
  EXPECT_THAT(std::string(summary.status().message()), HasSubstr("absent/part-1"));
  EXPECT_EQ(Env::Real()->List(folder.path())->size(), 1);  // the first file was complete
  // A device that accepts no bytes.
  options.paths = {"/dev/full"};
  EXPECT_THAT(std::string(WriteClickFiles(options).status().message()), HasSubstr("/dev/full"));
}

TEST(ClickFilesTest, FinishedFilesAreToldInOrder) {
  const TempFolder folder;
  ClickFiles options = Options(folder, 3);
  options.threads = 2;
  std::vector<size_t> finished;
  options.on_finished = [&](size_t i) {
    EXPECT_TRUE(Env::Real()->Exists(options.paths[i]));
    finished.push_back(i);
  };
  ASSERT_TRUE(WriteClickFiles(options).ok());
  EXPECT_EQ(finished, (std::vector<size_t>{0, 1, 2}));
}

TEST(ClickFilesTest, FilesOfKilledRunsAreRemoved) {
  const TempFolder folder;
  const pid_t ended = fork();
  if (ended == 0) _exit(0);
  waitpid(ended, nullptr, 0);
  ClickFiles options = Options(folder, 1);
  options.examples = 10;
  const auto name = [&](pid_t pid) {
    return absl::StrCat(options.paths[0], ".", pid, ".unfinished");
  };
  std::ofstream(name(ended)) << "1\t2\t";
  std::ofstream(name(getppid())) << "1\t2\t";
  ASSERT_TRUE(WriteClickFiles(options).ok());
  EXPECT_FALSE(Env::Real()->Exists(name(ended)));
  EXPECT_TRUE(Env::Real()->Exists(name(getppid()))) << "its process is alive";
  std::ofstream(name(ended)) << "my notes";
  ASSERT_TRUE(WriteClickFiles(options).ok());
  EXPECT_TRUE(Env::Real()->Exists(name(ended)));
}

}  // namespace
}  // namespace sluice
