#include "common/config/field_path.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sluice {

absl::StatusOr<std::vector<FieldPathPart>> ParseFieldPath(const std::string& path) {
  std::vector<FieldPathPart> parts;
  for (const absl::string_view text : absl::StrSplit(path, '.')) {
    FieldPathPart part;
    const size_t bracket = text.find('[');
    part.name = std::string(text.substr(0, bracket));
    if (bracket != absl::string_view::npos) {
      absl::string_view index = text.substr(bracket + 1);
      if (index.empty() || index.back() != ']' ||
          !absl::SimpleAtoi(index.substr(0, index.size() - 1), &part.index) || part.index < 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "'", text, "' in '", path, "' is no element; write name[0], name[1], ..."));
      }
    }
    if (part.name.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", path,
                       "' is no field path; write names with dots between, as in "
                       "train.batch_size"));
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<std::string> FieldNames(const google::protobuf::Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  return names;
}

std::vector<std::string> EnumNames(const google::protobuf::EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i) {
    // The zero value "..._UNSPECIFIED" is the absence of a choice.
    const std::string& name = type.value(i)->name();
    if (name.find("_UNSPECIFIED") == std::string::npos) names.push_back(name);
  }
  return names;
}

}  // namespace sluice
