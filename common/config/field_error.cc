#include "common/config/field_error.h"

#include "absl/strings/cord.h"

namespace sluice {
namespace {

constexpr char kPayload[] = "sluice/field";

}  // namespace

absl::Status AtField(const std::string& path, absl::Status status) {
  // The first path comes from the innermost call and is the most exact one, so it is kept.
  if (!status.ok() && !status.GetPayload(kPayload).has_value())
    status.SetPayload(kPayload, absl::Cord(path));
  return status;
}

std::string FieldOf(const absl::Status& status) {
  const auto path = status.GetPayload(kPayload);
  return path.has_value() ? std::string(*path) : "";
}

}  // namespace sluice
