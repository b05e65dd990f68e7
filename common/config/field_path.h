// One part of a path such as "tables[0].optimizer".
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/descriptor.h"

namespace sluice {

struct FieldPathPart {
  std::string name;
  int index = -1;  // -1: none given
};

// INVALID_ARGUMENT for empty parts and indices that are no numbers.
absl::StatusOr<std::vector<FieldPathPart>> ParseFieldPath(const std::string& path);

std::vector<std::string> FieldNames(const google::protobuf::Descriptor& type);
std::vector<std::string> EnumNames(const google::protobuf::EnumDescriptor& type);

}  // namespace sluice
