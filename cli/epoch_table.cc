#include "cli/epoch_table.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/progress.h"

namespace sluice::cli {
namespace {

using Row = std::vector<std::string>;

constexpr uint64_t kMostWithCommas = 999'999'999'999;  // 15 characters
// A binning error below this share of the standard error is negligible.
constexpr double kBinningMatters = 0.1;
// The limit when there is no standard error: half a unit of the fourth decimal.
constexpr double kBinningMattersAlone = 5e-5;

std::string Examples(uint64_t n) {
  return n <= kMostWithCommas ? WithCommas(n) : absl::StrFormat("%.3e", static_cast<double>(n));
}

std::string Seconds(double seconds) {
  return seconds < 1e4   ? absl::StrFormat("%.2f", seconds)
         : seconds < 1e7 ? absl::StrFormat("%.0f", seconds)
                         : absl::StrFormat("%.1e", seconds);
}

// Five decimals, or as many as fit in seven characters.
std::string Figure(double value) {
  constexpr double kLimits[] = {10, 100, 1e3, 1e4, 1e5};
  const double size = std::abs(value);
  for (int i = 0; i < 5; ++i) {
    if (size < kLimits[i]) return absl::StrFormat("%.*f", 5 - i, value);
  }
  return absl::StrFormat(size < 1e7 ? "%.0f" : "%.1e", value);
}

// `number` is the epoch's, counted from 1.
Row RowOf(int number, const EpochResult& e) {
  Row row = {absl::StrCat(number), Examples(e.examples()), Seconds(e.seconds()), Figure(e.loss())};
  const EvalMetrics& eval = e.eval();
  if (eval.examples() == 0) {
    row.insert(row.end(), 5, "-");
    return row;
  }
  row.push_back(eval.has_auc() ? Figure(eval.auc()) : "-");
  for (const double value : {eval.log_loss(), eval.accuracy(), eval.mae(), eval.rmse()})
    row.push_back(Figure(value));
  return row;
}

// Aligns the first column to the left and the others to the right.
std::string Line(const Row& row, const std::vector<size_t>& widths, size_t gap) {
  std::string line = row[0] + std::string(widths[0] - row[0].size(), ' ');
  for (size_t c = 1; c < row.size(); ++c)
    absl::StrAppend(&line, std::string(gap + widths[c] - row[c].size(), ' '), row[c]);
  return line + "\n";
}

std::string BinningNote(const EvalMetrics& eval) {
  const double error = eval.auc_standard_error(), bound = eval.auc_error_bound();
  if (bound <= (error > 0 ? kBinningMatters * error : kBinningMattersAlone)) return "";
  return absl::StrFormat("note: the AUC is computed in bins, and may be off by %.1e\n", bound);
}

}  // namespace

std::string EpochTable(const google::protobuf::RepeatedPtrField<EpochResult>& epochs) {
  if (epochs.empty()) return "";
  std::vector<Row> rows = {
      {"epoch", "examples", "seconds", "loss", "AUC", "log loss", "accuracy", "MAE", "RMSE"}};
  for (int i = 0; i < epochs.size(); ++i) rows.push_back(RowOf(i + 1, epochs[i]));
  std::vector<size_t> widths(rows[0].size(), 0);
  size_t cells = 0;
  for (size_t c = 0; c < widths.size(); ++c) {
    for (const Row& row : rows) widths[c] = std::max(widths[c], row[c].size());
    cells += widths[c];
  }
  const size_t gaps = widths.size() - 1;
  const size_t gap = cells + 2 * gaps <= kTableWidth ? 2 : 1;
  std::string text;
  for (const Row& row : rows) text += Line(row, widths, gap);
  return text;
}

std::string AucText(const EvalMetrics& eval, int decimals) {
  return eval.has_auc() ? absl::StrFormat("%.*f", decimals, eval.auc()) : "-";
}

std::string EvalText(const EvalMetrics& eval) {
  std::string text = absl::StrCat("final: AUC ", AucText(eval, 5));
  if (eval.auc_standard_error() > 0)
    absl::StrAppendFormat(&text, " (standard error %.5f)", eval.auc_standard_error());
  absl::StrAppendFormat(
      &text, " on %s\n       log loss %.5f, accuracy %.5f, MAE %.5f, RMSE %.5f, calibration %.4f\n",
      Counted(eval.examples(), "example"), eval.log_loss(), eval.accuracy(), eval.mae(),
      eval.rmse(), eval.calibration());
  if (eval.has_auc()) return text + BinningNote(eval);
  return absl::StrCat(text, "note: the AUC is undefined",
                      eval.auc_undefined().empty() ? "" : absl::StrCat(": ", eval.auc_undefined()),
                      "\n");
}

}  // namespace sluice::cli
