#include "model/data/json_lines_parser.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "model/features/cell.h"
#include "simdjson.h"

namespace sluice {
namespace {

namespace ondemand = simdjson::ondemand;

// Objects within objects that are looked into.
constexpr size_t kMostDepth = 32;

absl::Status NoJson(simdjson::error_code error) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the line is no object of JSON: ", absl::StripSuffix(simdjson::error_message(error), "."),
      "; each line holds one whole object"));
}

#define SLUICE_JSON_OR_RETURN(to, expression)      \
  do {                                             \
    const auto json_error_ = (expression).get(to); \
    if (json_error_) return NoJson(json_error_);   \
  } while (false)

std::string_view Trimmed(std::string_view token) {
  while (!token.empty() && (token.back() == ' ' || token.back() == '\t' || token.back() == '\r'))
    token.remove_suffix(1);
  return token;
}

// A text with the memory behind it that simdjson reads.
class PaddedText {
 public:
  simdjson::padded_string_view Copy(std::string_view text) {
    if (bytes_.size() < text.size() + simdjson::SIMDJSON_PADDING)
      bytes_.resize(2 * text.size() + simdjson::SIMDJSON_PADDING);
    std::memcpy(bytes_.data(), text.data(), text.size());
    std::memset(bytes_.data() + text.size(), 0, simdjson::SIMDJSON_PADDING);
    return simdjson::padded_string_view(bytes_.data(), text.size(), bytes_.size());
  }

 private:
  std::string bytes_;
};

// Calls take(key, value) for each field of the object on a line.
template <typename Take>
absl::Status ForEachField(ondemand::parser* parser, PaddedText* text, std::string_view line,
                          Take take) {
  ondemand::document document;
  SLUICE_JSON_OR_RETURN(document, parser->iterate(text->Copy(line)));
  ondemand::object object;
  SLUICE_JSON_OR_RETURN(object, document.get_object());
  for (auto one : object) {
    ondemand::field field;
    SLUICE_JSON_OR_RETURN(field, std::move(one));
    std::string_view key;
    SLUICE_JSON_OR_RETURN(key, field.unescaped_key());
    SLUICE_RETURN_IF_ERROR(take(key, field.value()));
  }
  if (document.current_location().error() != simdjson::OUT_OF_BOUNDS) {
    return absl::InvalidArgumentError(
        "the line goes on behind its object; each line holds one object");
  }
  return absl::OkStatus();
}

// An integer, of any length, or else a double.
absl::Status NumberCell(std::string_view token, ondemand::value* value, Cell* cell) {
  const std::string_view digits = token.substr(token.front() == '-' ? 1 : 0);
  const bool integer = !digits.empty() && std::all_of(digits.begin(), digits.end(),
                                                      [](char c) { return c >= '0' && c <= '9'; });
  if (!integer) {
    double number;
    SLUICE_JSON_OR_RETURN(number, value->get_double());
    *cell = Cell::Double(number);
    return absl::OkStatus();
  }
  if (digits.size() > 1 && digits.front() == '0') return NoJson(simdjson::NUMBER_ERROR);
  int64_t number = 0;
  uint64_t large = 0;
  const char* const end = token.data() + token.size();
  if (std::from_chars(token.data(), end, number).ec == std::errc()) {
    *cell = Cell::Integer(number);
  } else if (token.front() != '-' && std::from_chars(token.data(), end, large).ec == std::errc()) {
    *cell = Cell::Unsigned(large);
  } else {
    *cell = Cell::Text(token);
  }
  return absl::OkStatus();
}

// A value that is neither an array nor an object.
absl::Status ScalarCell(ondemand::value* value, ondemand::json_type type, Cell* cell) {
  if (type == ondemand::json_type::string) {
    std::string_view text;
    SLUICE_JSON_OR_RETURN(text, value->get_string());
    *cell = Cell::Text(text);
    return absl::OkStatus();
  }
  const std::string_view token = Trimmed(value->raw_json_token());
  if (type == ondemand::json_type::number) return NumberCell(token, value, cell);
  if (token == "null") {
    *cell = Cell();
  } else if (token == "true" || token == "false") {
    *cell = Cell::Bool(token == "true");
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("the line is no object of JSON: ", QuotedCell(token), " is no value"));
  }
  return absl::OkStatus();
}

}  // namespace

class JsonLinesParser::Impl {
 public:
  Impl(const std::vector<std::string>& columns, std::vector<Cell>* cells)
      : cells_(*cells), seen_(columns.size()), lists_(columns.size()) {
    for (size_t c = 0; c < columns.size(); ++c) {
      if (columns[c].empty()) continue;
      column_of_path_.emplace(columns[c], c);
      for (size_t dot = columns[c].find('.'); dot != std::string::npos;
           dot = columns[c].find('.', dot + 1))
        outer_.insert(columns[c].substr(0, dot));
    }
  }

  absl::Status Parse(std::string_view line) {
    std::fill(cells_.begin(), cells_.end(), Cell());
    std::fill(seen_.begin(), seen_.end(), 0);
    return ForEachField(
        &parser_, &text_, line,
        [this](std::string_view key, ondemand::value value) { return Take(key, &value, 1); });
  }

  void CountNames(std::vector<uint64_t>* counts) const {
    counts->resize(seen_.size());
    for (size_t c = 0; c < seen_.size(); ++c) (*counts)[c] += seen_[c];
  }

 private:
  absl::Status Take(std::string_view path, ondemand::value* value, size_t depth) {
    const absl::string_view name(path.data(), path.size());
    const auto column = column_of_path_.find(name);
    const bool outer = !outer_.empty() && outer_.contains(name);
    // Values that no column needs are passed over.
    if (column == column_of_path_.end() && !outer) return absl::OkStatus();
    ondemand::json_type type;
    SLUICE_JSON_OR_RETURN(type, value->type());
    if (type == ondemand::json_type::object && outer && depth < kMostDepth)
      return TakeFields(path, value, depth);
    if (column == column_of_path_.end()) return absl::OkStatus();
    if (std::exchange(seen_[column->second], 1) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the key ", QuotedCell(path), " occurs twice; keep one"));
    }
    Cell* const cell = &cells_[column->second];
    if (type == ondemand::json_type::array)
      return TakeArray(path, value, &lists_[column->second], cell);
    if (type == ondemand::json_type::object) {
      return absl::InvalidArgumentError(absl::StrCat("column ", QuotedCell(path),
                                                     " is an object; name a field of it, as in \"",
                                                     std::string(path), ".field\""));
    }
    return ScalarCell(value, type, cell);
  }

  absl::Status TakeFields(std::string_view path, ondemand::value* value, size_t depth) {
    ondemand::object object;
    SLUICE_JSON_OR_RETURN(object, value->get_object());
    std::string inner;
    for (auto one : object) {
      ondemand::field field;
      SLUICE_JSON_OR_RETURN(field, std::move(one));
      std::string_view key;
      SLUICE_JSON_OR_RETURN(key, field.unescaped_key());
      inner.assign(path).append(1, '.').append(key);
      ondemand::value of_field = field.value();
      SLUICE_RETURN_IF_ERROR(Take(inner, &of_field, depth + 1));
    }
    return absl::OkStatus();
  }

  absl::Status TakeArray(std::string_view path, ondemand::value* value, std::vector<Cell>* list,
                         Cell* cell) {
    list->clear();
    ondemand::array array;
    SLUICE_JSON_OR_RETURN(array, value->get_array());
    for (auto one : array) {
      ondemand::value element;
      SLUICE_JSON_OR_RETURN(element, std::move(one));
      ondemand::json_type type;
      SLUICE_JSON_OR_RETURN(type, element.type());
      if (type == ondemand::json_type::array || type == ondemand::json_type::object) {
        return absl::InvalidArgumentError(absl::StrCat(
            "column ", QuotedCell(path), " is an array of arrays or objects, which is not read"));
      }
      SLUICE_RETURN_IF_ERROR(ScalarCell(&element, type, &list->emplace_back()));
    }
    // An empty array has no value, and is missing.
    if (!list->empty()) *cell = Cell::List(list->data(), list->size());
    return absl::OkStatus();
  }

  ondemand::parser parser_;
  PaddedText text_;
  std::vector<Cell>& cells_;  // [columns]
  std::vector<char> seen_;    // [columns]
  std::vector<std::vector<Cell>> lists_;
  absl::flat_hash_map<std::string, size_t> column_of_path_;
  absl::flat_hash_set<std::string> outer_;  // "a" of a column "a.b"
};

JsonLinesParser::JsonLinesParser(const std::vector<std::string>& columns)
    : LineParser(columns.size()) {
  typed_.resize(columns.size());
  impl_ = std::make_unique<Impl>(columns, &typed_);
}

JsonLinesParser::~JsonLinesParser() = default;

absl::Status JsonLinesParser::Parse(char* line, size_t size) { return impl_->Parse({line, size}); }

void JsonLinesParser::CountNames(std::vector<uint64_t>* counts) const { impl_->CountNames(counts); }

namespace {

absl::Status FindColumnsOf(const std::string& path, ondemand::value* value, size_t depth,
                           const std::function<void(const std::string&)>& found) {
  ondemand::json_type type;
  SLUICE_JSON_OR_RETURN(type, value->type());
  if (type != ondemand::json_type::object || depth == kMostDepth) {
    found(path);
    return absl::OkStatus();
  }
  ondemand::object object;
  SLUICE_JSON_OR_RETURN(object, value->get_object());
  for (auto one : object) {
    ondemand::field field;
    SLUICE_JSON_OR_RETURN(field, std::move(one));
    std::string_view key;
    SLUICE_JSON_OR_RETURN(key, field.unescaped_key());
    const std::string inner = absl::StrCat(path, ".", std::string(key));
    ondemand::value of_field = field.value();
    SLUICE_RETURN_IF_ERROR(FindColumnsOf(inner, &of_field, depth + 1, found));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status JsonLinesParser::FindColumns(std::string_view line,
                                          const std::function<void(const std::string&)>& found) {
  ondemand::parser parser;
  PaddedText text;
  return ForEachField(&parser, &text, line, [&](std::string_view key, ondemand::value value) {
    return FindColumnsOf(std::string(key), &value, 1, found);
  });
}

}  // namespace sluice
