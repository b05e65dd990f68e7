#include "common/config/field_path.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/config.pb.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(FieldPathTest, PathsOfANameStartAtTheTopAndSkipLists) {
  const auto& job = *JobConfig::descriptor();
  EXPECT_THAT(PathsNamed(job, "batch_size"), ElementsAre("train.batch_size", "eval.batch_size"));
  EXPECT_THAT(PathsNamed(job, "dropout"), ElementsAre("model.wide_deep.dropout"));
  EXPECT_THAT(PathsNamed(job, "num_shards"), IsEmpty());  // of a list
  EXPECT_THAT(PathsNamed(job, "learning_rate"),
              ElementsAre("optimizers.all.learning_rate", "optimizers.dense.learning_rate",
                          "optimizers.embedding.learning_rate", "optimizers.wide.learning_rate"));
}

TEST(FieldPathTest, SuggestsTheFieldThatWasProbablyMeantByItsWholePath) {
  const auto& job = *JobConfig::descriptor();
  EXPECT_EQ(DidYouMeanField(job, "batch_size"),
            "; did you mean 'train.batch_size' or 'eval.batch_size'?");
  EXPECT_EQ(DidYouMeanField(*ModelConfig::descriptor(), "dropout", "model."),
            "; did you mean 'model.wide_deep.dropout'?");
  // Nearly so: first on the same level, then below.
  EXPECT_EQ(DidYouMeanField(job, "trian"), "; did you mean 'train'?");
  EXPECT_THAT(DidYouMeanField(job, "batchsize"), HasSubstr("'train.batch_size'"));
  EXPECT_EQ(DidYouMeanField(job, "xylophone"), "");
}

}  // namespace
}  // namespace sluice
