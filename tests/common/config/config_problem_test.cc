#include "common/config/config_problem.h"

#include <cmath>

#include "gmock/gmock.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> PathsOf(const std::vector<ConfigProblem>& problems) {
  std::vector<std::string> paths;
  for (const ConfigProblem& problem : problems) paths.push_back(problem.path);
  return paths;
}

TEST(ConfigProblemTest, RangesIncludeBothEnds) {
  std::vector<ConfigProblem> problems;
  AddIfOutOfRange("low", 2, 2, 5, &problems);
  AddIfOutOfRange("high", 5, 2, 5, &problems);
  EXPECT_THAT(problems, IsEmpty());
  AddIfOutOfRange("below", 1, 2, 5, &problems);
  AddIfOutOfRange("above", 6, 2, 5, &problems);
  EXPECT_THAT(PathsOf(problems), ElementsAre("below", "above"));
}

TEST(ConfigProblemTest, ImpossibleInitializersAreNamed) {
  const auto paths = [](const Initializer& initializer) {
    std::vector<ConfigProblem> problems;
    AddInitializerProblems("i", initializer, &problems);
    return PathsOf(problems);
  };
  Initializer initializer;
  EXPECT_THAT(paths(initializer), IsEmpty());
  initializer.set_constant(1);
  EXPECT_THAT(paths(initializer), IsEmpty());
  initializer.set_constant(NAN);
  EXPECT_THAT(paths(initializer), ElementsAre("i.constant"));
  initializer.mutable_uniform()->set_min(1);
  initializer.mutable_uniform()->set_max(1);
  EXPECT_THAT(paths(initializer), IsEmpty());
  initializer.mutable_uniform()->set_max(-1);
  EXPECT_THAT(paths(initializer), ElementsAre("i.uniform"));
  initializer.mutable_uniform()->set_max(INFINITY);
  EXPECT_THAT(paths(initializer), ElementsAre("i.uniform"));
  initializer.mutable_normal()->set_stddev(0);
  EXPECT_THAT(paths(initializer), IsEmpty());
  initializer.mutable_normal()->set_stddev(-1);
  EXPECT_THAT(paths(initializer), ElementsAre("i.normal"));
  initializer.mutable_normal()->set_stddev(NAN);
  EXPECT_THAT(paths(initializer), ElementsAre("i.normal"));
  initializer.mutable_he_uniform();
  EXPECT_THAT(paths(initializer), ElementsAre("i.he_uniform"));
  initializer.mutable_he_uniform()->set_fan_in(1);
  EXPECT_THAT(paths(initializer), IsEmpty());
  initializer.mutable_lecun_uniform();
  EXPECT_THAT(paths(initializer), ElementsAre("i.lecun_uniform"));
}

}  // namespace
}  // namespace sluice
