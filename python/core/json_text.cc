#include "python/core/json_text.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/config/closest_name.h"
#include "common/config/field_path.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"

namespace sluice {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::OneofDescriptor;
using google::protobuf::Value;

// A value as the script wrote it, cut to a line's length.
std::string Shown(const Value& value) {
  constexpr size_t kMost = 60;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(value, &text).ok()) return "?";
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

std::string NotA(const Value& value, const std::string& wanted) {
  return absl::StrCat(Shown(value), " is not ", wanted);
}

std::string WrongNumber(const FieldDescriptor& field, const Value& value) {
  // The mapping takes numbers in texts, too, because JSON has no NaN and no large integers.
  double in_text;
  if (value.has_string_value() && absl::SimpleAtod(value.string_value(), &in_text)) return "";
  if (!value.has_number_value()) return NotA(value, "a number");
  double least = -std::numeric_limits<double>::infinity(), most = -least;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      least = std::numeric_limits<int32_t>::min(), most = std::numeric_limits<int32_t>::max();
      break;
    case FieldDescriptor::CPPTYPE_UINT32:
      least = 0, most = std::numeric_limits<uint32_t>::max();
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      least = 0;
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      break;
    default:
      return "";  // of floating point
  }
  const double number = value.number_value();
  if (number != std::floor(number)) return NotA(value, "a whole number");
  if (number < least) {
    return absl::StrCat(Shown(value),
                        least == 0 ? " is negative; give 0 or more" : " is too small");
  }
  if (number > most) return absl::StrCat(Shown(value), " is too large");
  return "";
}

// What is wrong with one value of a field that is no message; "" when nothing is found.
std::string WrongScalar(const FieldDescriptor& field, const Value& value) {
  if (field.type() == FieldDescriptor::TYPE_BOOL) {
    bool in_text;  // which the mapping takes, too
    const bool known = value.has_bool_value() || absl::SimpleAtob(value.string_value(), &in_text);
    return known ? "" : NotA(value, "true or false");
  }
  if (field.enum_type() != nullptr) {
    const bool known = value.has_string_value()
                           ? field.enum_type()->FindValueByName(value.string_value()) != nullptr
                           : value.has_number_value();
    if (known) return "";
    const std::vector<std::string> names = EnumNames(*field.enum_type());
    return absl::StrCat(NotA(value, "a value of it"),
                        DidYouMean(absl::AsciiStrToUpper(value.string_value()), names),
                        "; use one of ", absl::StrJoin(names, ", "));
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING)
    return value.has_string_value() ? "" : NotA(value, "a text");
  return WrongNumber(field, value);
}

const FieldDescriptor* FieldOf(const Descriptor& type, const std::string& name) {
  const FieldDescriptor* field = type.FindFieldByName(name);
  return field != nullptr ? field : type.FindFieldByCamelcaseName(name);
}

// The first error below `path`, with the path of its field; "" when nothing is found.
std::string FirstProblem(const Descriptor& type, const Value& value, const std::string& path);

std::string ProblemOfOne(const FieldDescriptor& field, const Value& value,
                         const std::string& path) {
  if (field.message_type() != nullptr) return FirstProblem(*field.message_type(), value, path);
  const std::string wrong = WrongScalar(field, value);
  return wrong.empty() ? "" : absl::StrCat(path, ": ", wrong);
}

std::string FirstProblem(const Descriptor& type, const Value& value, const std::string& path) {
  if (!value.has_struct_value()) {
    return absl::StrCat(path, path.empty() ? "" : ": ",
                        NotA(value, "a dictionary of the fields of "), type.name(), ": ",
                        absl::StrJoin(FieldNames(type), ", "));
  }
  std::map<const OneofDescriptor*, std::string> chosen;  // of each oneof
  for (const auto& [name, one] : value.struct_value().fields()) {
    const std::string below = absl::StrCat(path, path.empty() ? "" : ".", name);
    const FieldDescriptor* field = FieldOf(type, name);
    if (field == nullptr) {
      const std::vector<std::string> names = FieldNames(type);
      return absl::StrCat(path, path.empty() ? "" : ": ", "there is no field '", name, "'",
                          DidYouMeanField(type, name), "; ", type.name(),
                          names.empty() ? " has no fields" : " has the fields ",
                          absl::StrJoin(names, ", "));
    }
    if (one.has_null_value() || field->is_map()) continue;
    if (const OneofDescriptor* of = field->real_containing_oneof(); of != nullptr) {
      const auto [other, first] = chosen.emplace(of, name);
      if (!first) {
        return absl::StrCat(path, path.empty() ? "" : ": ", "'", other->second, "' and '", name,
                            "' exclude each other; give one of them");
      }
    }
    // One element may stand for a list of it.
    if (!field->is_repeated() || !one.has_list_value()) {
      if (std::string found = ProblemOfOne(*field, one, below); !found.empty()) return found;
      continue;
    }
    for (int i = 0; i < one.list_value().values_size(); ++i) {
      std::string found =
          ProblemOfOne(*field, one.list_value().values(i), absl::StrCat(below, "[", i, "]"));
      if (!found.empty()) return found;
    }
  }
  return "";
}

}  // namespace

absl::Status ParseJson(const std::string& json, const std::string& name,
                       google::protobuf::Message* message) {
  const auto parsed = google::protobuf::util::JsonStringToMessage(json, message);
  if (parsed.ok()) return absl::OkStatus();
  Value whole;
  std::string problem;
  if (google::protobuf::util::JsonStringToMessage(json, &whole).ok())
    problem = FirstProblem(*message->GetDescriptor(), whole, "");
  // What is left is rare, such as text that is no JSON.
  if (problem.empty()) problem = std::string(parsed.message());
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", problem));
}

}  // namespace sluice
