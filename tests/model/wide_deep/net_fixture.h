// A network with seeded random values and batches, beside its float64 reference.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/wide_deep/cpu/wide_deep_net.h"
#include "tests/model/wide_deep/reference_model.h"

namespace sluice {

inline WideDeepShape::Slot MakeSlot(bool wide, bool deep, bool mean) {
  WideDeepShape::Slot slot;
  slot.wide = wide, slot.deep = deep, slot.mean = mean;
  return slot;
}

// A shape with 3 numbers, 4 slots of all kinds and two hidden layers.
inline WideDeepShape SmallShape() {
  WideDeepShape shape;
  shape.num_numeric = 3;
  shape.wide_numeric = {0, 2};
  shape.deep_numeric = {1, 2};
  shape.slots = {MakeSlot(true, true, false), MakeSlot(true, false, true),
                 MakeSlot(true, true, true), MakeSlot(false, true, false)};
  shape.embedding_dims = {3};
  shape.wide_columns = {true};
  shape.hidden = {7, 5};
  return shape;
}

// A shape with sparse tables of three widths, and a fourth one as wide as the second. Slots of all
// kinds share the tables, some beside each other and some apart. The wide part uses no slot of the
// third table.
inline WideDeepShape ShapeOfSeveralTables() {
  WideDeepShape shape = SmallShape();
  shape.embedding_dims = {4, 8, 16, 8};
  shape.wide_columns = {true, true, false, true};
  shape.slots.clear();
  for (const uint32_t table : {0, 0, 1, 3, 2, 3, 2}) {
    shape.slots.push_back(MakeSlot(true, true, shape.slots.size() % 2 == 1));
    shape.slots.back().table = table;
  }
  shape.slots[1].deep = false;
  shape.slots[4].wide = shape.slots[5].wide = shape.slots[6].wide = false;
  shape.slots[2].weighted = shape.slots[4].weighted = true;  // summed
  shape.slots[5].weighted = true;                            // the mean
  return shape;
}

// A wider shape, which uses several tiles of units and blocks of weights.
inline WideDeepShape WideShape(std::vector<uint32_t> hidden, uint32_t dim) {
  WideDeepShape shape = SmallShape();
  shape.hidden = std::move(hidden);
  shape.embedding_dims = {dim};
  return shape;
}

struct TestStep {
  Batch batch;
  std::vector<uint32_t> row_index;
};

class NetCase {
 public:
  // Every table has `num_rows` rows.
  NetCase(WideDeepShape shape, size_t num_rows, uint64_t seed = 1)
      : shape_(shape), num_rows_(num_rows), random_(seed) {
    for (size_t t = 0; t < shape.tables(); ++t)
      rows_.push_back(Values(num_rows * shape.row_dim(t)));
    for (size_t n : shape.dense_elements()) dense_.push_back(Values(n));
    for (const WideDeepShape::Slot& slot : shape.slots) weighted_ |= slot.weighted;
  }

  const WideDeepShape& shape() const { return shape_; }
  std::vector<float>& rows(size_t table = 0) { return rows_[table]; }
  std::vector<std::vector<float>>& dense() { return dense_; }

  std::unique_ptr<DenseNet> Net(int threads = 1, size_t max_batch = 16,
                                size_t pass_examples = 0) const {
    auto net = WideDeepNet::Create(shape_, threads, max_batch, pass_examples);
    EXPECT_TRUE(net.ok()) << net.status();
    return *std::move(net);
  }

  // Cells hold 0 to 3 keys.
  TestStep Step(size_t n) {
    TestStep step;
    step.batch.Reset(shape_.num_numeric, shape_.slots.size());
    for (size_t i = 0; i < n; ++i) {
      step.batch.label.push_back(random_() % 2);
      step.batch.weight.push_back(static_cast<float>(random_() % 4) / 2 + 0.5f);
      step.batch.example_id.push_back(random_() % 1000003);
      for (size_t j = 0; j < shape_.num_numeric; ++j) step.batch.numeric.push_back(Value());
      for (size_t s = 0; s < shape_.slots.size(); ++s) {
        for (uint64_t k = random_() % 4; k > 0; --k) {
          step.row_index.push_back(random_() % num_rows_);
          step.batch.keys.push_back(step.row_index.back() + 17);
          if (weighted_)
            step.batch.key_weights.push_back(
                shape_.slots[s].weighted ? static_cast<float>(random_() % 5) / 2 : 1.0f);
        }
        step.batch.key_offsets.push_back(step.batch.keys.size());
      }
    }
    step.batch.n = n;
    return step;
  }

  NetInput Input(const TestStep& step) const {
    NetInput input;
    input.batch = &step.batch;
    input.row_index = step.row_index.data();
    for (const std::vector<float>& values : rows_) {
      RowsInput rows;
      rows.values = values.data();
      rows.n = num_rows_;
      input.rows.push_back(rows);
    }
    for (const auto& tensor : dense_) input.dense.push_back(tensor.data());
    return input;
  }

  ReferenceValues Reference() const {
    ReferenceValues values;
    for (const auto& rows : rows_) values.rows.emplace_back(rows.begin(), rows.end());
    for (const auto& tensor : dense_) values.dense.emplace_back(tensor.begin(), tensor.end());
    return values;
  }

  std::vector<float> Logits(DenseNet* net, const TestStep& step) const {
    std::vector<float> logits(step.batch.n);
    const absl::Status status = net->Forward(Input(step), logits.data());
    EXPECT_TRUE(status.ok()) << status;
    return logits;
  }

 private:
  float Value() { return static_cast<float>(static_cast<double>(random_() >> 11) * 0x1p-52 - 1.0); }
  std::vector<float> Values(size_t n) {
    std::vector<float> values(n);
    for (float& v : values) v = Value() * 0.5f;
    return values;
  }

  const WideDeepShape shape_;
  bool weighted_ = false;
  const size_t num_rows_;
  std::mt19937_64 random_;
  std::vector<std::vector<float>> rows_;  // by table
  std::vector<std::vector<float>> dense_;
};

// Gradients with their memory, full of NaN before the step to expose what it does not write.
struct OwnedGradients {
  // Of the rows of an input.
  OwnedGradients(const NetCase& net_case, const NetInput& input)
      : OwnedGradients(net_case, input.rows.empty() ? 0 : input.rows[0].n) {}
  // Of num_rows rows of each table.
  OwnedGradients(const NetCase& net_case, size_t num_rows) {
    for (size_t t = 0; t < net_case.shape().tables(); ++t)
      rows.emplace_back(num_rows * net_case.shape().row_dim(t), std::nanf(""));
    for (size_t n : net_case.shape().dense_elements()) dense.emplace_back(n, std::nanf(""));
    for (auto& table : rows) view.rows.push_back(table.data());
    for (auto& tensor : dense) view.dense.push_back(tensor.data());
  }
  std::vector<std::vector<float>> rows, dense;  // by table
  NetGradients view;
};

inline OwnedGradients Train(const NetCase& net_case, DenseNet* net, const TestStep& step,
                            uint64_t seed = 5, uint32_t epoch = 0) {
  const NetInput input = net_case.Input(step);
  OwnedGradients gradients(net_case, input);
  const absl::Status status = net->TrainStep(input, seed, epoch, &gradients.view);
  EXPECT_TRUE(status.ok()) << status;
  return gradients;
}

// Expects every element within tol * (1 + |reference|). NaN fails.
template <typename A, typename B>
void ExpectClose(const std::vector<A>& got, const std::vector<B>& reference, double tol,
                 const std::string& what) {
  ASSERT_EQ(got.size(), reference.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    const double a = got[i], b = reference[i];
    ASSERT_TRUE(std::isfinite(a) && std::abs(a - b) <= tol * (1 + std::abs(b)))
        << what << "[" << i << "]: " << a << ", reference " << b;
  }
}

// The same of several tables.
template <typename A, typename B>
void ExpectClose(const std::vector<std::vector<A>>& got,
                 const std::vector<std::vector<B>>& reference, double tol,
                 const std::string& what) {
  ASSERT_EQ(got.size(), reference.size()) << what;
  for (size_t t = 0; t < got.size(); ++t)
    ExpectClose(got[t], reference[t], tol, what + " " + std::to_string(t));
}

}  // namespace sluice
