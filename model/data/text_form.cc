#include "model/data/text_form.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"

namespace sluice {
namespace {

using std::string_view_literals::operator""sv;

struct Form {
  size_t offset;
  std::string_view magic;
  const char* name;
  const char* remedy;  // "$" stands for the path
};

constexpr char kPandas[] = "convert it to CSV, e.g. with pandas: read it and call to_csv";
constexpr char kExtract[] = "extract its files and name those";
constexpr char kTar[] = "a tar archive, which is not supported";
constexpr char kExtractTar[] = "extract its files (tar -xf $) and name those";

// In this order: the first form that fits is the answer.
const Form kForms[] = {
    {0, "PAR1"sv, "a Parquet file, which this format does not read", "set data.format: PARQUET"},
    {0, "PARE"sv, "an encrypted Parquet file, which is not read", kPandas},
    {0, "ARROW1\0\0"sv, "an Arrow file (Feather), which is not read", kPandas},
    {0, "FEA1"sv, "a Feather file, which is not read", kPandas},
    {0, "ORC"sv, "an ORC file, which is not read", kPandas},
    {0, "Obj\x01"sv, "an Avro file, which is not read", kPandas},
    {0, "\x89HDF\r\n\x1a\n"sv, "an HDF5 file, which is not read", kPandas},
    {0, "\x93NUMPY"sv, "a NumPy file, which is not read", "write it as CSV with numpy.savetxt"},
    {0, "SQLite format 3\0"sv, "an SQLite database, which is not read", "export the table as CSV"},
    {0,
     "\xFD"
     "7zXZ\0"sv,
     "compressed with xz, which is not supported", "use gzip or zstd: xz -dc $ | zstd > FILE.zst"},
    {0, "BZh"sv, "compressed with bzip2, which is not supported",
     "use gzip or zstd: bzip2 -dc $ | zstd > FILE.zst"},
    {0, "\x04\x22\x4D\x18"sv, "compressed with lz4, which is not supported",
     "use gzip or zstd: lz4 -dc $ | zstd > FILE.zst"},
    {0, "\xFF\x06\0\0sNaPpY"sv, "compressed with snappy, which is not supported",
     "use gzip or zstd"},
    {0, "\x1F\x9D"sv, "compressed with compress (.Z), which is not supported",
     "use gzip or zstd: zcat $ | gzip > FILE.gz"},
    {0, "PK\x03\x04"sv, "a zip archive (or an Excel workbook), which is not supported",
     "unzip it, or compress its file with gzip or zstd; save a workbook as CSV"},
    {0, "PK\x05\x06"sv, "an empty zip archive", kExtract},
    {0, "7z\xBC\xAF\x27\x1C"sv, "a 7z archive, which is not supported", kExtract},
    {0, "Rar!\x1A\x07"sv, "a RAR archive, which is not supported", kExtract},
    {257, "ustar\0"sv, kTar, kExtractTar},
    {257, "ustar  "sv, kTar, kExtractTar},  // as GNU tar writes it
    {0, "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1"sv, "an Excel workbook (.xls), which is not read",
     "save it as CSV"},
    {0, "\x1F\x8B\x08"sv, "compressed twice, which is not supported",
     "decompress it once with gzip -d"},
    {0, "\x28\xB5\x2F\xFD"sv, "compressed twice, which is not supported",
     "decompress it once: gzip -d for a name that ends in .gz, zstd -d for one in .zst"},
    {0, "%PDF-"sv, "a PDF document", "name a file of data"},
};

// The first bytes of these are also letters of a usual header line, so a byte that no text has must
// follow.
bool NeedsBinary(std::string_view magic) {
  return magic == "PAR1" || magic == "PARE" || magic == "FEA1" || magic == "ORC" || magic == "BZh";
}

bool IsControl(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 && c != '\t' && c != '\n' && c != '\r';
}

bool Fits(const Form& form, std::string_view head) {
  if (head.size() < form.offset || head.substr(form.offset, form.magic.size()) != form.magic)
    return false;
  if (!NeedsBinary(form.magic)) return true;
  if (form.magic == "BZh") return head.substr(4, 6) == "1AY&SY" || head.substr(4, 2) == "\x17\x72";
  const std::string_view next = head.substr(form.magic.size(), 32);
  for (const char c : next) {
    if (IsControl(c)) return true;
  }
  return false;
}

// A TFRecord file begins with the length of a record and the masked checksum of these 8 bytes.
bool IsTfRecord(std::string_view head) {
  if (head.size() < 12) return false;
  uint32_t stored;
  std::memcpy(&stored, head.data() + 8, sizeof stored);
  const uint32_t crc = Crc32c(head.data(), 8);
  return stored == ((crc >> 15 | crc << 17) + 0xa282ead8U);
}

// An object of JSON, or an array of objects, at the beginning of a text.
// "UTF-16" or "UTF-32", by a byte order mark, or by zeros in every other byte of ASCII text.
const char* WideText(std::string_view head) {
  if (head.substr(0, 4) == "\xFF\xFE\0\0"sv || head.substr(0, 4) == "\0\0\xFE\xFF"sv)
    return "UTF-32";
  if (head.substr(0, 2) == "\xFF\xFE"sv || head.substr(0, 2) == "\xFE\xFF"sv) return "UTF-16";
  constexpr size_t kLooked = 32;
  if (head.size() < kLooked) return nullptr;
  for (const size_t zeros_at : {0, 1}) {
    size_t fitting = 0;
    for (size_t i = 0; i < kLooked; ++i) fitting += (head[i] == 0) == (i % 2 == zeros_at);
    if (fitting == kLooked) return "UTF-16";
  }
  return nullptr;
}

absl::Status IsOther(const std::string& path, std::string_view what, std::string_view remedy) {
  std::string filled;
  for (const char c : remedy) {
    if (c == '$') {
      filled += path;
    } else {
      filled += c;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("data file ", path, " is ", std::string(what), "; ", filled,
                   " (data files are text, plain, gzip or zstd, or Parquet)"));
}

}  // namespace

bool IsJson(std::string_view head) {
  const auto skip = [&head](std::string_view some) {
    head.remove_prefix(std::min(head.find_first_not_of(some), head.size()));
  };
  skip("\xEF\xBB\xBF");
  skip(" \t\r\n");
  if (!head.empty() && head.front() == '[') {
    head.remove_prefix(1);
    skip(" \t\r\n");
  }
  if (head.empty() || head.front() != '{') return false;
  // A table may have an object in its first column: then the line goes on behind it.
  std::string_view line = head.substr(0, head.find('\n'));
  const bool cut = line.size() == head.size();
  while (!line.empty() && (line.back() == ',' || line.back() == '\r')) line.remove_suffix(1);
  if (!cut && line.size() > 1 && line.back() != '}') return false;
  head.remove_prefix(1);
  skip(" \t\r\n");
  if (head.empty() || head.front() != '"') return false;
  const size_t end = head.find('"', 1);
  if (end == std::string_view::npos) return false;
  head.remove_prefix(end + 1);
  skip(" \t");
  return !head.empty() && head.front() == ':';
}

absl::Status CheckTextForm(const std::string& path, std::string_view head, bool json) {
  for (const Form& form : kForms) {
    if (Fits(form, head)) return IsOther(path, form.name, form.remedy);
  }
  if (IsTfRecord(head)) {
    return IsOther(path, "a TFRecord file, which is not read",
                   "write its examples as CSV or LIBSVM text");
  }
  if (!json && IsJson(head)) {
    return IsOther(path, "JSON, which this format does not read",
                   "if each line is an object, set data.format: JSON_LINES; an array of objects "
                   "becomes lines with jq -c '.[]' $ > FILE.jsonl");
  }
  if (const char* const wide = WideText(head)) {
    return IsOther(path, absl::StrCat(wide, " text, and only UTF-8 and ASCII are read"),
                   absl::StrCat("convert it: iconv -f ", wide, " -t UTF-8 $ > FILE"));
  }
  return absl::OkStatus();
}

absl::Status LinesEndInCr(const std::string& path) {
  return IsOther(path, "text whose lines end in CR alone (as on old Mac systems)",
                 "end its lines in LF: tr '\\r' '\\n' < $ > FILE");
}

}  // namespace sluice
