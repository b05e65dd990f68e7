// A block of a dense table: weights and structure-of-arrays optimizer state.
//
// Answers borrow the weights and cuts borrow both, so neither copies them. An update that finds an
// array lent continues on a copy of it.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/table/not_finite.h"
#include "server/shards/not_finite_change.h"
#include "server/shards/shard.h"

namespace sluice {
namespace {

class DenseShard : public Shard {
 public:
  DenseShard(std::shared_ptr<const TableLayout> table, uint32_t index, const UpdatePolicy& policy)
      : Shard(std::move(table), index, policy),
        elements_(table_->ShardElements(index)),
        first_(index * table_->block_elements()),
        weights_(std::make_shared<Array>(elements_)),
        state_(std::make_shared<Array>(elements_ * table_->state_floats())) {
    const UpdateRule& rule = *table_->columns()[0].rule;
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
    const bool at_once = policy_.mode == Mode::kAsync && policy_.gradients_to_wait <= 1;
    part->in_message = at_once && !payload->lent();
    if (part->in_message) {
      part->message = *payload;
      return CheckValues(payload, table_->wire_bytes(), rows) ? PART_OK : PART_NOT_FINITE;
    }
    // Values that are applied at once need not be as many as the part has: an array that became
    // shorter for one part would be filled with zeros for the next.
    if (!at_once || part->values.size() < rows) part->values.resize(rows);
    return DecodeValues(payload, table_->wire_bytes(), rows, part->values.data());
  }

  void Read(const uint64_t*, size_t, uint8_t* to) override {
    MutexLock lock(&mutex_);
    WriteValues(weights_->values.data(), elements_, table_->wire_bytes(), to);
  }

  Slice Lend() override {
    if (table_->wire_bytes() != sizeof(float)) return Slice();
    std::shared_ptr<const float> lent;
    {
      MutexLock lock(&mutex_);
      lent = LendArray(weights_, nullptr);
    }
    const float* const values = lent.get();
    return Slice(values, elements_ * sizeof(float), std::move(lent));
  }

  void LoadElements(uint64_t first, const float* values, size_t n) override {
    RestoreElements(0, first, values, n);
  }

  void RestoreElements(uint32_t array, uint64_t first, const float* values, size_t n) override {
    MutexLock lock(&mutex_);
    const uint64_t begin = std::max(first_, first);
    const uint64_t end = std::min(first_ + elements_, first + n);
    if (begin >= end) return;
    float* const to = array == 0 ? Own(&weights_) : Own(&state_) + (array - 1) * elements_;
    std::copy_n(values + (begin - first), end - begin, to + (begin - first_));
  }

  void RestorePosition(const ShardFacts& facts) override {
    Shard::RestorePosition(facts);
    MutexLock lock(&mutex_);
    count_ = facts.count();
  }

  uint64_t rows() override { return elements_; }
  uint64_t bytes() override { return 4 * elements_ * (1 + table_->state_floats()); }
  uint64_t reserved_bytes() override { return bytes(); }

 protected:
  // Charge the budget now for the copies that updates will make, so that no update can fail.
  std::unique_ptr<ShardCut> MakeCut(CutState state, const CutOptions& options) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (state.facts.has_value()) state.facts->set_count(count_);
    const uint64_t bytes = 4 * elements_ * (1 + state.state_floats);
    std::shared_ptr<void> paid;
    if (options.budget != nullptr) {
      if (!options.budget->Take(bytes)) {
        return FailedCut(absl::ResourceExhaustedError(
            absl::StrCat("no memory for a copy of ", Name(), " (", bytes,
                         " bytes), which updates need while it is saved; use more pservers, or "
                         "machines with more memory")));
      }
      paid = std::shared_ptr<void>(
          options.budget.get(), [budget = options.budget, bytes](void*) { budget->Give(bytes); });
    }
    std::vector<std::shared_ptr<const float>> arrays = {LendArray(weights_, paid)};
    for (uint32_t k = 0; k < state.state_floats; ++k) {
      arrays.push_back(LendArray(state_, paid, k * elements_));
    }
    return CutOfElements(*table_, index_, std::move(arrays), std::move(state));
  }

  void ApplyGradient(PushPart* part, double weight) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (part->rows == 0 || weight == 0) return;
    if (part->in_message) {
      UpdateInPieces(
          [&](size_t at, size_t row, size_t* n) { return NextReceived(at, row, part, n); });
    } else {
      Update(part->values.data());
    }
  }

  void ApplyMean(const std::vector<Pending*>& parts, double total) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!(total > 0)) return;
    std::vector<WeightedGradient> gradients;
    for (const Pending* p : parts) gradients.push_back({p->part.values.data(), p->weight});
    UpdateInPieces([&](size_t at, size_t row, size_t* n) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      *n = std::min(elements_ - at, PieceElements(row));
      mean_.resize(*n);
      WeightedMean(gradients, at, *n, total, mean_.data());
      return mean_.data();
    });
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

  HeldSum SumNow() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return {{}, sum_.sums()};
  }
  bool SetSum(HeldSum sum) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!sum.sums.empty() && sum.sums.size() != elements_) return false;
    sum_.Restore(std::move(sum.sums));
    return true;
  }

  void AddDelta(const PushPart& part) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!AddScaledDelta(part.values.data(), part.values.size(), policy_.merge_scale,
                        Own(&weights_))) {
      RefuseValues();
    }
  }

 private:
  struct Array {
    explicit Array(size_t n) : values(n) {}
    explicit Array(const std::vector<float>& of) : values(of) {}
    std::vector<float> values;
    std::atomic<int> borrowers{0};
  };

  // Lends the values from `begin` on. They stay as they are now: updates continue on a copy while
  // they are lent. `paid` lives as long as the loan.
  static std::shared_ptr<const float> LendArray(const std::shared_ptr<Array>& array,
                                                std::shared_ptr<void> paid, size_t begin = 0) {
    array->borrowers.fetch_add(1, std::memory_order_relaxed);  // seen by Own: mutex_
    return std::shared_ptr<const float>(array->values.data() + begin,
                                        [lent = array, paid = std::move(paid)](const float*) {
                                          lent->borrowers.fetch_sub(1, std::memory_order_release);
                                        });
  }

  // Returns the array for writing, after replacing it by a copy if it is lent. New borrowers come
  // only under mutex_, so their number can only fall here. Acquire: the last borrower's reads
  // happen before the new writes.
  float* Own(std::shared_ptr<Array>* array) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if ((*array)->borrowers.load(std::memory_order_acquire) > 0) {
      *array = std::make_shared<Array>((*array)->values);
    }
    return (*array)->values.data();
  }

  void StateArrays(float** arrays) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    float* const state = Own(&state_);
    for (uint32_t k = 0; k < table_->state_floats(); ++k) arrays[k] = state + k * elements_;
  }

  void Update(const float* gradient) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    float* arrays[UpdateRule::kMaxState];
    StateArrays(arrays);
    // TableLayout refuses clip_row_norm for rows longer than a block.
    const size_t row = std::min<uint64_t>(table_->row_elements(), elements_);
    if (!table_->columns()[0].rule->Apply(Own(&weights_), arrays, gradient, elements_, row,
                                          Rates()[0], ++count_)) {
      RefuseValues();
    }
  }

  // Throws NotFiniteChange, which names the first element with a value that is not finite.
  void RefuseValues() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (uint32_t array = 0; array <= table_->state_floats(); ++array) {
      const float* const values =
          array == 0 ? weights_->values.data() : state_->values.data() + (array - 1) * elements_;
      const size_t at = FirstNotFinite(values, elements_);
      if (at < elements_) throw NotFiniteChange(ElementNotFinite(*table_, first_ + at, array));
    }
  }

  // Updates as above, with a gradient that comes in pieces: next(at, row, &n) returns its next n
  // elements from `at` on. With `row` > 0 they must be whole rows.
  template <typename Next>
  void UpdateInPieces(const Next& next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const UpdateRule& rule = *table_->columns()[0].rule;
    const size_t row = std::min<uint64_t>(table_->row_elements(), elements_);
    const bool whole_rows = rule.clip_row_norm() > 0;
    float* const weights = Own(&weights_);
    float* arrays[UpdateRule::kMaxState];
    StateArrays(arrays);
    const float rate = Rates()[0];
    ++count_;
    bool finite = true;
    for (size_t at = 0; at < elements_;) {
      size_t n;
      const UnalignedFloat* const gradient = next(at, whole_rows ? row : 0, &n);
      finite &= rule.Apply(weights + at, arrays, gradient, n, std::min(row, n), rate, count_);
      for (int k = 0; k < rule.state_floats(); ++k) arrays[k] += n;
      at += n;
    }
    if (!finite) RefuseValues();
  }

  // Elements that fit in the first-level cache; with `row` > 0 in whole rows, however long.
  static size_t PieceElements(size_t row) {
    constexpr size_t kPiece = 4096;
    return row == 0 ? kPiece : (kPiece + row - 1) / row * row;
  }

  // Returns the next values of a received gradient, for UpdateInPieces. Float32 values are used
  // where the message holds them unless rows must be whole. Others are copied in pieces. Decode has
  // checked that all are finite.
  const UnalignedFloat* NextReceived(size_t at, size_t row, PushPart* part, size_t* n) const {
    const size_t left = elements_ - at;
    part->values.resize(std::min<size_t>(elements_, PieceElements(row)));
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
  std::shared_ptr<Array> weights_ ABSL_GUARDED_BY(mutex_);  // [elements]
  std::shared_ptr<Array> state_ ABSL_GUARDED_BY(mutex_);    // [state_floats][elements]
  uint64_t count_ ABSL_GUARDED_BY(mutex_) = 0;              // updates of the block
  DenseGradientSum sum_ ABSL_GUARDED_BY(mutex_);
  std::vector<float> mean_ ABSL_GUARDED_BY(mutex_);  // or a piece of it
};

}  // namespace

std::unique_ptr<Shard> MakeDenseShard(std::shared_ptr<const TableLayout> table, uint32_t index,
                                      const UpdatePolicy& policy) {
  return std::make_unique<DenseShard>(std::move(table), index, policy);
}

}  // namespace sluice
