// Compares the fast path of Criteo lines with a plain parser, which splits at every tab and uses
// strtod, log1p and the frozen hashes.
#include <cmath>
#include <cstdlib>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "model/data/click_generator.h"
#include "model/data/data_source.h"
#include "model/features/feature_compiler.h"
#include "tests/model/data/files_for_test.h"
#include "tests/model/features/schema_for_test.h"

namespace sluice {
namespace {

// Every third of I1..I13 is plain; the others are logarithms, and some are normalized. Every second
// of C1..C26 has a key for missing values, every fifth is folded, and C7 is part of a cross, so its
// slot is not plain.
std::string JobText() {
  std::string text = "data { format: CRITEO_TSV } ";
  for (int i = 1; i <= 13; ++i) {
    absl::StrAppend(&text, "features { name: 'I", i,
                    "' numeric { log: ", i % 3 != 0 ? "true" : "false",
                    i % 2 == 0 ? " z_score { mean: 1.5 stddev: 0.7 }" : "",
                    i == 4 ? " default_value: 3" : "", " } } ");
  }
  for (int i = 1; i <= 26; ++i) {
    absl::StrAppend(&text, "features { name: 'C", i,
                    "' categorical { missing_is_value: ", i % 2 == 0 ? "true" : "false",
                    i % 5 == 0 ? " hash_buckets: 1000" : "", " } } ");
  }
  return text + "features { name: 'x' cross { features: ['C7', 'C9'] } }";
}

bool ReferenceNumber(const std::string& cell, double* value) {
  if (cell.empty() || std::isspace(static_cast<unsigned char>(cell[0]))) return false;
  if (cell.find_first_of("xXpP(") != std::string::npos) return false;  // strtod accepts more forms
  char* end = nullptr;
  *value = std::strtod(cell.c_str(), &end);
  return end == cell.c_str() + cell.size() && std::isfinite(*value);
}

uint64_t ReferenceKey(int i, const std::string& cell) {
  const uint64_t seed = SlotSeed(absl::StrCat("C", i));
  return FoldKey(cell.empty() ? MissingKey(seed) : ValueKey(cell, seed), i % 5 == 0 ? 1000 : 0,
                 seed);
}

// Appends the line's example, or returns false.
bool ReferenceAppend(const std::string& line, Batch* batch) {
  const std::vector<std::string> cells = absl::StrSplit(line, '\t');
  double label;
  if (cells.size() != 40 || !ReferenceNumber(cells[0], &label) || (label != 0 && label != 1))
    return false;
  std::vector<float> numbers;
  for (int i = 1; i <= 13; ++i) {
    double value = i == 4 ? 3 : 0;
    if (!cells[i].empty() && !ReferenceNumber(cells[i], &value)) return false;
    if (i % 3 != 0) value = std::log1p(std::max(value, 0.0));
    if (i % 2 == 0) value = (value - 1.5) * (1 / 0.7);
    if (!(std::abs(value) <= std::numeric_limits<float>::max())) return false;
    numbers.push_back(static_cast<float>(value));
  }
  batch->label.push_back(static_cast<float>(label));
  batch->weight.push_back(1);
  batch->numeric.insert(batch->numeric.end(), numbers.begin(), numbers.end());
  for (int i = 1; i <= 26; ++i) {
    if (!cells[13 + i].empty() || i % 2 == 0) batch->keys.push_back(ReferenceKey(i, cells[13 + i]));
    batch->key_offsets.push_back(static_cast<uint32_t>(batch->keys.size()));
  }
  if (!cells[20].empty() && !cells[22].empty()) {
    const uint64_t parts = CombineHash(SlotSeed("x"), ReferenceKey(7, cells[20]));
    batch->keys.push_back(CombineHash(parts, ReferenceKey(9, cells[22])));
  }
  batch->key_offsets.push_back(static_cast<uint32_t>(batch->keys.size()));
  ++batch->n;
  return true;
}

std::string RandomNumber(std::mt19937* source) {
  static const char* const kOdd[] = {"-0",
                                     "-1",
                                     "+7",
                                     "1e3",
                                     "-2.5e-3",
                                     "999999999999999",
                                     "1.0.0",
                                     "1023",
                                     "1024",
                                     "0.5",
                                     "x",
                                     "1e999",
                                     "9007199254740993123",
                                     "--1",
                                     "1e-500",
                                     "123456789012345678",
                                     "-",
                                     "+",
                                     "1023.5",
                                     "4e38",
                                     "00012",
                                     "-17",
                                     "+-3"};
  switch ((*source)() % 10) {
    case 0:
      return "";
    case 1:
      return kOdd[(*source)() % (sizeof(kOdd) / sizeof(*kOdd))];
    default:
      return std::to_string((*source)() % (1u << (*source)() % 32));
  }
}

std::string RandomWord(std::mt19937* source) {
  std::string word;
  const size_t size = (*source)() % 3 > 0 ? 8 : (*source)() % 20;
  for (size_t i = 0; i < size; ++i) word += static_cast<char>(' ' + (*source)() % 95);
  return word;
}

std::string RandomLine(std::mt19937* source) {
  std::vector<std::string> cells = {std::to_string((*source)() % 2)};
  const bool odd = (*source)() % 2 == 0;
  for (int i = 0; i < 13; ++i)
    cells.push_back(odd || i % 4 == 0 ? std::to_string((*source)() % 2000) : RandomNumber(source));
  for (int i = 0; i < 26; ++i) cells.push_back(RandomWord(source));
  std::string line = absl::StrJoin(cells, "\t");
  switch ((*source)() % 20) {  // malformed cells
    case 0:
      return line.substr(0, 1 + (*source)() % line.size());
    case 1:
      return line + "\t";
    case 2:
      line[(*source)() % line.size()] = '\t';
      return line;
    default:
      return line;
  }
}

void ExpectSame(const std::vector<std::string>& lines) {
  const TempFolder folder;
  const JobConfig job = JobForTest(JobText());
  const auto schema = SchemaForTest(job);
  const auto data = DataSource::Create(job.data(), schema, Env::Real());
  ASSERT_TRUE(data.ok()) << data.status();
  Batch expected = EmptyBatch(*schema), batch = EmptyBatch(*schema);
  uint64_t expected_bad = 0;
  for (const std::string& line : lines) expected_bad += !ReferenceAppend(line, &expected);
  BadLines bad;
  const std::string path = folder.Write("lines", absl::StrJoin(lines, "\n"));
  ASSERT_TRUE((*data)->ReadPiece(path, 0, UINT64_MAX, true, &batch, &bad).ok());
  EXPECT_EQ(bad.count, expected_bad) << bad.Describe();
  ASSERT_EQ(batch.n, expected.n);
  EXPECT_EQ(batch.label, expected.label);
  EXPECT_EQ(batch.weight, expected.weight);
  EXPECT_EQ(batch.key_offsets, expected.key_offsets);
  EXPECT_EQ(batch.keys, expected.keys);
  ASSERT_EQ(batch.numeric.size(), expected.numeric.size());
  for (size_t i = 0; i < batch.numeric.size(); ++i) {  // compares bits, because -0 == 0
    ASSERT_EQ(std::memcmp(&batch.numeric[i], &expected.numeric[i], 4), 0)
        << batch.numeric[i] << " " << expected.numeric[i];
  }
}

TEST(CriteoParseTest, FastAndPlainParserAgreeOnRandomAndMalformedLines) {
  for (const uint32_t seed : {1, 2, 3}) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 source(seed);
    std::vector<std::string> lines;
    for (int i = 0; i < 1500; ++i) lines.push_back(RandomLine(&source));
    ExpectSame(lines);
  }
}

TEST(CriteoParseTest, FastAndPlainParserAgreeOnGeneratedLines) {
  ClickOptions options;
  options.cardinality = 1000;
  ClickSums sums;
  std::string text;
  ClickGenerator(options).Append(0, 1000, &text, &sums);
  text.pop_back();
  ExpectSame(absl::StrSplit(text, '\n'));
}

}  // namespace
}  // namespace sluice
