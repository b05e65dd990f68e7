// Thrown when an update has made a value NaN or infinite. The update is complete, but no retry can
// mend the value, so the job must fail before the value is saved.
//
// Thread safety: as std::exception.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace sluice {

class NotFiniteChange : public std::exception {
 public:
  // See common/table/not_finite.h.
  explicit NotFiniteChange(const absl::Status& why) : text_(why.message()) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  const std::string text_;
};

}  // namespace sluice
