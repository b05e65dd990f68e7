// Checkpoints and models on a store: a process that dies at any request leaves the last one in
// force.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/saved_model.h"
#include "tests/common/places/fake_store_env.h"
#include "tests/common/saved_model/small_saves.h"

namespace sluice {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr char kStoreRoot[] = "s3://b/out/checkpoints";

class StoreSaveTest : public ::testing::Test {
 protected:
  // From its request `n` on the process is dead. `carried`: the store still gets that one.
  void DieAt(size_t n, bool carried) {
    env_.transport.answer =
        [this, n, carried,
         count = size_t{0}](const HttpRequest& request) mutable -> absl::StatusOr<HttpResponse> {
      if (++count < n) return env_.store(request);
      if (count == n && carried) (void)env_.store(request);
      dead_ = true;
      return absl::CancelledError("dead");
    };
  }
  void Live() {
    env_.transport.answer = [this](const HttpRequest& request) { return env_.store(request); };
    dead_ = false;
  }

  const TableLayouts tables_ = SmallTables();
  FakeStoreEnv env_;
  bool dead_ = false;
};

TEST_F(StoreSaveTest, ADeathAtAnyRequestLeavesACheckpointInForce) {
  for (const bool carried : {false, true}) {
    for (size_t n = 1;; ++n) {
      SCOPED_TRACE(absl::StrCat(n, carried));
      env_.store.Clear();
      Live();
      ASSERT_TRUE(SaveSmallCheckpoint(kStoreRoot, tables_, 1, 1, env_.get()).ok());
      DieAt(n, carried);
      const absl::Status saved = SaveSmallCheckpoint(kStoreRoot, tables_, 2, 2, env_.get());
      if (saved.ok()) RemoveOldCheckpoints(kStoreRoot, 1, env_.get()).IgnoreError();
      const bool died = dead_;
      Live();
      const uint64_t loaded = LoadedCheckpoint(kStoreRoot, tables_, env_.get());
      EXPECT_EQ(loaded, saved.ok() ? 2u : loaded);
      EXPECT_THAT(loaded, AnyOf(1u, 2u));
      std::vector<absl::Status> damaged;
      ListCheckpoints(kStoreRoot, env_.get(), &damaged);
      EXPECT_TRUE(damaged.empty());
      // The next one works, and a removal leaves nothing of the others.
      ASSERT_TRUE(SaveSmallCheckpoint(kStoreRoot, tables_, 3, 3, env_.get()).ok());
      ASSERT_TRUE(RemoveOldCheckpoints(kStoreRoot, 1, env_.get()).ok());
      EXPECT_EQ(LoadedCheckpoint(kStoreRoot, tables_, env_.get()), 3u);
      for (const auto& [name, bytes] : env_.store.objects())
        EXPECT_THAT(name, HasSubstr("/step-3/")) << name;
      if (!died) break;
    }
  }
}

TEST_F(StoreSaveTest, AManifestThatSomebodyElseWroteMeanwhileStays) {
  const std::string dir = CheckpointFolder(kStoreRoot, 1);
  env_.transport.answer = [&](const HttpRequest& request) {
    if (request.method == "PUT" && absl::EndsWith(request.url, "/MANIFEST"))
      env_.store.Put("b/out/checkpoints/step-1/MANIFEST", "theirs");
    return env_.store(request);
  };
  EXPECT_TRUE(absl::IsAborted(SaveSmallCheckpoint(kStoreRoot, tables_, 1, 1, env_.get())));
  EXPECT_EQ(env_.store.objects()["b/out/checkpoints/step-1/MANIFEST"], "theirs");
}

TEST_F(StoreSaveTest, ASaveInForceIsNotPrepared) {
  ASSERT_TRUE(SaveSmallCheckpoint(kStoreRoot, tables_, 1, 1, env_.get()).ok());
  const std::string dir = CheckpointFolder(kStoreRoot, 1);
  const std::string manifest = *env_.get()->ReadFile(dir + "/MANIFEST");
  // As if its writer had died before it removed what the save has left.
  const std::string id = "0123456789abcdef";
  ASSERT_TRUE(env_.get()->WriteFile(dir + "/MANIFEST." + id, {manifest}).ok());
  EXPECT_TRUE(ListPrepared(dir, env_.get()).empty());
  EXPECT_TRUE(CommitModel(dir, env_.get(), id).ok()) << "again";
  EXPECT_EQ(LoadedCheckpoint(kStoreRoot, tables_, env_.get()), 1u);
  EXPECT_FALSE(env_.get()->Exists(dir + "/MANIFEST." + id));
}

}  // namespace
}  // namespace sluice
