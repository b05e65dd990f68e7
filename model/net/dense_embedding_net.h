// Lets a network that reads rows of a sparse table read rows of dense tables instead (features with
// `dense: true`). The keys of a batch are then row numbers.
//
// The rows of the batch's keys are gathered, each once, and the network computes on them as if they
// were pulled. The gradients of these rows are written into the gradients of the tables, which are
// zero elsewhere. So values and gradients have the bits that the network gives for the same rows of
// a sparse table.
//
// Cost: a step writes the whole gradient of each table. Buffers of gradients are reused for other
// values, so their zeros cannot be kept. That takes a core about 12 ms for 100 MB (8 GB/s, the
// speed of memset), and no measurable time for 1 MB (bench: train_step/sync/batch2048/f32/denseN).
// The optimizer then reads or writes at least three times as many bytes.
//
// Memory: rows and gradients of the largest batch, and 4 bytes for each key that the tables have.
//
// Thread safety: as DenseNet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/net/dense_net.h"

namespace sluice {

class DenseEmbeddingNet : public DenseNet {
 public:
  // A dense table of [rows, dim]. Its row r is that of key first_key + r, and floats [begin, begin
  // + dim) of a row of the network. A key may have a row in several tables; where it has none, the
  // network's row is zero.
  struct Table {
    uint64_t first_key = 0;
    uint64_t rows = 0;
    size_t dim = 0;
    size_t begin = 0;
  };

  // The tables are the first dense tables of the model, in this order; the others are those of
  // `net`, whose rows have `row_dim` floats. `threads` copy.
  // REQUIRES: the tables have at most 2^31 keys.
  DenseEmbeddingNet(std::unique_ptr<DenseNet> net, std::vector<Table> tables, size_t row_dim,
                    int threads);

  // INVALID_ARGUMENT when a key has no row, and errors of the network.
  absl::Status TrainStep(const NetInput& input, uint64_t seed, uint32_t epoch,
                         NetGradients* gradients) override;
  absl::Status Forward(const NetInput& input, float* logits) override;
  bool computes_in_passes() const override { return net_->computes_in_passes(); }

  // Batches are not announced to the network: their rows are numbered only when their step begins.
  // Geo's values and resident rows stay in the worker's memory.
  std::shared_ptr<HostMemory> host_memory() override { return net_->host_memory(); }
  std::vector<MetricSum> TakeSums() override { return net_->TakeSums(); }
  absl::StatusOr<std::string> SaveState() const override { return net_->SaveState(); }
  void DropStep() override { net_->DropStep(); }
  absl::Status RestoreState(const std::string& state) override { return net_->RestoreState(state); }
  void Cancel() override { net_->Cancel(); }
  DeviceStats device_stats() const override { return net_->device_stats(); }
  std::string Describe() const override { return net_->Describe(); }

 private:
  // Numbers the different keys of the batch and copies their rows.
  absl::StatusOr<NetInput> Gather(const NetInput& input);
  absl::Status NumberKeys(const std::vector<uint64_t>& keys);
  // Writes the whole gradient of tables_[t].
  void Scatter(size_t t, float* gradient) const;
  // Calls body(u, row of keys_[u] in the table) for the keys that have a row there.
  template <typename Body>
  void ForRows(const Table& table, const Body& body) const;

  const std::unique_ptr<DenseNet> net_;
  const std::vector<Table> tables_;
  const size_t row_dim_;
  const int threads_;
  // By key: base_ and its number in the batch; less than base_ in another batch.
  std::vector<uint32_t> numbers_;
  uint32_t base_ = 1;
  std::vector<uint64_t> keys_;       // [U], different
  std::vector<uint32_t> row_index_;  // [K]
  HostArray rows_, row_gradients_;   // [U][row_dim]
};

}  // namespace sluice
