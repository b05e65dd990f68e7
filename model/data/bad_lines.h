// Counts malformed lines, and keeps the first line of each kind for messages.
//
// Lines are of one kind when their messages differ only in the contents of cells and in numbers: a
// thousand lines with one mistake need one message.
//
// Thread safety: guarded by the owner's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sluice {

// The message without the contents of cells and without numbers. Names of columns, features, slots
// and options stay.
std::string KindOfBadLine(absl::string_view message);

struct BadLines {
  static constexpr size_t kNamed = 5;
  uint64_t count = 0;
  std::vector<std::string> first;  // "file:line: reason", of different kinds
  // When set, receives for each bad line the number of examples before it in the batch being read.
  std::vector<uint64_t>* positions = nullptr;

  // True when Add would keep `why`, so that its line needs a name.
  bool Names(const absl::Status& why) const;
  void Add(const std::string& where, const absl::Status& why);
  void Merge(const BadLines& other);
  std::string Describe() const;
};

// FAILED_PRECONDITION: `what` has more malformed lines than data.max_bad_lines allows. `most`: more
// lines were malformed than not, so that the job file is to blame rather than the data.
absl::Status TooManyBadLines(absl::string_view what, uint64_t max_bad_lines, const BadLines& bad,
                             bool most);

}  // namespace sluice
