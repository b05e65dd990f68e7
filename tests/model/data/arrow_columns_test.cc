#include "model/data/arrow_columns.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/model/data/arrow_arrays.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Shown(const Cell& cell) {
  NumberText memory;
  const std::string text(TextOf(cell, &memory));
  switch (cell.kind()) {
    case Cell::Kind::kMissing:
      return "-";
    case Cell::Kind::kText:
      return "'" + text + "'";
    case Cell::Kind::kInstant:
      return "@" + text;
    case Cell::Kind::kDouble:
      return text + "f";
    case Cell::Kind::kUnsigned:
      return text + "u";
    case Cell::Kind::kList: {
      std::string list = "[";
      for (size_t i = 0; i < cell.size(); ++i) {
        absl::StrAppend(&list, i == 0 ? "" : " ", Shown(cell.values()[i]));
        if (cell.weights() != nullptr) absl::StrAppend(&list, ":", cell.weights()[i]);
      }
      return list + "]";
    }
    default:
      return text;
  }
}

// The cells of the only column of a table, read two rows at a time.
std::vector<std::string> ShownCells(const ArrowNode& column, std::vector<size_t> steps = {0},
                                    int64_t parent_skipped = 0) {
  ArrowNode table = ArrowNode::Struct("", column.length, {column});
  table.length = column.length - parent_skipped;
  table.skipped = parent_skipped;
  ArrowStructs structs(table);
  ArrowColumns::Source source;
  source.steps = std::move(steps);
  const auto columns = ArrowColumns::Create(structs.schema, {source});
  EXPECT_TRUE(columns.ok()) << columns.status();
  if (!columns.ok()) return {};
  ArrowBatch batch{ArrowOwner<ArrowArray>(structs.array)};
  std::vector<std::string> shown;
  std::vector<Cell> values;
  for (size_t first = 0; first < batch.rows(); first += 2) {
    const size_t n = std::min<size_t>(2, batch.rows() - first);
    const auto cells = (*columns)->Read(&batch, first, n);
    EXPECT_TRUE(cells.ok()) << cells.status();
    if (!cells.ok()) return {};
    for (size_t r = 0; r < n; ++r) shown.push_back(Shown(CellAt((*cells)[0], r, &values)));
  }
  return shown;
}

std::string TypeErrorOf(const ArrowNode& column) {
  ArrowStructs structs(ArrowNode::Struct("", column.length, {column}));
  ArrowColumns::Source source;
  source.steps = {0};
  const auto columns = ArrowColumns::Create(structs.schema, {source});
  EXPECT_EQ(columns.status().code(), absl::StatusCode::kUnimplemented);
  return std::string(columns.status().message());
}

template <typename T>
void ExpectIntegers(const char* format, bool is_unsigned = false) {
  const T least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
  const auto node = ArrowNode::Of<T>(format, "c", {T{9}, least, std::nullopt, most, T{3}}, 1);
  const char* const end = is_unsigned ? "u" : "";
  EXPECT_THAT(ShownCells(node), ElementsAre(absl::StrCat(least, end), "-", absl::StrCat(most, end),
                                            absl::StrCat("3", end)))
      << format;
  // The table's own offset adds to that of the column.
  EXPECT_THAT(ShownCells(node, {0}, 1),
              ElementsAre("-", absl::StrCat(most, end), absl::StrCat("3", end)));
}

TEST(ArrowColumnsTest, IntegersOfAllWidths) {
  ExpectIntegers<int8_t>("c");
  ExpectIntegers<uint8_t>("C");
  ExpectIntegers<int16_t>("s");
  ExpectIntegers<uint16_t>("S");
  ExpectIntegers<int32_t>("i");
  ExpectIntegers<uint32_t>("I");
  ExpectIntegers<int64_t>("l");
  ExpectIntegers<uint64_t>("L", /*is_unsigned=*/true);
}

TEST(ArrowColumnsTest, BoolsAndFloats) {
  ArrowNode bools = ArrowNode::Of<uint8_t>("b", "c", {uint8_t{0b00010110}});
  bools.length = 4;
  bools.skipped = 1;
  bools.valid = {true, true, true, false, true};
  EXPECT_THAT(ShownCells(bools), ElementsAre("1u", "1u", "-", "1u"));
  EXPECT_THAT(ShownCells(ArrowNode::Of<float>("f", "c", {1.5F, std::nullopt, -0.25F})),
              ElementsAre("1.5f", "-", "-0.25f"));
  EXPECT_THAT(ShownCells(ArrowNode::Of<double>("g", "c", {0.1, NAN, std::nullopt})),
              ElementsAre("0.1f", "nanf", "-"));
  EXPECT_THAT(ShownCells(ArrowNode::Of<uint16_t>(
                  "e", "c", {uint16_t{0x3E00}, uint16_t{0xC000}, uint16_t{0x0001}})),
              ElementsAre("1.5f", "-2f", "5.960464477539063e-08f"));
}

TEST(ArrowColumnsTest, TextAndBinary) {
  const std::vector<std::optional<std::string>> texts = {"skipped", "a", std::nullopt, "", "bcd"};
  for (const char* format : {"u", "z"}) {
    EXPECT_THAT(ShownCells(ArrowNode::Texts<int32_t>(format, "c", texts, 1)),
                ElementsAre("'a'", "-", "''", "'bcd'"));
  }
  for (const char* format : {"U", "Z"}) {
    EXPECT_THAT(ShownCells(ArrowNode::Texts<int64_t>(format, "c", texts, 1)),
                ElementsAre("'a'", "-", "''", "'bcd'"));
  }
  ArrowNode fixed = ArrowNode::Of<uint16_t>("w:2", "c", {uint16_t{0x6261}, uint16_t{0x6463}});
  EXPECT_THAT(ShownCells(fixed), ElementsAre("'ab'", "'cd'"));
  // Views: short texts stand in them, long ones in a buffer.
  const std::string long_text = "a text of more than 12 bytes";
  std::string views;
  const auto add = [&](int32_t size, const std::string& begin, int32_t buffer, int32_t offset) {
    std::string view(16, '\0');
    std::memcpy(view.data(), &size, 4);
    std::memcpy(view.data() + 4, begin.data(), std::min<size_t>(begin.size(), 12));
    if (size > 12) {
      std::memcpy(view.data() + 8, &buffer, 4);
      std::memcpy(view.data() + 12, &offset, 4);
    }
    views += view;
  };
  add(3, "abc", 0, 0);
  add(static_cast<int32_t>(long_text.size()), long_text.substr(0, 4), 0, 2);
  ArrowNode view{"vu", "c", 2};
  view.buffers = {views, "__" + long_text, std::string(8, '\0')};
  EXPECT_THAT(ShownCells(view), ElementsAre("'abc'", "'" + long_text + "'"));
}

TEST(ArrowColumnsTest, DatesAreSecondsAndTruncateDownwards) {
  EXPECT_THAT(ShownCells(ArrowNode::Of<int32_t>("tdD", "c", {1, -1, std::nullopt})),
              ElementsAre("@86400", "@-86400", "-"));
  EXPECT_THAT(ShownCells(ArrowNode::Of<int64_t>("tdm", "c", {int64_t{86'400'000}})),
              ElementsAre("@86400"));
  EXPECT_THAT(ShownCells(ArrowNode::Of<int64_t>("tss:UTC", "c", {int64_t{7}})), ElementsAre("@7"));
  EXPECT_THAT(ShownCells(ArrowNode::Of<int64_t>("tsm:", "c", {int64_t{1999}, int64_t{-1}})),
              ElementsAre("@1", "@-1"));
  EXPECT_THAT(ShownCells(ArrowNode::Of<int64_t>("tsu:Europe/Berlin", "c", {int64_t{2'500'000}})),
              ElementsAre("@2"));
  EXPECT_THAT(ShownCells(ArrowNode::Of<int64_t>("tsn:", "c", {int64_t{3'999'999'999}})),
              ElementsAre("@3"));
}

TEST(ArrowColumnsTest, DecimalsAreTextWithTheirScale) {
  using Wide = std::pair<int64_t, int64_t>;  // little endian
  const ArrowNode two = ArrowNode::Of<Wide>(
      "d:38,2", "c", {Wide{1250, 0}, Wide{-5, -1}, std::nullopt, Wide{0, 0}, Wide{0, 1}});
  EXPECT_THAT(ShownCells(two),
              ElementsAre("'12.50'", "'-0.05'", "-", "'0.00'", "'184467440737095516.16'"));
  EXPECT_THAT(ShownCells(ArrowNode::Of<Wide>("d:10,-2", "c", {Wide{7, 0}, Wide{0, 0}})),
              ElementsAre("'700'", "'0'"));
  EXPECT_THAT(ShownCells(ArrowNode::Of<int32_t>("d:5,1,32", "c", {int32_t{-123}})),
              ElementsAre("'-12.3'"));
  struct Four {
    uint64_t words[4];
  };
  EXPECT_THAT(ShownCells(ArrowNode::Of<Four>(
                  "d:76,0,256", "c", {Four{{0, 0, 1, 0}}, Four{{~0ull, ~0ull, ~0ull, ~0ull}}})),
              ElementsAre("'340282366920938463463374607431768211456'", "'-1'"));
}

TEST(ArrowColumnsTest, DictionariesOfTextStayAndOthersAreLookedUp) {
  ArrowNode coded =
      ArrowNode::Of<int8_t>("c", "c", {int8_t{1}, int8_t{0}, std::nullopt, int8_t{2}});
  coded.dictionary =
      std::make_shared<ArrowNode>(ArrowNode::Texts<int32_t>("u", "", {"x", "yy", std::nullopt}));
  EXPECT_THAT(ShownCells(coded), ElementsAre("'yy'", "'x'", "-", "''"));
  coded.dictionary =
      std::make_shared<ArrowNode>(ArrowNode::Of<double>("g", "", {0.5, 7.0, std::nullopt}));
  EXPECT_THAT(ShownCells(coded), ElementsAre("7f", "0.5f", "-", "-"));
  // A code beyond the dictionary.
  coded.dictionary = std::make_shared<ArrowNode>(ArrowNode::Texts<int32_t>("u", "", {"x"}));
  ArrowStructs structs(ArrowNode::Struct("", 4, {coded}));
  ArrowColumns::Source source;
  source.steps = {0};
  const auto columns = ArrowColumns::Create(structs.schema, {source});
  ASSERT_TRUE(columns.ok());
  ArrowBatch batch{ArrowOwner<ArrowArray>(structs.array)};
  EXPECT_EQ((*columns)->Read(&batch, 0, 4).status().code(), absl::StatusCode::kDataLoss);
}

TEST(ArrowColumnsTest, ListsHaveSeveralValues) {
  const ArrowNode values =
      ArrowNode::Of<int32_t>("i", "item", {1, 2, std::nullopt, 8, 9, 4, 5, 6, 7});
  EXPECT_THAT(ShownCells(ArrowNode::Lists<int32_t>("+l", "c", {3, std::nullopt, 0, 1, 2}, values)),
              ElementsAre("[1 2 -]", "-", "[]", "[4]", "[5 6]"));
  EXPECT_THAT(ShownCells(ArrowNode::Lists<int64_t>("+L", "c", {3, std::nullopt, 0, 1}, values, 1)),
              ElementsAre("-", "[]", "[4]"));
  ArrowNode fixed{"+w:2", "c", 3};
  fixed.skipped = 1;
  fixed.valid = {true, true, false, true};
  fixed.children = {values};
  EXPECT_THAT(ShownCells(fixed), ElementsAre("[- 8]", "-", "[5 6]"));
  const ArrowNode texts = ArrowNode::Texts<int32_t>("u", "item", {"a", std::nullopt, "c"});
  EXPECT_THAT(ShownCells(ArrowNode::Lists<int32_t>("+l", "c", {2, 1}, texts)),
              ElementsAre("['a' -]", "['c']"));
}

TEST(ArrowColumnsTest, MapsAndListsOfPairsHaveWeights) {
  ArrowNode entries =
      ArrowNode::Struct("entries", 4,
                        {ArrowNode::Texts<int32_t>("u", "key", {"a", "b", "c", "d"}),
                         ArrowNode::Of<float>("f", "value", {0.5F, 2.0F, std::nullopt, 1.0F})});
  EXPECT_THAT(ShownCells(ArrowNode::Lists<int32_t>("+m", "c", {2, 1, 1}, entries)),
              ElementsAre("['a':0.5 'b':2]", "['c':nan]", "['d':1]"));
  EXPECT_THAT(ShownCells(ArrowNode::Lists<int32_t>("+l", "c", {1, 0, 1}, entries)),
              ElementsAre("['a':0.5]", "[]", "['b':2]"));
}

TEST(ArrowColumnsTest, FieldsOfStructsAreColumns) {
  ArrowNode inner = ArrowNode::Struct("b", 3, {ArrowNode::Of<int64_t>("l", "c", {1, 2, 3})});
  inner.valid = {true, false, true};
  const ArrowNode outer =
      ArrowNode::Struct("a", 3, {ArrowNode::Of<float>("f", "x", {1.0F, 2.0F, 3.0F}), inner});
  EXPECT_THAT(ShownCells(outer, {0, 1, 0}), ElementsAre("1", "-", "3"));
}

TEST(ArrowColumnsTest, OtherTypesAreRefusedByName) {
  const ArrowNode numbers = ArrowNode::Of<int64_t>("l", "item", {1, 2});
  const ArrowNode list = ArrowNode::Lists<int32_t>("+l", "item", {1, 1}, numbers);
  EXPECT_THAT(TypeErrorOf(ArrowNode::Lists<int32_t>("+l", "c", {2}, list)),
              AllOf(HasSubstr("\"c\""), HasSubstr("list<list<int64>>")));
  EXPECT_THAT(TypeErrorOf(ArrowNode::Of<int64_t>("ttu", "c", {1})), HasSubstr("time of day"));
  EXPECT_THAT(TypeErrorOf(ArrowNode::Of<int64_t>("tDs", "c", {1})), HasSubstr("duration"));
  const ArrowNode to_text = ArrowNode::Struct("entries", 1,
                                              {ArrowNode::Texts<int32_t>("u", "key", {"a"}),
                                               ArrowNode::Texts<int32_t>("u", "value", {"b"})});
  EXPECT_THAT(TypeErrorOf(ArrowNode::Lists<int32_t>("+m", "c", {1}, to_text)),
              HasSubstr("map<text, text>"));
}

TEST(ArrowColumnsTest, ConstantsAndAbsentColumnsNeedNoColumn) {
  ArrowStructs structs(ArrowNode::Struct("", 2, {ArrowNode::Of<int32_t>("i", "n", {1, 2})}));
  ArrowColumns::Source constant, nothing;
  constant.constant = true;
  constant.text = "2026-11-29";
  const auto columns = ArrowColumns::Create(structs.schema, {constant, nothing});
  ASSERT_TRUE(columns.ok());
  ArrowBatch batch{ArrowOwner<ArrowArray>(structs.array)};
  const auto cells = (*columns)->Read(&batch, 0, 2);
  ASSERT_TRUE(cells.ok());
  std::vector<Cell> values;
  EXPECT_EQ(Shown(CellAt((*cells)[0], 1, &values)), "'2026-11-29'");
  EXPECT_EQ(Shown(CellAt((*cells)[1], 1, &values)), "-");
}

}  // namespace
}  // namespace sluice
