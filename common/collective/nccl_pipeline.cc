#include "common/collective/nccl_pipeline.h"

#include <algorithm>
#include <cstring>

#include "common/base/status_macros.h"
#include "common/collective/nccl_kernels.h"
#include "common/collective/rank_reduction.h"
#include "common/collective/reduce_loops.h"

namespace sluice {
namespace {

// All pieces of a chunk together: the bandwidth of PCIe and NVLink is nearly reached with 4 MiB.
constexpr size_t kChunkFloats = 1 << 20;
// An array of few chunks is cut into this many, so that its stages overlap, if pieces stay large.
constexpr size_t kWantedNcclChunks = 4;
constexpr size_t kMinNcclPieceFloats = 16 << 10;
constexpr size_t kNcclLineFloats = 16;

size_t RoundUp(size_t n) { return (n + kNcclLineFloats - 1) / kNcclLineFloats * kNcclLineFloats; }

}  // namespace

absl::Status NcclPipeline::Create() {
  for (cuda::Stream* const stream : {&in_, &work_, &out_}) SLUICE_RETURN_IF_ERROR(stream->Create());
  for (Slot& slot : slots_) {
    for (cuda::Event* const event : {&slot.filled, &slot.reduced, &slot.returned})
      SLUICE_RETURN_IF_ERROR(event->Create(/*timing=*/false));
  }
  SLUICE_RETURN_IF_ERROR(host_weights_.Reserve(ranks_ * sizeof(float)));
  return weights_.Reserve(ranks_ * sizeof(float));
}

void NcclPipeline::Drain() {
  for (cuda::Stream* const stream : {&in_, &work_, &out_})
    if (stream->get() != nullptr) (void)cudaStreamSynchronize(stream->get());
  (void)cudaGetLastError();
}

ArrayPart NcclPipeline::PieceOf(uint32_t rank, uint64_t chunk) const {
  const ArrayPart part = PartOf(operation_.values.size(), ranks_, rank);
  const size_t begin = std::min(part.end, part.begin + chunk * operation_.stride);
  return {begin, std::min(part.end, begin + operation_.stride)};
}

absl::Status NcclPipeline::Begin(absl::Span<const OperationHeader> of_ranks) {
  // All ranks compute the same stride and number of chunks: NCCL pairs the calls by their order
  // alone.
  const size_t part = PartOf(operation_.values.size(), ranks_, 0).size();  // no part is larger
  const size_t most =
      std::max(kNcclLineFloats, kChunkFloats / ranks_ / kNcclLineFloats * kNcclLineFloats);
  const size_t wanted =
      std::max(kMinNcclPieceFloats, RoundUp((part + kWantedNcclChunks - 1) / kWantedNcclChunks));
  operation_.stride = std::min({most, wanted, RoundUp(part)});
  operation_.chunks = (part + operation_.stride - 1) / operation_.stride;
  operation_.counts.clear();
  float* const weights = reinterpret_cast<float*>(host_weights_.data());
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    weights[rank] = static_cast<float>(of_ranks[rank].weight);
    operation_.counts.push_back(!operation_.weighted() || of_ranks[rank].weight != 0);
  }
  operation_.divisor = 1;
  if (operation_.weighted()) {
    operation_.divisor = TotalWeight(of_ranks);
  } else if (operation_.header.op == static_cast<uint32_t>(Collective::Op::kAverage)) {
    operation_.divisor = static_cast<float>(ranks_);
  }
  const size_t piece = operation_.stride * width();
  for (Slot& slot : slots_) {
    // Buffers only grow, and the sizes of a job's arrays repeat: after the first step nothing is
    // allocated.
    SLUICE_RETURN_IF_ERROR(slot.in.Reserve(ranks_ * piece));
    SLUICE_RETURN_IF_ERROR(slot.out.Reserve(ranks_ * piece));
    SLUICE_RETURN_IF_ERROR(slot.send.Reserve(ranks_ * piece));
    SLUICE_RETURN_IF_ERROR(slot.receive.Reserve(ranks_ * piece));
    SLUICE_RETURN_IF_ERROR(slot.result.Reserve(piece));
    SLUICE_RETURN_IF_ERROR(slot.all.Reserve(ranks_ * piece));
  }
  return cuda::CudaStatus(cudaMemcpyAsync(weights_.data(), weights, ranks_ * sizeof(float),
                                          cudaMemcpyHostToDevice, in_.get()),
                          "cudaMemcpyAsync");
}

absl::Status NcclPipeline::Reduce(absl::Span<const OperationHeader> of_ranks,
                                  absl::Span<float> values, absl::Duration timeout) {
  operation_.header = of_ranks[self_];
  operation_.values = values;
  operation_.timeout = timeout;
  if (values.empty()) return absl::OkStatus();
  SLUICE_RETURN_IF_ERROR(Begin(of_ranks));
  for (uint64_t k = 0; k < operation_.chunks + kSlots; ++k) {
    // Chunk k takes the slot of chunk k - kSlots, whose results must have been copied out.
    if (k >= kSlots && k - kSlots < operation_.chunks) SLUICE_RETURN_IF_ERROR(Finish(k - kSlots));
    if (k >= operation_.chunks) continue;
    Fill(k);
    SLUICE_RETURN_IF_ERROR(Start(k));
  }
  return absl::OkStatus();
}

void NcclPipeline::Fill(uint64_t chunk) {
  if (!operation_.counts[self_]) return;  // its values are not read
  Slot& slot = slots_[chunk % kSlots];
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    const ArrayPart piece = PieceOf(rank, chunk);
    if (piece.size() == 0) continue;
    char* const to = slot.in.data() + OffsetOf(rank);
    const float* const from = operation_.values.data() + piece.begin;
    if (operation_.header.in_bf16()) {
      BestReduceLoops().round(from, reinterpret_cast<uint16_t*>(to), piece.size());
    } else {
      std::memcpy(to, from, piece.size() * sizeof(float));
    }
  }
}

absl::Status NcclPipeline::Start(uint64_t chunk) {
  Slot& slot = slots_[chunk % kSlots];
  if (operation_.counts[self_]) {
    SLUICE_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(slot.send.data(), slot.in.data(), OffsetOf(ranks_),
                                                cudaMemcpyHostToDevice, in_.get()));
  }
  SLUICE_RETURN_IF_ERROR(slot.filled.Record(in_));
  // The streams run beside each other, so that copies overlap with exchanges. Only these events
  // order them.
  SLUICE_RETURN_IF_ERROR(slot.filled.HoldBack(work_));
  SLUICE_RETURN_IF_ERROR(Exchange(chunk));
  SLUICE_RETURN_IF_ERROR(Sum(chunk));
  const char* from = slot.result.data();
  size_t bytes = operation_.stride * width();
  if (operation_.all()) {
    SLUICE_RETURN_IF_ERROR(communicator_.Group(
        [&](const NcclLibrary& nccl, ncclComm_t comm) {
          return nccl.all_gather(slot.result.data(), slot.all.data(), operation_.stride,
                                 operation_.header.in_bf16() ? ncclBfloat16 : ncclFloat32, comm,
                                 work_.get());
        },
        operation_.timeout));
    from = slot.all.data();
    bytes = OffsetOf(ranks_);
  }
  SLUICE_RETURN_IF_ERROR(slot.reduced.Record(work_));
  SLUICE_RETURN_IF_ERROR(slot.reduced.HoldBack(out_));
  SLUICE_RETURN_IF_CUDA_ERROR(
      cudaMemcpyAsync(slot.out.data(), from, bytes, cudaMemcpyDeviceToHost, out_.get()));
  return slot.returned.Record(out_);
}

absl::Status NcclPipeline::Exchange(uint64_t chunk) {
  Slot& slot = slots_[chunk % kSlots];
  const size_t own = PieceOf(self_, chunk).size();
  const ncclDataType_t type = operation_.header.in_bf16() ? ncclBfloat16 : ncclFloat32;
  return communicator_.Group(
      [&](const NcclLibrary& nccl, ncclComm_t comm) {
        // One group of calls: NCCL starts them together. One after the other, two ranks that send
        // first would wait for each other.
        for (uint32_t rank = 0; rank < ranks_; ++rank) {
          const int peer = static_cast<int>(rank);
          const size_t theirs = PieceOf(rank, chunk).size();
          ncclResult_t result = ncclSuccess;
          if (theirs > 0 && operation_.counts[self_]) {
            result =
                nccl.send(slot.send.data() + OffsetOf(rank), theirs, type, peer, comm, work_.get());
          }
          if (result != ncclSuccess && result != ncclInProgress) return result;
          if (own > 0 && operation_.counts[rank]) {
            result =
                nccl.recv(slot.receive.data() + OffsetOf(rank), own, type, peer, comm, work_.get());
          }
          if (result != ncclSuccess && result != ncclInProgress) return result;
        }
        return ncclSuccess;
      },
      operation_.timeout);
}

absl::Status NcclPipeline::Sum(uint64_t chunk) {
  Slot& slot = slots_[chunk % kSlots];
  cuda::on_device::RankReductionArgs args;
  args.inputs = slot.receive.data();
  if (operation_.weighted()) {
    args.weights = reinterpret_cast<const float*>(weights_.data());
  } else {
    args.op = operation_.header.op;
  }
  args.result = slot.result.data();
  args.n = PieceOf(self_, chunk).size();
  args.stride = operation_.stride;
  args.ranks = ranks_;
  args.divisor = operation_.divisor;
  args.halves = operation_.header.in_bf16();
  if (args.n == 0) return absl::OkStatus();
  cuda::on_device::LaunchRankReduction(work_.get(), args);
  return cuda::CudaStatus(cudaGetLastError(), "the reduction's kernel");
}

absl::Status NcclPipeline::Finish(uint64_t chunk) {
  Slot& slot = slots_[chunk % kSlots];
  // Not cudaEventSynchronize, which would wait for a lost rank for ever.
  SLUICE_RETURN_IF_ERROR(communicator_.Await(slot.returned.get(), operation_.timeout));
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    if (!operation_.all() && rank != self_) continue;
    const ArrayPart piece = PieceOf(rank, chunk);
    RankReduction::Take(operation_.header,
                        slot.out.data() + (operation_.all() ? OffsetOf(rank) : 0),
                        operation_.values.data() + piece.begin, piece.size());
  }
  return absl::OkStatus();
}

}  // namespace sluice
