#include "model/profile/held_out.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "model/data/line_reader.h"
#include "tests/model/data/files_for_test.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

FileRoles Roles(const std::vector<std::string>& names, uint64_t last_size = 100) {
  std::vector<TableProfile::File> files;
  for (const std::string& name : names) files.push_back({name, 100});
  files.back().size = last_size;
  return RolesOf(files);
}

TEST(HeldOutTest, NamesSayWhichFilesEvaluate) {
  EXPECT_THAT(Roles({"d/adult.data", "d/adult.test"}).eval, ElementsAre("d/adult.test"));
  EXPECT_THAT(Roles({"d/adult.data", "d/adult.test"}).train, ElementsAre("d/adult.data"));
  const FileRoles three = Roles({"test.csv", "train.csv", "valid.csv"});
  EXPECT_THAT(three.eval, ElementsAre("valid.csv"));
  EXPECT_THAT(three.train, ElementsAre("train.csv"));
  EXPECT_THAT(three.unused, ElementsAre("test.csv"));
  EXPECT_THAT(Roles({"latest.csv", "oldest.csv"}).eval, ElementsAre("oldest.csv"));
  EXPECT_THAT(Roles({"day-1", "day-2", "day-3"}).eval, ElementsAre("day-3"));
  EXPECT_THAT(Roles({"day-1", "day-2", "day-3"}, 1000).eval, ElementsAre("day-1"));
  EXPECT_THAT(Roles({"all.csv"}).eval, IsEmpty());
}

TEST(HeldOutTest, LinesOfOneFileGoToOneOfTwo) {
  const TempFolder folder;
  std::string text = "\n# c\nid,name,label\r\n";
  for (int i = 0; i < 4000; ++i)
    absl::StrAppend(&text, i, i % 5 == 0 ? ",\"two\nlines\"," : ",one,", i % 2, "\r\n");
  const std::string file = folder.Write("a.csv", text);
  const auto table = ProfileTable({file}, ProfileLimits(), Env::Real());
  ASSERT_TRUE(table.ok()) << table.status();
  const std::string train = folder.Write("train", ""), eval = folder.Write("eval", "");
  const auto held = HoldOutLines(file, table->shape, 0.25, train, eval, Env::Real());
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_EQ(held->train_lines + held->eval_lines, 4000u);
  EXPECT_NEAR(static_cast<double>(held->eval_lines), 1000, 120);
  for (const auto& [path, lines] :
       {std::pair(train, held->train_lines), {eval, held->eval_lines}}) {
    EXPECT_THAT(*Env::Real()->ReadFile(path), StartsWith("id,name,label\n"));
    const auto part = ProfileTable({path}, ProfileLimits(), Env::Real());
    ASSERT_TRUE(part.ok()) << part.status();
    EXPECT_EQ(part->lines, lines);
    EXPECT_EQ(part->bad.count, 0u);
  }
  EXPECT_EQ(held->too_long, 0u);
  // Again the same lines.
  const std::string before = *Env::Real()->ReadFile(eval);
  ASSERT_TRUE(HoldOutLines(file, table->shape, 0.25, train, eval, Env::Real()).ok());
  EXPECT_EQ(*Env::Real()->ReadFile(eval), before);
}

TEST(HeldOutTest, LinesThatAreTooLongAreCounted) {
  const TempFolder folder;
  std::string text = "a,b\n";
  for (int i = 0; i < 50; ++i) absl::StrAppend(&text, i, ",", i % 2, "\n");
  const std::string file =
      folder.Write("a.csv", text + std::string(LineReader::kMaxLineBytes + 1, 'x') + "\n1,1\n");
  const auto table = ProfileTable({file}, ProfileLimits(), Env::Real());
  ASSERT_TRUE(table.ok()) << table.status();
  const std::string train = folder.Write("train", ""), eval = folder.Write("eval", "");
  const auto held = HoldOutLines(file, table->shape, 0.25, train, eval, Env::Real());
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_EQ(held->train_lines + held->eval_lines, 51u);
  EXPECT_EQ(held->too_long, 1u);
}

}  // namespace
}  // namespace sluice
