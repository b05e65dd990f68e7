#include "common/optimizer/kernels.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "common/optimizer/update_rule.h"
#include "tests/common/optimizer/rule_cases.h"

namespace sluice {
namespace {

constexpr size_t kMost = 1000;
constexpr size_t kAround = 40;  // elements before and after an array that must not change
constexpr float kGuard = 12345.0f;

struct Arrays {
  std::vector<float> g, w, a, b;
  std::vector<double> sum;
};

Arrays Random(size_t n) {
  std::mt19937_64 random(11);
  std::normal_distribution<float> normal(0, 1);
  Arrays arrays;
  for (size_t i = 0; i < n; ++i) {
    arrays.g.push_back(i % 17 == 3 ? 0.0f : normal(random));
    arrays.w.push_back(normal(random));
    arrays.a.push_back(std::abs(normal(random)));
    arrays.b.push_back(i % 13 == 5 ? 0.0f : std::abs(normal(random)));
    arrays.sum.push_back(normal(random));
  }
  return arrays;
}

struct Pointers {
  float *g, *w, *a, *b;
  double* sum;
};

struct Loop {
  std::string name;
  std::function<void(const Kernels&, size_t n, const Pointers&)> run;
};

std::vector<Loop> Loops() {
  std::vector<Loop> loops = {
      {"add_scaled",
       [](const Kernels& k, size_t n, const Pointers& p) { k.add_scaled(3.7, n, p.g, p.sum); }},
      {"divide",
       [](const Kernels& k, size_t n, const Pointers& p) { k.divide(3.7, n, p.sum, p.w); }},
  };
  for (const RuleCase& rule : RuleCases()) {
    for (const char* text : rule.golden) {
      OptimizerConfig config = ParseOptimizer(text);
      config.set_weight_decay(0.03f);
      const RuleStep step = UpdateRule::Create(config).value()->StepAt(0.1f, 3);
      loops.push_back({text, [step](const Kernels& k, size_t n, const Pointers& p) {
                         float* const state[] = {p.a, p.b};
                         k.update(step, n, p.g, p.w, state);
                       }});
    }
  }
  return loops;
}

// Runs the portable loop on one element at a time, so that it has neither vectors nor tails.
Arrays OneByOne(const Loop& loop, Arrays arrays) {
  for (size_t i = 0; i < arrays.g.size(); ++i) {
    loop.run(internal::kPortableKernels, 1,
             {&arrays.g[i], &arrays.w[i], &arrays.a[i], &arrays.b[i], &arrays.sum[i]});
  }
  return arrays;
}

// `n` values between guards: kAround + offset before them and kAround after them.
template <typename T>
std::vector<T> Guarded(const std::vector<T>& values, size_t n, size_t offset) {
  std::vector<T> all(kAround + offset + n + kAround, static_cast<T>(kGuard));
  std::copy(values.begin(), values.begin() + n, all.begin() + kAround + offset);
  return all;
}

template <typename T>
void ExpectSameBits(const std::vector<T>& got, const std::vector<T>& expected, size_t n,
                    size_t offset, const char* array) {
  const std::vector<T> all = Guarded(expected, n, offset);
  ASSERT_EQ(got.size(), all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(std::memcmp(&got[i], &all[i], sizeof(T)), 0)
        << array << " element " << static_cast<int64_t>(i - kAround - offset) << ": " << got[i]
        << " instead of " << all[i];
  }
}

TEST(KernelsTest, EveryInstructionSetGivesTheBitsOfSingleElements) {
  const Arrays input = Random(kMost);
  for (const Loop& loop : Loops()) {
    const Arrays expected = OneByOne(loop, input);
    ASSERT_TRUE(expected.w != input.w || expected.sum != input.sum) << loop.name << " did nothing";
    for (const InstructionSet set : SupportedInstructionSetsForTest()) {
      const Kernels& kernels = KernelsFor(set);
      for (size_t n : {0, 1, 7, 8, 15, 16, 17, 31, 33, 64, 999, 1000}) {
        for (size_t offset : {0, 1, 3, 5}) {
          SCOPED_TRACE(testing::Message()
                       << loop.name << " " << kernels.name << " n " << n << " offset " << offset);
          std::vector<float> g = Guarded(input.g, n, offset), w = Guarded(input.w, n, offset + 1),
                             a = Guarded(input.a, n, offset + 2), b = Guarded(input.b, n, 0);
          std::vector<double> sum = Guarded(input.sum, n, offset);
          loop.run(kernels, n,
                   {&g[kAround + offset], &w[kAround + offset + 1], &a[kAround + offset + 2],
                    &b[kAround], &sum[kAround + offset]});
          ExpectSameBits(g, input.g, n, offset, "gradient");
          ExpectSameBits(w, expected.w, n, offset + 1, "weights");
          ExpectSameBits(a, expected.a, n, offset + 2, "first state");
          ExpectSameBits(b, expected.b, n, 0, "second state");
          ExpectSameBits(sum, expected.sum, n, offset, "sum");
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(KernelsTest, EveryInstructionSetHasKernelsOfItsOwn) {
  std::set<const Kernels*> all;
  const std::vector<InstructionSet> sets = SupportedInstructionSetsForTest();
  for (const InstructionSet set : sets) all.insert(&KernelsFor(set));
  EXPECT_EQ(all.size(), sets.size());
  EXPECT_EQ(&BestKernels(), &KernelsFor(sets.back()));
}

}  // namespace
}  // namespace sluice
