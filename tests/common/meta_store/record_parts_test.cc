#include "common/meta_store/record_parts.h"

#include <gtest/gtest.h>

#include "common/base/mix_hash.h"
#include "common/base/printable.h"

namespace sluice {
namespace {

std::string Random(size_t n) {
  std::string bytes;
  for (uint64_t i = 0; bytes.size() < n; ++i) bytes.push_back(static_cast<char>(MixHash(i)));
  return bytes;
}

std::vector<MetaStore::Entry> EntriesOf(const std::string& key, const CutRecord& cut) {
  std::vector<MetaStore::Entry> entries;
  for (const MetaStore::Write& part : cut.parts) entries.push_back({part.key, *part.value});
  entries.push_back({key, cut.value});
  return entries;
}

TEST(RecordPartsTest, ValuesOfAllLengthsComeBack) {
  for (const std::string& value :
       {std::string(), std::string("short"), std::string("\0zero", 5), std::string(20'000, 'x'),
        std::string(5'000'000, 'x'), Random(100'000), Random(600'000), Random(3'000'000)}) {
    const CutRecord cut = CutIntoParts(value, "7-1");
    EXPECT_LE(cut.value.size(), MetaStore::kMaxCommitBytes);
    const auto joined = JoinParts(EntriesOf("k", cut));
    ASSERT_TRUE(joined.ok()) << joined.status();
    ASSERT_EQ(joined->records.size(), 1u);
    EXPECT_TRUE(joined->records[0].value == value) << value.size();
    EXPECT_EQ(joined->parts.count("k") > 0 ? joined->parts.at("k").size() : 0, cut.parts.size());
    EXPECT_TRUE(joined->left_over.empty());
  }
  EXPECT_EQ(CutIntoParts("short", "7-1").value, "short");
  EXPECT_TRUE(CutIntoParts(std::string(5'000'000, 'x'), "7-1").parts.empty());
}

TEST(RecordPartsTest, PartsWithoutARecordAreLeftOver) {
  const CutRecord cut = CutIntoParts(Random(1'200'000), "7-1");
  ASSERT_EQ(cut.parts.size(), 3u);
  std::vector<MetaStore::Entry> entries = EntriesOf("k", cut);
  entries.pop_back();
  const auto joined = JoinParts(entries);
  ASSERT_TRUE(joined.ok());
  EXPECT_TRUE(joined->records.empty());
  EXPECT_EQ(joined->left_over.size(), 3u);
}

TEST(RecordPartsTest, DamageNamesTheRecord) {
  const std::vector<MetaStore::Entry> whole =
      EntriesOf("k\n", CutIntoParts(Random(1'200'000), "7-1"));
  std::vector<std::vector<MetaStore::Entry>> cases(4, whole);
  cases[0].erase(cases[0].begin() + 1);
  cases[1][1].value[1000] ^= 1;
  cases[2].back().value.resize(3);
  cases[3].back().value = std::string("\0" "99999999\n7-1\n1\n", 16);
  for (const auto& entries : cases) {
    const absl::Status damaged = JoinParts(entries).status();
    EXPECT_TRUE(absl::IsDataLoss(damaged)) << damaged;
    EXPECT_TRUE(IsPrintableLine(damaged.message())) << damaged;
  }
}

}  // namespace
}  // namespace sluice
