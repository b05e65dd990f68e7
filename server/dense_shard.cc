// A block of a dense table: weights and structure-of-arrays optimizer state.
//
// Weights are lent to answers, not copied: an update that meets a lent array goes on with a copy.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>

#include "server/shard.h"

namespace sluice {
namespace {

class DenseShard : public Shard {
 public:
  DenseShard(std::shared_ptr<const TableLayout> table, uint32_t index, const UpdatePolicy& policy)
      : Shard(std::move(table), index, policy),
        elements_(table_->ShardElements(index)),
        first_(index * table_->block_elements()),
        weights_(std::make_shared<Weights>(elements_)) {
    const UpdateRule& rule = *table_->columns()[0].rule;
    state_.resize(rule.state_floats() * elements_);
    table_->InitialElements(first_, elements_, weights_->values.data());
    float* arrays[UpdateRule::kMaxState];
    StateArrays(arrays);
    rule.InitState(arrays, elements_);
  }

  PartStatus Decode(uint32_t rows, PayloadReader* payload, PushPart* part) const override {
    const size_t bytes = static_cast<size_t>(rows) * table_->wire_bytes();
    if (rows != 0 && rows != elements_) {
      payload->Skip(bytes);
      return PART_BAD_SIZE;
    }
    part->rows = rows;
    part->keys.clear();
    part->in_message = policy_.mode == Mode::kAsync && policy_.gradients_to_wait <= 1;
    if (part->in_message) {
      part->message = *payload;
      return CheckValues(payload, table_->wire_bytes(), rows) ? PART_OK : PART_NOT_FINITE;
    }
    part->values.resize(rows);
    return DecodeValues(payload, table_->wire_bytes(), rows, part->values.data());
  }

  void Read(const uint64_t*, size_t, uint8_t* to) override {
    MutexLock lock(&mutex_);
    WriteValues(weights_->values.data(), elements_, table_->wire_bytes(), to);
  }

  Slice Lend() override {
    if (table_->wire_bytes() != sizeof(float)) return Slice();
    std::shared_ptr<const float> lent = LendWeights();
    const float* const values = lent.get();
    return Slice(values, elements_ * sizeof(float), std::move(lent));
  }

  std::unique_ptr<ShardCut> BeginCut() override {
    return CutOfElements(*table_, index_, LendWeights());
  }

  void LoadElements(uint64_t first, const float* values, size_t n) override {
    MutexLock lock(&mutex_);
    const uint64_t begin = std::max(first_, first);
    const uint64_t end = std::min(first_ + elements_, first + n);
    if (begin >= end) return;
    std::copy_n(values + (begin - first), end - begin, OwnWeights() + (begin - first_));
  }

  uint64_t rows() override { return elements_; }
  uint64_t bytes() override {
    return 4 * elements_ * (1 + table_->columns()[0].rule->state_floats());
  }
  uint64_t reserved_bytes() override { return bytes(); }

 protected:
  void ApplyGradient(PushPart* part, double weight) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (part->rows == 0 || weight == 0) return;
    if (part->in_message) {
      UpdateFromMessage(part);
    } else {
      Update(part->values.data());
    }
  }

  void ApplyMean(const std::vector<Pending*>& parts, double total) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!(total > 0)) return;
    std::vector<WeightedGradient> gradients;
    for (const Pending* p : parts) gradients.push_back({p->part.values.data(), p->weight});
    // In place of the first one: a step needs no memory but its buffered parts.
    float* mean = parts[0]->part.values.data();
    WeightedMean(gradients, elements_, total, mean);
    Update(mean);
  }

  void AddToSum(const PushPart& part, double weight) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (part.rows != 0) sum_.Add(part.values.data(), elements_, weight);
  }

  void ApplySum(double total) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!sum_.empty() && total > 0) {
      mean_.resize(elements_);
      sum_.Mean(total, mean_.data());
      Update(mean_.data());
    }
    sum_.Clear();
  }

  void AddDelta(const PushPart& part) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    float* const weights = OwnWeights();
    for (size_t i = 0; i < part.values.size(); ++i) {
      weights[i] = AddScaledDelta(weights[i], part.values[i], policy_.merge_scale);
    }
  }

 private:
  struct Weights {
    explicit Weights(size_t n) : values(n) {}
    explicit Weights(const std::vector<float>& of) : values(of) {}
    std::vector<float> values;
    std::atomic<int> borrowers{0};
  };

  // The weights as they are now; an update goes on with a copy while they are lent.
  std::shared_ptr<const float> LendWeights() {
    MutexLock lock(&mutex_);
    weights_->borrowers.fetch_add(1, std::memory_order_relaxed);  // seen by OwnWeights: mutex_
    return std::shared_ptr<const float>(weights_->values.data(), [lent = weights_](const float*) {
      lent->borrowers.fetch_sub(1, std::memory_order_release);
    });
  }

  // The weights, to be changed. New borrowers come only under mutex_: their number can only fall,
  // and what the last of them read comes before what is written now (acquire).
  float* OwnWeights() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (weights_->borrowers.load(std::memory_order_acquire) > 0) {
      weights_ = std::make_shared<Weights>(weights_->values);
    }
    return weights_->values.data();
  }

  void StateArrays(float** arrays) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (int k = 0; k < table_->columns()[0].rule->state_floats(); ++k) {
      arrays[k] = state_.data() + k * elements_;
    }
  }

  void Update(const float* gradient) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    float* arrays[UpdateRule::kMaxState];
    StateArrays(arrays);
    // A row longer than a block has no row norm to clip: the table's layout refuses it.
    const size_t row = std::min<uint64_t>(table_->row_elements(), elements_);
    table_->columns()[0].rule->Apply(OwnWeights(), arrays, gradient, elements_, row, Rates()[0],
                                     ++count_);
  }

  // The same from the slices that were received.
  void UpdateFromMessage(PushPart* part) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const UpdateRule& rule = *table_->columns()[0].rule;
    const size_t row = std::min<uint64_t>(table_->row_elements(), elements_);
    const bool whole_rows = rule.clip_row_norm() > 0;
    float* const weights = OwnWeights();
    float* arrays[UpdateRule::kMaxState];
    StateArrays(arrays);
    const float rate = Rates()[0];
    ++count_;
    for (size_t at = 0; at < elements_;) {
      size_t n;
      const UnalignedFloat* const gradient = NextGradient(whole_rows ? row : 0, at, part, &n);
      rule.Apply(weights + at, arrays, gradient, n, std::min(row, n), rate, count_);
      for (int k = 0; k < rule.state_floats(); ++k) arrays[k] += n;
      at += n;
    }
  }

  // The next n values from element `at` on, all finite (Decode looked); whole rows of `row` values
  // unless it is 0. Where they lie in the message when no row has to be whole and they came as
  // float32, else copied, piece by piece through the first cache.
  const UnalignedFloat* NextGradient(size_t row, size_t at, PushPart* part, size_t* n) const {
    constexpr size_t kPiece = 4096;  // elements
    const size_t left = elements_ - at;
    const size_t whole = std::max<size_t>(row, 1);
    part->values.resize(std::min<size_t>(elements_, (kPiece + whole - 1) / whole * whole));
    float* const copy = part->values.data();
    if (row == 0 && table_->wire_bytes() == sizeof(float)) {
      return reinterpret_cast<const UnalignedFloat*>(
          part->message.Values(left, sizeof(float), reinterpret_cast<uint8_t*>(copy), n));
    }
    *n = std::min(left, part->values.size());
    (void)ReadValues(&part->message, table_->wire_bytes(), *n, copy);
    return copy;
  }

  const uint64_t elements_;
  const uint64_t first_;  // index of the block's first element in the tensor
  std::shared_ptr<Weights> weights_ ABSL_GUARDED_BY(mutex_);  // [elements]
  std::vector<float> state_ ABSL_GUARDED_BY(mutex_);          // [state_floats][elements]
  uint64_t count_ ABSL_GUARDED_BY(mutex_) = 0;                // updates of the block
  DenseGradientSum sum_ ABSL_GUARDED_BY(mutex_);
  std::vector<float> mean_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Shard> MakeDenseShard(std::shared_ptr<const TableLayout> table, uint32_t index,
                                      const UpdatePolicy& policy) {
  return std::make_unique<DenseShard>(std::move(table), index, policy);
}

}  // namespace sluice
