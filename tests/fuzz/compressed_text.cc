// Reads a file as text: plain, gzip or zstd, which its first bytes tell.
//
// Checks: however large the reads and the skips are, the text is the same; damaged data is
// DATA_LOSS; what begins another form than text, as far as the first read shows, is
// INVALID_ARGUMENT. The process's memory limit shows that no file makes the reader allocate without
// bound.
#include <algorithm>
#include <memory>

#include "model/data/line_reader.h"
#include "model/data/text_reader.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_file.h"

namespace sluice {
namespace {

// A small file can hold gigabytes of text. The rest is not read, to keep an input short.
constexpr size_t kMostText = size_t{1} << 20;

void CheckStatus(const absl::Status& status) {
  FUZZ_CHECK(status.ok() || status.code() == absl::StatusCode::kDataLoss ||
             absl::IsInvalidArgument(status));
}

// The text, and what comes behind it.
enum class End { kText, kError, kLimit, kOtherForm };
std::pair<std::string, End> TextOf(const std::string& path, size_t read_bytes) {
  auto reader = TextReader::Open(path, Env::Real());
  CheckStatus(reader.status());
  std::string text;
  if (!reader.ok()) return {text, End::kOtherForm};
  std::string buffer(read_bytes, '\0');
  while (text.size() < kMostText) {
    FUZZ_CHECK((*reader)->offset() == text.size());
    const absl::StatusOr<size_t> n = (*reader)->Read(buffer.data(), buffer.size());
    CheckStatus(n.status());
    if (!n.ok()) return {text, absl::IsInvalidArgument(n.status()) ? End::kOtherForm : End::kError};
    if (*n == 0) return {text, End::kText};
    text.append(buffer, 0, *n);
  }
  return {text, End::kLimit};
}

void CheckSkip(const std::string& path, const std::string& text, uint64_t offset) {
  auto reader = TextReader::Open(path, Env::Real());
  FUZZ_CHECK(reader.ok());
  const absl::Status skipped = (*reader)->SkipTo(offset);
  CheckStatus(skipped);
  if (!skipped.ok() || offset >= text.size()) return;
  FUZZ_CHECK((*reader)->offset() == offset);
  char byte;
  const auto n = (*reader)->Read(&byte, 1);
  FUZZ_CHECK(!n.ok() || (*n == 1 && byte == text[offset]));
}

void CheckLines(const std::string& path, const std::string& text, End end) {
  LineReader lines(TextReader::Open(path, Env::Real()).value());
  LineReader::Line line;
  while (lines.next_offset() < kMostText / 2) {
    const absl::StatusOr<bool> more = lines.Next(&line);
    CheckStatus(more.status());
    if (!more.ok()) return;
    if (!*more) {
      FUZZ_CHECK(end != End::kText || lines.next_offset() == text.size());
      return;
    }
    if (line.too_long) continue;
    if (line.offset + line.size > text.size()) {
      FUZZ_CHECK(end == End::kLimit);
      return;
    }
    FUZZ_CHECK(text.compare(line.offset, line.size, line.data, line.size) == 0);
  }
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;  // NOLINT
  FuzzedDataProvider input(data, size);
  const size_t read_bytes = input.ConsumeIntegralInRange<size_t>(1, 70000);
  const uint64_t offset = input.ConsumeIntegralInRange<uint64_t>(0, 100000);
  const MemoryFile file(input.ConsumeRemainingBytesAsString());
  const auto [text, end] = TextOf(file.path(), size_t{64} << 10);
  const auto [same, same_end] = TextOf(file.path(), read_bytes);
  if (end == End::kOtherForm || same_end == End::kOtherForm) return 0;
  // A large read that meets an error returns nothing of the text before it.
  const size_t common = std::min(text.size(), same.size());
  FUZZ_CHECK(text.compare(0, common, same, 0, common) == 0);
  if (end != End::kLimit && same_end != End::kLimit) FUZZ_CHECK(end == same_end);
  FUZZ_CHECK(end != End::kText || text == same);
  CheckSkip(file.path(), text, offset);
  CheckLines(file.path(), text, end);
  SampleFile(file.path(), Env::Real()).IgnoreError();
  return 0;
}
