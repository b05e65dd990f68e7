#include "common/config/data_format.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DataFormatTest, EachFormatOfTheConfigurationIsRegistered) {
  const std::string names = FormatNames();
  const auto* const formats = DataConfig::Format_descriptor();
  for (int i = 0; i < formats->value_count(); ++i) {
    DataConfig data;
    data.set_format(static_cast<DataConfig::Format>(formats->value(i)->number()));
    if (data.format() == DataConfig::FORMAT_UNSPECIFIED) continue;
    const std::string& name = formats->value(i)->name();
    EXPECT_THAT(names, HasSubstr(name));
    EXPECT_NE(&FormatOf(data), &FormatOf(DataConfig())) << name;
  }
}

TEST(DataFormatTest, WithoutAFormatNothingIsKnown) {
  const DataConfig none;
  EXPECT_FALSE(FormatOf(none).delimited || FormatOf(none).slots || FormatOf(none).label_first);
  EXPECT_TRUE(FormatOf(none).named_columns(none).empty());
  EXPECT_EQ(ValuesOf(none, "c"), CellValues::kOne);
}

TEST(DataFormatTest, ColumnsAndTheirValuesDependOnTheFormat) {
  DataConfig data;
  Slot* const any = data.add_slots();
  any->set_name("c");
  Slot* const two = data.add_slots();
  two->set_name("d");
  two->set_dim(2);
  for (const DataConfig::Format format : {DataConfig::MULTI_SLOT, DataConfig::SLOT_VALUE}) {
    data.set_format(format);
    EXPECT_THAT(FormatOf(data).named_columns(data), ElementsAre("c", "d.0", "d.1"));
    EXPECT_EQ(ValuesOf(data, "c"), CellValues::kAny);
    EXPECT_EQ(ValuesOf(data, "d.0"), CellValues::kOne);
  }
  data.set_format(DataConfig::LIBSVM);
  EXPECT_EQ(ValuesOf(data, "7"), CellValues::kOne);
  EXPECT_EQ(ValuesOf(data, "indices"), CellValues::kWeighted);
  data.set_format(DataConfig::LIBFFM);
  EXPECT_EQ(ValuesOf(data, "7"), CellValues::kWeighted);
}

}  // namespace
}  // namespace sluice
