// Paths of fields, such as "tables[0].optimizer".
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/descriptor.h"

namespace sluice {

// One part of a path.
struct FieldPathPart {
  std::string name;
  int index = -1;  // -1: none given
};

// INVALID_ARGUMENT for empty parts and indices that are no numbers.
absl::StatusOr<std::vector<FieldPathPart>> ParseFieldPath(const std::string& path);

std::vector<std::string> FieldNames(const google::protobuf::Descriptor& type);
std::vector<std::string> EnumNames(const google::protobuf::EnumDescriptor& type);

// Paths below `type` whose last name is `name`, nearest to the top first; not through lists.
std::vector<std::string> PathsNamed(const google::protobuf::Descriptor& type,
                                    const std::string& name);

// "; did you mean 'train.batch_size' or 'eval.batch_size'?": what was probably meant by `name`,
// which `type` does not have. Fields of this very name further below come first, then a field of
// `type` with a similar name, then similar ones further below. Those below are given as paths,
// after `prefix` ("" or "model."). "" when there are none.
std::string DidYouMeanField(const google::protobuf::Descriptor& type, const std::string& name,
                            const std::string& prefix = "");

}  // namespace sluice
