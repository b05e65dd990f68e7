// Computes the weight gradients of an MLP's hidden layers: [in, rows] x [rows, out].
//
// It works by blocks of `in`.
//
// Invariants: one thread computes a block, in an order of rows that depends only on rows and
// pieces. So nothing depends on the number of threads. With pieces, a gradient is f32 inside a
// piece and double across pieces, and is rounded once; without, it is f32 throughout.
//
// Memory: two blocks of products and one of sums per thread; all sums in double once a sum has
// several parts. Plans of unusual shapes (short last batches) are kept until there are too many.
//
// Thread safety: one thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "model/net/aligned_array.h"
#include "model/net/layer_loops.h"
#include "model/net/matmul.h"
#include "model/net/step_passes.h"

namespace sluice {

// Rows [begin, end) of a batch whose products are summed in f32.
struct RowPiece {
  size_t begin = 0, end = 0;
};

class WeightGradients {
 public:
  // Operands of one layer: activations [rows][in] and gradients [rows][out], f32 or bf16.
  struct Layer {
    const void* activations;
    const void* gradients;
    float* out;  // [in][out]
  };

  // `widths` is [inputs, hidden...].
  WeightGradients(std::vector<size_t> widths, bool bf16, int threads);

  // Sums over `rows` rows (at least 1). `pieces` cut the rows, and the sum is multiplied by
  // `scale`; without pieces there is no scale, and `part` must be the whole. `done` may be empty;
  // it is called with a layer as soon as its sums are final, on the thread that computed the last
  // of them.
  absl::Status Run(size_t rows, const std::vector<RowPiece>& pieces, double scale,
                   const std::vector<Layer>& layers, SumPart part,
                   const std::function<void(size_t)>& done);

 private:
  // Rows that one product sums. A sum has one or more cuts.
  struct Cut {
    size_t begin, rows;
    bool first, last;  // of its sum
  };
  // The weights from inputs [begin, end) of a layer to all its units.
  struct Block {
    size_t layer, begin, end;
  };

  void MakeCuts(size_t rows, const std::vector<RowPiece>& pieces);
  absl::Status MakePlans();
  absl::StatusOr<Matmul*> Plan(const Matmul::Shape& shape);
  void Reserve(const std::vector<RowPiece>& pieces, SumPart part);
  void RunBlock(int lane, size_t block, bool pieces, double scale, SumPart part,
                const Layer& layer);

  const std::vector<size_t> widths_;
  const bool bf16_;
  const int threads_;
  const LayerLoops& loops_;
  std::vector<Block> blocks_;                     // constant
  std::vector<std::atomic<size_t>> open_blocks_;  // by layer, of this step
  std::vector<Cut> cuts_;                         // of this step
  std::map<Matmul::Shape, std::unique_ptr<Matmul>> plans_;
  std::vector<Matmul*> step_plans_;  // [block][cut]
  // [lane][kBlock][widest]. Pieces are added to the sums two at a time, which halves the traffic
  // of the sums.
  std::vector<AlignedArray<float>> product_[2];
  std::vector<AlignedArray<double>> sum_;
  std::vector<AlignedArray<double>> carried_;  // by layer, [in][out]: sums of the parts so far
};

}  // namespace sluice
