// Decides whether a message of a worker fits the job: its tables, its mode and the limits.
//
// Thread safety: immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/config/mode.h"
#include "common/table/table_layout.h"
#include "proto/pserver.pb.h"

namespace sluice {

class RequestCheck {
 public:
  // Limit, in bytes, of the sparse values that one pull may ask for. A pull may name a key many
  // times, so the size of its message does not bound its answer.
  static constexpr uint64_t kMaxPullBytes = uint64_t{1} << 30;

  RequestCheck(std::string job_id, TableLayouts layouts, Mode mode, uint64_t max_message_bytes);

  // Call before anything of the message is applied. INVALID_ARGUMENT: the message is malformed, its
  // parts do not fit the tables or its payload, it is not for the job's mode, or its answer could
  // not be sent.
  absl::Status Check(const FrameHeader& header, size_t payload_bytes) const;

 private:
  absl::Status CheckMessage(const FrameHeader& header, size_t payload_bytes) const;
  absl::Status CheckMode(const FrameHeader& header) const;
  absl::Status CheckAnswer(const Pull& pull) const;

  const std::string job_id_;
  const TableLayouts layouts_;
  const Mode mode_;
  const uint64_t max_message_bytes_;
};

}  // namespace sluice
