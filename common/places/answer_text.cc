#include "common/places/answer_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

void AppendUtf8(uint32_t code, std::string* to) {
  const auto add = [to](uint32_t byte) { to->push_back(static_cast<char>(byte)); };
  if (code < 0x80) return add(code);
  if (code < 0x800) {
    add(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      add(0xE0 | code >> 12);
    } else {
      add(0xF0 | (code >> 18 & 7));
      add(0x80 | (code >> 12 & 63));
    }
    add(0x80 | (code >> 6 & 63));
  }
  add(0x80 | (code & 63));
}

// Appends what the entity `name`, without its & and ;, stands for. False: it is none.
bool AppendEntity(absl::string_view name, std::string* to) {
  constexpr struct {
    const char* name;
    char is;
  } kNamed[] = {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
  for (const auto& one : kNamed) {
    if (name != one.name) continue;
    to->push_back(one.is);
    return true;
  }
  uint32_t code = 0;
  const bool hex = absl::StartsWith(name, "#x");
  if (hex ? !absl::SimpleHexAtoi(name.substr(2), &code)
          : !absl::StartsWith(name, "#") || !absl::SimpleAtoi(name.substr(1), &code)) {
    return false;
  }
  if (code > 0x10FFFF) return false;
  AppendUtf8(code, to);
  return true;
}

std::string WithoutEntities(absl::string_view text) {
  constexpr size_t kLongest = 10;
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t end = text[i] == '&' ? text.find(';', i) : absl::string_view::npos;
    if (end != absl::string_view::npos && end - i <= kLongest &&
        AppendEntity(text.substr(i + 1, end - i - 1), &plain)) {
      i = end;
    } else {
      plain.push_back(text[i]);
    }
  }
  return plain;
}

}  // namespace

std::vector<absl::string_view> XmlElements(absl::string_view xml, absl::string_view element) {
  const std::string open = absl::StrCat("<", element, ">"),
                    close = absl::StrCat("</", element, ">");
  std::vector<absl::string_view> found;
  for (size_t at = 0; (at = xml.find(open, at)) != absl::string_view::npos;) {
    at += open.size();
    const size_t end = xml.find(close, at);
    if (end == absl::string_view::npos) break;
    found.push_back(xml.substr(at, end - at));
    at = end + close.size();
  }
  return found;
}

std::string XmlText(absl::string_view xml, absl::string_view element) {
  const std::string open = absl::StrCat("<", element, ">");
  const size_t at = xml.find(open);
  if (at == absl::string_view::npos) return "";
  const size_t begin = at + open.size();
  const size_t end = xml.find("</", begin);
  if (end == absl::string_view::npos) return "";
  return WithoutEntities(xml.substr(begin, end - begin));
}

std::string ErrorCodeOf(absl::string_view xml) {
  constexpr size_t kLongest = 64;
  const std::string code = XmlText(xml, "Code");
  const bool plain =
      code.size() <= kLongest && std::all_of(code.begin(), code.end(), [](unsigned char c) {
        return absl::ascii_isalnum(c) || c == '.';
      });
  return plain ? code : "";
}

std::string JsonText(absl::string_view json, absl::string_view member) {
  const std::string name = absl::StrCat("\"", member, "\"");
  size_t at = json.find(name);
  if (at == absl::string_view::npos) return "";
  at += name.size();
  const auto skip_blanks = [&] {
    while (at < json.size() && absl::ascii_isspace(static_cast<unsigned char>(json[at]))) ++at;
  };
  skip_blanks();
  if (at >= json.size() || json[at++] != ':') return "";
  skip_blanks();
  if (at >= json.size() || json[at++] != '"') return "";
  std::string text;
  for (; at < json.size() && json[at] != '"'; ++at) {
    if (json[at] == '\\') {
      // Keys and tokens are plain text; of all escapes only \/ is usual.
      if (++at >= json.size() || (json[at] != '/' && json[at] != '\\' && json[at] != '"'))
        return "";
    }
    text.push_back(json[at]);
  }
  return at < json.size() ? text : "";
}

}  // namespace sluice
