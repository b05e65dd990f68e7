// failpoint_scheduler: sluice-scheduler that kills itself before or after a change of files. A
// commit of its state is such a change, too: WHAT is "commit", and the path is "meta_store".
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "common/daemon/daemon_flags.h"
#include "common/daemon/listener_flags.h"
#include "common/meta_store/meta_store.h"
#include "scheduler/service/scheduler_server.h"
#include "tests/system/failpoint.h"

DEFINE_uint32(server_num, 0, "number of pservers");
DEFINE_uint32(worker_num, 0, "number of worker slots");

namespace {

// Passes everything on to `store`, with the hooks around each commit that changes something.
class FailpointStore : public sluice::MetaStore {
 public:
  FailpointStore(std::unique_ptr<MetaStore> store, sluice::HookedEnv* env)
      : store_(std::move(store)), env_(env) {}
  absl::StatusOr<uint64_t> AcquireTerm() override { return store_->AcquireTerm(); }
  absl::Status Commit(uint64_t term, absl::Span<const Write> writes) override {
    if (writes.empty()) return store_->Commit(term, writes);
    const absl::Status before = env_->before("commit", kPath);
    if (!before.ok()) return before;
    const absl::Status committed = store_->Commit(term, writes);
    if (committed.ok() && env_->after) env_->after("commit", kPath);
    return committed;
  }
  absl::StatusOr<std::vector<Entry>> Scan(const std::string& prefix) override {
    return store_->Scan(prefix);
  }
  sluice::Leadership* leadership() override { return store_->leadership(); }

 private:
  static constexpr char kPath[] = "meta_store";
  const std::unique_ptr<MetaStore> store_;
  sluice::HookedEnv* const env_;
};

}  // namespace

int main(int argc, char** argv) {
  sluice::HookedEnv env;
  sluice::SetFailpoint(&env);
  const auto fail = [](const absl::Status& status) {
    return sluice::FailToStart(sluice::ROLE_SCHEDULER, status);
  };
  const absl::Status begun = sluice::BeginDaemon("a scheduler with a failpoint", &argc, &argv);
  if (!begun.ok()) return fail(begun);
  sluice::IdentityFlags flags = sluice::ReadDaemonFlags();
  sluice::ReadListenerFlags(&flags);
  const auto identity = sluice::ResolveIdentity(sluice::ROLE_SCHEDULER, flags);
  if (!identity.ok()) return fail(identity.status());

  sluice::SchedulerServer::Options options;
  options.identity = *identity;
  options.server_num = FLAGS_server_num;
  options.worker_num = FLAGS_worker_num;
  options.clock = sluice::Clock::Real();
  options.env = &env;
  options.wrap_store_for_test = [&env](std::unique_ptr<sluice::MetaStore> store) {
    return std::make_unique<FailpointStore>(std::move(store), &env);
  };
  options.log = [](const std::string& line) { std::cout << line << std::endl; };
  options.on_end = [] { sluice::StopSignal::Stop(0); };
  auto server = sluice::SchedulerServer::Start(std::move(options));
  if (!server.ok()) return fail(server.status());
  const int code = sluice::StopSignal::Wait();
  server->reset();
  return code;
}
