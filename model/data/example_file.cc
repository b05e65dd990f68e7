#include "model/data/example_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "model/features/data_summary.h"

namespace sluice {
namespace {

constexpr char kExampleMagic[8] = {'S', 'L', 'U', 'I', 'C', 'E', 'X', '1'};
constexpr size_t kExampleHeaderBytes = 4096, kSectionAlignment = 64;
constexpr size_t kDigestBytes = 64;

enum SectionIndex {
  kLabel,
  kWeight,
  kNumeric,
  kOffsets,
  kKeys,
  kKeyWeights,
  kBadLines,
  kSummary,
  kSections
};

struct ExampleSection {
  uint64_t offset = 0, bytes = 0;
  uint64_t crc = 0;
};

}  // namespace

// Every field has a multiple of its own size as offset, so the bytes in a file have no gaps.
struct ExampleFileHeader {
  char magic[8];
  uint32_t version = ExampleFile::kVersion;
  uint32_t crc = 0;  // of the header with this field 0
  char digest[kDigestBytes];
  uint64_t source_bytes = 0;
  int64_t source_modified_ns = 0, source_changed_ns = 0;
  uint64_t n = 0, num_numeric = 0, num_slots = 0, num_keys = 0;
  uint64_t bad_lines = 0;
  uint64_t file_bytes = 0;
  ExampleSection sections[kSections];
};
static_assert(sizeof(ExampleFileHeader) <= kExampleHeaderBytes);

namespace {

uint32_t HeaderCrc(ExampleFileHeader header) {
  header.crc = 0;
  return Crc32c(&header, sizeof(header));
}

bool OneKeyASlot(const ExampleView& examples) {
  if (examples.key_offsets == nullptr) return true;
  const size_t n = examples.n * examples.num_slots;
  if (examples.key_offsets[n] - examples.key_offsets[0] != n) return false;
  for (size_t i = 0; i <= n; ++i) {
    if (examples.key_offsets[i] != i) return false;
  }
  return true;
}

bool AllOne(const float* weight, size_t n) {
  return weight == nullptr || std::all_of(weight, weight + n, [](float w) { return w == 1; });
}

absl::Status WriteAt(int fd, const std::string& file, uint64_t offset, const void* data, size_t n) {
  const char* from = static_cast<const char*>(data);
  while (n > 0) {
    // Fewer bytes than asked are no error: the next call says why, for example that the disk is
    // full.
    const ssize_t done = pwrite(fd, from, n, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", file));
    from += done;
    offset += static_cast<uint64_t>(done);
    n -= static_cast<size_t>(done);
  }
  return absl::OkStatus();
}

// Reads the header of a file of `bytes` bytes. Checks it before any of its fields is used.
absl::Status ReadExampleHeader(int fd, const std::string& path, uint64_t bytes,
                               const ExampleOrigin& origin, ExampleFileHeader* header) {
  if (bytes < kExampleHeaderBytes) return absl::DataLossError("it is truncated");
  if (pread(fd, header, sizeof(*header), 0) != static_cast<ssize_t>(sizeof(*header)))
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  if (std::memcmp(header->magic, kExampleMagic, sizeof(kExampleMagic)) != 0 ||
      HeaderCrc(*header) != header->crc)
    return absl::DataLossError("its header is damaged");
  if (header->version != ExampleFile::kVersion)
    return absl::InvalidArgumentError("another version of Sluice wrote it");
  if (header->file_bytes != bytes) return absl::DataLossError("it is truncated");
  if (absl::string_view(header->digest, kDigestBytes) != origin.digest ||
      header->num_numeric != origin.num_numeric || header->num_slots != origin.num_slots) {
    return absl::InvalidArgumentError("it belongs to other features or data");
  }
  if (header->source_bytes != origin.source.size ||
      header->source_modified_ns != origin.source.modified_ns ||
      header->source_changed_ns != origin.source.changed_ns)
    return absl::InvalidArgumentError("the data file has changed since it was written");
  return absl::OkStatus();
}

// Checks that the sections have the sizes that the header implies, and are inside the file. Bad
// lines and summary may have any length.
absl::Status CheckSections(const ExampleFileHeader& h, uint64_t bytes) {
  const absl::Status damaged = absl::DataLossError("its header is damaged");
  const auto has = [&h](SectionIndex section) { return h.sections[section].bytes > 0; };
  // No count of a true file exceeds its size. The products below could overflow for larger counts,
  // and then agree with a small section.
  const uint64_t offsets = h.n * h.num_slots;
  if (h.n > bytes || h.num_numeric > bytes || h.num_slots > bytes || h.num_keys > bytes ||
      offsets > bytes) {
    return damaged;
  }
  const uint64_t wanted[] = {h.n * 4,
                             has(kWeight) ? h.n * 4 : 0,
                             h.n * h.num_numeric * 4,
                             has(kOffsets) ? (offsets + 1) * 4 : 0,
                             h.num_keys * 8,
                             has(kKeyWeights) ? h.num_keys * 4 : 0,
                             h.sections[kBadLines].bytes,
                             h.sections[kSummary].bytes};
  if (!has(kOffsets) && h.num_keys != offsets) return damaged;
  for (int s = 0; s < kSections; ++s) {
    const ExampleSection& section = h.sections[s];
    // Written so that the sum of offset and size cannot overflow.
    if (section.bytes != wanted[s] || section.offset % kSectionAlignment != 0 ||
        section.offset > bytes || section.bytes > bytes - section.offset) {
      return damaged;
    }
  }
  return absl::OkStatus();
}

}  // namespace

ExampleFileImage::ExampleFileImage(const ExampleOrigin& origin, const ExampleView& examples,
                                   const BadLines& bad, const DataSummary& summary)
    : summary_(summary.SerializeAsString()), header_(std::make_unique<ExampleFileHeader>()) {
  for (const std::string& line : bad.first) absl::StrAppend(&bad_lines_, line, "\n");
  const bool one_key = OneKeyASlot(examples);
  const size_t offsets = examples.n * examples.num_slots;
  const uint64_t keys = one_key ? offsets : examples.key_offsets[offsets];
  const auto bytes_at = [](const void* data, size_t n) {
    return absl::string_view(static_cast<const char*>(data), n);
  };
  // In the order of SectionIndex.
  sections_ = {bytes_at(examples.label, examples.n * 4),
               bytes_at(examples.weight, AllOne(examples.weight, examples.n) ? 0 : examples.n * 4),
               bytes_at(examples.numeric, examples.n * examples.num_numeric * 4),
               bytes_at(examples.key_offsets, one_key ? 0 : (offsets + 1) * 4),
               bytes_at(examples.keys, keys * sizeof(uint64_t)),
               bytes_at(examples.key_weights, AllOne(examples.key_weights, keys) ? 0 : keys * 4),
               bad_lines_,
               summary_};

  ExampleFileHeader& header = *header_;
  std::memcpy(header.magic, kExampleMagic, sizeof(kExampleMagic));
  std::memcpy(header.digest, origin.digest.data(), kDigestBytes);
  header.source_bytes = origin.source.size;
  header.source_modified_ns = origin.source.modified_ns;
  header.source_changed_ns = origin.source.changed_ns;
  header.n = examples.n;
  header.num_numeric = examples.num_numeric;
  header.num_slots = examples.num_slots;
  header.num_keys = keys;
  header.bad_lines = bad.count;
  uint64_t at = kExampleHeaderBytes;
  for (int s = 0; s < kSections; ++s) {
    const absl::string_view section = sections_[s];
    header.sections[s] = {at, section.size(), Crc32c(section.data(), section.size())};
    at += (section.size() + kSectionAlignment - 1) / kSectionAlignment * kSectionAlignment;
  }
  header.file_bytes = at;
  header.crc = HeaderCrc(header);  // last, since it covers all fields above
}

ExampleFileImage::~ExampleFileImage() = default;

uint64_t ExampleFileImage::bytes() const { return header_->file_bytes; }

absl::Status ExampleFileImage::WriteTo(int fd, const std::string& path) const {
  // The gaps between sections are never written: the file has its whole size first, and zeros
  // there.
  if (ftruncate(fd, static_cast<off_t>(bytes())) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  SLUICE_RETURN_IF_ERROR(WriteAt(fd, path, 0, header_.get(), sizeof(*header_)));
  for (int s = 0; s < kSections; ++s) {
    SLUICE_RETURN_IF_ERROR(
        WriteAt(fd, path, header_->sections[s].offset, sections_[s].data(), sections_[s].size()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const ExampleFile>> ExampleFile::Map(int fd, const std::string& path,
                                                                    uint64_t bytes,
                                                                    const ExampleOrigin& origin) {
  auto header = std::make_unique<ExampleFileHeader>();
  SLUICE_RETURN_IF_ERROR(ReadExampleHeader(fd, path, bytes, origin, header.get()));
  SLUICE_RETURN_IF_ERROR(CheckSections(*header, bytes));
  // Populated at once: page faults one by one would cost more than reading ahead, and
  // CheckContents reads every page anyway.
  void* const base = mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (base == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrCat("cannot map ", path));
  return std::shared_ptr<const ExampleFile>(
      new ExampleFile(path, std::move(header), static_cast<const char*>(base), bytes));
}

absl::StatusOr<uint64_t> ExampleFile::CountLines(int fd, const std::string& path, uint64_t bytes,
                                                 const ExampleOrigin& origin) {
  ExampleFileHeader header{};
  SLUICE_RETURN_IF_ERROR(ReadExampleHeader(fd, path, bytes, origin, &header));
  return header.n + header.bad_lines;
}

bool ExampleFile::HasMagic(int fd) {
  char magic[sizeof(kExampleMagic)];
  return pread(fd, magic, sizeof(magic), 0) == sizeof(magic) &&
         std::memcmp(magic, kExampleMagic, sizeof(magic)) == 0;
}

ExampleFile::ExampleFile(std::string path, std::unique_ptr<const ExampleFileHeader> header,
                         const char* base, size_t bytes)
    : path_(std::move(path)), header_(std::move(header)), base_(base), bytes_(bytes) {}

ExampleFile::~ExampleFile() { munmap(const_cast<char*>(base_), bytes_); }

const char* ExampleFile::at(int section) const { return base_ + header_->sections[section].offset; }
bool ExampleFile::has(int section) const { return header_->sections[section].bytes > 0; }
std::string ExampleFile::TextOf(int section) const {
  return std::string(at(section), header_->sections[section].bytes);
}

absl::Status ExampleFile::CheckContents() const {
  for (int s = 0; s < kSections; ++s) {
    const ExampleSection& section = header_->sections[s];
    if (Crc32c(base_ + section.offset, section.bytes) != section.crc)
      return absl::DataLossError(absl::StrCat("the checksum of its section ", s, " is wrong"));
  }
  if (!has(kOffsets)) return absl::OkStatus();
  // A checksum only says that the bytes are those that were written. Offsets are followed, so they
  // are checked for themselves.
  const uint32_t* const offsets = view().key_offsets;
  const uint64_t n = header_->n * header_->num_slots;
  if (offsets[0] != 0 || offsets[n] != header_->num_keys ||
      !std::is_sorted(offsets, offsets + n + 1))
    return absl::DataLossError("its key offsets are not ascending");
  return absl::OkStatus();
}

ExampleView ExampleFile::view() const {
  ExampleView view;
  view.n = header_->n;
  view.num_numeric = header_->num_numeric;
  view.num_slots = header_->num_slots;
  view.label = reinterpret_cast<const float*>(at(kLabel));
  if (has(kWeight)) view.weight = reinterpret_cast<const float*>(at(kWeight));
  view.numeric = reinterpret_cast<const float*>(at(kNumeric));
  if (has(kOffsets)) view.key_offsets = reinterpret_cast<const uint32_t*>(at(kOffsets));
  view.keys = reinterpret_cast<const uint64_t*>(at(kKeys));
  view.num_keys = header_->num_keys;
  if (has(kKeyWeights)) view.key_weights = reinterpret_cast<const float*>(at(kKeyWeights));
  view.file = &path_;
  return view;
}

void ExampleFile::AddBadLines(BadLines* bad) const {
  BadLines own;
  own.count = header_->bad_lines;
  const std::string text = TextOf(kBadLines);
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty()))
    own.first.emplace_back(line);
  bad->Merge(own);
}

bool ExampleFile::AddSummaryTo(DataSummary* summary) const {
  DataSummary own;
  if (!own.ParseFromString(TextOf(kSummary))) return false;
  AddSummary(own, summary);
  return true;
}

}  // namespace sluice
