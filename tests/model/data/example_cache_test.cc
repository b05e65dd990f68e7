#include "model/data/example_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/crc32c.h"
#include "common/base/env.h"
#include "common/base/rooted_env.h"
#include "gmock/gmock.h"
#include "tests/common/base/planted.h"
#include "tests/model/data/cached_data.h"
#include "tests/model/features/schema_for_test.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using ExampleCacheTest = CachedData;

TEST_F(ExampleCacheTest, LinesAreCountedFromTheHeaderOfAMatchingFile) {
  job_.mutable_data()->set_max_bad_lines(10);
  const auto count = [this](const DataPiece& piece) {
    return Cache()->CountLines(piece, *IdentifyFile(source_, Env::Real()));
  };
  EXPECT_EQ(count({source_}), std::nullopt);
  ReadAll();
  EXPECT_EQ(count({source_}), 505u);  // 5 of them malformed
  EXPECT_EQ(count({source_, 0, 100}), std::nullopt);
  Age(source_, 3600);
  EXPECT_EQ(count({source_}), std::nullopt);
  ReadAll();
  EXPECT_EQ(count({source_}), 505u);
  fs::resize_file(OnlyFile(), fs::file_size(OnlyFile()) - 64);
  EXPECT_EQ(count({source_}), std::nullopt);
  fs::resize_file(OnlyFile(), 100);
  EXPECT_EQ(count({source_}), std::nullopt);
  EXPECT_THAT(log_, SizeIs(1));  // from reading the changed file
}

TEST_F(ExampleCacheTest, OneKeyPerSlotAndUnitWeightsTakeNoSpace) {
  std::string text = "y,w,x,tags\n";
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&text, "1,1,1,a\n");
  Age(folder_.Write("train.csv", text));
  const Read plain = ReadAll(), warm = ReadAll();
  EXPECT_TRUE(warm.cached);
  ExpectSame(plain, warm);
  EXPECT_LT(fs::file_size(OnlyFile()), 4096 + 1000 * (4 + 4 + 8) + 6 * 64);
}

TEST_F(ExampleCacheTest, SourceStillBeingWrittenIsNotCached) {
  folder_.Write("train.csv", "y,w,x,tags\n1,1,77,a\n");
  Age(source_, -10);  // changed "just now"
  ReadAll();
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(ExampleCacheTest, OtherFeaturesUseOtherFiles) {
  ReadAll();
  job_.mutable_features(0)->mutable_numeric()->set_log(true);
  EXPECT_FALSE(ReadAll().cached);
  job_.mutable_data()->mutable_label()->add_positive("1");
  EXPECT_FALSE(ReadAll().cached);
  job_.mutable_data()->set_weight_column("w");
  EXPECT_FALSE(ReadAll().cached);
  EXPECT_THAT(Files(), SizeIs(4));
  // These options do not affect parsing.
  job_.mutable_train()->set_batch_size(7);
  job_.mutable_data()->set_max_bad_lines(100);
  EXPECT_TRUE(ReadAll().cached);
  EXPECT_THAT(log_, IsEmpty());
}

TEST(FingerprintTest, DependsOnTheKeysThatTheModelUses) {
  const JobConfig job = FeaturesForTest(R"(
      features { name: "a" in_wide: false categorical {} }
      features { name: "b" categorical {} }
      features { name: "a_x_b" cross { features: ["a", "b"] } })");
  const auto fingerprint = [&job](const FeatureUse& use) {
    const auto schema = FeatureSchema::Create(job, use);
    EXPECT_TRUE(schema.ok()) << schema.status();
    return FingerprintOf(job, **schema);
  };
  FeatureUse no_wide, no_deep;
  no_wide.keys.wide = false;
  no_deep.keys.deep = false;  // then "a" is a part of the cross only
  EXPECT_EQ(fingerprint(FeatureUse()), fingerprint(no_wide));
  EXPECT_NE(fingerprint(FeatureUse()), fingerprint(no_deep));
}

// The same bytes may be lines of two formats, which read them differently.
TEST(FingerprintTest, DependsOnTheFormat) {
  std::set<std::string> fingerprints;
  const char* const formats[] = {"LIBSVM", "LIBFFM"};
  for (const char* format : formats) {
    const JobConfig job = JobForTest(
        absl::StrCat("data { format: ", format, " } features { name: '7' categorical {} }"));
    fingerprints.insert(FingerprintOf(job, *SchemaForTest(job, WithKeyWeights())));
  }
  EXPECT_EQ(fingerprints.size(), 2u);
}

TEST(FingerprintTest, DependsOnTheEmbeddingAndTheKeyRule) {
  std::set<std::string> fingerprints;
  for (const char* keys : {"", "embedding: 'b'", "key: RAW", "embedding: 'b' key: RAW"}) {
    const JobConfig job =
        FeaturesForTest(std::string("features { name: 'a' categorical {} ") + keys + "}");
    const auto schema = FeatureSchema::Create(job);
    ASSERT_TRUE(schema.ok()) << schema.status();
    fingerprints.insert(FingerprintOf(job, **schema));
  }
  EXPECT_EQ(fingerprints.size(), 4u);
}

TEST(FingerprintTest, DependsOnDenseFeaturesAndTheirRows) {
  const auto fingerprint = [](const std::string& dense, bool wide) {
    const JobConfig job = FeaturesForTest(
        "features { name: 'a' categorical { hash_buckets: 5 " + dense +
        "} } features { name: 'b' in_wide: false categorical { hash_buckets: 5 " + dense + "} }");
    FeatureUse use;
    use.dense_rows = true;
    use.keys.wide = wide;
    const auto schema = FeatureSchema::Create(job, use);
    EXPECT_TRUE(schema.ok()) << schema.status();
    return FingerprintOf(job, **schema);
  };
  EXPECT_NE(fingerprint("", true), fingerprint("dense: true", true));
  EXPECT_EQ(fingerprint("", true), fingerprint("", false));
  // Without the wide part the rows of `a` come before those of `b`.
  EXPECT_NE(fingerprint("dense: true", true), fingerprint("dense: true", false));
}

TEST_F(ExampleCacheTest, EveryDamageIsDetectedAndRepaired) {
  const Read whole = ReadAll();
  const std::string file = OnlyFile();
  const std::string bytes = *Env::Real()->ReadFile(file);
  std::vector<std::string> damaged = {"",
                                      bytes.substr(0, 100),
                                      bytes.substr(0, 4096),
                                      bytes.substr(0, bytes.size() - 64),
                                      bytes + std::string(64, '\0'),
                                      std::string(bytes.size(), '\0')};
  for (const size_t at : {0, 8, 12, 20, 90, 100, 140, 200, 260}) {
    damaged.push_back(bytes);
    damaged.back()[at] ^= 1;
  }
  // One byte in each of several sections, which are consecutive and padded to 64 bytes.
  for (const size_t at :
       {4096u, 4096u + 2048u, 4096u + 2 * 2048u, static_cast<unsigned>(bytes.size() / 2)}) {
    damaged.push_back(bytes);
    damaged.back()[at] ^= 16;
  }
  for (size_t i = 0; i < damaged.size(); ++i) {
    log_.clear();
    std::ofstream(file, std::ios::binary) << damaged[i];
    const Read again = ReadAll();
    EXPECT_FALSE(again.cached) << i;
    ExpectSame(whole, again);
    EXPECT_THAT(log_, ElementsAre(HasSubstr(file))) << i;
    EXPECT_EQ(*Env::Real()->ReadFile(file), bytes) << i;
  }
}

TEST_F(ExampleCacheTest, UnfinishedFileIsIgnored) {
  ReadAll();
  const std::string file = OnlyFile();
  fs::rename(file, file + kUnfinishedSuffix);
  EXPECT_FALSE(ReadAll().cached);
  EXPECT_THAT(Files(), ElementsAre(file));  // the unfinished file was overwritten
  EXPECT_TRUE(ReadAll().cached);
}

TEST_F(ExampleCacheTest, WithoutRoomTheJobContinuesWithOneWarning) {
  job_.mutable_data()->set_cache_max_bytes(5000);
  const auto cache = Cache();
  for (int i = 0; i < 3; ++i) {
    const Read read = ReadWith(cache.get(), {source_, 0, static_cast<uint64_t>(1000 + 1000 * i)});
    EXPECT_FALSE(read.cached);
    EXPECT_GT(read.batch.n, 0);
  }
  EXPECT_THAT(Files(), IsEmpty());
  EXPECT_THAT(log_, ElementsAre(HasSubstr("data.cache_max_bytes")));
}

TEST_F(ExampleCacheTest, FolderThatCannotBeCreatedGivesOneWarning) {
  folder_.Write("file", "");
  job_.mutable_data()->set_cache_dir(folder_.Path("file/cache"));
  const auto cache = Cache();
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(ReadWith(cache.get(), {source_}).cached);
  EXPECT_THAT(log_, testing::Contains(HasSubstr(folder_.Path("file/cache") + ":")).Times(1));
}

TEST_F(ExampleCacheTest, LeastRecentlyUsedFilesMakeRoom) {
  const DataPiece a{source_, 0, 1000}, b{source_, 1000, 2000}, c{source_, 2000, 3000};
  ReadPiece(a);
  const std::string file_of_a = OnlyFile();
  ReadPiece(b);
  uint64_t bytes = 0;
  for (const std::string& file : Files()) {
    bytes += fs::file_size(file);
    Age(file, file == file_of_a ? 100 : 50);
  }
  EXPECT_TRUE(ReadPiece(a).cached);  // now b is the least recently used
  job_.mutable_data()->set_cache_max_bytes(bytes + 2000);
  EXPECT_FALSE(ReadPiece(c).cached);
  EXPECT_TRUE(ReadPiece(c).cached);
  EXPECT_TRUE(ReadPiece(a).cached);
  EXPECT_THAT(Files(), SizeIs(2));
}

TEST_F(ExampleCacheTest, FilesOfOthersAreNeverEvicted) {
  ReadPiece({source_, 0, 1000});
  const std::string own = OnlyFile();
  const std::string bytes = *Env::Real()->ReadFile(own);
  const std::string digits(32, 'a');
  // Writes a text under a name of the cache, and copies of a cache file under other names.
  const std::pair<std::string, std::string> foreign[] = {
      {digits + ".examples", std::string(3000, 'x')},
      {"my.examples", bytes},
      {digits + "a.examples", bytes},
      {std::string(32, 'A') + ".examples", bytes},
      {digits + ".examples.bak", bytes}};
  const std::string dir = fs::path(own).parent_path().string() + "/";
  for (const auto& [name, contents] : foreign) {
    ASSERT_TRUE(Env::Real()->WriteFile(dir + name, {contents}).ok());
    Age(dir + name, 100);
  }
  Age(own, 50);
  job_.mutable_data()->set_cache_max_bytes(100);
  EXPECT_FALSE(ReadPiece({source_, 1000, 2000}).cached);
  EXPECT_FALSE(fs::exists(own));
  for (const auto& [name, contents] : foreign)
    EXPECT_EQ(Env::Real()->ReadFile(dir + name).value_or(""), contents) << name;
}

TEST_F(ExampleCacheTest, SettingsControlReadingAndWriting) {
  job_.mutable_data()->clear_cache();
  ReadAll();
  EXPECT_THAT(Files(), IsEmpty());  // unset: nothing is written
  job_.mutable_data()->set_cache(true);
  ReadAll();
  job_.mutable_data()->clear_cache();
  EXPECT_TRUE(ReadAll().cached);  // but existing files are used
  job_.mutable_data()->set_cache(false);
  EXPECT_EQ(Cache(), nullptr);
}

TEST_F(ExampleCacheTest, FolderThatTheEnvRefusesIsNotWritten) {
  const std::string inside = folder_.Path("inside");
  fs::create_directory(inside);
  const auto env = RootedEnv::Create(Env::Real(), {{}, {inside}});
  ASSERT_TRUE(env.ok()) << env.status();
  const auto read = [&] {
    const auto cache = MakeExampleCache(job_, *SchemaForTest(job_), env->get(), Clock::Real(),
                                        [this](const std::string& line) { log_.push_back(line); });
    ReadWith(cache.get(), {source_});
    return ReadWith(cache.get(), {source_}).cached;
  };
  EXPECT_FALSE(read());
  EXPECT_FALSE(fs::exists(folder_.Path("out/data_cache")));
  ASSERT_THAT(log_, SizeIs(1));
  EXPECT_THAT(log_[0], HasSubstr("--output_root"));
  job_.mutable_data()->set_cache_dir(inside + "/cache");
  EXPECT_TRUE(read());
}

TEST_F(ExampleCacheTest, WhatHasTheNameOfAnUnfinishedFileLosesItUnchanged) {
  ReadAll();
  const std::string file = OnlyFile(), unfinished = file + kUnfinishedSuffix;
  Planted planted(folder_.Path("victim"));
  const std::vector<std::function<void()>> plants = {[&] { planted.HardLink(unfinished); },
                                                     [&] { planted.Link(unfinished); },
                                                     [&] { planted.Pipe(unfinished); }};
  for (const auto& plant : plants) {
    fs::remove(file);
    plant();
    EXPECT_FALSE(ReadAll().cached);
    EXPECT_TRUE(ReadAll().cached);
    EXPECT_THAT(Files(), ElementsAre(file));
    EXPECT_TRUE(planted.VictimIsUnchanged());
  }
  // Another worker writes it.
  fs::remove(file);
  const int fd = open(unfinished.c_str(), O_RDWR | O_CREAT, 0644);
  ASSERT_EQ(flock(fd, LOCK_EX | LOCK_NB), 0);
  EXPECT_FALSE(ReadAll().cached);
  EXPECT_THAT(Files(), ElementsAre(unfinished));
  close(fd);
}

TEST_F(ExampleCacheTest, FilesThatOtherUsersCanChangeAreMadeAgain) {
  const Read whole = ReadAll();
  const std::string file = OnlyFile();
  const auto expect_refused = [&] {
    EXPECT_EQ(Cache()->CountLines({source_}, *IdentifyFile(source_, Env::Real())), std::nullopt);
    log_.clear();
    const Read read = ReadAll();
    EXPECT_FALSE(read.cached);
    ExpectSame(whole, read);
    EXPECT_THAT(log_, ElementsAre(HasSubstr(file)));
    EXPECT_TRUE(ReadAll().cached);
  };
  for (const mode_t mode : {0664, 0646, 0620, 0666}) {
    ASSERT_EQ(chmod(file.c_str(), mode), 0);
    expect_refused();
  }
  if (geteuid() != 0) return;  // only root can give a file away
  ASSERT_EQ(chown(file.c_str(), 12345, getegid()), 0);
  expect_refused();
}

TEST_F(ExampleCacheTest, OnlyTheGroupMayWriteToTheFolderUnlessItIsSticky) {
  ReadAll();
  const std::string dir = folder_.Path("out/data_cache");
  const auto expect_used = [&](bool used, bool writes) {
    job_.mutable_data()->clear_cache();
    if (writes) job_.mutable_data()->set_cache(true);
    log_.clear();
    const auto cache = Cache();
    for (int i = 0; i < 2; ++i) EXPECT_EQ(ReadWith(cache.get(), {source_}).cached, used);
    EXPECT_THAT(log_, SizeIs(used ? 0 : 1));
  };
  for (const bool writes : {false, true}) {
    for (const mode_t mode : {0700, 0755, 0775, 02775, 01777, 0777, 0757}) {
      SCOPED_TRACE(mode);
      ASSERT_EQ(chmod(dir.c_str(), mode), 0);
      expect_used((mode & S_IWOTH) == 0 || (mode & S_ISVTX) != 0, writes);
    }
    ASSERT_EQ(chmod(dir.c_str(), 0755), 0);
  }
  if (geteuid() != 0) return;
  ASSERT_EQ(chown(dir.c_str(), 12345, getegid()), 0);
  for (const bool writes : {false, true}) expect_used(false, writes);
}

TEST_F(ExampleCacheTest, LinksUnderItsNamesAreNotFollowed) {
  ReadAll();
  const std::string file = OnlyFile(), other = folder_.Write("other", "not a cache file");
  fs::remove(file);
  // Somebody who may write into the folder knows the names of its files.
  fs::create_symlink(other, file);
  fs::create_symlink(other, file + kUnfinishedSuffix);
  EXPECT_FALSE(ReadAll().cached);
  EXPECT_EQ(*Env::Real()->ReadFile(other), "not a cache file");
}

// Cache files stay readable for later versions of Sluice only while names and bytes stay the same.
TEST(ExampleCacheFormatTest, TheSameExamplesGiveTheSameNameAndBytes) {
  const TempFolder folder;
  ExampleCache::Options options;
  options.env = Env::Real();
  options.clock = Clock::Real();
  options.dir = folder.path();
  options.max_bytes = 1 << 20;
  options.fingerprint = "f";
  options.num_numeric = 1;
  options.num_slots = 2;
  options.log = [](const std::string& line) { ADD_FAILURE() << line; };
  ExampleCache cache(options);
  const float label[] = {0, 1, 1}, weight[] = {1, 2, 1}, numeric[] = {1, 2, 3};
  const uint32_t offsets[] = {0, 1, 1, 2, 4, 5, 6};
  const uint64_t keys[] = {7, 8, 9, 10, 11, 12};
  BadLines bad;
  bad.Add("data:4", absl::InvalidArgumentError("bad"));
  DataSummary summary;
  summary.set_examples(3);
  FileIdentity source;
  source.size = 100;
  source.modified_ns = 5;
  source.changed_ns = 6;
  ASSERT_TRUE(cache.Store({DataPiece{"data", 10, 90, 7}}, source,
                          {3, 1, 2, label, weight, numeric, offsets, keys}, bad, summary));
  const std::string file = folder.Path("598ee0a1f8188ec56f703036c28a34f0.examples");
  const auto bytes = Env::Real()->ReadFile(file);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(bytes->size(), 4544u);
  EXPECT_EQ(Crc32c(bytes->data(), bytes->size()), 0xf625071cu);
}

}  // namespace
}  // namespace sluice
