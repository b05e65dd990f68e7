// The client's state: frames, operations and requests, and the streams that carry them.
//
// A frame leaves when Delivery says so, an operation's pieces when their shard's pserver is
// reachable; both go in one request where they can. A request is forgotten when it is answered or
// its stream breaks; then what it carried is needed again. One thread of its own opens streams and
// fetches routes. Thread safety: any thread. Lock order: mu_, then a link's. Nothing is called out
// under mu_: messages are queued at the links and what must be destroyed is kept aside (After), and
// both are done once the lock is gone. Memory: at most kMaxFrames frames and kMaxOperations
// operations.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "client/delivery.h"
#include "client/pserver_link.h"
#include "client/pull_operation.h"
#include "client/push_frame.h"

namespace sluice {

class ClientCore : public PserverLink::Listener {
 public:
  using Ticket = ParameterClient::Ticket;
  static constexpr size_t kMaxFrames = 256, kMaxOperations = 1024;

  static absl::StatusOr<std::unique_ptr<ClientCore>> Create(ParameterClient::Options options);
  // Waits for a running get_route.
  ~ClientCore() override;

  const ShardIndex& index() const { return index_; }
  uint64_t last_sequence() const;
  Route route() const;

  // Sends a frame; sequence 0: the next one. `op` (may be null) goes with it: a pull, or an
  // exchange that the answer fills; its ticket is put in *ticket.
  absl::Status Push(PushFrame frame, std::shared_ptr<PullOperation> op, Ticket* ticket);
  // Parts of the next frame, which leave at once; the frame stays open until Push brings the rest.
  // `frame` has parts of one table. Any thread.
  absl::Status PushEarly(uint32_t table, PushFrame frame);
  // `to_all`: commit or end_epoch goes to every pserver.
  Ticket Start(std::shared_ptr<PullOperation> op, bool to_all = false);
  absl::Status Wait(Ticket ticket);
  absl::Status WaitPushes(uint64_t in_flight);
  // Asks for a route newer than `generation`, and waits for an answer (which may be the same).
  absl::Status RefreshRoute();
  void Cancel();
  std::string WaitingFor() const;
  absl::Status status() const;

  void OnOpen(uint32_t link) override;
  void OnReply(uint32_t link, DecodedReply reply) override;
  void OnBroken(uint32_t link) override;
  void OnHelloRefused(uint32_t link, const ReplyHeader& header) override;

 private:
  struct Request {
    uint32_t link = 0;
    std::optional<Delivery::Send> send;
    std::vector<Delivery::Error> errors;
    std::shared_ptr<PullOperation> op;
    bool pulls = false;
    uint64_t others = 0;
  };
  // What to do once mu_ is released.
  struct After {
    std::vector<PserverLink*> links;
    std::vector<std::shared_ptr<const void>> garbage;
    void Run();
  };
  using Requests = std::unordered_map<uint64_t, Request>;

  ClientCore(ParameterClient::Options options, ShardIndex index);

  // client_core.cc
  absl::Status WaitUntil(const std::function<bool()>& done,
                         const std::function<std::string()>& what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The next frame, open: its parts leave when they are ready.
  absl::Status OpenFrame(PushFrame frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // `rest` has the parts of the open frame that have not left yet.
  absl::Status CloseFrame(PushFrame rest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits for Changed(), at first without sleeping.
  void WaitForChange(absl::Duration at_most, std::chrono::steady_clock::time_point look_until)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Tells who waits to look again.
  void Changed();
  void Fail(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string LinkText(uint32_t link) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string Describe(const PullOperation& op) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string DescribePushes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A pull for a training step: which.
  void SetStep(PullOperation* op) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddControls(PullOperation* op) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A piece of no rows for every pserver that a commit's pull asks for nothing: it answers only
  // once the step is applied there.
  void CoverPservers(PullOperation* op) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // client_routes.cc
  void RunRoutes();
  void FetchRoute();
  absl::Status ApplyRoute(const Route& route) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckRoute(const Route& route) const;
  uint32_t LinkTo(const std::string& address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RestartOperations(bool changed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WantRoute(const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // client_requests.cc
  void Pump(After* after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SendRequest(uint32_t link, std::optional<Delivery::Send> send,
                   std::shared_ptr<PullOperation> op, After* after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::shared_ptr<PullOperation> OperationOfFrame(uint64_t sequence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Eligible(const PullOperation& op, const PullOperation::Piece& piece, uint32_t link) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HasWork(const PullOperation& op, uint32_t link) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Message FillOperation(uint32_t link, uint64_t id, PullOperation* op, FrameHeader* head)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Why a message of `request` cannot be sent.
  absl::Status TooLong(const PushFrame* frame, const std::vector<uint32_t>& shards,
                       const PullOperation* op, uint64_t request, uint64_t bytes) const;
  void ClaimByPush(const Delivery::Send& send, uint64_t id, PullOperation* op);
  void NoteErrors(const ReplyHeader& header, Request* request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FinishRequest(Requests::iterator it, After* after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FinishOperation(uint64_t id, const Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RefuseRequest(Requests::iterator it, const ReplyHeader& header, After* after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What `request` carried is needed again, or waits for a route.
  void Unsend(uint64_t id, const Request& request, PullOperation::State state);
  void BreakLink(uint32_t link, After* after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReleaseFrames(After* after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ParameterClient::Options options_;
  const ShardIndex index_;
  Clock* const clock_;

  mutable Mutex mu_;
  CondVar changed_;                           // something a caller may wait for
  std::atomic<uint64_t> changes_{0};          // counts them, for those who wait without sleeping
  CondVar wake_;                              // the thread of routes has work
  absl::Status status_ ABSL_GUARDED_BY(mu_);  // once not OK, every wait returns it
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  // Routes. Links are added, never removed; a link's index is its number everywhere here.
  Route route_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<PserverLink>> links_ ABSL_GUARDED_BY(mu_);
  std::vector<uint32_t> pserver_of_link_ ABSL_GUARDED_BY(mu_);  // in the route; kNone: not in it
  std::vector<bool> open_ ABSL_GUARDED_BY(mu_);                 // by link
  std::vector<uint32_t> owner_ ABSL_GUARDED_BY(mu_);            // link by flat shard
  bool route_wanted_ ABSL_GUARDED_BY(mu_) = false;
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time route_next_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Duration route_backoff_ ABSL_GUARDED_BY(mu_) = absl::ZeroDuration();
  uint64_t routes_fetched_ ABSL_GUARDED_BY(mu_) = 0;
  std::string last_refusal_ ABSL_GUARDED_BY(mu_);

  Delivery delivery_ ABSL_GUARDED_BY(mu_);
  // Not released. The last one may be open.
  std::deque<std::shared_ptr<PushFrame>> frames_ ABSL_GUARDED_BY(mu_);
  std::map<Ticket, std::shared_ptr<PullOperation>> operations_ ABSL_GUARDED_BY(mu_);
  Requests requests_ ABSL_GUARDED_BY(mu_);
  uint64_t next_request_ ABSL_GUARDED_BY(mu_) = 1;
  Ticket next_ticket_ ABSL_GUARDED_BY(mu_) = 1;
  uint64_t pulled_for_ ABSL_GUARDED_BY(mu_) = 0;  // for_push of the latest pull for a step
  std::vector<uint64_t> others_
      ABSL_GUARDED_BY(mu_);  // by link, of the latest pull that was waited for

  // What a caller waits for.
  std::function<std::string()> waiting_for_ ABSL_GUARDED_BY(mu_);
  absl::Time waiting_since_ ABSL_GUARDED_BY(mu_);

  std::thread routes_;
};

}  // namespace sluice
