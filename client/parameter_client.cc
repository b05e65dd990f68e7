#include "client/parameter_client.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/client_core.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

// Writing a model may take longer than a pull.
constexpr absl::Duration kSaveTimeout = absl::Minutes(10);
constexpr absl::Duration kSavePause = absl::Milliseconds(200);

bool Empty(const PullRequest& request) {
  if (!request.dense.empty()) return false;
  return std::all_of(request.sparse.begin(), request.sparse.end(),
                     [](const auto& s) { return s.keys != nullptr && s.keys->keys.empty(); });
}

// `others` of the pull that a push was computed from is that of the latest pull that was waited for
// when StartPush was called. A worker waits for a step's pull, computes, and pushes, in this order,
// at any depth.
class ParameterClientImpl : public ParameterClient {
 public:
  ParameterClientImpl(Options options, std::unique_ptr<ClientCore> core)
      : options_(std::move(options)), core_(std::move(core)) {}

  const TableLayouts& tables() const override { return core_->index().tables(); }

  Ticket StartPull(PullRequest request) override {
    std::shared_ptr<PullOperation> op = Pull(request);
    op->what = absl::StrCat("pull for step ", core_->last_sequence() + 1);
    return core_->Start(std::move(op));
  }

  absl::Status WaitPull(Ticket ticket) override { return core_->Wait(ticket); }

  absl::Status StartPush(PushRequest request, PullRequest* next, Ticket* next_ticket) override {
    SLUICE_ASSIGN_OR_RETURN(PushFrame frame, MakePushFrame(core_->index(), request));
    std::shared_ptr<PullOperation> op;
    if (next != nullptr) {
      op = Pull(*next);
      SLUICE_RETURN_IF_ERROR(op->status);
      op->what = absl::StrCat("pull for step ", core_->last_sequence() + 2);
    }
    return core_->Push(std::move(frame), std::move(op), next_ticket);
  }

  absl::Status PushEarly(PushRequest early) override {
    if (!early.sparse.empty() || early.dense.size() != 1) {
      return absl::InvalidArgumentError("an early push holds exactly one dense table");
    }
    SLUICE_ASSIGN_OR_RETURN(PushFrame frame, MakePushFrame(core_->index(), early));
    return core_->PushEarly(early.dense[0].table, std::move(frame));
  }

  absl::Status WaitPushes(int in_flight) override {
    return core_->WaitPushes(static_cast<uint64_t>(std::max(in_flight, 0)));
  }

  absl::Status PushStep(uint64_t global_step, PushRequest request) override {
    SLUICE_ASSIGN_OR_RETURN(PushFrame frame, MakePushFrame(core_->index(), request));
    frame.sequence = global_step + 1;
    SLUICE_RETURN_IF_ERROR(core_->Push(std::move(frame), nullptr, nullptr));
    return core_->WaitPushes(0);
  }

  Ticket StartCommit(uint64_t global_step, PullRequest next) override {
    std::shared_ptr<PullOperation> op = Empty(next) ? MakeBarrier(core_->index()) : Pull(next);
    op->what = absl::StrCat("commit of step ", global_step, " and pull for step ", global_step + 1);
    op->applied_sequence = op->commit_sequence = global_step + 1;
    return core_->Start(std::move(op), /*to_all=*/true);
  }

  Ticket StartExchange(PushRequest delta, PullRequest current) override {
    std::shared_ptr<PullOperation> op = Pull(current);
    op->exchange = true;
    op->what = absl::StrCat("exchange ", core_->last_sequence() + 1);
    absl::StatusOr<PushFrame> frame = MakePushFrame(core_->index(), delta);
    op->status.Update(frame.status());
    Ticket ticket = 0;
    if (op->status.ok()) {
      frame->delta = true;
      op->status = core_->Push(*std::move(frame), op, &ticket);
    }
    return op->status.ok() ? ticket : core_->Start(std::move(op));
  }

  absl::Status EndEpoch(uint32_t epoch) override {
    SLUICE_RETURN_IF_ERROR(core_->WaitPushes(0));
    auto op = std::make_shared<PullOperation>();
    op->what = absl::StrCat("end of epoch ", epoch + 1);
    op->end_epoch = true;
    op->epoch = epoch;
    return core_->Wait(core_->Start(std::move(op), /*to_all=*/true));
  }

  absl::StatusOr<std::vector<SavedFile>> SaveShards(const std::string& directory,
                                                    const std::string& save_id) override;

  void Cancel() override { core_->Cancel(); }
  std::string WaitingFor() const override { return core_->WaitingFor(); }

 private:
  std::shared_ptr<PullOperation> Pull(const PullRequest& request) const {
    auto op = MakePull(core_->index(), request);
    if (op.ok()) return *std::move(op);
    auto failed = std::make_shared<PullOperation>();
    failed->status = op.status();
    return failed;
  }
  absl::StatusOr<SaveShardsReply> SaveAt(const std::string& address, uint64_t generation,
                                         const std::string& directory,
                                         const std::string& save_id) const;
  absl::StatusOr<std::vector<SavedFile>> SaveWith(const Route& route, const std::string& directory,
                                                  const std::string& save_id) const;

  const Options options_;
  const std::unique_ptr<ClientCore> core_;
};

absl::StatusOr<SaveShardsReply> ParameterClientImpl::SaveAt(const std::string& address,
                                                            uint64_t generation,
                                                            const std::string& directory,
                                                            const std::string& save_id) const {
  SaveShardsRequest request;
  request.set_job_id(options_.job.job_id());
  request.set_generation(generation);
  request.set_directory(directory);
  request.set_save_id(save_id);
  request.set_instance(options_.job.instance());
  auto answer = options_.transport->Call(address, "/sluice.Pserver/SaveShards",
                                         request.SerializeAsString(), kSaveTimeout);
  if (!answer.ok()) {
    return absl::Status(answer.status().code(),
                        absl::StrCat("pserver at ", address, " cannot save its shards in ",
                                     directory, ": ", answer.status().message()));
  }
  SaveShardsReply reply;
  if (!reply.ParseFromString(*answer)) {
    return absl::InternalError(
        absl::StrCat("pserver at ", address, " answered SaveShards with malformed bytes"));
  }
  return reply;
}

absl::StatusOr<std::vector<SavedFile>> ParameterClientImpl::SaveWith(
    const Route& route, const std::string& directory, const std::string& save_id) const {
  std::vector<uint32_t> owners;
  for (const TableRoute& table : route.tables()) {
    owners.insert(owners.end(), table.owner().begin(), table.owner().end());
  }
  std::sort(owners.begin(), owners.end());
  owners.erase(std::unique(owners.begin(), owners.end()), owners.end());
  std::vector<absl::StatusOr<SaveShardsReply>> replies(owners.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < owners.size(); ++i) {
    threads.emplace_back([&, i] {
      replies[i] = SaveAt(route.pservers(owners[i]), route.generation(), directory, save_id);
    });
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

absl::StatusOr<std::vector<SavedFile>> ParameterClientImpl::SaveShards(const std::string& directory,
                                                                       const std::string& save_id) {
  const absl::Time begin = options_.clock->Now();
  while (true) {
    SLUICE_RETURN_IF_ERROR(core_->status());
    auto files = SaveWith(core_->route(), directory, save_id);
    const bool again =
        absl::IsUnavailable(files.status()) || absl::IsFailedPrecondition(files.status());
    if (!again || options_.clock->Now() - begin >= options_.timeout) return files;
    if (absl::IsFailedPrecondition(files.status())) {
      SLUICE_RETURN_IF_ERROR(core_->RefreshRoute());
    }
    options_.clock->Sleep(kSavePause);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ParameterClient>> ParameterClient::Create(Options options) {
  if (options.clock == nullptr) options.clock = Clock::Real();
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<ClientCore> core, ClientCore::Create(options));
  return std::unique_ptr<ParameterClient>(
      std::make_unique<ParameterClientImpl>(std::move(options), std::move(core)));
}

}  // namespace sluice
