// Coordinates the parts of the client under one lock.
//
// A frame is sent as soon as the send window allows it, and a piece of an operation as soon as its
// shard's pserver is reachable. One request carries both where possible. The parts decide; this
// class sends requests, handles replies, and blocks callers that wait. Its own thread opens streams
// and fetches routes.
//
// Thread safety: safe from any thread. No callback, send or destructor of caller data runs under
// mu_. They are collected in After and run after unlocking.
//
// Lock order: mu_, then a lock of a link, of the fetcher or of the loop.
//
// Memory: at most max_frames frames and max_pulls operations (ParameterClientLimits).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/background_loop.h"
#include "client/pserver_link.h"
#include "client/pull_operation.h"
#include "client/request_table.h"
#include "client/requests.h"
#include "client/route_fetcher.h"
#include "client/route_map.h"
#include "client/send_window.h"
#include "client/waiter.h"

namespace sluice {

class ClientCore : public PserverLink::Listener {
 public:
  using Ticket = PullTicket;

  // INVALID_ARGUMENT without a transport or a clock; INTERNAL when the route does not fit the
  // tables.
  static absl::StatusOr<std::unique_ptr<ClientCore>> Create(ParameterClientOptions options);
  // Waits until a running get_route has returned.
  ~ClientCore() override;

  const ShardIndex& index() const { return index_; }
  uint64_t last_sequence() const;
  // Up to this sequence all shards have acknowledged every frame.
  uint64_t acknowledged() const;
  // See ParameterClient::checkpoint_seen.
  uint64_t checkpoint_seen() const;
  Route route() const;
  // See Waiter::Excuse.
  absl::Time excused_at() const;
  // Why the client cannot continue; OK while it can.
  absl::Status failure() const;

  // Sends a frame; sequence 0 stands for the next one. `op` goes with the frame and may be null. It
  // is a pull, or an exchange that the reply fills; *ticket receives its ticket.
  absl::Status Push(PushFrame frame, std::shared_ptr<PullOperation> op, Ticket* ticket);
  // Sends parts of the next frame at once; the frame stays open until Push brings the rest. `frame`
  // has parts of one table.
  absl::Status PushEarly(uint32_t table, PushFrame frame);
  // Wait returns any error. `to_all`: the commit or end of epoch goes to every pserver.
  Ticket Start(absl::StatusOr<std::shared_ptr<PullOperation>> op, bool to_all = false);
  absl::Status Wait(Ticket ticket) { return *WaitUnless(ticket, nullptr); }
  // As Wait, but returns nullopt soon after *stop has become true, and keeps the ticket. `stop` may
  // be null.
  std::optional<absl::Status> WaitUnless(Ticket ticket, const std::atomic<bool>* stop);
  // Forgets an operation: nothing is written to its arrays any more.
  void Drop(Ticket ticket);
  absl::Status WaitPushes(uint64_t in_flight);
  // Asks for a newer route and waits for the reply, which may be the same route.
  absl::Status RefreshRoute();
  // See ParameterClient::NoteGeneration.
  void NoteGeneration(uint64_t generation);
  void Cancel();
  std::string WaitingFor() const;

  void OnOpen(uint32_t link) override;
  void OnReply(uint32_t link, DecodedReply reply) override;
  void OnBroken(uint32_t link) override;
  void OnHelloRefused(uint32_t link, const ReplyHeader& header) override;

 private:
  // Work to do once mu_ is released.
  struct After {
    std::vector<PserverLink*> links;  // to flush
    Garbage garbage;
    void Run();
  };

  ClientCore(ParameterClientOptions options, ShardIndex index);

  // The loop's work; returns when it is due next.
  absl::Time OpenStreamsAndFetchRoute();
  void FetchRoute(uint64_t generation);
  void ApplyRoute(const Route& route, After* after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddLink(const PserverAddress& to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WantRoute() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Call when a pserver cannot be reached or is slow: another process may have taken over its
  // shards.
  void LookForRoute() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The first message of a new stream to `link`.
  Hello HelloTo(uint32_t link) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // RESOURCE_EXHAUSTED when the client already keeps as many frames or operations as it may.
  absl::Status CheckRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sends everything that can be sent now.
  void Pump(After* after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SendRequest(uint32_t link, std::optional<Delivery::Send> send,
                   std::shared_ptr<PullOperation> op, After* after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FinishRequest(uint32_t link, uint64_t id, After* after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RefuseRequest(uint32_t link, uint64_t id, const ReplyHeader& header, After* after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void BreakLink(uint32_t link, After* after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  std::string Describe(const PullOperation& op) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string DescribePushes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string DescribeLink(uint32_t link) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ParameterClientOptions options_;
  const ShardIndex index_;
  RouteFetcher fetcher_;
  BackgroundLoop loop_;
  ChangeSignal changed_;

  mutable Mutex mu_;
  Waiter waiter_ ABSL_GUARDED_BY(mu_);
  RouteMap routes_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<PserverLink>> links_
      ABSL_GUARDED_BY(mu_);                      // as RouteMap numbers them
  std::vector<bool> open_ ABSL_GUARDED_BY(mu_);  // by link
  SendWindow window_ ABSL_GUARDED_BY(mu_);
  OperationTable operations_ ABSL_GUARDED_BY(mu_);
  RequestTable requests_ ABSL_GUARDED_BY(mu_);
  uint64_t checkpoint_seen_ ABSL_GUARDED_BY(mu_) = 0;
  uint32_t epochs_ended_ ABSL_GUARDED_BY(mu_) = 0;  // Hello.epochs_ended
};

}  // namespace sluice
