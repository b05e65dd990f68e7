#include "client/parameter_client.h"

#include <algorithm>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/client_core.h"
#include "client/pull_pieces.h"
#include "common/base/status_macros.h"
#include "common/table/placement.h"
#include "common/transport/retry.h"
#include "proto/pserver.pb.h"

namespace sluice {
namespace {

constexpr absl::Duration kSavePause = absl::Milliseconds(200);
// A full disk also gives RESOURCE_EXHAUSTED, and rarely frees space by itself.
constexpr absl::Duration kBusyPatience = absl::Seconds(30);

// Writing a model may take longer than a pull.
constexpr absl::Duration kSaveShardsTimeout = absl::Minutes(10);

absl::StatusOr<SaveShardsReply> SaveAt(Transport* transport, const PserverAddress& to,
                                       const SaveShardsRequest& request) {
  auto answer = transport->Call(to, "/sluice.Pserver/SaveShards", request.SerializeAsString(),
                                kSaveShardsTimeout);
  if (!answer.ok()) {
    return absl::Status(answer.status().code(),
                        absl::StrCat("pserver at ", to.address, " cannot save its shards in ",
                                     request.directory(), ": ", answer.status().message()));
  }
  SaveShardsReply reply;
  if (!reply.ParseFromString(*answer)) {
    return absl::InternalError(
        absl::StrCat("pserver at ", to.address, " answered SaveShards with malformed bytes"));
  }
  return reply;
}

// Calls all pservers at once and waits for the last reply. `request` names the job and where to
// write; its generation is that of the route. Returns the files by name, or the error of a pserver
// with its address.
absl::StatusOr<std::vector<SavedFile>> SaveShardsOnce(Transport* transport, const Route& route,
                                                      SaveShardsRequest request) {
  request.set_generation(route.generation());
  std::vector<uint32_t> owners;
  for (const TableRoute& table : route.tables()) {
    owners.insert(owners.end(), table.owner().begin(), table.owner().end());
  }
  std::sort(owners.begin(), owners.end());
  owners.erase(std::unique(owners.begin(), owners.end()), owners.end());
  std::vector<absl::StatusOr<SaveShardsReply>> replies(owners.size());
  // A thread for each pserver: a call returns only when its files are written.
  std::vector<std::thread> threads;
  for (size_t i = 0; i < owners.size(); ++i) {
    threads.emplace_back(
        [&, i] { replies[i] = SaveAt(transport, PserverAt(route, owners[i]), request); });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<SavedFile> files;
  for (const auto& reply : replies) {
    SLUICE_RETURN_IF_ERROR(reply.status());
    files.insert(files.end(), reply->files().begin(), reply->files().end());
  }
  std::sort(files.begin(), files.end(),
            [](const SavedFile& a, const SavedFile& b) { return a.name() < b.name(); });
  return files;
}

bool Empty(const PullRequest& request) {
  if (!request.dense.empty()) return false;
  return std::all_of(request.sparse.begin(), request.sparse.end(),
                     [](const auto& s) { return s.keys != nullptr && s.keys->keys.empty(); });
}

PullOperation::Purpose For(std::string what) {
  PullOperation::Purpose purpose;
  purpose.what = std::move(what);
  return purpose;
}

// A push is computed from the latest pull that the caller has waited for, so it reports that pull's
// `others`. At any depth, a worker waits for a step's pull, computes, and pushes, in this order.
class ParameterClientImpl : public ParameterClient {
 public:
  ParameterClientImpl(Options options, std::unique_ptr<ClientCore> core)
      : options_(std::move(options)), core_(std::move(core)) {}

  const TableLayouts& tables() const override { return index().tables(); }

  Ticket StartPull(PullRequest request) override {
    return core_->Start(MakePull(index(), request, For(PullForStep(core_->last_sequence() + 1))));
  }

  absl::Status WaitPull(Ticket ticket) override { return core_->Wait(ticket); }
  std::optional<absl::Status> WaitPullUnless(Ticket ticket,
                                             const std::atomic<bool>& stop) override {
    return core_->WaitUnless(ticket, &stop);
  }

  void DropPull(Ticket ticket) override { core_->Drop(ticket); }

  absl::Status StartPush(PushRequest request, PullRequest* next, Ticket* next_ticket) override {
    SLUICE_ASSIGN_OR_RETURN(PushFrame frame, MakePushFrame(index(), request));
    std::shared_ptr<PullOperation> op;
    if (next != nullptr) {
      SLUICE_ASSIGN_OR_RETURN(
          op, MakePull(index(), *next, For(PullForStep(core_->last_sequence() + 2))));
    }
    return core_->Push(std::move(frame), std::move(op), next_ticket);
  }

  absl::Status PushEarly(PushRequest early) override {
    if (!early.sparse.empty() || early.dense.size() != 1) {
      return absl::InvalidArgumentError("an early push holds exactly one dense table");
    }
    SLUICE_ASSIGN_OR_RETURN(PushFrame frame, MakePushFrame(index(), early));
    return core_->PushEarly(early.dense[0].table, std::move(frame));
  }

  absl::Status WaitPushes(int in_flight) override {
    return core_->WaitPushes(static_cast<uint64_t>(std::max(in_flight, 0)));
  }

  uint64_t acknowledged() const override { return core_->acknowledged(); }

  absl::Status PushStep(uint64_t global_step, PushRequest request) override {
    SLUICE_ASSIGN_OR_RETURN(PushFrame frame, MakePushFrame(index(), request));
    frame.sequence = global_step + 1;
    SLUICE_RETURN_IF_ERROR(core_->Push(std::move(frame), nullptr, nullptr));
    return core_->WaitPushes(0);
  }

  Ticket StartCommit(uint64_t global_step, PullRequest next, uint64_t checkpoint,
                     TrainTotals totals) override {
    PullOperation::Purpose purpose =
        For(absl::StrCat("commit of step ", global_step, " and pull for step ", global_step + 1));
    purpose.applied_sequence = purpose.commit_sequence = global_step + 1;
    purpose.checkpoint = checkpoint;
    purpose.totals = std::move(totals);
    // Without values to pull, a barrier still waits until the step is applied.
    return core_->Start(Empty(next) ? MakeBarrier(index(), std::move(purpose))
                                    : MakePull(index(), next, std::move(purpose)),
                        /*to_all=*/true);
  }

  uint64_t checkpoint_seen() const override { return core_->checkpoint_seen(); }

  Ticket StartExchange(PushRequest delta, PullRequest current) override {
    const absl::StatusOr<Ticket> ticket = Exchange(delta, current);
    return ticket.ok() ? *ticket : core_->Start(ticket.status());
  }

  absl::Status EndEpoch(uint32_t epoch) override {
    // First all pushes: a push that arrives after the end of the epoch would withdraw it.
    SLUICE_RETURN_IF_ERROR(core_->WaitPushes(0));
    PullOperation::Purpose purpose = For(absl::StrCat("end of epoch ", epoch + 1));
    purpose.end_epoch = true;
    purpose.epoch = epoch;
    return core_->Wait(core_->Start(std::make_shared<PullOperation>(&index(), std::move(purpose)),
                                    /*to_all=*/true));
  }

  absl::StatusOr<std::vector<SavedFile>> SaveShards(const std::string& directory,
                                                    const std::string& save_id) override;

  void NoteGeneration(uint64_t generation) override { core_->NoteGeneration(generation); }
  void Cancel() override { core_->Cancel(); }
  std::string WaitingFor() const override { return core_->WaitingFor(); }

 private:
  const ShardIndex& index() const { return core_->index(); }
  static std::string PullForStep(uint64_t step) { return absl::StrCat("pull for step ", step); }

  absl::StatusOr<Ticket> Exchange(const PushRequest& delta, const PullRequest& current) {
    PullOperation::Purpose purpose = For(absl::StrCat("exchange ", core_->last_sequence() + 1));
    purpose.exchange = true;
    SLUICE_ASSIGN_OR_RETURN(auto op, MakePull(index(), current, std::move(purpose)));
    SLUICE_ASSIGN_OR_RETURN(PushFrame frame, MakePushFrame(index(), delta));
    frame.delta = true;
    Ticket ticket = 0;
    SLUICE_RETURN_IF_ERROR(core_->Push(std::move(frame), std::move(op), &ticket));
    return ticket;
  }

  const Options options_;
  const std::unique_ptr<ClientCore> core_;
};

absl::StatusOr<std::vector<SavedFile>> ParameterClientImpl::SaveShards(const std::string& directory,
                                                                       const std::string& save_id) {
  SaveShardsRequest request;
  request.set_job_id(options_.job_id);
  request.set_instance(options_.instance);
  request.set_directory(directory);
  request.set_save_id(save_id);
  request.set_rank(options_.rank);
  request.set_incarnation(options_.incarnation);
  request.set_pass(options_.pass);
  const absl::Time begin = options_.clock->Now();
  std::optional<absl::Time> busy_since;
  while (true) {
    SLUICE_RETURN_IF_ERROR(core_->failure());
    auto files = SaveShardsOnce(options_.transport, core_->route(), request);
    // A pserver that does not have the job yet may be about to take over from one that was lost.
    const bool lost = PserverMayBeLost(files.status().code());
    // It has no room for the call now, or none on its disk: that is tried again for a while only.
    const bool busy = absl::IsResourceExhausted(files.status());
    const absl::Time now = options_.clock->Now();
    const absl::Duration waited = now - std::max(begin, core_->excused_at());
    if ((!lost && !busy) || waited >= options_.limits.timeout) return files;
    if (!busy) busy_since.reset();
    if (busy && !busy_since.has_value()) busy_since = now;
    if (busy && now - *busy_since >= kBusyPatience) return files;
    // The next call must reach the process that has taken over, if there is one.
    if (options_.get_route || RouteIsStale(files.status().code()))
      SLUICE_RETURN_IF_ERROR(core_->RefreshRoute());
    options_.clock->Sleep(kSavePause);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ParameterClient>> ParameterClient::Create(Options options) {
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<ClientCore> core, ClientCore::Create(options));
  return std::unique_ptr<ParameterClient>(
      std::make_unique<ParameterClientImpl>(std::move(options), std::move(core)));
}

}  // namespace sluice
