// Overrides of single fields by reflection, from flags and SLUICE_* variables.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <type_traits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/config/field_path.h"
#include "common/config/job_config.h"
#include "common/config/textproto_file.h"
#include "google/protobuf/descriptor.h"

namespace sluice {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr ShortOption kShortOptions[] = {
    {"a_sync", "strategy.a_sync"},
    {"k_steps", "strategy.a_sync_configs.k_steps"},
    {"epochs", "train.epochs"},
    {"batch_size", "train.batch_size"},
    {"seed", "train.seed"},
    {"output_dir", "output_dir"},
    {"trace", "trace_file"},
    {"worker_num", "worker_num"},
    {"threads", "train.threads"},
    {"log_every", "train.log_every"},
    {"gradients_to_wait", "strategy.a_sync_configs.gradients_to_wait"},
    {"max_staleness", "strategy.a_sync_configs.max_staleness"},
};
constexpr char kASync[] = "strategy.a_sync";
constexpr char kKSteps[] = "strategy.a_sync_configs.k_steps";

absl::Status Wrong(const std::string& value, const FieldDescriptor& field,
                   const std::string& wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", value, "' is not a value of '", field.name(), "'; give ", wanted));
}

// Says what to give instead of `text`, which is not a T. Names only the bound of T that `text`
// exceeds: the field may have narrower bounds, so a full range would mislead.
template <typename T>
std::string WantedInteger(const std::string& text) {
  const std::optional<std::string> digits = DigitsOf(text);
  double value;
  if (!absl::SimpleAtod(text, &value)) return "a whole number";
  // 2^digits is exact as a double; the maximum of a 64-bit type is not.
  if (value >= std::ldexp(1.0, std::numeric_limits<T>::digits))
    return absl::StrCat("a smaller number; the field holds up to ", std::numeric_limits<T>::max());
  if (value < static_cast<double>(std::numeric_limits<T>::min())) {
    if (std::is_unsigned_v<T>) return "a number that is not negative";
    return absl::StrCat("a larger number; the field holds down to ", std::numeric_limits<T>::min());
  }
  return digits ? absl::StrCat("it in digits: ", *digits) : "a whole number";
}

absl::StatusOr<bool> ParseBool(const std::string& text, const FieldDescriptor& field) {
  bool value;
  if (!absl::SimpleAtob(text, &value)) return Wrong(text, field, "true or false");
  return value;
}

// Sets one scalar, or appends it to a repeated field.
class ScalarWriter {
 public:
  ScalarWriter(const FieldDescriptor& field, Message* message)
      : field_(field), message_(message), reflection_(*message->GetReflection()) {}

  absl::Status Write(const std::string& text) {
    switch (field_.cpp_type()) {
      case FieldDescriptor::CPPTYPE_BOOL: {
        SLUICE_ASSIGN_OR_RETURN(const bool value, ParseBool(text, field_));
        field_.is_repeated() ? reflection_.AddBool(message_, &field_, value)
                             : reflection_.SetBool(message_, &field_, value);
        return absl::OkStatus();
      }
      case FieldDescriptor::CPPTYPE_STRING:
        field_.is_repeated() ? reflection_.AddString(message_, &field_, text)
                             : reflection_.SetString(message_, &field_, text);
        return absl::OkStatus();
      case FieldDescriptor::CPPTYPE_ENUM:
        return WriteEnum(text);
      case FieldDescriptor::CPPTYPE_INT32:
        return WriteInteger<int32_t>(text, &Reflection::SetInt32, &Reflection::AddInt32);
      case FieldDescriptor::CPPTYPE_UINT32:
        return WriteInteger<uint32_t>(text, &Reflection::SetUInt32, &Reflection::AddUInt32);
      case FieldDescriptor::CPPTYPE_INT64:
        return WriteInteger<int64_t>(text, &Reflection::SetInt64, &Reflection::AddInt64);
      case FieldDescriptor::CPPTYPE_UINT64:
        return WriteInteger<uint64_t>(text, &Reflection::SetUInt64, &Reflection::AddUInt64);
      default:
        return WriteReal(text);
    }
  }

 private:
  template <typename T>
  absl::Status WriteInteger(const std::string& text,
                            void (Reflection::*set)(Message*, const FieldDescriptor*, T) const,
                            void (Reflection::*add)(Message*, const FieldDescriptor*, T) const) {
    T value;
    if (!absl::SimpleAtoi(text, &value)) return Wrong(text, field_, WantedInteger<T>(text));
    (reflection_.*(field_.is_repeated() ? add : set))(message_, &field_, value);
    return absl::OkStatus();
  }

  absl::Status WriteReal(const std::string& text) {
    double value;
    if (!absl::SimpleAtod(text, &value)) return Wrong(text, field_, "a number");
    if (field_.cpp_type() == FieldDescriptor::CPPTYPE_FLOAT) {
      field_.is_repeated() ? reflection_.AddFloat(message_, &field_, static_cast<float>(value))
                           : reflection_.SetFloat(message_, &field_, static_cast<float>(value));
    } else {
      field_.is_repeated() ? reflection_.AddDouble(message_, &field_, value)
                           : reflection_.SetDouble(message_, &field_, value);
    }
    return absl::OkStatus();
  }

  absl::Status WriteEnum(const std::string& text) {
    // Enum values are in capitals, and users write sync as they write other options.
    const auto* value = field_.enum_type()->FindValueByName(absl::AsciiStrToUpper(text));
    if (value == nullptr) {
      const auto names = EnumNames(*field_.enum_type());
      return Wrong(text, field_, absl::StrCat("one of ", absl::StrJoin(names, ", ")));
    }
    field_.is_repeated() ? reflection_.AddEnum(message_, &field_, value)
                         : reflection_.SetEnum(message_, &field_, value);
    return absl::OkStatus();
  }

  const FieldDescriptor& field_;
  Message* const message_;
  const Reflection& reflection_;
};

// Parses "<field>: <text>" into `message`, whose field is empty.
absl::Status MergeText(const FieldDescriptor& field, const std::string& text, Message* message) {
  // Into a message of its own first: the text is the user's, and could close the field and set
  // others.
  std::unique_ptr<Message> parsed(message->New());
  SLUICE_RETURN_IF_ERROR(
      ParseTextproto(absl::StrCat(field.name(), ": ", text), "value", parsed.get(), nullptr));
  std::vector<const FieldDescriptor*> set;
  parsed->GetReflection()->ListFields(*parsed, &set);
  if (set.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the value of '", field.name(), "' also sets other fields; close its braces"));
  }
  message->MergeFrom(*parsed);
  return absl::OkStatus();
}

absl::Status SetField(const FieldDescriptor& field, const std::string& value, Message* message) {
  // An override replaces a list. Appending would make the order of flags and files matter.
  message->GetReflection()->ClearField(message, &field);
  const bool braces = absl::StartsWith(value, "{") && absl::EndsWith(value, "}");
  const bool brackets = absl::StartsWith(value, "[") && absl::EndsWith(value, "]");
  if (field.is_repeated() && brackets) return MergeText(field, value, message);
  if (field.message_type() != nullptr) {
    if (!braces) {
      return Wrong(value, field,
                   absl::StrCat("its fields in braces ({",
                                field.message_type()->field_count() > 0
                                    ? field.message_type()->field(0)->name() + ": ..."
                                    : "",
                                "}), or set one of them: ", field.name(), ".",
                                absl::StrJoin(FieldNames(*field.message_type()),
                                              absl::StrCat(", ", field.name(), "."))));
    }
    return MergeText(field, field.is_repeated() ? absl::StrCat("[", value, "]") : value, message);
  }
  ScalarWriter writer(field, message);
  if (!field.is_repeated()) return writer.Write(value);
  if (value.empty()) return absl::OkStatus();
  for (const absl::string_view item : absl::StrSplit(value, ',')) {
    SLUICE_RETURN_IF_ERROR(writer.Write(std::string(absl::StripAsciiWhitespace(item))));
  }
  return absl::OkStatus();
}

// `prefix` is the path of `message` in `root`: "", or with a dot at its end.
absl::StatusOr<const FieldDescriptor*> FindField(const Message& message, const std::string& name,
                                                 const std::string& prefix, const Message& root) {
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  const FieldDescriptor* field = type.FindFieldByName(name);
  if (field != nullptr) return field;
  std::string meant = DidYouMeanField(type, name, prefix);
  // The name may exist in another message: search from the top.
  if (meant.empty()) meant = DidYouMeanField(*root.GetDescriptor(), name);
  return absl::InvalidArgumentError(absl::StrCat("there is no field '", name, "'", meant, "; ",
                                                 type.name(), " has the fields ",
                                                 absl::StrJoin(FieldNames(type), ", ")));
}

// The message that `part` of a path leads to, from `message`.
absl::StatusOr<Message*> Descend(const FieldPathPart& part, const FieldDescriptor& field,
                                 Message* message) {
  if (field.message_type() == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", part.name, "' is a single value and has no fields"));
  }
  const Reflection& reflection = *message->GetReflection();
  if (!field.is_repeated()) return reflection.MutableMessage(message, &field);
  const int size = reflection.FieldSize(*message, &field);
  if (size == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", part.name, "' is an empty list; set the list, e.g. --set '", part.name,
                     "={", field.message_type()->field(0)->name(), ": ...}'"));
  }
  if (part.index < 0 || part.index >= size) {
    return absl::InvalidArgumentError(absl::StrCat("'", part.name, "' is a list of ", size,
                                                   "; name an element, from ", part.name, "[0] to ",
                                                   part.name, "[", size - 1, "]"));
  }
  return reflection.MutableRepeatedMessage(message, &field, part.index);
}

absl::Status Apply(const std::string& path, const std::string& value, Message* message) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<FieldPathPart> parts, ParseFieldPath(path));
  const Message& root = *message;
  std::string prefix;
  for (size_t i = 0; i < parts.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(const FieldDescriptor* field,
                            FindField(*message, parts[i].name, prefix, root));
    absl::StrAppend(&prefix, parts[i].name,
                    parts[i].index < 0 ? "" : absl::StrCat("[", parts[i].index, "]"), ".");
    if (i + 1 < parts.size()) {
      if (parts[i].index >= 0 && !field->is_repeated()) {
        return absl::InvalidArgumentError(absl::StrCat("'", parts[i].name, "' is not a list"));
      }
      SLUICE_ASSIGN_OR_RETURN(message, Descend(parts[i], *field, message));
    } else if (parts[i].index >= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("an element of '", parts[i].name,
                       "' cannot be set as a whole; set the list, or a field of it"));
    } else {
      return SetField(*field, value, message);
    }
  }
  return absl::OkStatus();
}

bool FromEnvironment(const ConfigOverride& o) { return absl::StartsWith(o.origin, "SLUICE_"); }

}  // namespace

absl::Span<const ShortOption> ShortOptions() { return kShortOptions; }

std::vector<ConfigOverride> OverridesFromEnvironment() {
  std::vector<ConfigOverride> overrides;
  for (const ShortOption& option : kShortOptions) {
    const std::string variable = absl::StrCat("SLUICE_", absl::AsciiStrToUpper(option.name));
    const char* value = std::getenv(variable.c_str());
    if (value != nullptr && *value != '\0') overrides.push_back({option.path, value, variable});
  }
  return overrides;
}

absl::Status ApplyOverride(const ConfigOverride& override, Message* message) {
  // Works on a copy: an override that fails half way must not change the message.
  std::unique_ptr<Message> changed(message->New());
  changed->CopyFrom(*message);
  const absl::Status status = Apply(override.path, override.value, changed.get());
  if (!status.ok()) {
    const std::string origin = override.origin == "--set" || override.origin.empty()
                                   ? absl::StrCat("--set ", override.path, "=", override.value)
                                   : absl::StrCat(override.origin, "=", override.value);
    return absl::InvalidArgumentError(absl::StrCat(origin, ": ", status.message()));
  }
  message->GetReflection()->Swap(message, changed.get());
  return absl::OkStatus();
}

absl::Status ApplyOverrides(absl::Span<const ConfigOverride> overrides, JobConfig* job) {
  for (const ConfigOverride& o : overrides) SLUICE_RETURN_IF_ERROR(ApplyOverride(o, job));
  // The last one counts, as it did when they were applied.
  const ConfigOverride* a_sync = nullptr;
  const ConfigOverride* k_steps = nullptr;
  for (const ConfigOverride& o : overrides) {
    if (o.path == kASync) a_sync = &o;
    if (o.path == kKSteps) k_steps = &o;
  }
  if (a_sync == nullptr || job->strategy().a_sync()) return absl::OkStatus();
  const bool below = k_steps == nullptr || (FromEnvironment(*k_steps) && !FromEnvironment(*a_sync));
  if (below && job->strategy().has_a_sync_configs()) {
    job->mutable_strategy()->mutable_a_sync_configs()->set_k_steps(0);
  }
  return absl::OkStatus();
}

std::optional<std::string> DigitsOf(absl::string_view text) {
  constexpr double kExact = 0x1p53;  // beyond this, a double cannot hold every whole number
  double value;
  if (!absl::SimpleAtod(text, &value) || !(std::abs(value) <= kExact)) return std::nullopt;
  if (value != std::floor(value)) return std::nullopt;
  return absl::StrCat(static_cast<int64_t>(value));
}

}  // namespace sluice
