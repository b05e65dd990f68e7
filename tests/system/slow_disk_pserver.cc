// slow_disk_pserver: sluice-pserver on a disk where every read of a shard file takes --read_ms.
#include <chrono>
#include <iostream>
#include <thread>

#include "common/daemon/daemon_flags.h"
#include "common/daemon/listener_flags.h"
#include "common/daemon/member_flags.h"
#include "common/daemon/process_log.h"
#include "common/daemon/stop_signal.h"
#include "server/available_memory.h"
#include "server/pserver_daemon.h"

DEFINE_int32(rank, -1, "rank among the pservers");
DEFINE_int32(read_ms, 100, "milliseconds of one read");

namespace sluice {
namespace {

class SlowEnv : public Env {
 public:
  absl::StatusOr<std::string> ReadFile(const std::string& path) override {
    return real_->ReadFile(path);
  }
  absl::StatusOr<std::string> ReadRange(const std::string& path, uint64_t offset,
                                        uint64_t n) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(FLAGS_read_ms));
    return real_->ReadRange(path, offset, n);
  }
  absl::StatusOr<uint64_t> FileSize(const std::string& path) override {
    return real_->FileSize(path);
  }
  absl::Status WriteFile(const std::string& path,
                         absl::Span<const absl::string_view> pieces) override {
    return real_->WriteFile(path, pieces);
  }
  absl::Status RenameFile(const std::string& from, const std::string& to) override {
    return real_->RenameFile(from, to);
  }
  absl::Status MakeDirs(const std::string& path) override { return real_->MakeDirs(path); }
  absl::Status MakeNewDir(const std::string& path) override { return real_->MakeNewDir(path); }
  absl::Status RemoveDir(const std::string& path) override { return real_->RemoveDir(path); }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    return real_->List(path);
  }
  bool Exists(const std::string& path) override { return real_->Exists(path); }
  absl::Status RemoveFile(const std::string& path) override { return real_->RemoveFile(path); }

 private:
  Env* const real_ = Env::Real();
};

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  const auto fail = [](const absl::Status& status) {
    return sluice::FailToStart(sluice::ROLE_PSERVER, status);
  };
  const absl::Status begun = sluice::BeginDaemon("a pserver on a slow disk", &argc, &argv);
  if (!begun.ok()) return fail(begun);
  sluice::IdentityFlags flags = sluice::ReadDaemonFlags();
  sluice::ReadMemberFlags(&flags);
  sluice::ReadListenerFlags(&flags);
  const auto identity = sluice::ResolveIdentity(sluice::ROLE_PSERVER, flags);
  if (!identity.ok()) return fail(identity.status());

  sluice::SlowEnv env;
  sluice::PserverDaemon::Options options;
  options.identity = *identity;
  options.clock = sluice::Clock::Real();
  options.env = &env;
  options.available_memory = [] { return sluice::AvailableMemory(); };
  options.log = [](const std::string& line) { std::cout << line << std::endl; };
  options.on_end = [](absl::Status status) {
    std::cout << status << std::endl;
    sluice::StopSignal::Stop(sluice::ExitCodeOf(status));
  };
  auto daemon = sluice::PserverDaemon::Start(std::move(options));
  if (!daemon.ok()) return fail(daemon.status());
  const int code = sluice::StopSignal::Wait();
  daemon->reset();
  return code;
}
