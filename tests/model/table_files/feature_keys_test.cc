// FeatureKeys against the keys that the schema gives the same values.
#include "model/table_files/feature_keys.h"

#include "gmock/gmock.h"
#include "tests/model/table_files/table_files_for_test.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FeatureKeysTest : public TableFilesTest {};

TEST_F(FeatureKeysTest, ValuesHaveTheKeysOfTraining) {
  const auto spec = *ModelSpec::Create(job_, BuiltInSpecs());
  const FeatureSchema& schema = *spec->schema();
  for (const auto& [feature, value] :
       std::vector<std::pair<std::string, std::string>>{{"city", "Malm\xC3\xB6"},
                                                        {"id", "-12"},
                                                        {"id", "18446744073709551615"},
                                                        {"shop", "x"},
                                                        {"kind", "b"}}) {
    std::vector<std::string_view> cells(schema.columns().size());
    std::vector<char> missing(cells.size(), 1);
    for (size_t i = 0; i < cells.size(); ++i) {
      if (schema.columns()[i] != feature) continue;
      cells[i] = value;
      missing[i] = 0;
    }
    Batch batch;
    batch.Reset(schema.numerics().size(), schema.slots().size());
    ASSERT_TRUE(schema
                    .AppendExample(cells.data(), reinterpret_cast<const bool*>(missing.data()),
                                   /*need_label=*/false, &batch)
                    .ok());
    ASSERT_EQ(batch.keys.size(), 1u);
    const auto keys = FeatureKeys::Create(job_, *spec, feature);
    ASSERT_TRUE(keys.ok()) << keys.status();
    EXPECT_EQ(keys->KeyOf(value), batch.keys[0]) << feature << " " << value;
  }
}

TEST_F(FeatureKeysTest, ValuesThatAFeatureCannotHaveHaveNone) {
  const auto spec = *ModelSpec::Create(job_, BuiltInSpecs());
  EXPECT_EQ(FeatureKeys::Create(job_, *spec, "kind")->KeyOf("c"), std::nullopt);
  EXPECT_EQ(FeatureKeys::Create(job_, *spec, "id")->KeyOf("1.5"), std::nullopt);
  EXPECT_EQ(FeatureKeys::Create(job_, *spec, "city")->KeyOf(""), std::nullopt);
  EXPECT_THAT(std::string(FeatureKeys::Create(job_, *spec, "citi").status().message()),
              HasSubstr("did you mean 'city'"));
  EXPECT_FALSE(FeatureKeys::Create(job_, *spec, "age").ok());
  EXPECT_TRUE(HasRawKeys(job_, *spec, "ids"));
  EXPECT_FALSE(HasRawKeys(job_, *spec, "embedding"));
  EXPECT_THAT(FeaturesOf(*spec, "embedding"), ElementsAre("city"));
}

}  // namespace
}  // namespace sluice
