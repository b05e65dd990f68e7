#include "common/config/textproto_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <vector>

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

// Replaces protobuf's message by one that lists the valid choices. protobuf quotes the message type
// and the field, or the value and the field.
std::string Explain(const Descriptor& root, const std::string& message) {
  const std::vector<std::string> quoted = absl::StrSplit(message, '"');
  if (quoted.size() < 4) return message;
  if (absl::StrContains(message, "has no field named")) {
    const Descriptor* type = root.file()->pool()->FindMessageTypeByName(quoted[1]);
    if (type == nullptr) return message;
    const std::vector<std::string> names = FieldNames(*type);
    return absl::StrCat("unknown field '", quoted[3], "'", DidYouMeanField(*type, quoted[3]), "; ",
                        type->name(), names.empty() ? " has no fields" : " has the fields ",
                        absl::StrJoin(names, ", "));
  }
  if (absl::StrContains(message, "numeration value")) {
    std::set<const Descriptor*> seen;
    const EnumDescriptor* type = FindEnum(root, quoted[3], &seen);
    if (type == nullptr) return message;
    const std::vector<std::string> names = EnumNames(*type);
    return absl::StrCat("'", quoted[1], "' is not a value of '", quoted[3], "'",
                        DidYouMean(quoted[1], names), "; use one of ", absl::StrJoin(names, ", "));
  }
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
  FirstError(const std::string& name, const Descriptor& root) : name_(name), root_(root) {}
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (!text_.empty()) return;
    // Line -1 means that the error has no position.
    const std::string place = line < 0 ? "" : absl::StrCat(":", line + 1, ":", column + 1);
    text_ = absl::StrCat(name_, place, ": ", Explain(root_, message));
  }
  void AddWarning(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
  const std::string& text() const { return text_; }

 private:
  const std::string& name_;
  const Descriptor& root_;
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
  FirstError errors(name, *message->GetDescriptor());
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
