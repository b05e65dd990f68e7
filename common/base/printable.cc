#include "common/base/printable.h"

#include <cstdio>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace sluice {
namespace {

// The number of bytes of the printable UTF-8 character that `text` begins with, or 0 when it does
// not begin with one (RFC 3629; Unicode, table 3-7).
size_t CharacterBytes(absl::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto follows = [&](size_t i) { return byte(i) >= 0x80 && byte(i) <= 0xBF; };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80)
    return (first >= 0x20 && first != 0x7F) || first == '\n' || first == '\t' ? 1 : 0;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const unsigned low = first == 0xE0 ? 0xA0 : 0x80,
                   high = first == 0xED ? 0x9F : 0xBF;  // no surrogates
    return second >= low && second <= high && follows(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const unsigned low = first == 0xF0 ? 0x90 : 0x80, high = first == 0xF4 ? 0x8F : 0xBF;
    return second >= low && second <= high && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

// The same for text on one line.
size_t LineCharacterBytes(absl::string_view text) {
  const size_t bytes = CharacterBytes(text);
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto is_in = [](unsigned c, unsigned low, unsigned high) { return c >= low && c <= high; };
  // A newline or a tab of a peer could forge a line of the log.
  if (bytes == 1 && byte(0) < 0x20) return 0;
  if (bytes == 2) {
    if (byte(0) == 0xC2 && byte(1) < 0xA0) return 0;   // U+0080 to U+009F: C1 controls
    if (byte(0) == 0xD8 && byte(1) == 0x9C) return 0;  // U+061C
  }
  if (bytes == 3 && byte(0) == 0xE2) {
    // U+200E, U+200F; U+2028 and U+2029, which end a line, and U+202A to U+202E; U+2066 to U+2069.
    if (byte(1) == 0x80 && (is_in(byte(2), 0x8E, 0x8F) || is_in(byte(2), 0xA8, 0xAE))) return 0;
    if (byte(1) == 0x81 && is_in(byte(2), 0xA6, 0xA9)) return 0;
  }
  return bytes;
}

template <typename Bytes>
std::string Escaped(absl::string_view text, const Bytes& bytes_of) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = bytes_of(text.substr(at));
    if (bytes > 0) {
      out.append(text.data() + at, bytes);
    } else {
      // Byte by byte: the next byte may begin a character that can be shown.
      absl::StrAppend(&out, "\\x", absl::BytesToHexString(text.substr(at, 1)));
    }
    at += bytes > 0 ? bytes : 1;
  }
  return out;
}

}  // namespace

std::string Printable(absl::string_view text) { return Escaped(text, CharacterBytes); }

std::string PrintableLine(absl::string_view text) { return Escaped(text, LineCharacterBytes); }

std::string PrintableLines(absl::string_view text) {
  return absl::StrJoin(
      // Indented, so that no further line looks like one of the log's own.
      absl::StrSplit(text, '\n'), "\n    ",
      [](std::string* out, absl::string_view line) { absl::StrAppend(out, PrintableLine(line)); });
}

bool IsPrintableLine(absl::string_view text) {
  while (!text.empty()) {
    const size_t bytes = LineCharacterBytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string JsonQuoted(absl::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          char code[8];
          std::snprintf(code, sizeof(code), "\\u%04x", c);
          out += code;
        } else {
          out.push_back(c);
        }
    }
  }
  return out + "\"";
}

}  // namespace sluice
