#include "common/config/feature_keys.h"

#include <string>
#include <vector>

#include "common/config/textproto_file.h"
#include "gmock/gmock.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<ConfigProblem> ProblemsOf(const std::string& feature) {
  JobConfig job;
  const absl::Status parsed = ParseTextproto("features { name: \"f\" " + feature + " }", "job",
                                             &job, /*locations=*/nullptr);
  EXPECT_TRUE(parsed.ok()) << parsed;
  return FindKeyProblems(job);
}

TEST(FeatureKeysTest, RawFeaturesAreValuesAsTheyAre) {
  for (const char* good :
       {"categorical {}", "key: HASHED categorical { vocabulary: 'a' }",
        "key: RAW categorical { column: 'c' multi_value_delimiter: '|' pooling: MEAN }",
        "key: RAW embedding: 'item' table: 'items' categorical { weight_delimiter: ':' }",
        "key: RAW embedding: 'item' in_wide: false in_deep: false categorical {}",
        "embedding: 'e' table: 't' numeric { boundaries: 1 }",
        "embedding: 'e' cross { features: ['a', 'b'] }"}) {
    EXPECT_THAT(ProblemsOf(good), IsEmpty()) << good;
  }
}

TEST(FeatureKeysTest, OptionsThatContradictEachOtherAreNamed) {
  struct Bad {
    const char* feature;
    const char* path;
    const char* said;
  };
  for (const Bad& bad : std::vector<Bad>{
           {"key: RAW categorical { vocabulary: 'a' }", "features[0].categorical.vocabulary",
            "RAW"},
           {"key: RAW categorical { hash_buckets: 5 }", "features[0].categorical.hash_buckets",
            "RAW"},
           {"key: RAW categorical { dense: true }", "features[0].categorical.dense", "RAW"},
           {"key: RAW categorical { date_part: HOUR }", "features[0].categorical.date_part", "RAW"},
           {"key: RAW categorical { missing_is_value: true }",
            "features[0].categorical.missing_is_value", "missing value has no key"},
           {"key: RAW categorical { separate_unknown: true }",
            "features[0].categorical.separate_unknown", "RAW"},
           {"key: RAW numeric { boundaries: 1 }", "features[0].key", "boundaries"},
           {"key: RAW numeric {}", "features[0].key", "plain number"},
           {"key: RAW cross { features: ['a', 'b'] }", "features[0].key", "cross"},
           {"key: 7 categorical {}", "features[0].key", "HASHED or RAW"},
           {"embedding: 'e' numeric {}", "features[0].embedding", "plain number"},
           {"table: 't' numeric {}", "features[0].table", "plain number"},
           {"embedding: 'e' categorical { hash_buckets: 5 dense: true }", "features[0].embedding",
            "dense"},
           {"table: 't' cross { features: ['a', 'b'] hash_buckets: 5 dense: true }",
            "features[0].table", "dense"},
           {"table: 't' in_wide: false in_deep: false categorical {}", "features[0].table",
            "only crosses"}}) {
    const std::vector<ConfigProblem> problems = ProblemsOf(bad.feature);
    ASSERT_EQ(problems.size(), 1u) << bad.feature;
    EXPECT_EQ(problems[0].path, bad.path);
    EXPECT_THAT(problems[0].text, HasSubstr(bad.said));
    EXPECT_THAT(problems[0].text,
                HasSubstr(std::string(bad.feature).find("key: 7") == 0 ? "give" : "remove"));
  }
}

}  // namespace
}  // namespace sluice
