#include "model/net/step_passes.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

namespace sluice {
namespace {

std::vector<size_t> Ends(size_t n, size_t most, size_t chunk, size_t first_position = 0,
                         size_t tile = 64) {
  Batch batch;
  batch.n = n;
  batch.chunk = chunk;
  batch.first_position = first_position;
  std::vector<size_t> ends;
  size_t begin = 0;
  for (const StepPass& pass : CutIntoPasses(batch, most, tile)) {
    EXPECT_EQ(pass.begin, begin);
    ends.push_back(begin = pass.end);
  }
  return ends;
}

using Sizes = std::vector<size_t>;

TEST(StepPassesTest, ABatchThatFitsIsOnePass) {
  EXPECT_EQ(Ends(0, 0, 16), Sizes({0}));
  EXPECT_EQ(Ends(0, 64, 16), Sizes({0}));
  EXPECT_EQ(Ends(300, 0, 16), Sizes({300}));
  EXPECT_EQ(Ends(64, 64, 16), Sizes({64}));
}

TEST(StepPassesTest, PassesEndWhereSumsAreCutAndAtTiles) {
  EXPECT_EQ(Ends(256, 64, 16), Sizes({64, 128, 192, 256}));
  EXPECT_EQ(Ends(200, 100, 16), Sizes({64, 128, 200}));
  // The chunks begin at positions of the global batch.
  EXPECT_EQ(Ends(300, 130, 32, 96), Sizes({128, 256, 300}));
  EXPECT_EQ(Ends(200, 64, 48, 20), Sizes({28, 76, 124, 172, 200})) << "no tile is within reach";
  EXPECT_EQ(Ends(100, 40, 16), Sizes({32, 64, 100}));
}

TEST(StepPassesTest, ChunksLongerThanAPassAreCutAtTiles) {
  EXPECT_EQ(Ends(500, 200, 4096), Sizes({192, 384, 500}));
  EXPECT_EQ(Ends(30, 10, 4096), Sizes({10, 20, 30}));
  EXPECT_EQ(Ends(300, 100, 0), Sizes({64, 128, 192, 256, 300}));
}

TEST(StepPassesTest, WithoutTilesAllPassesButTheLastAreFull) {
  EXPECT_EQ(Ends(250, 100, 16, 5, 0), Sizes({100, 200, 250}));
}

TEST(StepPassesTest, NoPassIsEmptyOrTooLong) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 20000; ++i) {
    const size_t n = 1 + random() % 700, most = 1 + random() % 200, chunk = random() % 300;
    const size_t first = random() % 1000, tile = 1 + random() % 70;
    const Sizes ends = Ends(n, most, chunk, first, tile);
    size_t begin = 0;
    for (const size_t end : ends) {
      ASSERT_GT(end, begin);
      ASSERT_LE(end - begin, most);
      begin = end;
    }
    ASSERT_EQ(begin, n);
    if (chunk == 0 || most < chunk) continue;
    for (size_t p = 0; p + 1 < ends.size(); ++p) ASSERT_EQ((first + ends[p]) % chunk, 0u);
  }
}

}  // namespace
}  // namespace sluice
