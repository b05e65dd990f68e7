#include "worker/step/source_state_file.h"

#include <gtest/gtest.h>

#include "tests/common/saved_model/memory_env.h"
#include "worker/step/geo_state_file.h"

namespace sluice {
namespace {

TEST(SourceStateFileTest, IsReadAsItWasWritten) {
  MemoryEnv env;
  const std::string bytes("a\0b", 3);
  const auto file = WriteSourceState({3, 128, bytes}, &env, "/c/step-9", 2, "5-1");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->name(), "worker-2.5-1");
  const auto state = ReadSourceState(&env, "/c/step-9", *file);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->epoch, 3u);
  EXPECT_EQ(state->batches, 128u);
  EXPECT_EQ(state->bytes, bytes);
  EXPECT_TRUE(absl::IsDataLoss(ReadSourceState(&env, "/c/step-8", *file).status()));
}

TEST(SourceStateFileTest, AnImpossibleSizeIsDamage) {
  MemoryEnv env;
  const auto out = GeoStateWriter::Create(&env, "/c", 0, "1");
  ASSERT_TRUE(out.ok());
  ASSERT_TRUE((*out)->Put(uint32_t{0}).ok());
  ASSERT_TRUE((*out)->Put(uint64_t{0}).ok());
  ASSERT_TRUE((*out)->Put(uint64_t{1} << 60).ok());
  const auto file = (*out)->Finish();
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(absl::IsDataLoss(ReadSourceState(&env, "/c", *file).status()));
}

}  // namespace
}  // namespace sluice
