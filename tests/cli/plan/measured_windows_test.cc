#include "cli/plan/measured_windows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace sluice::plan {
namespace {

Reading ReadingAt(double at, double steps, double rows = 0) {
  Reading r;
  r.at_s = at;
  r.steps = steps;
  r.examples = 10 * steps;
  r.wait_s = 0.02 * steps;
  r.worker_cpu_s = 1 + 0.3 * steps;
  r.pserver_cpu_s = 2 + 0.1 * steps;
  r.pushed_bytes = 500 + 1000 * steps;
  r.pulled_bytes = 700 + 2000 * steps;
  r.rows = rows;
  return r;
}

TEST(MeasuredWindowsTest, MeansAreOfTheStepsBetweenFirstAndLast) {
  const StepMeans means = MeansOf({ReadingAt(100, 50), ReadingAt(101, 60), ReadingAt(102, 70)});
  EXPECT_EQ(means.steps, 20);
  EXPECT_NEAR(means.examples, 10, 1e-9);
  EXPECT_NEAR(means.step_s, 0.1, 1e-9);
  EXPECT_NEAR(means.wait_s, 0.02, 1e-9);
  EXPECT_NEAR(means.worker_cpu_s, 0.3, 1e-9);
  EXPECT_NEAR(means.pserver_cpu_s, 0.1, 1e-9);
  EXPECT_NEAR(means.pushed_bytes, 1000, 1e-9);
  EXPECT_NEAR(means.pulled_bytes, 2000, 1e-9);
  EXPECT_NEAR(means.uncertainty, 0, 1e-9);
}

TEST(MeasuredWindowsTest, UncertaintyIsThatOfTheMean) {
  // Windows of 0.1 and 0.2 s a step: mean 0.15, standard deviation 0.0707, error 0.05.
  const StepMeans means = MeansOf({ReadingAt(0, 0), ReadingAt(1, 10), ReadingAt(3, 20)});
  EXPECT_NEAR(means.uncertainty, 2 * 0.05 / 0.15, 1e-9);
}

TEST(MeasuredWindowsTest, WithoutStepsThereIsNothing) {
  EXPECT_EQ(MeansOf({}).step_s, 0);
  EXPECT_EQ(MeansOf({ReadingAt(1, 5)}).step_s, 0);
  EXPECT_EQ(MeansOf({ReadingAt(1, 5), ReadingAt(2, 5)}).step_s, 0);
}

TEST(MeasuredWindowsTest, SpreadIsThatOfTheLogarithm) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  std::vector<double> steps;
  for (int i = 0; i < 20000; ++i) steps.push_back(0.01 * std::exp(0.25 * normal(random)));
  EXPECT_NEAR(SpreadOf(steps), 0.25, 0.01);
  for (int i = 0; i < 100; ++i) steps.push_back(10);  // a few long pauses
  EXPECT_NEAR(SpreadOf(steps), 0.25, 0.01);
}

TEST(MeasuredWindowsTest, SpreadOfFewStepsIsNotKnown) {
  EXPECT_EQ(SpreadOf({0.1, 0.2, 0.3}), 0);
  EXPECT_EQ(SpreadOf(std::vector<double>(20, 0.0)), 0);
}

TEST(MeasuredWindowsTest, RowsGrowAsAPowerOfTheExamples) {
  // 100 examples: 10 rows, 400: 20 rows. The exponent is 1/2.
  const std::vector<Reading> readings = {ReadingAt(1, 10, 10), ReadingAt(2, 40, 20)};
  EXPECT_NEAR(RowsAfter(readings, 40000), 200, 1e-9);
  EXPECT_NEAR(RowsAfter(readings, 400), 20, 1e-9);
}

TEST(MeasuredWindowsTest, RowsOfOneReadingGrowWithTheExamples) {
  EXPECT_NEAR(RowsAfter({ReadingAt(1, 10, 10)}, 1000), 100, 1e-9);
  EXPECT_EQ(RowsAfter({}, 1000), 0);
}

}  // namespace
}  // namespace sluice::plan
