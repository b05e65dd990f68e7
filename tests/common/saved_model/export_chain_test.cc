#include "common/saved_model/export_chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/saved_model/delta_image.h"
#include "common/saved_model/manifest.h"
#include "common/saved_model/saved_model.h"
#include "common/table/table_layout.h"
#include "tests/common/base/hooked_env.h"
#include "tests/common/saved_model/rows_of_map.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kChainShards = 3, kChainDim = 2, kElements = 40;
constexpr uint64_t kInstance = 0xab, kOther = 0xcd;

class ExportChainTest : public ::testing::Test {
 protected:
  ExportChainTest() {
    std::string pattern = ::testing::TempDir() + "/export_chain_test.XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    google::protobuf::RepeatedPtrField<TableConfig> tables;
    TableConfig* const sparse = tables.Add();
    sparse->set_name("emb");
    sparse->set_kind(TableConfig::SPARSE);
    sparse->set_num_shards(kChainShards);
    ColumnGroup* const column = sparse->add_columns();
    column->set_name("deep");
    column->set_dim(kChainDim);
    column->mutable_optimizer()->mutable_adagrad();
    TableConfig* const dense = tables.Add();
    dense->set_name("layer");
    dense->set_kind(TableConfig::DENSE);
    dense->add_shape(kElements);
    dense->mutable_optimizer()->mutable_sgd();
    layouts_ = *CreateTableLayouts(tables, 1);
    job_.set_name("exports");
  }
  ~ExportChainTest() override { std::filesystem::remove_all(root_); }

  Manifest Write(const std::string& dir, const ModelRows& rows, const std::set<uint64_t>& gone,
                 float dense, const std::string& save_id, bool delta = false) {
    Manifest manifest;
    manifest.set_job_id("exports-1");
    for (const auto& layout : layouts_) *manifest.add_tables() = layout->config();
    for (uint32_t shard = 0; shard < kChainShards; ++shard) {
      auto shard_rows = std::make_unique<RowsOfMap>(*layouts_[0], shard, rows, gone);
      const auto cut = delta ? CutOfDelta(*layouts_[0], shard, std::move(shard_rows))
                             : CutOfRows(*layouts_[0], shard, std::move(shard_rows));
      *manifest.add_files() =
          *WriteShardFile(dir, *layouts_[0], shard, cut.get(), Env::Real(), save_id);
    }
    ShardValues values;
    values.weights.assign(kElements, dense);
    *manifest.add_files() = *WriteShardFile(dir, *layouts_[1], 0, values, Env::Real(), save_id);
    return manifest;
  }

  // Writes the next member of a chain: a base without `before`.
  ExportMember Export(uint64_t instance, const ExportMember* before, uint64_t to,
                      const ModelRows& rows, const std::set<uint64_t>& gone, float dense) {
    const std::string dir = ExportFolder(root_ + "/export", instance, to);
    const std::string save_id = absl::StrCat(absl::Hex(instance * 1000 + to, absl::kZeroPad16));
    Manifest manifest = Write(dir, rows, gone, dense, save_id, before != nullptr);
    manifest.set_global_step(10 * to);
    ExportFacts* const facts = manifest.mutable_export_();
    facts->set_instance(instance);
    facts->set_to(to);
    facts->set_unix_time(static_cast<double>(to) - clock_back_);
    facts->set_order(before != nullptr ? before->facts().order() : order_);
    if (before != nullptr) {
      facts->set_from(before->facts().to());
      facts->set_chain(before->facts().chain());
    }
    const auto made = FinishModel(dir, job_, manifest, Env::Real(), save_id);
    EXPECT_TRUE(made.ok()) << made.status();
    return *ReadExport(dir, Env::Real());
  }

  // A base and two deltas: key 1 changes, key 2 goes and comes back, key 3 goes, key 4 comes.
  std::vector<ExportMember> SmallChain(uint64_t instance = kInstance) {
    std::vector<ExportMember> chain;
    chain.push_back(Export(instance, nullptr, 2, {{1, {1, 1}}, {2, {2, 2}}, {3, {3, 3}}}, {}, 1));
    chain.push_back(Export(instance, &chain[0], 4, {{1, {5, 5}}, {4, {4, 4}}}, {2, 3}, 2));
    chain.push_back(Export(instance, &chain[1], 6, {{2, {7, 7}}}, {9}, 3));
    return chain;
  }

  // The bytes of the model's shard files, by table and shard.
  std::map<std::string, std::string> Bytes(const std::string& dir) {
    const Manifest manifest = *ReadManifest(dir, Env::Real());
    std::map<std::string, std::string> bytes;
    for (const TableConfig& table : manifest.tables()) {
      const auto files = *FilesOfTable(dir, manifest, table);
      for (size_t s = 0; s < files.size(); ++s)
        bytes[absl::StrCat(table.name(), "-", s)] =
            *Env::Real()->ReadFile(absl::StrCat(dir, "/", files[s]->name()));
    }
    return bytes;
  }

  absl::Status Apply(const std::vector<ExportMember>& chain, bool as_base = false) {
    return ApplyChain(chain, root_ + "/out", as_base, Env::Real()).status();
  }

  std::string root_;
  uint64_t order_ = 0;     // of the next bases
  double clock_back_ = 0;  // how far behind the clock is at an export
  TableLayouts layouts_;
  JobConfig job_;
};

// Model check: a chain of random changes gives what a save of the whole would have written.
TEST_F(ExportChainTest, AChainGivesTheBytesOfAFullModel) {
  for (const uint32_t seed : {1u, 2u, 3u}) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    ModelRows all;
    std::vector<ExportMember> chain;
    for (uint64_t cut = 1; cut <= 11; ++cut) {
      ModelRows changed;
      std::set<uint64_t> gone;
      for (int i = 0; i < 200; ++i) {
        const uint64_t key = random() % 300 * 0x9E3779B97F4A7C15u;
        if (random() % 3 == 0) {
          if (all.erase(key) + changed.erase(key) > 0) gone.insert(key);
        } else {
          all[key] = changed[key] = {static_cast<float>(random() % 1000), static_cast<float>(cut)};
        }
      }
      // A key that came back is also named as gone: it has a row all the same.
      chain.push_back(Export(seed, chain.empty() ? nullptr : &chain.back(), cut,
                             chain.empty() ? all : changed, gone, static_cast<float>(cut)));
    }
    ASSERT_TRUE(Apply(chain).ok());
    const std::string full = root_ + "/full" + std::to_string(seed);
    const auto whole = FinishModel(full, job_, Write(full, all, {}, 11, ""), Env::Real());
    ASSERT_TRUE(whole.ok());
    EXPECT_EQ(ReadManifest(root_ + "/out", Env::Real())->model_digest(), whole->model_digest());
    EXPECT_EQ(Bytes(root_ + "/out"), Bytes(full));
    EXPECT_FALSE(ReadManifest(root_ + "/out", Env::Real())->has_export_());
  }
}

TEST_F(ExportChainTest, ACompactedBaseTakesTheNextDelta) {
  const std::vector<ExportMember> chain = SmallChain();
  ASSERT_TRUE(Apply(chain).ok());
  const auto whole = Bytes(root_ + "/out");
  const std::string base = root_ + "/base";
  ASSERT_TRUE(ApplyChain({chain[0], chain[1]}, base, /*as_base=*/true, Env::Real()).ok());
  const auto compacted = ReadExport(base, Env::Real());
  ASSERT_TRUE(compacted.ok()) << compacted.status();
  EXPECT_TRUE(VerifyExport(*compacted, Env::Real()).ok());
  ASSERT_TRUE(ApplyChain({*compacted, chain[2]}, root_ + "/again", false, Env::Real()).ok());
  EXPECT_EQ(Bytes(root_ + "/again"), whole);
}

TEST_F(ExportChainTest, WhatDoesNotFollowIsRefusedByName) {
  const std::vector<ExportMember> chain = SmallChain(), other = SmallChain(kOther);
  const auto expect = [&](const std::vector<ExportMember>& members, const std::string& dir,
                          const char* why) {
    const absl::Status status = Apply(members);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(dir), HasSubstr(why)));
  };
  expect({chain[0], chain[2]}, chain[2].dir, "missing");
  expect({chain[0], chain[1], chain[1]}, chain[1].dir, "ascending");
  expect({chain[0], chain[1], chain[2], chain[1]}, chain[1].dir, "ascending");
  expect({chain[1], chain[2]}, chain[1].dir, "begins with a base");
  expect({chain[0], other[1]}, other[1].dir, "another job");
  expect({chain[0], other[0]}, other[0].dir, "is a base");
  // Of the same run, but of a base with other values.
  const ExportMember base = Export(kInstance, nullptr, 2, {{1, {8, 8}}}, {}, 1);
  expect({base, chain[1]}, chain[1].dir, "another chain");
  EXPECT_FALSE(std::filesystem::exists(root_ + "/out"));
}

TEST_F(ExportChainTest, DamageIsFoundAndNothingIsWritten) {
  const std::vector<ExportMember> chain = SmallChain();
  for (const ExportMember& member : chain) EXPECT_TRUE(VerifyExport(member, Env::Real()).ok());
  const std::string victim =
      absl::StrCat(chain[1].dir, "/",
                   (*FilesOfTable("", chain[1].manifest, chain[1].manifest.tables(1)))[0]->name());
  std::string bytes = *Env::Real()->ReadFile(victim);
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_TRUE(Env::Real()->WriteFile(victim, {bytes}).ok());
  EXPECT_EQ(VerifyExport(chain[1], Env::Real()).code(), absl::StatusCode::kDataLoss);
  const absl::Status applied = Apply({chain[0], chain[1]});
  EXPECT_EQ(applied.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(applied.message()), HasSubstr(victim));
  EXPECT_FALSE(std::filesystem::exists(root_ + "/out"));
}

TEST_F(ExportChainTest, ADeltaIsNoModel) {
  const std::vector<ExportMember> chain = SmallChain();
  EXPECT_TRUE(ReadManifest(chain[0].dir, Env::Real()).ok());
  const auto delta = ReadManifest(chain[1].dir, Env::Real());
  EXPECT_EQ(delta.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(delta.status().message()), HasSubstr("sluice delta apply"));
}

TEST_F(ExportChainTest, ListsTheNewestChainFirstAndKeepsWholeChains) {
  const std::vector<ExportMember> first = SmallChain();
  const ExportMember second = Export(kInstance, nullptr, 8, {{1, {1, 1}}}, {}, 4);
  const ExportMember third = Export(kOther, nullptr, 9, {{1, {1, 1}}}, {}, 4);
  // One that was cut short.
  ASSERT_TRUE(Env::Real()->MakeDirs(ExportFolder(root_ + "/export", kInstance, 7)).ok());
  Write(ExportFolder(root_ + "/export", kInstance, 7), {{1, {1, 1}}}, {}, 1, "00000000000000aa");
  std::vector<ExportProblem> problems;
  auto chains = ListChains(root_ + "/export", Env::Real(), &problems);
  ASSERT_TRUE(chains.ok());
  EXPECT_TRUE(problems.empty());
  ASSERT_EQ(chains->size(), 3u);
  EXPECT_EQ((*chains)[0][0].dir, third.dir);
  EXPECT_EQ((*chains)[2].size(), 3u);
  RemoveOldChains(root_ + "/export", 2, kInstance, 9, Env::Real());
  chains = ListChains(root_ + "/export", Env::Real(), &problems);
  ASSERT_EQ(chains->size(), 2u);
  EXPECT_EQ((*chains)[1][0].dir, second.dir);
  EXPECT_EQ(Env::Real()->List(root_ + "/export")->size(), 2u);
}

TEST_F(ExportChainTest, MembersOfNoChainGoWithTheChainsOfTheirTime) {
  const std::string root = root_ + "/export";
  const auto damage = [](const ExportMember& member) {
    const std::string path = member.dir + "/MANIFEST";
    const std::string text = *Env::Real()->ReadFile(path);
    ASSERT_TRUE(Env::Real()->WriteFile(path, {text + "{"}).ok());
  };
  const auto prune = [&](uint64_t cut) {
    RemoveOldChains(root, 2, kInstance, cut, Env::Real());
    std::set<std::string> left;
    const std::vector<std::string> names = *Env::Real()->List(root);
    for (const std::string& name : names) left.insert(absl::StrCat(root, "/", name));
    return left;
  };
  // Of an earlier run no base can be read; of this one a delta cannot.
  const std::vector<ExportMember> earlier = SmallChain(kOther);
  damage(earlier[0]);
  const std::vector<ExportMember> first = SmallChain();
  damage(first[1]);
  const ExportMember second = Export(kInstance, nullptr, 8, {{1, {1, 1}}}, {}, 4);
  const ExportMember third = Export(kOther + 1, nullptr, 9, {{1, {1, 1}}}, {}, 4);
  std::set<std::string> all = {first[0].dir, first[1].dir, first[2].dir, second.dir, third.dir};
  for (const ExportMember& member : earlier) all.insert(member.dir);
  // The newest chains are those of 9 and 8, and nothing says that `earlier` is older than 9.
  all.erase(first[0].dir);
  EXPECT_EQ(prune(8), all) << "a chain of another run stays";
  const ExportMember fourth = Export(kInstance, nullptr, 10, {{1, {1, 1}}}, {}, 4);
  const ExportMember delta = Export(kInstance, &fourth, 12, {{1, {2, 2}}}, {}, 4);
  damage(delta);
  const ExportMember last = Export(kInstance, &delta, 14, {{1, {3, 3}}}, {}, 4);
  EXPECT_EQ(prune(14), (std::set<std::string>{second.dir, fourth.dir, delta.dir, last.dir}));
}

TEST_F(ExportChainTest, TheFolderOfAnotherJobIsRefused) {
  const std::string root = root_ + "/export";
  EXPECT_TRUE(CheckOwnExports(root, "/out", Env::Real()).ok()) << "there is none";
  job_.set_output_dir("/out");
  const std::vector<ExportMember> chain = SmallChain();
  EXPECT_TRUE(CheckOwnExports(root, "/out/", Env::Real()).ok());
  const absl::Status refused = CheckOwnExports(root, "/other", Env::Real());
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(refused.message()), HasSubstr(chain[0].dir));
}

TEST_F(ExportChainTest, AFolderThatCannotBeReadIsNotEmpty) {
  job_.set_output_dir("/out");
  const std::string root = root_ + "/export", other = SmallChain()[0].dir + "/MANIFEST";
  std::string unreadable;
  HookedEnv env;
  env.before_read = [&](const std::string& path) {
    return path == unreadable ? absl::UnavailableError("no answer") : absl::OkStatus();
  };
  for (const std::string& path : {root, other}) {
    SCOPED_TRACE(path);
    unreadable = path;
    EXPECT_TRUE(absl::IsUnavailable(ListChains(root, &env, nullptr).status()));
    EXPECT_TRUE(absl::IsUnavailable(CheckOwnExports(root, "/other", &env)));
  }
  // Who is told of it gets the others.
  std::vector<ExportProblem> problems;
  EXPECT_TRUE(ListChains(root, &env, &problems).ok());
  ASSERT_FALSE(problems.empty());
  EXPECT_TRUE(absl::IsUnavailable(problems[0].status)) << problems[0].status;
  // A damaged member stays damaged.
  ASSERT_TRUE(Env::Real()->WriteFile(other, {"nothing"}).ok());
  EXPECT_TRUE(ListChains(root, Env::Real(), nullptr).ok());
  EXPECT_TRUE(absl::IsNotFound(ListChains(root + "/none", Env::Real(), nullptr).status()));
}

TEST_F(ExportChainTest, AClockThatWasSetBackMakesNoBaseOlder) {
  const ExportMember other = Export(kOther, nullptr, 3, {{1, {1, 1}}}, {}, 4);
  const std::vector<ExportMember> first = SmallChain();
  clock_back_ = 100;
  const ExportMember second = Export(kInstance, nullptr, 8, {{1, {1, 1}}}, {}, 4);
  auto chains = ListChains(root_ + "/export", Env::Real(), nullptr);
  ASSERT_TRUE(chains.ok());
  ASSERT_EQ(chains->size(), 3u);
  // Times still order the runs.
  EXPECT_EQ((*chains)[0][0].dir, other.dir);
  EXPECT_EQ((*chains)[1][0].dir, second.dir);
  RemoveOldChains(root_ + "/export", 2, kInstance, 9, Env::Real());
  chains = ListChains(root_ + "/export", Env::Real(), nullptr);
  ASSERT_EQ(chains->size(), 2u);
  EXPECT_EQ((*chains)[1][0].dir, second.dir);
}

TEST_F(ExportChainTest, ADeltaWithoutTheOneBeforeItIsAProblem) {
  const std::vector<ExportMember> chain = SmallChain();
  RemoveModel(chain[1].dir, Env::Real());
  std::vector<ExportProblem> problems;
  const auto chains = ListChains(root_ + "/export", Env::Real(), &problems);
  ASSERT_EQ(chains->size(), 1u);
  EXPECT_EQ((*chains)[0].size(), 1u);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_THAT(std::string(problems[0].status.message()), HasSubstr(chain[2].dir));
  EXPECT_FALSE(problems[0].older);
}

TEST_F(ExportChainTest, ProblemsOfOlderChainsAreToldApart) {
  // The folders of the problems, and whether they are older.
  const auto problems = [&] {
    std::vector<ExportProblem> found;
    EXPECT_TRUE(ListChains(root_ + "/export", Env::Real(), &found).ok());
    std::map<std::string, bool> older;
    for (const ExportProblem& one : found) {
      const std::string text(one.status.message());
      older[text.substr(0, text.find_first_of(" :")).substr(root_.size() + 8, 23)] = one.older;
    }
    return older;
  };
  const auto name = [](uint64_t instance, uint64_t cut) {
    return ExportFolder("", instance, cut).substr(1);
  };
  order_ = 1;
  const std::vector<ExportMember> earlier = SmallChain(kOther);
  order_ = 2;
  const std::vector<ExportMember> first = SmallChain();
  order_ = 3;
  const ExportMember base = Export(kInstance, nullptr, 8, {{1, {1, 1}}}, {}, 4);
  const ExportMember next = Export(kInstance, &base, 10, {{1, {2, 2}}}, {}, 4);
  Export(kInstance, &next, 12, {{1, {3, 3}}}, {}, 4);
  EXPECT_TRUE(problems().empty());
  // The run of the newest base, and a run of which a base is left.
  const std::string damaged = first[1].dir + "/MANIFEST";
  ASSERT_TRUE(Env::Real()->WriteFile(damaged, {"nothing"}).ok());
  RemoveModel(earlier[1].dir, Env::Real());
  std::map<std::string, bool> expected = {
      {name(kInstance, 4), true}, {name(kInstance, 6), true}, {name(kOther, 6), true}};
  EXPECT_EQ(problems(), expected);
  // Its delta still has the order of its base; of a damaged base only the name is left.
  ASSERT_TRUE(Env::Real()->WriteFile(earlier[0].dir + "/MANIFEST", {"nothing"}).ok());
  expected[name(kOther, 2)] = false;
  EXPECT_EQ(problems(), expected);
  ASSERT_TRUE(Env::Real()->RemoveFile(earlier[0].dir + "/MANIFEST").ok());
  expected.erase(name(kOther, 2));
  RemoveModel(next.dir, Env::Real());
  expected[name(kInstance, 12)] = false;
  EXPECT_EQ(problems(), expected);
}

TEST_F(ExportChainTest, MoreGoneKeysThanADeltaNamesNeedANewBase) {
  std::set<uint64_t> gone;
  for (uint64_t key = 0; key <= kChainShards * 1.1 * kMostGoneKeys; ++key) gone.insert(key);
  const auto cut =
      CutOfDelta(*layouts_[0], 0, std::make_unique<RowsOfMap>(*layouts_[0], 0, ModelRows(), gone));
  std::string chunk;
  EXPECT_EQ(cut->Next(&chunk).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(ExportNameTest, OneSpelling) {
  uint64_t instance = 0, cut = 0;
  EXPECT_TRUE(ParseExportName("00000000000000ab-000012", &instance, &cut));
  EXPECT_EQ(instance, 0xabu);
  EXPECT_EQ(cut, 12u);
  EXPECT_TRUE(ParseExportName("00000000000000ab-1000012", &instance, &cut));
  for (const char* other : {"00000000000000ab-12", "00000000000000AB-000012", "ab-000012",
                            "00000000000000ab-0000012", "00000000000000ab-+00012", "step-5"}) {
    EXPECT_FALSE(ParseExportName(other, &instance, &cut)) << other;
  }
}

}  // namespace
}  // namespace sluice
