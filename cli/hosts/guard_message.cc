#include "cli/hosts/guard_message.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"

namespace sluice::cli {
namespace {

std::string EncodeWord(absl::string_view word) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  if (word.empty()) return "%";
  std::string text;
  for (const char c : word) {
    const auto byte = static_cast<unsigned char>(c);
    if (c > ' ' && c < 0x7f && c != '%') {
      text += c;
    } else {
      text += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return text;
}

int Digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

absl::StatusOr<std::string> DecodeWord(absl::string_view text) {
  if (text == "%") return std::string();
  std::string word;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      word += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? Digit(text[i + 1]) : -1;
    const int low = high >= 0 ? Digit(text[i + 2]) : -1;
    if (low < 0) return absl::InvalidArgumentError("a % without two digits");
    word += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return word;
}

}  // namespace

std::string Encode(const GuardMessage& message) {
  std::string line = absl::StrCat(message.tag, " ", EncodeWord(message.verb));
  for (const std::string& field : message.fields) absl::StrAppend(&line, " ", EncodeWord(field));
  return line + "\n";
}

absl::StatusOr<GuardMessage> ParseGuardMessage(absl::string_view line) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  GuardMessage message;
  if (words.size() < 2 || !absl::SimpleAtoi(words[0], &message.tag))
    return absl::InvalidArgumentError("not a message of a guard");
  SLUICE_ASSIGN_OR_RETURN(message.verb, DecodeWord(words[1]));
  for (size_t i = 2; i < words.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(std::string field, DecodeWord(words[i]));
    message.fields.push_back(std::move(field));
  }
  return message;
}

std::vector<std::string> LineCutter::Take(absl::string_view bytes) {
  std::vector<std::string> lines;
  for (;;) {
    const size_t end = bytes.find('\n');
    const absl::string_view part = bytes.substr(0, end);
    begun_.append(part.data(), std::min(part.size(), most_ - begun_.size()));
    if (end == absl::string_view::npos) return lines;
    lines.push_back(std::move(begun_));
    begun_.clear();
    bytes.remove_prefix(end + 1);
  }
}

}  // namespace sluice::cli
