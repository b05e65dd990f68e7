#include "common/config/field_path.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/config/closest_name.h"

namespace sluice {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

struct PlacedField {
  std::string path;
  const FieldDescriptor* field;
};

// The fields of `type` and of the messages below it, level by level. Does not descend into lists,
// whose elements have no fixed path.
std::vector<PlacedField> FieldsBelow(const Descriptor& type) {
  struct Level {
    const Descriptor* type;
    std::string prefix;
  };
  constexpr size_t kMost = 1000;  // ends the search in a type that contains itself
  std::vector<Level> levels = {{&type, ""}};
  std::vector<PlacedField> found;
  for (size_t i = 0; i < levels.size() && i < kMost; ++i) {
    const Level level = levels[i];
    for (int f = 0; f < level.type->field_count(); ++f) {
      const FieldDescriptor* field = level.type->field(f);
      found.push_back({level.prefix + field->name(), field});
      if (field->message_type() == nullptr || field->is_repeated()) continue;
      levels.push_back({field->message_type(), absl::StrCat(found.back().path, ".")});
    }
  }
  return found;
}

std::string Offer(const std::vector<std::string>& paths, const std::string& prefix) {
  constexpr size_t kMost = 6;
  std::string text;
  for (size_t i = 0; i < paths.size() && i < kMost; ++i) {
    absl::StrAppend(&text,
                    i == 0                  ? "; did you mean '"
                    : i + 1 == paths.size() ? " or '"
                                            : ", '",
                    prefix, paths[i], "'");
  }
  if (paths.size() > kMost) absl::StrAppend(&text, ", ...");
  return text.empty() ? "" : absl::StrCat(text, "?");
}

}  // namespace

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
            "'", text, "' in '", path, "' is not an element; write name[0], name[1], ..."));
      }
    }
    if (part.name.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", path,
                       "' is not a field path; write names separated by dots, as in "
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
    // The zero value "..._UNSPECIFIED" means that nothing was chosen, so nobody may choose it.
    const std::string& name = type.value(i)->name();
    if (name.find("_UNSPECIFIED") == std::string::npos) names.push_back(name);
  }
  return names;
}

std::vector<std::string> PathsNamed(const Descriptor& type, const std::string& name) {
  std::vector<std::string> paths;
  for (const PlacedField& placed : FieldsBelow(type)) {
    if (placed.field->name() == name) paths.push_back(placed.path);
  }
  return paths;
}

std::string DidYouMeanField(const Descriptor& type, const std::string& name,
                            const std::string& prefix) {
  // First a right name without its path, such as batch_size for train.batch_size.
  const std::vector<std::string> exact = PathsNamed(type, name);
  if (!exact.empty()) return Offer(exact, prefix);
  // Then a misspelt name at this place, then one anywhere below.
  const std::string near = ClosestName(name, FieldNames(type));
  if (!near.empty()) return Offer({near}, "");
  std::vector<std::string> names;
  for (const PlacedField& placed : FieldsBelow(type)) names.push_back(placed.field->name());
  const std::string further = ClosestName(name, names);
  return further.empty() ? "" : Offer(PathsNamed(type, further), prefix);
}

}  // namespace sluice
