// Draws lines over two logarithmic axes as an SVG image.
//
// Thread safety: pure function.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace sluice::plan {

struct Line {
  std::string name;
  bool dashed = false;
  std::vector<std::pair<double, double>> points;  // those that are not positive are left out
};

struct Plot {
  std::string title, x_name, y_name;
  std::vector<Line> lines;  // at most 8
};

std::string SvgOf(const Plot& plot);

}  // namespace sluice::plan
