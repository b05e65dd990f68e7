// Passes arrays in chunks through a GPU and an NCCL communicator (nccl_engine.h).
//
// Chunk k of an array is the k-th piece of every rank's part. It lies in slot k % kSlots:
//
//   in, send    [ranks, stride]   this rank's values of every rank's piece: pinned, on the device
//   receive     [ranks, stride]   every rank's values of this rank's piece
//   result      [stride]          their reduction
//   all, out    [ranks, stride]   the results of all ranks: on the device, pinned
//
// Streams: copies in, exchanges and sums, copies out. Events hold each back until its input is
// there. A slot is filled again when everything of it has come back.
//
// Memory: per slot, 2 x `in` pinned, and 3 x `in` and one piece on the device.
//
// Thread safety: one thread at a time, with the device current.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/collective/nccl_communicator.h"
#include "common/collective/operation_header.h"
#include "common/cuda/cuda_memory.h"
#include "common/cuda/cuda_stream.h"

namespace sluice {

class NcclPipeline {
 public:
  // The communicator outlives the pipeline.
  NcclPipeline(NcclCommunicator* communicator, uint32_t self, uint32_t ranks)
      : communicator_(*communicator), self_(self), ranks_(ranks) {}
  ~NcclPipeline() { Drain(); }

  absl::Status Create();
  // Reduces an array as described by `of_ranks`, whose headers agree. `timeout` bounds each wait.
  absl::Status Reduce(absl::Span<const OperationHeader> of_ranks, absl::Span<float> values,
                      absl::Duration timeout);
  // Waits for the streams. REQUIRES: the communicator does not hold them up.
  void Drain();

 private:
  static constexpr uint64_t kSlots = 3;
  static constexpr const char* kWhat = "memory for exchanging gradients";
  struct Slot {
    explicit Slot(cuda::DeviceMemory* memory)
        : send(memory, kWhat), receive(memory, kWhat), result(memory, kWhat), all(memory, kWhat) {}
    cuda::PinnedBlock in, out;
    cuda::DeviceBlock send, receive, result, all;
    cuda::Event filled, reduced, returned;
  };
  // The operation under way.
  struct Operation {
    OperationHeader header;
    absl::Span<float> values;
    std::vector<bool> counts;  // by rank: its weight is not 0
    size_t stride = 0;         // elements of the largest piece
    uint64_t chunks = 0;
    float divisor = 1;
    absl::Duration timeout;
    bool weighted() const { return header.kind == OperationHeader::kWeightedMean; }
    bool all() const { return header.kind != OperationHeader::kReduceScatter; }
  };

  absl::Status Begin(absl::Span<const OperationHeader> of_ranks);
  ArrayPart PieceOf(uint32_t rank, uint64_t chunk) const;
  size_t OffsetOf(uint32_t rank) const { return rank * operation_.stride * width(); }
  size_t width() const { return operation_.header.wire_bytes(); }
  void Fill(uint64_t chunk);
  absl::Status Start(uint64_t chunk);
  absl::Status Exchange(uint64_t chunk);
  absl::Status Sum(uint64_t chunk);
  absl::Status Finish(uint64_t chunk);

  NcclCommunicator& communicator_;
  const uint32_t self_, ranks_;
  cuda::DeviceMemory memory_{"the GPU", SIZE_MAX};  // as much as there is
  cuda::Stream in_, work_, out_;
  cuda::PinnedBlock host_weights_;
  cuda::DeviceBlock weights_{&memory_, kWhat};
  Slot slots_[kSlots] = {Slot(&memory_), Slot(&memory_), Slot(&memory_)};
  Operation operation_;
};

}  // namespace sluice
