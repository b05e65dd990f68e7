#include "common/arrow/plugin/errors.h"

#include <cstdio>
#include <string>

#include "common/arrow/arrow_plugin.h"

namespace sluice_arrow {
namespace {

// libparquet has a code for some of what it cannot read, and only a text for the rest.
bool IsUnsupported(const arrow::Status& status) {
  if (status.IsNotImplemented()) return true;
  for (const char* words : {"yet implemented", "not supported", "Unsupported"})
    if (status.message().find(words) != std::string::npos) return true;
  return false;
}

}  // namespace

arrow::Status Classified(const arrow::Status& status, bool callback_failed) {
  if (status.ok()) return status;
  if (callback_failed) return arrow::Status::IOError(status.message());
  if (status.IsOutOfMemory()) return arrow::Status::OutOfMemory(status.message());
  if (IsUnsupported(status)) return arrow::Status::NotImplemented(status.message());
  return arrow::Status::Invalid(status.message());
}

int Report(const arrow::Status& classified, char* error, size_t error_size) {
  if (classified.ok()) return SLUICE_ARROW_OK;
  if (error_size > 0) std::snprintf(error, error_size, "%s", classified.message().c_str());
  if (classified.IsIOError()) return SLUICE_ARROW_IO;
  if (classified.IsNotImplemented()) return SLUICE_ARROW_UNSUPPORTED;
  if (classified.IsOutOfMemory()) return SLUICE_ARROW_NO_MEMORY;
  return SLUICE_ARROW_INVALID;
}

}  // namespace sluice_arrow
