#include "cli/plan/metrics_page.h"

#include <httplib.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sluice::plan {
namespace {

constexpr int kTimeoutSeconds = 20;

}  // namespace

absl::StatusOr<MetricsPage> MetricsPage::Fetch(const std::string& address,
                                               const TlsFiles& certificate) {
  const std::string host = absl::StrCat(certificate.given() ? "https://" : "http://", address);
  httplib::Client client(host, certificate.cert, certificate.key);
  client.enable_server_certificate_verification(false);
  client.set_connection_timeout(kTimeoutSeconds);
  client.set_read_timeout(kTimeoutSeconds);
  const auto page = client.Get("/metrics");
  if (page && page->status == 200) return MetricsPage(page->body);
  return absl::UnavailableError(absl::StrCat(
      "cannot read ", host, "/metrics: ",
      page ? absl::StrCat("HTTP status ", page->status) : httplib::to_string(page.error())));
}

// Format of a line: name{label="value",...} number
MetricsPage::MetricsPage(const std::string& text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    double value = 0;
    if (space == line.npos || !absl::SimpleAtod(line.substr(space + 1), &value)) continue;
    const absl::string_view series = line.substr(0, space);
    const size_t brace = series.find('{');
    const std::string labels(brace == series.npos ? "" : series.substr(brace));
    series_.insert({std::string(series.substr(0, brace)), {labels, value}});
  }
}

double MetricsPage::Sum(const std::string& name) const {
  double sum = 0;
  const auto [begin, end] = series_.equal_range(name);
  for (auto it = begin; it != end; ++it) sum += it->second.second;
  return sum;
}

std::map<std::string, double> MetricsPage::By(const std::string& name,
                                              const std::string& label) const {
  std::map<std::string, double> values;
  const std::string key = absl::StrCat(label, "=\"");
  const auto [begin, end] = series_.equal_range(name);
  for (auto it = begin; it != end; ++it) {
    const std::string& labels = it->second.first;
    size_t at = labels.find(key);
    // The label must not be the end of another one's name.
    while (at != labels.npos && at > 0 && labels[at - 1] != '{' && labels[at - 1] != ',')
      at = labels.find(key, at + 1);
    if (at == labels.npos) continue;
    at += key.size();
    values[labels.substr(at, labels.find('"', at) - at)] += it->second.second;
  }
  return values;
}

}  // namespace sluice::plan
