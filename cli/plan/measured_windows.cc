#include "cli/plan/measured_windows.h"

#include <algorithm>
#include <cmath>

namespace sluice::plan {

StepMeans MeansOf(const std::vector<Reading>& readings) {
  StepMeans means;
  if (readings.size() < 2) return means;
  const Reading& a = readings.front();
  const Reading& b = readings.back();
  const double steps = b.steps - a.steps;
  if (steps <= 0) return means;
  means.steps = steps;
  means.examples = (b.examples - a.examples) / steps;
  means.step_s = (b.at_s - a.at_s) / steps;
  // Waits are added up when they end, so a window may get one that began before it.
  means.wait_s = std::clamp((b.wait_s - a.wait_s) / steps, 0.0, means.step_s);
  means.worker_cpu_s = (b.worker_cpu_s - a.worker_cpu_s) / steps;
  means.pserver_cpu_s = (b.pserver_cpu_s - a.pserver_cpu_s) / steps;
  means.pushed_bytes = (b.pushed_bytes - a.pushed_bytes) / steps;
  means.pulled_bytes = (b.pulled_bytes - a.pulled_bytes) / steps;
  std::vector<double> of_window;
  for (size_t i = 1; i < readings.size(); ++i) {
    const double in_window = readings[i].steps - readings[i - 1].steps;
    if (in_window > 0) of_window.push_back((readings[i].at_s - readings[i - 1].at_s) / in_window);
  }
  // A single window says nothing about how much windows differ.
  if (of_window.size() < 2) return means;
  const double n = static_cast<double>(of_window.size());
  double sum = 0, squares = 0;
  for (const double s : of_window) sum += s;
  for (const double s : of_window) squares += (s - sum / n) * (s - sum / n);
  means.uncertainty = 2 * std::sqrt(squares / (n - 1) / n) / (sum / n);
  return means;
}

double SpreadOf(std::vector<double> step_seconds) {
  step_seconds.erase(std::remove_if(step_seconds.begin(), step_seconds.end(),
                                    [](double s) { return !(s > 0 && std::isfinite(s)); }),
                     step_seconds.end());
  // Quantiles of fewer steps would be two arbitrary steps.
  if (step_seconds.size() < 8) return 0;
  std::sort(step_seconds.begin(), step_seconds.end());
  const auto quantile = [&](double q) {
    return step_seconds[static_cast<size_t>(q * static_cast<double>(step_seconds.size() - 1))];
  };
  return std::log(quantile(0.84) / quantile(0.16)) / 2;
}

double RowsAfter(const std::vector<Reading>& readings, double examples) {
  const Reading* first = nullptr;
  const Reading* last = nullptr;
  for (const Reading& r : readings) {
    // The logarithms below need both.
    if (r.rows <= 0 || r.examples <= 0) continue;
    if (first == nullptr) first = &r;
    last = &r;
  }
  if (last == nullptr) return 0;
  if (examples <= last->examples) return last->rows;
  const double growth = std::log(last->examples / first->examples);
  // From one reading the exponent is not known: all examples could have new keys.
  const double exponent =
      growth < 0.1 ? 1 : std::clamp(std::log(last->rows / first->rows) / growth, 0.0, 1.0);
  return last->rows * std::pow(examples / last->examples, exponent);
}

}  // namespace sluice::plan
