#include "model/data/arrow_types.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/model/data/arrow_arrays.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

TEST(ArrowTypesTest, PathsAreColumnsAndTheFieldsOfStructs) {
  const ArrowNode numbers = ArrowNode::Of<int64_t>("l", "item", {1, 2});
  const ArrowNode outer = ArrowNode::Struct(
      "a", 2,
      {ArrowNode::Of<float>("f", "x", {1.0F, 2.0F}),
       ArrowNode::Struct("b", 2, {ArrowNode::Of<int64_t>("tsu:UTC", "c", {1, 2})})});
  ArrowStructs structs(
      ArrowNode::Struct("", 2,
                        {outer, ArrowNode::Lists<int32_t>("+l", "n", {1, 1}, numbers),
                         ArrowNode::Texts<int64_t>("U", "t", {"a", "b"})}));
  const auto paths = ArrowPathsOf(structs.schema);
  ASSERT_TRUE(paths.ok());
  std::vector<std::string> names;
  for (const ArrowPath& path : *paths) names.push_back(path.name + " " + path.type);
  EXPECT_THAT(names, ElementsAre("a.x float", "a.b.c timestamp", "n list<int64>", "t text"));
  EXPECT_THAT((*paths)[1].steps, ElementsAre(0, 1, 0));
  EXPECT_EQ((*paths)[1].values, ArrowClass::kDate);
  EXPECT_TRUE((*paths)[2].list);
  EXPECT_EQ((*paths)[2].values, ArrowClass::kNumber);
  ArrowStructs plain(numbers);
  EXPECT_FALSE(ArrowPathsOf(plain.schema).ok());
}

TEST(ArrowTypesTest, TypesOfValuesHaveTheirUnits) {
  const auto type_of = [](const char* format) {
    ArrowStructs structs(ArrowNode::Of<int64_t>(format, "c", {1, 2}));
    return ArrowTypeOf(structs.schema);
  };
  EXPECT_EQ(type_of("tsn:").per_second, 1'000'000'000);
  EXPECT_EQ(type_of("d:9,2").width, 16u);
  EXPECT_EQ(type_of("d:9,2").scale, 2);
  EXPECT_EQ(type_of("d:9,2,48").store, ArrowStore::kNone);
  EXPECT_EQ(type_of("w:7").width, 7u);
  EXPECT_EQ(type_of("+r").store, ArrowStore::kNone);
}

TEST(ArrowTypesTest, BytesAreThoseOfAllBuffers) {
  const auto bytes_of = [](const ArrowNode& node) {
    ArrowStructs structs(ArrowNode::Struct("", node.length, {node}));
    return ArrowBytes(structs.schema, structs.array);
  };
  const std::vector<std::optional<int64_t>> numbers(1000, 7);
  EXPECT_GE(bytes_of(ArrowNode::Of<int64_t>("l", "c", numbers)), 8000u);
  EXPECT_LE(bytes_of(ArrowNode::Of<int64_t>("l", "c", numbers)), 8300u);
  EXPECT_GE(bytes_of(ArrowNode::Lists<int32_t>("+l", "c", {500, 500},
                                               ArrowNode::Of<int64_t>("l", "item", numbers))),
            8000u);
  // Texts that do not count, in front of the array, are left out.
  ArrowNode texts = ArrowNode::Texts<int32_t>(
      "u", "c", {std::string(50'000, 'x'), std::string(3000, 'x'), "y"}, 1);
  EXPECT_GE(bytes_of(texts), 3001u);
  EXPECT_LE(bytes_of(texts), 3100u);
  ArrowNode coded = ArrowNode::Of<int32_t>("i", "c", {0, 2, 1});
  coded.dictionary = std::make_shared<ArrowNode>(texts);
  EXPECT_GE(bytes_of(coded), 3001u + 3 * 4);
}

}  // namespace
}  // namespace sluice
