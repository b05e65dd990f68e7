// Reads a cache file of parsed examples whose bytes the input gives, with checksums that are made
// right, so that they keep nothing from the checks behind them.
//
// Checks: what the cache returns can be read completely.
#include "model/data/example_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "common/base/crc32c.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// The layout of the header (example_file.cc): checksum, identity of the source, table of sections.
constexpr size_t kCrcOffset = 12, kIdentity = 16, kIdentityBytes = 88, kFileBytes = 144,
                 kSectionTable = 152, kSections = 8, kSectionBytes = 24, kHeaderBytes = 344,
                 kHeaderRoom = 4096;

template <class T>
T Load(const std::string& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}
template <class T>
void Store(T value, size_t at, std::string* bytes) {
  std::memcpy(bytes->data() + at, &value, sizeof(value));
}

// Makes size and checksums of the file right.
void Repair(std::string* bytes) {
  bytes->resize(std::max(bytes->size(), kHeaderRoom));
  Store<uint64_t>(bytes->size(), kFileBytes, bytes);
  for (size_t s = 0; s < kSections; ++s) {
    const size_t at = kSectionTable + s * kSectionBytes;
    const auto offset = Load<uint64_t>(*bytes, at), n = Load<uint64_t>(*bytes, at + 8);
    if (offset > bytes->size() || n > bytes->size() - offset) continue;
    Store<uint64_t>(Crc32c(bytes->data() + offset, n), at + 16, bytes);
  }
  Store<uint32_t>(0, kCrcOffset, bytes);
  Store<uint32_t>(Crc32c(bytes->data(), kHeaderBytes), kCrcOffset, bytes);
}

const std::vector<DataPiece> kPieces = {{"data"}};

class CacheFolder {
 public:
  CacheFolder() {
    std::string pattern = (fs::temp_directory_path() / "sluice_fuzz_XXXXXX").string();
    FUZZ_CHECK(mkdtemp(pattern.data()) != nullptr);
    folder_ = pattern;
    source_.size = 100;
    const float label[] = {0, 1, 1}, numeric[] = {1, 2, 3};
    const uint32_t offsets[] = {0, 1, 1, 2, 4, 5, 6};
    const uint64_t keys[] = {7, 8, 9, 10, 11, 12};
    ExampleView view{3, 1, 2, label, nullptr, numeric, offsets, keys};
    BadLines bad;
    bad.Add("data:4", absl::InvalidArgumentError("bad"));
    DataSummary summary;
    FUZZ_CHECK(Cache()->Store(kPieces, source_, view, bad, summary));
    for (const auto& entry : fs::directory_iterator(folder_)) file_ = entry.path();
    std::ifstream in(file_, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
    std::string repaired = bytes_;
    Repair(&repaired);
    FUZZ_CHECK(repaired == bytes_);  // the layout above is the file's
  }
  ~CacheFolder() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  std::unique_ptr<ExampleCache> Cache() const {
    ExampleCache::Options options;
    options.env = Env::Real();
    options.clock = Clock::Real();
    options.dir = folder_;
    options.max_bytes = 1 << 20;
    options.fingerprint = "f";
    options.num_numeric = 1;
    options.num_slots = 2;
    options.log = [](const std::string&) {};
    return std::make_unique<ExampleCache>(std::move(options));
  }
  void Write(const std::string& bytes) const {
    std::ofstream out(file_, std::ios::binary | std::ios::trunc);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    FUZZ_CHECK(out.flush().good());
  }
  const std::string& bytes() const { return bytes_; }  // of a true file
  const FileIdentity& source() const { return source_; }

 private:
  std::string folder_, file_, bytes_;
  FileIdentity source_;
};

// Reads everything, so that a sanitizer sees what is not there.
double Sum(const ExampleView& view) {
  double sum = 0;
  for (size_t i = 0; i < view.n; ++i) sum += view.label[i] + (view.weight ? view.weight[i] : 1);
  for (size_t i = 0; i < view.n * view.num_numeric; ++i) sum += view.numeric[i];
  const size_t slots = view.n * view.num_slots;
  for (size_t i = 0; i < slots; ++i) {
    const uint64_t begin = view.key_offsets ? view.key_offsets[i] : i,
                   end = view.key_offsets ? view.key_offsets[i + 1] : i + 1;
    FUZZ_CHECK(begin <= end);
    for (uint64_t k = begin; k < end; ++k) sum += static_cast<double>(view.keys[k]);
  }
  return sum;
}

}  // namespace
}  // namespace sluice

// The input: (offset in the file, new bytes)*, then how much of the file is left.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;  // NOLINT
  static CacheFolder folder;
  FuzzedDataProvider input(data, size);
  std::string bytes = folder.bytes();
  const bool repair = input.ConsumeIntegralInRange(0, 7) != 0;
  const bool keep_identity = input.ConsumeIntegralInRange(0, 7) != 0;
  if (input.ConsumeIntegralInRange(0, 3) == 0)
    bytes.resize(input.ConsumeIntegralInRange<size_t>(0, 2 * bytes.size()));
  while (input.remaining_bytes() > 0) {
    const size_t at = input.ConsumeBool() ? input.ConsumeIntegralInRange<size_t>(104, kHeaderBytes)
                                          : input.ConsumeIntegralInRange<size_t>(0, bytes.size());
    const std::string piece = input.ConsumeRandomLengthString(64);
    if (at + piece.size() <= bytes.size()) bytes.replace(at, piece.size(), piece);
  }
  if (repair) {
    bytes.resize(std::max(bytes.size(), kHeaderRoom));
    if (keep_identity)
      bytes.replace(kIdentity, kIdentityBytes, folder.bytes(), kIdentity, kIdentityBytes);
    Repair(&bytes);
  }
  folder.Write(bytes);
  const auto cache = folder.Cache();
  BadLines bad;
  DataSummary summary;
  const Examples examples = cache->Find(kPieces, folder.source(), &bad, &summary);
  if (examples.owner != nullptr) {
    volatile double sum = Sum(examples.view);
    (void)sum;
    FUZZ_CHECK(cache->CountLines({"data"}, folder.source()).has_value());
  }
  return 0;
}
