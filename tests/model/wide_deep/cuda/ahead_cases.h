// Cases for every network that uploads announced batches ahead, on the host or on a GPU. It must
// give the same bits as a network without announcements, whatever follows an announcement.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "tests/model/wide_deep/cuda/resident_cases.h"

namespace sluice {

using SharedStep = std::shared_ptr<const TestStep>;

inline SharedStep MakeStep(NetCase* c, size_t n) { return std::make_shared<TestStep>(c->Step(n)); }

inline ComingBatch Coming(const NetCase& c, const SharedStep& step) {
  ComingBatch coming;
  coming.batch = std::shared_ptr<const Batch>(step, &step->batch);
  coming.row_index = step->row_index.data();
  coming.num_rows = {c.Input(*step).rows[0].n};
  return coming;
}

// Trains `steps` in order. Each batch is announced while the step before it computes.
inline void ExpectAStreamOfBatchesGivesTheSameBits(const MakeNet& make, const WideDeepShape& shape,
                                                   size_t num_rows, int rounds = 6) {
  NetCase c(shape, num_rows);
  std::vector<SharedStep> steps;
  // A graph is made when a shape is in a block for the second time, and is used the third time.
  // Each shape alternates between the blocks.
  for (int round = 0; round < rounds; ++round) {
    for (const size_t n : {33, 200, 1, 500, 64}) steps.push_back(MakeStep(&c, n));
  }
  auto net = make(shape), plain = make(shape);
  for (size_t i = 0; i < steps.size(); ++i) {
    SCOPED_TRACE(i);
    if (i + 1 < steps.size()) net->Announce(Coming(c, steps[i + 1]));
    for (float& value : c.rows()) value *= -1.01f;  // values are those of the step
    for (auto& tensor : c.dense()) tensor[0] += 0.01f;
    ExpectSameBits(Train(c, net.get(), *steps[i], 5, i), Train(c, plain.get(), *steps[i], 5, i));
  }
  EXPECT_EQ(net->device_stats().steps_ahead, steps.size() - 1);
  EXPECT_EQ(plain->device_stats().steps_ahead, 0u);
}

// Trains the same batch again and again, as a benchmark does.
inline void ExpectABatchAnnouncedToFollowItselfIsThere(const MakeNet& make) {
  NetCase c(SmallShape(), 40);
  const SharedStep step = MakeStep(&c, 100);
  auto net = make(c.shape()), plain = make(c.shape());
  const OwnedGradients expected = Train(c, plain.get(), *step);
  for (int i = 0; i < 6; ++i) {
    net->Announce(Coming(c, step));
    ExpectSameBits(Train(c, net.get(), *step), expected);
  }
  EXPECT_EQ(net->device_stats().steps_ahead, 5u);
}

// A batch is recognised by everything that was uploaded, and a forward pass does not drop it.
inline void ExpectOnlyTheBatchThatWentUpIsUsed(const MakeNet& make) {
  NetCase c(SmallShape(), 40);
  const SharedStep first = MakeStep(&c, 30), second = MakeStep(&c, 30);
  auto other = std::make_shared<TestStep>(*second);
  for (uint32_t& row : other->row_index) row = (row + 1) % 40;
  auto net = make(c.shape()), plain = make(c.shape());
  const auto ahead = [&] { return net->device_stats().steps_ahead; };
  const auto bring_second = [&] {
    net->Announce(Coming(c, second));
    ExpectSameBits(Train(c, net.get(), *first), Train(c, plain.get(), *first));
  };
  bring_second();
  EXPECT_EQ(c.Logits(net.get(), *first), c.Logits(plain.get(), *first));
  EXPECT_EQ(c.Logits(net.get(), *second), c.Logits(plain.get(), *second));
  ExpectSameBits(Train(c, net.get(), *second), Train(c, plain.get(), *second));
  EXPECT_EQ(ahead(), 1u);
  ExpectSameBits(Train(c, net.get(), *second), Train(c, plain.get(), *second));
  EXPECT_EQ(ahead(), 1u) << "it was announced once";
  // The same batch with other rows, or with more rows.
  bring_second();
  NetInput input = c.Input(*second);
  input.row_index = other->row_index.data();
  ExpectSameBits(TrainOn(c, net.get(), input), TrainOn(c, plain.get(), input));
  bring_second();
  input = c.Input(*second);
  std::vector<float> rows(200 * c.shape().row_dim(0), 0.25f);
  std::copy(c.rows().begin(), c.rows().end(), rows.begin());
  input.rows[0].values = rows.data(), input.rows[0].n = 200;
  ExpectSameBits(TrainOn(c, net.get(), input), TrainOn(c, plain.get(), input));
  EXPECT_EQ(ahead(), 1u);
  // A batch is announced a second time before it is used; a batch that is never used is replaced.
  bring_second();
  bring_second();
  net->Announce(Coming(c, first));
  ExpectSameBits(Train(c, net.get(), *second), Train(c, plain.get(), *second));
  ExpectSameBits(Train(c, net.get(), *first), Train(c, plain.get(), *first));
  EXPECT_EQ(ahead(), 3u);
}

// Announcements, steps and forward passes of any batches in any order. Some announced batches are
// never trained; some are empty or have other features.
inline void ExpectAnyOrderGivesTheSameBits(const MakeNet& make, const WideDeepShape& shape,
                                           uint64_t seed, int actions) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  NetCase c(shape, 300, seed);
  std::vector<SharedStep> steps;
  for (const size_t n : {0, 1, 31, 64, 65, 150, 400, 1200}) steps.push_back(MakeStep(&c, n));
  auto broken = std::make_shared<TestStep>(c.Step(20));
  broken->batch.key_offsets = std::vector<uint32_t>();  // no memory, either
  auto net = make(shape), plain = make(shape);
  std::unique_ptr<ResidentRows> resident;
  std::vector<uint32_t> slots;
  if (shape.row_dim(0) > 0) {
    resident = *net->MakeResidentRows(0, 700);
    slots = Place(&c, *steps[1], resident.get(), seed);
  }
  std::mt19937_64 random(seed);
  SharedStep coming;
  int hits = 0;
  for (int i = 0; i < actions; ++i) {
    SCOPED_TRACE(i);
    // Later batches are larger, so that blocks grow while others are in use.
    const size_t known = std::min<size_t>(steps.size(), 3 + i / 8);
    const SharedStep& any = steps[random() % known];
    const SharedStep step = coming != nullptr && random() % 4 != 0 ? coming : any;
    switch (random() % 8) {
      case 0:
        EXPECT_EQ(c.Logits(net.get(), *step), c.Logits(plain.get(), *step));
        break;
      case 1:
        net->Announce(Coming(c, broken));  // dropped, or replaced by the next
        break;
      default: {
        const SharedStep next = random() % 5 == 0 ? nullptr : steps[random() % known];
        if (next != nullptr) net->Announce(Coming(c, next));
        const bool by_slot = !slots.empty() && random() % 3 == 0;
        hits += step == coming && step->batch.n > 0;
        ExpectSameBits(
            TrainOn(c, net.get(),
                    by_slot ? ResidentInput(c, *step, resident.get(), slots) : c.Input(*step)),
            TrainOn(c, plain.get(), c.Input(*step)));
        coming = next;
      }
    }
  }
  EXPECT_GT(hits, actions / 5);
  EXPECT_GT(net->device_stats().steps_ahead, static_cast<uint64_t>(actions) / 6);
}

// An announced batch is kept alive, so that no other batch can have its address.
inline void ExpectAnAnnouncedBatchIsHeldUntilALaterStep(const MakeNet& make) {
  NetCase c(SmallShape(), 40);
  SharedStep first = MakeStep(&c, 30), second = MakeStep(&c, 30);
  auto net = make(c.shape());
  std::weak_ptr<const TestStep> held = second;
  net->Announce(Coming(c, second));
  second = nullptr;
  EXPECT_FALSE(held.expired());
  Train(c, net.get(), *first);
  EXPECT_FALSE(held.expired());
  std::vector<float> logits(30);
  EXPECT_TRUE(net->Forward(c.Input(*first), logits.data()).ok());
  EXPECT_FALSE(held.expired());
  Train(c, net.get(), *first);
  EXPECT_TRUE(held.expired());
}

inline void ExpectAnnouncedBatchesChangeNothing(const MakeNet& make) {
  WideDeepShape dropout = WideShape({33, 20}, 5), no_keys = SmallShape();
  dropout.dropout = 0.4f;
  no_keys.slots.clear();
  no_keys.wide_columns = {false};
  no_keys.embedding_dims = {0};
  for (const WideDeepShape& shape : {SmallShape(), dropout, no_keys})
    ExpectAStreamOfBatchesGivesTheSameBits(make, shape, 150);
  ExpectAnyOrderGivesTheSameBits(make, no_keys, 9, 60);
  ExpectABatchAnnouncedToFollowItselfIsThere(make);
  ExpectOnlyTheBatchThatWentUpIsUsed(make);
  for (uint64_t seed = 1; seed <= 2; ++seed)
    ExpectAnyOrderGivesTheSameBits(make, seed % 2 == 0 ? dropout : SmallShape(), seed, 100);
  ExpectAnAnnouncedBatchIsHeldUntilALaterStep(make);
}

}  // namespace sluice
