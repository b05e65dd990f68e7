// The scheduler daemon: owns the loop, the intake of its calls, their gRPC listener and the admin
// HTTP server.
//
// Start order: admin, state store, loop, listener. Taking over the store ends the scheduler that
// leads at present. Whatever can refuse the start is therefore checked before: the records, the
// cluster's name and both ports.
//
// A standby waits between the first two steps until no other scheduler leads. Nobody listens at its
// address meanwhile, so that members and operators find the one that leads. While nobody leads
// because the state store is full, a WaitingListener answers there.
//
// Thread safety: one thread.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/admin/admin_server.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "common/daemon/identity.h"
#include "common/meta_store/meta_store.h"
#include "common/places/place_use.h"
#include "scheduler/service/dashboard.h"
#include "scheduler/service/job_curves.h"
#include "scheduler/service/request_intake.h"
#include "scheduler/service/scheduler_loop.h"
#include "scheduler/service/scheduler_service.h"
#include "scheduler/service/waiting_listener.h"

namespace sluice {

class SchedulerServer {
 public:
  struct Options {
    Identity identity;
    // Pservers; absent: as many as the cluster file lists, and without a file 1.
    std::optional<uint32_t> server_num;
    uint32_t worker_num = 0;  // 0: as in the cluster file
    Clock* clock = nullptr;   // required; outlives the server
    Env* env = nullptr;       // required; for the files of jobs; outlives the server
    // What was asked of places that are not this machine, by their names; outlives the server.
    std::map<std::string, const PlaceUse*> places;
    std::function<void(const std::string&)> log;
    AuditLog* audit = nullptr;  // may be null; outlives the server
    // For tests: wraps the state store as soon as it is open. May be null.
    std::function<std::unique_ptr<MetaStore>(std::unique_ptr<MetaStore>)> wrap_store_for_test;
    // Called when a Shutdown call has ended the cluster.
    std::function<void()> on_end;
    // Called when a newer scheduler has taken over the state store (ABORTED), or may have done so
    // (UNAVAILABLE).
    std::function<void(const absl::Status&)> on_superseded;
    // Waits, for a standby. Returns false when the process must end.
    std::function<bool(absl::Duration)> pause;
  };
  // CANCELLED: `pause` returned false while this was a standby. INVALID_ARGUMENT: --standby was
  // given, but the state store cannot be shared.
  static absl::StatusOr<std::unique_ptr<SchedulerServer>> Start(Options options);
  // Leaves jobs and members to the next scheduler with this state store. Without a store it shuts
  // the cluster down. Waits a few seconds at most for members to stop, when they have been told to.
  ~SchedulerServer();

 private:
  explicit SchedulerServer(Options options) : options_(std::move(options)) {}
  absl::Status Init();
  // Opens the state store, which ends the terms of earlier schedulers, and reads what they left.
  absl::Status TakeOver(SchedulerLoop::Options* loop);
  // Makes the loop, of which the caller gives the core and the store, and its intake.
  void StartLoop(SchedulerLoop::Options loop);
  // Reads what the store holds. INVALID_ARGUMENT: it is the state of another cluster.
  absl::StatusOr<StoredJobs> ReadStore();
  // Waits until this scheduler may lead. CANCELLED: `pause` returned false.
  absl::StatusOr<uint64_t> AwaitTerm(absl::Duration lease);
  // See Standby::Options::answer.
  void AnswerWaiting(const std::string& why);
  absl::Status NotReady();
  ClusterStatus GetStatus();
  // The status as the admin port shows it.
  ClusterStatus ShownStatus();
  absl::Status StartAdmin();
  std::string StatusText();

  Options options_;
  std::unique_ptr<Env> confined_;     // for the paths of jobs; null: options_.env
  std::unique_ptr<MetaStore> store_;  // null: the state is kept nowhere
  uint64_t term_ = 0;
  JobCurves curves_;  // outlives the loop, which fills it
  std::unique_ptr<SchedulerLoop> loop_;
  std::unique_ptr<RequestIntake> intake_;
  // The loop for the admin server, which is started earlier; null until there is one. Release and
  // acquire: the admin's threads see the loop whole.
  std::atomic<SchedulerLoop*> serving_{nullptr};
  Mutex mutex_;
  std::string waits_for_ ABSL_GUARDED_BY(mutex_) = "waits for the state store";
  std::unique_ptr<Dashboard> dashboard_;  // outlives admin_, which asks it
  std::unique_ptr<AdminServer> admin_;
  std::unique_ptr<WaitingListener> waiting_;  // until listener_ listens; null: nobody is answered
  std::unique_ptr<SchedulerListener> listener_;
};

}  // namespace sluice
