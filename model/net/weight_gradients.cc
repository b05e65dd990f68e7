#include "model/net/weight_gradients.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "model/net/parallel.h"

namespace sluice {
namespace {

// Inputs of a block. With 400 units, a block of sums in double and two blocks of products fit
// together in a second-level cache.
constexpr size_t kInputBlock = 144;
// Rows of one product. More rows of a transposed operand cause misses in the address translation
// cache.
constexpr size_t kCut = 256;
// Plans kept for unusual numbers of rows.
constexpr size_t kMaxPlans = 512;

}  // namespace

WeightGradients::WeightGradients(std::vector<size_t> widths, bool bf16, int threads)
    : widths_(std::move(widths)),
      bf16_(bf16),
      threads_(threads),
      loops_(BestLayerLoops()),
      open_blocks_(widths_.size()),
      product_{std::vector<AlignedArray<float>>(threads),
               std::vector<AlignedArray<float>>(threads)},
      sum_(threads),
      carried_(widths_.size() - 1) {
  // The last layer first: gradients leave in this order (gradient_buckets.h).
  for (size_t l = widths_.size() - 1; l-- > 0;) {
    for (size_t i = 0; i < widths_[l]; i += kInputBlock) {
      blocks_.push_back({l, i, std::min(i + kInputBlock, widths_[l])});
    }
  }
}

void WeightGradients::MakeCuts(size_t rows, const std::vector<RowPiece>& pieces) {
  cuts_.clear();
  auto add = [this](size_t begin, size_t end) {
    for (size_t at = begin; at < end; at += kCut) {
      const size_t to = std::min(at + kCut, end);
      cuts_.push_back({at, to - at, at == begin, to == end});
    }
  };
  if (pieces.empty()) add(0, rows);
  for (const RowPiece& piece : pieces) add(piece.begin, piece.end);
}

absl::StatusOr<Matmul*> WeightGradients::Plan(const Matmul::Shape& shape) {
  auto it = plans_.find(shape);
  if (it == plans_.end()) {
    SLUICE_ASSIGN_OR_RETURN(auto matmul, Matmul::Create(shape, threads_));
    it = plans_.emplace(shape, std::move(matmul)).first;
  }
  return it->second.get();
}

absl::Status WeightGradients::MakePlans() {
  // Batches of ever new sizes must not fill the memory with plans.
  if (plans_.size() > kMaxPlans) plans_.clear();
  // By block and cut, in the order in which RunBlock looks them up.
  step_plans_.clear();
  for (const Block& block : blocks_) {
    for (const Cut& cut : cuts_) {
      Matmul::Shape shape;  // [rows, block of in]^T x [rows, out]
      shape.m = block.end - block.begin;
      shape.k = cut.rows;
      shape.n = widths_[block.layer + 1];
      shape.a_transposed = true;
      shape.lda = widths_[block.layer];
      // Inside a piece the product adds up in f32.
      shape.accumulate = !cut.first;
      shape.bf16 = bf16_;
      SLUICE_ASSIGN_OR_RETURN(Matmul * plan, Plan(shape));
      step_plans_.push_back(plan);
    }
  }
  return absl::OkStatus();
}

void WeightGradients::Reserve(const std::vector<RowPiece>& pieces, SumPart part) {
  if (pieces.empty()) return;
  // Every lane has its own place for products, since lanes run different blocks at the same time.
  const size_t widest = *std::max_element(widths_.begin() + 1, widths_.end());
  for (int lane = 0; lane < threads_; ++lane) {
    for (auto& product : product_) product[lane].Reserve(kInputBlock * widest);
    if (part.whole()) sum_[lane].Reserve(kInputBlock * widest);
  }
  for (size_t l = 0; !part.whole() && l < carried_.size(); ++l)
    carried_[l].Reserve(widths_[l] * widths_[l + 1]);
}

absl::Status WeightGradients::Run(size_t rows, const std::vector<RowPiece>& pieces, double scale,
                                  const std::vector<Layer>& layers, SumPart part,
                                  const std::function<void(size_t)>& done) {
  MakeCuts(rows, pieces);
  SLUICE_RETURN_IF_ERROR(MakePlans());
  Reserve(pieces, part);
  for (auto& open : open_blocks_) open = 0;
  for (const Block& block : blocks_) ++open_blocks_[block.layer];
  ParallelFor(threads_, blocks_.size(), [&](int lane, size_t i) {
    const size_t layer = blocks_[i].layer;
    RunBlock(lane, i, !pieces.empty(), scale, part, layers[layer]);
    // The decrement orders the blocks' writes before `done`: the last thread reports the layer.
    if (--open_blocks_[layer] == 0 && part.last && done) done(layer);
  });
  return absl::OkStatus();
}

void WeightGradients::RunBlock(int lane, size_t index, bool pieces, double scale, SumPart part,
                               const Layer& layer) {
  const Block& block = blocks_[index];
  const size_t in = widths_[block.layer], units = widths_[block.layer + 1];
  const size_t n = (block.end - block.begin) * units, bytes = bf16_ ? 2 : 4;
  float* const out = layer.out + block.begin * units;
  float* const products[] = {pieces ? product_[0][lane].data() : out, product_[1][lane].data()};
  double* const sum =
      part.whole() ? sum_[lane].data() : carried_[block.layer].data() + block.begin * units;
  bool fresh = part.first;  // nothing is in the sums yet
  size_t waiting = 0;       // products of whole pieces that are not yet added
  for (size_t c = 0; c < cuts_.size(); ++c) {
    const Cut& cut = cuts_[c];
    step_plans_[index * cuts_.size() + c]->Run(
        lane, static_cast<const char*>(layer.activations) + (cut.begin * in + block.begin) * bytes,
        static_cast<const char*>(layer.gradients) + cut.begin * units * bytes, products[waiting]);
    if (!pieces || !cut.last) continue;
    const bool end = c + 1 == cuts_.size();
    // Two products are added in one pass over the sums, which are in double and so the largest
    // part.
    if (++waiting < 2 && !end) continue;
    const float* const second = waiting == 2 ? products[1] : nullptr;
    if (end && part.last) {
      loops_.add_and_round(fresh ? nullptr : sum, products[0], second, scale, out, n);
    } else {
      loops_.add(fresh, products[0], second, sum, n);
    }
    fresh = false;
    waiting = 0;
  }
}

}  // namespace sluice
