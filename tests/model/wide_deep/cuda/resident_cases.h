// Cases for every network with resident rows, on the emulated device or on a GPU.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "tests/model/wide_deep/cuda/backend_cases.h"

namespace sluice {

inline OwnedGradients TrainOn(const NetCase& c, DenseNet* net, const NetInput& input) {
  OwnedGradients gradients(c, input);
  const absl::Status status = net->TrainStep(input, 5, 2, &gradients.view);
  EXPECT_TRUE(status.ok()) << status;
  return gradients;
}

// Writes the rows of the case to random slots of `resident`, and returns the slots.
inline std::vector<uint32_t> Place(NetCase* c, const TestStep& step, ResidentRows* resident,
                                   uint64_t seed) {
  std::vector<uint32_t> slots(resident->capacity());
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = i;
  std::mt19937_64 random(seed);
  std::shuffle(slots.begin(), slots.end(), random);
  const size_t rows = c->Input(step).rows[0].n;
  slots.resize(rows);
  // Uses three writes, one of them without rows.
  const size_t half = rows / 2, dim = c->shape().row_dim(0);
  EXPECT_TRUE(resident->Write(slots.data(), half, c->rows().data()).ok());
  EXPECT_TRUE(resident->Write(nullptr, 0, nullptr).ok());
  EXPECT_TRUE(
      resident->Write(slots.data() + half, rows - half, c->rows().data() + half * dim).ok());
  return slots;
}

inline NetInput ResidentInput(const NetCase& c, const TestStep& step, const ResidentRows* resident,
                              const std::vector<uint32_t>& slots) {
  NetInput input = c.Input(step);
  input.rows[0].values = nullptr;
  input.rows[0].resident = resident;
  input.rows[0].slots = slots.data();
  return input;
}

inline void ExpectSameBits(const OwnedGradients& got, const OwnedGradients& expected) {
  EXPECT_EQ(got.view.loss_sum, expected.view.loss_sum);
  EXPECT_EQ(got.rows, expected.rows);
  EXPECT_EQ(got.dense, expected.dense);
}

inline void ExpectResidentRowsGiveTheSameBits(const MakeNet& make, const WideDeepShape& shape,
                                              size_t n, size_t num_rows, int rounds) {
  SCOPED_TRACE(testing::Message() << n << " examples, " << num_rows << " rows");
  NetCase c(shape, num_rows);
  const TestStep step = c.Step(n), other = c.Step(n);
  auto net = make(shape);
  auto resident = net->MakeResidentRows(0, 2 * num_rows + 3);
  ASSERT_TRUE(resident.ok()) << resident.status();
  const std::vector<uint32_t> slots = Place(&c, step, resident->get(), n);
  const NetInput input = ResidentInput(c, step, resident->get(), slots);
  // On a device the third round uses graphs. Steps that upload their rows run in between.
  for (int i = 0; i < rounds; ++i) {
    ExpectSameBits(TrainOn(c, net.get(), input), TrainOn(c, net.get(), c.Input(step)));
    TrainOn(c, net.get(), c.Input(other));
    std::vector<float> logits(n);
    EXPECT_TRUE(net->Forward(input, logits.data()).ok());
    EXPECT_EQ(logits, c.Logits(net.get(), step));
  }
}

inline void ExpectTheLastWriteIsRead(const MakeNet& make) {
  NetCase c(SmallShape(), 40);
  const TestStep step = c.Step(33);
  auto net = make(c.shape());
  auto resident = *net->MakeResidentRows(0, 50);
  for (uint64_t seed = 1; seed < 4; ++seed) {
    for (float& value : c.rows()) value = -1.25f * value;
    const std::vector<uint32_t> slots = Place(&c, step, resident.get(), seed);
    ExpectSameBits(TrainOn(c, net.get(), ResidentInput(c, step, resident.get(), slots)),
                   TrainOn(c, net.get(), c.Input(step)));
  }
}

inline void ExpectSlotsThatAreNotThereAreRefused(const MakeNet& make) {
  NetCase c(SmallShape(), 5);
  const TestStep step = c.Step(9);
  auto net = make(c.shape());
  auto resident = *net->MakeResidentRows(0, 6);
  std::vector<uint32_t> slots = {0, 1, 2, 3, 6};
  EXPECT_EQ(resident->Write(slots.data(), 5, c.rows().data()).code(),
            absl::StatusCode::kOutOfRange);
  OwnedGradients gradients(c, 5);
  EXPECT_EQ(
      net->TrainStep(ResidentInput(c, step, resident.get(), slots), 5, 0, &gradients.view).code(),
      absl::StatusCode::kOutOfRange);
}

}  // namespace sluice
