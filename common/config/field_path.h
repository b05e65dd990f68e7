// Paths of fields, such as "tables[0].optimizer".
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/descriptor.h"

namespace sluice {

// One part of a path.
struct FieldPathPart {
  std::string name;
  int index = -1;  // -1: the part has no index
};

// INVALID_ARGUMENT for empty parts and for indices that are not numbers.
absl::StatusOr<std::vector<FieldPathPart>> ParseFieldPath(const std::string& path);

std::vector<std::string> FieldNames(const google::protobuf::Descriptor& type);
std::vector<std::string> EnumNames(const google::protobuf::EnumDescriptor& type);

// Paths below `type` whose last name is `name`, nearest to the top first. Fields inside lists are
// left out.
std::vector<std::string> PathsNamed(const google::protobuf::Descriptor& type,
                                    const std::string& name);

// Suggests what `name`, which is not a field of `type`, probably stands for: "; did you mean
// 'train.batch_size' or 'eval.batch_size'?", or "" when nothing is near. Fields of exactly this
// name further below win over a field of `type` with a similar name, and that one over similar
// names further below. Fields below are given as paths after `prefix` ("" or "model.").
std::string DidYouMeanField(const google::protobuf::Descriptor& type, const std::string& name,
                            const std::string& prefix = "");

}  // namespace sluice
