#include "common/collective/nccl_engine.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/collective/group_fault.h"
#include "common/collective/nccl_communicator.h"
#include "common/collective/nccl_library.h"
#include "common/collective/nccl_network.h"
#include "common/collective/nccl_pipeline.h"
#include "common/collective/operation_header.h"
#include "common/collective/rank_card.h"
#include "common/cuda/cuda_status.h"

namespace sluice {
namespace {

class NcclEngine : public CollectiveEngine {
 public:
  NcclEngine(const NcclLibrary& nccl, const CollectiveOptions& options,
             std::unique_ptr<CollectiveEngine> control)
      : nccl_(nccl),
        options_(options),
        control_(std::move(control)),
        timeout_(options.timeout),
        communicator_(nccl) {}
  ~NcclEngine() override { Leave(); }

  absl::StatusOr<std::string> Listen(uint64_t generation, uint32_t self, uint32_t ranks) override;
  absl::Status Join(uint64_t generation, const std::vector<std::string>& peers,
                    const std::vector<uint32_t>& members) override;
  void Leave() override;
  void SetTimeout(absl::Duration timeout) override {
    timeout_ = timeout;
    control_->SetTimeout(timeout);
  }

  absl::Status Reduce(const OperationHeader& header, absl::Span<float> values) override;
  absl::Status AllGather(const OperationHeader& header, absl::Span<float> values) override {
    return WithoutGpu(header,
                      [&] { return control_->AllGather(AllGatherHeader(header.n), values); });
  }
  absl::Status Broadcast(const OperationHeader& header, absl::Span<uint8_t> bytes) override {
    return WithoutGpu(header, [&] { return control_->Broadcast(header, bytes); });
  }
  absl::Status Barrier(const OperationHeader& header) override {
    return WithoutGpu(header, [] { return absl::OkStatus(); });
  }

  void Abandon(const absl::Status& why) override {
    control_->Abandon(why);
    communicator_.Interrupt();
  }
  void Cancel() override {
    control_->Cancel();
    communicator_.Interrupt();
  }
  std::string WaitingFor() const override {
    std::string waiting = control_->WaitingFor();
    MutexLock lock(&mutex_);
    return waiting.empty() ? exchanging_ : waiting;
  }
  const char* name() const override { return "nccl"; }

 private:
  absl::Status UseDevice() {
    return cuda::CudaStatus(cudaSetDevice(options_.cuda_device), "cudaSetDevice");
  }
  // How long a wait for the GPUs lasts before the ranks look for the one that is missing.
  absl::Duration ExchangeTimeout() const {
    return std::min(timeout_ / 2, options_.network_timeout);
  }
  // Fills headers_ with those of all ranks.
  absl::Status GatherHeaders(const OperationHeader& header);
  // The same. OK: the ranks agree, and none has failed.
  absl::Status Agree(const OperationHeader& header);
  absl::Status WithoutGpu(const OperationHeader& header, absl::FunctionRef<absl::Status()> move);
  // Gets the id of the NCCL group from the first rank, over the control group.
  absl::Status ShareId(bool one_host, ncclUniqueId* id);
  absl::Status JoinGpus(const ncclUniqueId& id);
  // Ends the group because of `error`, and finds out which rank has caused it.
  absl::Status Blame(const absl::Status& error);
  void SetExchanging(std::string what) {
    MutexLock lock(&mutex_);
    exchanging_ = std::move(what);
  }

  const NcclLibrary& nccl_;
  const CollectiveOptions options_;
  const std::unique_ptr<CollectiveEngine> control_;
  absl::Duration timeout_;
  uint32_t rank_ = 0;                     // in the whole group
  uint32_t self_ = 0, ranks_ = 0;         // places among the members
  std::vector<uint32_t> names_;           // of the members
  std::vector<OperationHeader> headers_;  // of the present operation
  NcclCommunicator communicator_;
  std::optional<NcclPipeline> pipeline_;  // uses communicator_
  mutable Mutex mutex_;
  std::string exchanging_ ABSL_GUARDED_BY(mutex_);  // what waits for the GPUs
};

absl::StatusOr<std::string> NcclEngine::Listen(uint64_t generation, uint32_t self, uint32_t ranks) {
  rank_ = self;
  timeout_ = options_.timeout;
  communicator_.Reset();
  CollectiveCard card =
      NewCard("nccl", generation, self, ranks,
              options_.host_for_test.empty() ? HostOfThisProcess() : options_.host_for_test);
  SLUICE_ASSIGN_OR_RETURN(*card.mutable_inside(), control_->Listen(generation, self, ranks));
  return card.SerializeAsString();
}

absl::Status NcclEngine::Join(uint64_t generation, const std::vector<std::string>& peers,
                              const std::vector<uint32_t>& members) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<CollectiveCard> cards,
                          ParseCards("nccl", generation, peers, members));
  self_ = PlaceIn(members, rank_);
  ranks_ = static_cast<uint32_t>(members.size());
  names_ = members;
  const bool one_host = std::all_of(cards.begin(), cards.end(), [&](const CollectiveCard& card) {
    return card.host() == cards[0].host();
  });
  // NCCL's connections are plain TCP: between hosts they need the same permission as Gloo's.
  if (!one_host && options_.bind_address.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the ranks of the nccl group run on several hosts, and this one may not reach "
                     "the others: ",
                     options_.why_no_address));
  }
  std::vector<std::string> control(peers.size());
  for (size_t i = 0; i < members.size(); ++i) control[members[i]] = cards[i].inside();
  // First, because it carries the id of the NCCL group, and names a rank that does not come.
  SLUICE_RETURN_IF_ERROR(control_->Join(generation, control, members));
  ncclUniqueId id = {};
  if (const absl::Status shared = ShareId(one_host, &id); !shared.ok()) {
    control_->Abandon(shared);
    return shared;
  }
  const absl::Status joined = JoinGpus(id);
  return joined.ok() ? joined : Blame(joined);
}

absl::Status NcclEngine::ShareId(bool one_host, ncclUniqueId* id) {
  SLUICE_RETURN_IF_ERROR(NcclNetwork::OfProcess().Prepare(one_host));
  if (self_ == 0) {
    // From here on, NCCL of this process listens.
    if (const ncclResult_t result = nccl_.get_unique_id(id); result != ncclSuccess) {
      return absl::UnavailableError(
          absl::StrCat("NCCL cannot begin a group: ", nccl_.error_string(result), "; ",
                       nccl_.last_error(nullptr)));
    }
  }
  const absl::Span<uint8_t> bytes(reinterpret_cast<uint8_t*>(id->internal), sizeof(id->internal));
  return control_->Broadcast(BroadcastHeader(bytes.size(), 0), bytes);
}

absl::Status NcclEngine::JoinGpus(const ncclUniqueId& id) {
  // The device is a property of the thread, and engines are called from several.
  SLUICE_RETURN_IF_ERROR(UseDevice());
  SLUICE_RETURN_IF_ERROR(communicator_.Create(id, static_cast<int>(ranks_), static_cast<int>(self_),
                                              ExchangeTimeout()));
  pipeline_.emplace(&communicator_, self_, ranks_);
  return pipeline_->Create();
}

void NcclEngine::Leave() {
  if (pipeline_.has_value() && UseDevice().ok()) {
    // Before the buffers go: kernels of the last exchange may still use them.
    communicator_.Finish(ExchangeTimeout());
    pipeline_.reset();
  }
  control_->Leave();
}

absl::Status NcclEngine::GatherHeaders(const OperationHeader& header) {
  GatheredHeaders gathered(ranks_);
  gathered.Put(self_, header);
  SLUICE_RETURN_IF_ERROR(
      control_->AllGather(AllGatherHeader(gathered.all().size()), gathered.all()));
  headers_.resize(ranks_);
  for (uint32_t rank = 0; rank < ranks_; ++rank) headers_[rank] = gathered.At(rank);
  // The engine's own header, not its copy out of the gathered array.
  headers_[self_] = header;
  return absl::OkStatus();
}

absl::Status NcclEngine::Agree(const OperationHeader& header) {
  SLUICE_RETURN_IF_ERROR(GatherHeaders(header));
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    // A rank that is in Blame takes part in this gather with such a header.
    if (headers_[rank].kind != OperationHeader::kFailed) continue;
    return ErrorOf({GroupFault::kLeft, names_[rank], names_[rank]}, names_[self_], Describe(header),
                   options_);
  }
  return CheckAgreement(headers_);
}

absl::Status NcclEngine::WithoutGpu(const OperationHeader& header,
                                    absl::FunctionRef<absl::Status()> move) {
  absl::Status status = Agree(header);
  if (status.ok()) status = move();
  if (!status.ok()) control_->Abandon(status);
  return status;
}

absl::Status NcclEngine::Reduce(const OperationHeader& header, absl::Span<float> values) {
  if (const absl::Status agreed = Agree(header); !agreed.ok()) {
    control_->Abandon(agreed);
    return agreed;
  }
  SetExchanging(absl::StrCat("the GPUs of the other ranks in ", Describe(header)));
  absl::Status status = UseDevice();
  if (status.ok()) status = pipeline_->Reduce(headers_, values, ExchangeTimeout());
  SetExchanging("");
  return status.ok() ? status : Blame(status);
}

absl::Status NcclEngine::Blame(const absl::Status& error) {
  // Kernels that wait for a lost rank never end by themselves; Abort stops them.
  communicator_.Abort();
  if (pipeline_.has_value()) pipeline_->Drain();
  absl::Status why = error;
  // An error of this rank's own, such as a lack of memory, is clear. Otherwise every rank that
  // still lives comes here as well, or to its next operation, and hears that this one has failed.
  if (absl::IsUnavailable(error) || absl::IsDeadlineExceeded(error) || absl::IsCancelled(error)) {
    OperationHeader failed = BarrierHeader();
    failed.kind = OperationHeader::kFailed;
    const absl::Status met = GatherHeaders(failed);
    if (!met.ok()) why = met;
  }
  control_->Abandon(why);
  return why;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CollectiveEngine>> MakeNcclEngine(
    const CollectiveOptions& options, std::unique_ptr<CollectiveEngine> control) {
  if (options.cuda_device < 0) {
    return absl::FailedPreconditionError(
        "the engine nccl exchanges gradients between GPUs, and this rank has none");
  }
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices);
      error != cudaSuccess || options.cuda_device >= devices) {
    // Clears the error, which CUDA would return from a later, unrelated call.
    (void)cudaGetLastError();
    return absl::NotFoundError(absl::StrCat("the engine nccl needs cuda:", options.cuda_device,
                                            ", and this process sees ", devices, " CUDA devices",
                                            error == cudaSuccess ? "" : ": ",
                                            error == cudaSuccess ? "" : cudaGetErrorString(error),
                                            "; check nvidia-smi and CUDA_VISIBLE_DEVICES"));
  }
  SLUICE_ASSIGN_OR_RETURN(const NcclLibrary* const nccl, NcclLibrary::Get());
  return std::make_unique<NcclEngine>(*nccl, options, std::move(control));
}

}  // namespace sluice
