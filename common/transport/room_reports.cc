#include "common/transport/room_reports.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"

namespace sluice {

std::string PeerOn(const AuditedCaller& caller) {
  return absl::StrCat(caller.role, " ", caller.name, "@",
                      caller.address.substr(0, caller.address.rfind(':')));
}

// Lets a line pass at most every kEvery, with the number of those that did not.
class RoomReports::RareLines {
 public:
  explicit RareLines(std::function<void(const std::string&)> log) : log_(std::move(log)) {}

  void Add(const std::string& line) {
    if (!log_) return;
    uint64_t left_out;
    {
      MutexLock lock(&mutex_);
      const auto now = std::chrono::steady_clock::now();
      if (last_.has_value() && now - *last_ < kEvery) {
        ++left_out_;
        return;
      }
      last_ = now;
      left_out = std::exchange(left_out_, 0);
    }
    log_(left_out == 0 ? line
                       : absl::StrCat(line, " (and ", left_out, " more since the last line)"));
  }

 private:
  static constexpr std::chrono::seconds kEvery{10};
  const std::function<void(const std::string&)> log_;
  Mutex mutex_;
  std::optional<std::chrono::steady_clock::time_point> last_ ABSL_GUARDED_BY(mutex_);
  uint64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
};

RoomReports::RoomReports(Options options)
    : options_(std::move(options)), lines_(std::make_unique<RareLines>(options_.log)) {}
RoomReports::~RoomReports() = default;

void RoomReports::NoRoom(const AuditedCaller& caller, const std::string& method,
                         const absl::Status& why) {
  Audit(caller, method, why);
  lines_->Add(absl::StrCat(method, " of ", PeerOn(caller), ": ", why.message()));
}

void RoomReports::Cut(const AuditedCaller& caller, const std::string& method,
                      const absl::Status& why) {
  Audit(caller, method, why);
  if (options_.on_cut) options_.on_cut(caller.address, why);
}

void RoomReports::Audit(const AuditedCaller& caller, const std::string& method,
                        const absl::Status& why) {
  if (options_.audit == nullptr) return;
  options_.audit->Refused(caller, method, RefusalReason::kRoom, why.message());
}

}  // namespace sluice
