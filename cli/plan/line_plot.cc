#include "cli/plan/line_plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace sluice::plan {
namespace {

constexpr double kWidth = 760, kHeight = 440;
constexpr double kLeft = 80, kRight = 190, kTop = 40, kBottom = 50;
// Distinguishable with any kind of colour vision (Okabe and Ito).
constexpr const char* kColours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                    "#E69F00", "#56B4E9", "#000000", "#999999"};

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

// An axis from one power of ten to another.
class Axis {
 public:
  Axis(double least, double most, double from, double to)
      : low_(std::floor(std::log10(least) + 1e-9)),
        high_(std::max(low_ + 1, std::ceil(std::log10(most) - 1e-9))),
        from_(from),
        to_(to) {}
  double At(double value) const {
    return from_ + (to_ - from_) * (std::log10(value) - low_) / (high_ - low_);
  }
  int low() const { return static_cast<int>(low_); }
  int high() const { return static_cast<int>(high_); }

 private:
  const double low_, high_, from_, to_;
};

std::string PowerOfTen(int exponent) {
  if (exponent < 0) return absl::StrFormat("%g", std::pow(10, exponent));
  const char* const unit[] = {"", "k", "M", "G", "T"};
  const int thousands = std::min(exponent / 3, 4);
  return absl::StrFormat("%.0f%s", std::pow(10, exponent - 3 * thousands), unit[thousands]);
}

std::string Text(double x, double y, const char* anchor, const std::string& text,
                 const std::string& more = "") {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>%s</text>\n", x, y,
                         anchor, more, Escaped(text));
}

std::string GridLine(double x1, double y1, double x2, double y2) {
  return absl::StrFormat(
      "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", x1, y1, x2, y2);
}

}  // namespace

std::string SvgOf(const Plot& plot) {
  double x[] = {std::numeric_limits<double>::infinity(), 0}, y[] = {x[0], 0};
  for (const Line& line : plot.lines) {
    for (const auto& [px, py] : line.points) {
      // Logarithmic axes have no place for 0, which stands for a mode that cannot run.
      if (!(px > 0 && py > 0)) continue;
      x[0] = std::min(x[0], px), x[1] = std::max(x[1], px);
      y[0] = std::min(y[0], py), y[1] = std::max(y[1], py);
    }
  }
  // Without any point the axes still need a range.
  if (x[1] == 0) x[0] = y[0] = 1, x[1] = y[1] = 10;
  const double bottom = kHeight - kBottom, right = kWidth - kRight;
  const Axis across(x[0], x[1], kLeft, right), up(y[0], y[1], bottom, kTop);
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
      "font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      kWidth, kHeight);
  svg += Text((kLeft + right) / 2, 22, "middle", plot.title, " font-size=\"14\"");
  for (int e = across.low(); e <= across.high(); ++e) {
    const double at = across.At(std::pow(10, e));
    svg += GridLine(at, kTop, at, bottom) + Text(at, bottom + 18, "middle", PowerOfTen(e));
  }
  for (int e = up.low(); e <= up.high(); ++e) {
    const double at = up.At(std::pow(10, e));
    svg += GridLine(kLeft, at, right, at) + Text(kLeft - 8, at + 4, "end", PowerOfTen(e));
  }
  svg += Text((kLeft + right) / 2, kHeight - 12, "middle", plot.x_name);
  svg += Text(20, (kTop + bottom) / 2, "middle", plot.y_name,
              absl::StrFormat(" transform=\"rotate(-90 20 %.1f)\"", (kTop + bottom) / 2));
  for (size_t i = 0; i < plot.lines.size(); ++i) {
    const Line& line = plot.lines[i];
    const std::string style =
        absl::StrCat("stroke=\"", kColours[i % std::size(kColours)], "\" stroke-width=\"2\"",
                     line.dashed ? " stroke-dasharray=\"6 4\"" : "");
    std::string path;
    for (const auto& [px, py] : line.points) {
      if (px > 0 && py > 0)
        absl::StrAppendFormat(&path, "%s%.1f,%.1f", path.empty() ? "" : " ", across.At(px),
                              up.At(py));
    }
    if (!path.empty())
      absl::StrAppend(&svg, "<polyline fill=\"none\" ", style, " points=\"", path, "\"/>\n");
    const double at = kTop + 10 + 20 * static_cast<double>(i);
    absl::StrAppendFormat(&svg, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n",
                          right + 10, at, right + 36, at, style);
    svg += Text(right + 42, at + 4, "start", line.name);
  }
  return svg + "</svg>\n";
}

}  // namespace sluice::plan
