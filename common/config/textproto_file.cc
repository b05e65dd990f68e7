#include "common/config/textproto_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/config/closest_name.h"
#include "common/config/field_path.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/tokenizer.h"

namespace sluice {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;

// The type of the first enum field `name` in `type` or below; null when there is none.
const EnumDescriptor* FindEnum(const Descriptor& type, const std::string& name,
                               std::set<const Descriptor*>* seen) {
  // Messages may contain their own type.
  if (!seen->insert(&type).second) return nullptr;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    if (field->enum_type() != nullptr && field->name() == name) return field->enum_type();
    if (field->message_type() == nullptr) continue;
    if (const EnumDescriptor* found = FindEnum(*field->message_type(), name, seen)) return found;
  }
  return nullptr;
}

// The first field `name` in `type` or below; null when there is none.
const FieldDescriptor* FindFieldNamed(const Descriptor& type, const std::string& name,
                                      std::set<const Descriptor*>* seen) {
  // Messages may contain their own type.
  if (!seen->insert(&type).second) return nullptr;
  if (const FieldDescriptor* field = type.FindFieldByName(name)) return field;
  for (int i = 0; i < type.field_count(); ++i) {
    if (type.field(i)->message_type() == nullptr) continue;
    const FieldDescriptor* found = FindFieldNamed(*type.field(i)->message_type(), name, seen);
    if (found != nullptr) return found;
  }
  return nullptr;
}

// A place in a text, as the parser counts it.
size_t OffsetOf(absl::string_view text, int line, int column) {
  size_t at = 0;
  for (; line > 0; --line) {
    const size_t end = text.find('\n', at);
    if (end == absl::string_view::npos) return text.size();
    at = end + 1;
  }
  // The parser's tab stops are 8 columns apart.
  for (int passed = 0; passed < column && at < text.size(); ++at)
    passed = text[at] == '\t' ? (passed / 8 + 1) * 8 : passed + 1;
  return at;
}

// The field whose value begins at `at`, as in "name: " and "name: [1, "; "" when there is none.
std::string FieldBefore(absl::string_view text, size_t at) {
  absl::string_view before = absl::StripTrailingAsciiWhitespace(text.substr(0, at));
  if (absl::ConsumeSuffix(&before, "-")) before = absl::StripTrailingAsciiWhitespace(before);
  if (absl::EndsWith(before, ",")) {
    const size_t list = before.rfind('[');
    // A list that has ended before is not the one of this value.
    if (list == absl::string_view::npos || before.find(']', list) != before.npos) return "";
    before = before.substr(0, list + 1);
  }
  if (absl::ConsumeSuffix(&before, "[")) before = absl::StripTrailingAsciiWhitespace(before);
  if (absl::ConsumeSuffix(&before, ":")) before = absl::StripTrailingAsciiWhitespace(before);
  size_t begin = before.size();
  while (begin > 0 && (absl::ascii_isalnum(before[begin - 1]) || before[begin - 1] == '_')) --begin;
  return std::string(before.substr(begin));
}

// The value that begins at `at`, with its quotes; "" at the end of the text.
std::string ValueAt(absl::string_view text, size_t at) {
  constexpr size_t kMost = 60;
  const absl::string_view rest = text.substr(at, kMost);
  if (rest.empty()) return "";
  const bool quoted = rest[0] == '"' || rest[0] == '\'';
  const size_t end = quoted ? rest.find(rest[0], 1) : rest.find_first_of(" \t\r\n,;[]{}<>#", 1);
  return std::string(rest.substr(0, end == absl::string_view::npos ? end : end + (quoted ? 1 : 0)));
}

std::string NoValueOf(const std::string& value, const std::string& field,
                      const std::string& wanted) {
  return absl::StrCat("'", value, "' is not a value of '", field, "'; give ", wanted);
}

// Explains that the text at `at` is not what protobuf's `message` says is expected there.
std::string ExplainValue(const Descriptor& root, const std::string& message, absl::string_view text,
                         size_t at) {
  const std::string value = ValueAt(text, at);
  if (absl::StartsWith(message, "Expected identifier") || absl::StrContains(message, "\"}\"")) {
    if (value.empty()) return "the text ends inside of { ... }: a '}' is missing";
    if (value == "}") return "this '}' closes nothing; remove it";
  }
  const std::string name = FieldBefore(text, at);
  if (name.empty() && absl::StartsWith(message, "Expected identifier")) {
    const bool after_value =
        absl::EndsWith(absl::StripTrailingAsciiWhitespace(text.substr(0, at)), ",");
    return absl::StrCat("'", value, "' is not the name of a field",
                        after_value ? "; write several values in brackets, as in [1, 2]" : "");
  }
  if (absl::StartsWith(message, "Expected \":\""))
    return absl::StrCat("a ':' is missing after '", name, "'");
  std::set<const Descriptor*> seen;
  const FieldDescriptor* field = FindFieldNamed(root, name, &seen);
  if (field == nullptr) return message;
  if (field->message_type() != nullptr) {
    if (!absl::StartsWith(message, "Expected \"{\"")) return message;
    return NoValueOf(value, name,
                     absl::StrCat("its fields in braces, ", name, " { ... }: ",
                                  absl::StrJoin(FieldNames(*field->message_type()), ", ")));
  }
  if (field->type() == FieldDescriptor::TYPE_BOOL) return NoValueOf(value, name, "true or false");
  if (field->enum_type() != nullptr) {
    return NoValueOf(value, name,
                     absl::StrCat("one of ", absl::StrJoin(EnumNames(*field->enum_type()), ", ")));
  }
  if (absl::StartsWith(message, "Integer out of range")) {
    return NoValueOf(value, name, "a smaller number");
  }
  if (absl::StartsWith(message, "Expected integer")) {
    return NoValueOf(value, name,
                     value[0] == '-' ? "a number that is not negative" : "a whole number");
  }
  if (absl::StartsWith(message, "Expected double")) return NoValueOf(value, name, "a number");
  if (absl::StartsWith(message, "Expected string"))
    return NoValueOf(value, name, "a text in quotes");
  return message;
}

// Replaces protobuf's message by one that names field, value and the valid choices. `at`: where the
// error was found. protobuf quotes the message type and the field, or the value and the field.
std::string Explain(const Descriptor& root, const std::string& message, absl::string_view text,
                    size_t at) {
  const std::vector<std::string> quoted = absl::StrSplit(message, '"');
  if (absl::StrContains(message, "has no field named") && quoted.size() >= 4) {
    const Descriptor* type = root.file()->pool()->FindMessageTypeByName(quoted[1]);
    if (type == nullptr) return message;
    const std::vector<std::string> names = FieldNames(*type);
    const bool belongs_outside = type != &root && root.FindFieldByName(quoted[3]) != nullptr;
    return absl::StrCat("unknown field '", quoted[3], "'", DidYouMeanField(*type, quoted[3]),
                        belongs_outside ? absl::StrCat("; it is a field of ", root.name(),
                                                       ": is a '}' missing above?")
                                        : "",
                        "; ", type->name(), names.empty() ? " has no fields" : " has the fields ",
                        absl::StrJoin(names, ", "));
  }
  if (absl::StrContains(message, "numeration value") && quoted.size() >= 4) {
    std::set<const Descriptor*> seen;
    const EnumDescriptor* type = FindEnum(root, quoted[3], &seen);
    if (type == nullptr) return message;
    const std::vector<std::string> names = EnumNames(*type);
    return absl::StrCat("'", quoted[1], "' is not a value of '", quoted[3], "'",
                        DidYouMean(quoted[1], names), "; use one of ", absl::StrJoin(names, ", "));
  }
  if (absl::StartsWith(message, "Invalid value for boolean field") && quoted.size() >= 4)
    return NoValueOf(quoted[3], quoted[1], "true or false");
  if (absl::StartsWith(message, "Non-repeated field") && quoted.size() >= 2)
    return absl::StrCat("'", quoted[1], "' is given a second time; give it once");
  if (absl::StartsWith(message, "Expected ") || absl::StartsWith(message, "Integer out of range"))
    return ExplainValue(root, message, text, at);
  return message;
}

// A quote that a word processor puts in place of a plain one, as UTF-8; empty when `text` does not
// begin with one.
absl::string_view TypographicQuote(absl::string_view text) {
  for (const absl::string_view quote : {"\u201c", "\u201d", "\u201e", "\u201f", "\u2018", "\u2019",
                                        "\u201a", "\u201b", "\u2033", "\u00ab", "\u00bb"}) {
    if (absl::StartsWith(text, quote)) return quote;
  }
  return "";
}

// "line:column" of the first typographic quote outside of plain quotes and comments, with the
// quote itself; "" when there is none.
std::string FindTypographicQuote(absl::string_view text) {
  int line = 1, column = 1;
  char open = 0;  // the plain quote that has opened a string
  bool comment = false;
  for (size_t i = 0; i < text.size(); ++i, ++column) {
    const char c = text[i];
    if (c == '\n') {
      ++line;
      column = 0;
      open = 0;  // a string ends on its line
      comment = false;
    } else if (comment) {
      continue;
    } else if (open != 0) {
      if (c == '\\') ++i, ++column;
      if (c == open) open = 0;
    } else if (c == '"' || c == '\'') {
      open = c;
    } else if (c == '#') {
      comment = true;
    } else if (const absl::string_view quote = TypographicQuote(text.substr(i)); !quote.empty()) {
      return absl::StrCat(line, ":", column, ": ", quote);
    }
  }
  return "";
}

// Keeps only the first error, since later ones are often its consequences.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  // `text` is what is parsed. All three are borrowed.
  FirstError(const std::string& name, const Descriptor& root, absl::string_view text)
      : name_(name), root_(root), parsed_(text) {}
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (!text_.empty()) return;
    // Line -1 means that the error has no position.
    const std::string place = line < 0 ? "" : absl::StrCat(":", line + 1, ":", column + 1);
    const size_t at = line < 0 ? parsed_.size() : OffsetOf(parsed_, line, column);
    text_ = absl::StrCat(name_, place, ": ", Explain(root_, message, parsed_, at));
  }
  void AddWarning(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
  const std::string& text() const { return text_; }

 private:
  const std::string& name_;
  const Descriptor& root_;
  const absl::string_view parsed_;
  std::string text_;
};

}  // namespace

absl::Status ParseTextproto(const std::string& text, const std::string& name,
                            google::protobuf::Message* message, FieldLocations* locations) {
  absl::string_view plain = text;
  // Editors on Windows put it before UTF-8 text.
  absl::ConsumePrefix(&plain, "\xEF\xBB\xBF");
  if (absl::StartsWith(plain, "\xFF\xFE") || absl::StartsWith(plain, "\xFE\xFF")) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": is UTF-16 text; save it as UTF-8, or convert it: iconv -f UTF-16 -t UTF-8"));
  }
  if (const std::string quote = FindTypographicQuote(plain); !quote.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ":", quote, " is a typographic quote; write a plain one (\") instead"));
  }
  FirstError errors(name, *message->GetDescriptor(), plain);
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(locations);
  // The parser calls itself for each level, and a file of braces alone must not use up the stack.
  parser.SetRecursionLimit(50);
  if (parser.ParseFromString(std::string(plain), message)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      errors.text().empty() ? absl::StrCat(name, ": is not a textproto") : errors.text());
}

absl::Status ReadTextprotoFile(const std::string& file, google::protobuf::Message* message,
                               FieldLocations* locations) {
  std::ifstream in(file);
  if (!in) {
    return absl::NotFoundError(absl::StrCat("cannot open ", file, ": ", std::strerror(errno),
                                            "; give the path of a .textproto file"));
  }
  std::ostringstream text;
  text << in.rdbuf();
  if (in.bad() || text.fail()) {
    // A folder opens but cannot be read. An empty file also sets failbit, since nothing was
    // inserted, but its end is reached.
    in.clear();
    if (in.peek() != std::ifstream::traits_type::eof() || in.bad()) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot read ", file, "; give the path of a .textproto file, not a folder"));
    }
  }
  return ParseTextproto(text.str(), file, message, locations);
}

int LineOfField(const FieldLocations& locations, const google::protobuf::Message& message,
                const std::string& path) {
  const auto parts = ParseFieldPath(path);
  if (!parts.ok()) return 0;
  const FieldLocations* tree = &locations;
  const Descriptor* type = message.GetDescriptor();
  int line = 0;
  for (const FieldPathPart& part : *parts) {
    const FieldDescriptor* field = type->FindFieldByName(part.name);
    // As far as the path leads: the line of an enclosing message is better than none.
    if (field == nullptr) break;
    const int index = field->is_repeated() ? std::max(part.index, 0) : -1;
    const auto location = tree->GetLocation(field, index);
    if (location.line < 0) break;
    line = location.line + 1;
    type = field->message_type();
    if (type == nullptr) break;
    tree = tree->GetTreeForNested(field, index);
    if (tree == nullptr) break;
  }
  return line;
}

}  // namespace sluice
