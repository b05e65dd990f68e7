// Checks arrays in a network's host memory.
#include "model/net/host_memory.h"

#include <memory>
#include <set>
#include <utility>

#include "gtest/gtest.h"

namespace sluice {
namespace {

class CountedMemory : public HostMemory {
 public:
  explicit CountedMemory(size_t blocks) : left_(blocks) {}
  ~CountedMemory() override { EXPECT_TRUE(held.empty()); }
  void* Allocate(size_t bytes) override {
    if (left_ == 0) return nullptr;
    --left_;
    last_bytes = bytes;
    return *held.insert(::operator new(bytes)).first;
  }
  void Free(void* block) override {
    EXPECT_EQ(held.erase(block), 1u);
    ::operator delete(block);
  }
  std::set<void*> held;
  size_t last_bytes = 0;

 private:
  size_t left_;
};

TEST(HostArrayTest, GrowsInItsMemoryAndReturnsIt) {
  auto memory = std::make_shared<CountedMemory>(2);
  HostArray array;
  array.Resize(0, memory);
  EXPECT_EQ(array.size(), 0u);
  EXPECT_TRUE(memory->held.empty());
  array.Resize(80, memory);
  ASSERT_EQ(memory->held.count(array.data()), 1u);
  EXPECT_EQ(memory->last_bytes, 90 * sizeof(float));
  float* const first = array.data();
  for (const size_t n : {10, 90, 0, 80}) {
    array.Resize(n, memory);
    EXPECT_EQ(array.data(), first);
    EXPECT_EQ(array.end() - array.begin(), static_cast<ptrdiff_t>(n));
  }
  array.Resize(91, memory);
  EXPECT_EQ(memory->held, std::set<void*>{array.data()});
  array.Clear();
  EXPECT_TRUE(memory->held.empty());
  EXPECT_EQ(array.size(), 0u);
}

TEST(HostArrayTest, FallsBackToTheMemoryOfTheProcess) {
  auto memory = std::make_shared<CountedMemory>(1);
  HostArray array;
  array.Resize(5, nullptr);
  array.data()[4] = 1;
  array.Resize(50, memory);
  EXPECT_EQ(memory->held.count(array.data()), 1u);
  array.Resize(500, memory);  // it has no more
  EXPECT_TRUE(memory->held.empty());
  array.data()[499] = 1;
}

TEST(HostArrayTest, KeepsItsMemoryUntilItIsCleared) {
  HostArray array;
  auto made = std::make_shared<CountedMemory>(1);
  const std::weak_ptr<CountedMemory> memory = made;
  array.Resize(5, std::exchange(made, nullptr));
  ASSERT_FALSE(memory.expired());
  EXPECT_EQ(memory.lock()->held.count(array.data()), 1u);
  array.Clear();
  EXPECT_TRUE(memory.expired());
}

}  // namespace
}  // namespace sluice
