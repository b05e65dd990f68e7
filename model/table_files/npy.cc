#include "model/table_files/npy.h"

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

constexpr absl::string_view kNumpyMagic("\x93NUMPY", 6);
constexpr uint32_t kMostHeaderBytes = 64 << 10;

absl::Status NoArray(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("is no array of NumPy, or damaged: ", why));
}

// The text behind 'key': in the dictionary.
absl::StatusOr<absl::string_view> ValueOf(absl::string_view header, absl::string_view key) {
  const std::string quoted = absl::StrCat("'", key, "':");
  const size_t at = header.find(quoted);
  if (at == absl::string_view::npos) return NoArray(absl::StrCat("its header has no ", key));
  return absl::StripLeadingAsciiWhitespace(header.substr(at + quoted.size()));
}

absl::StatusOr<absl::string_view> Enclosed(absl::string_view text, char open, char close) {
  const size_t end = text.find(close, 1);
  if (text.empty() || text[0] != open || end == absl::string_view::npos)
    return NoArray("its header cannot be read");
  return text.substr(1, end - 1);
}

absl::Status ParseType(absl::string_view descr, NpyHeader* header) {
  header->descr = std::string(descr);
  const auto refuse = [&](absl::string_view fix) {
    return absl::InvalidArgumentError(absl::StrCat("has the type ", descr, "; ", fix));
  };
  if (descr.size() < 3) return refuse("save numbers or texts");
  uint64_t size = 0;
  header->kind = descr[1];
  if (!absl::SimpleAtoi(descr.substr(2), &size) || size > 1 << 20)
    return refuse("save numbers or texts of one length");
  if (descr[0] == '>') return refuse("save it in little-endian order");
  header->item_bytes = header->kind == 'U' ? 4 * size : size;
  const bool number = (header->kind == 'i' || header->kind == 'u')
                          ? size == 1 || size == 2 || size == 4 || size == 8
                          : header->kind == 'f' && (size == 2 || size == 4 || size == 8);
  if (number || header->kind == 'S' || header->kind == 'U') return absl::OkStatus();
  return refuse("save integers, floats, or texts of one length (no objects)");
}

}  // namespace

uint64_t NpyHeader::width() const {
  uint64_t width = 1;
  for (size_t i = 1; i < shape.size(); ++i) width *= shape[i];
  return width;
}

absl::StatusOr<NpyHeader> ReadNpyHeader(ByteStream* stream) {
  char front[12];
  const auto read = [&](void* to, size_t n) -> absl::Status {
    SLUICE_ASSIGN_OR_RETURN(const size_t got, stream->Read(to, n));
    return got == n ? absl::OkStatus() : NoArray("it is cut off");
  };
  SLUICE_RETURN_IF_ERROR(read(front, 10));
  if (absl::string_view(front, kNumpyMagic.size()) != kNumpyMagic) return NoArray("its beginning");
  uint32_t length = 0;
  std::memcpy(&length, front + 8, 2);
  if (front[6] >= 2) {
    SLUICE_RETURN_IF_ERROR(read(front + 10, 2));
    std::memcpy(&length, front + 8, 4);
  }
  if (length > kMostHeaderBytes) return NoArray("its header is too long");
  std::string text(length, '\0');
  SLUICE_RETURN_IF_ERROR(read(text.data(), length));

  NpyHeader header;
  SLUICE_ASSIGN_OR_RETURN(absl::string_view descr, ValueOf(text, "descr"));
  if (!descr.empty() && descr[0] == '[')
    return absl::InvalidArgumentError("has records of several fields; save one array a field");
  SLUICE_ASSIGN_OR_RETURN(descr, Enclosed(descr, '\'', '\''));
  SLUICE_RETURN_IF_ERROR(ParseType(descr, &header));
  SLUICE_ASSIGN_OR_RETURN(const absl::string_view order, ValueOf(text, "fortran_order"));
  SLUICE_ASSIGN_OR_RETURN(absl::string_view shape, ValueOf(text, "shape"));
  SLUICE_ASSIGN_OR_RETURN(shape, Enclosed(shape, '(', ')'));
  uint64_t values = header.item_bytes;
  for (absl::string_view extent : absl::StrSplit(shape, ',', absl::SkipWhitespace())) {
    uint64_t number = 0;
    if (!absl::SimpleAtoi(extent, &number) || __builtin_mul_overflow(values, number, &values))
      return NoArray("its shape");
    header.shape.push_back(number);
  }
  if (absl::StartsWith(order, "True") && header.shape.size() > 1) {
    return absl::InvalidArgumentError("is in Fortran's order; save numpy.ascontiguousarray of it");
  }
  return header;
}

std::string EncodeNpyHeader(absl::string_view descr, absl::Span<const uint64_t> shape) {
  std::string text = absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (",
                                  absl::StrJoin(shape, ", "), shape.size() == 1 ? ",), }" : "), }");
  // The values begin at a multiple of 64 bytes.
  const size_t front = kNumpyMagic.size() + 4;
  while ((front + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  const uint16_t length = static_cast<uint16_t>(text.size());
  std::string bytes(kNumpyMagic);
  bytes.append("\x01\x00", 2);
  bytes.append(reinterpret_cast<const char*>(&length), sizeof(length));
  return bytes + text;
}

}  // namespace sluice
