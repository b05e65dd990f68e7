#include "cli/report/report_page.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/report/page_files.h"
#include "common/base/printable.h"
#include "common/base/sha256.h"

namespace sluice::cli {
namespace {

absl::string_view BodyOf(const char* path) { return FindReportFile(path)->body; }

// As a source in a content security policy.
std::string DigestOf(absl::string_view text) {
  return absl::StrCat("'sha256-", absl::Base64Escape(absl::HexStringToBytes(Sha256Hex(text))), "'");
}

}  // namespace

std::string ReportPage(const std::vector<std::string>& jobs, const std::string& version,
                       absl::Time now) {
  const absl::string_view style = BodyOf("report.css"), chart = BodyOf("chart.js"),
                          script = BodyOf("report.js");
  const std::string data = absl::StrCat(
      "{\"version\":", absl::StrReplaceAll(JsonQuoted(Printable(version)), {{"<", "\\u003c"}}),
      ",\"time_s\":", absl::ToUnixSeconds(now), ",\"jobs\":[", absl::StrJoin(jobs, ","), "]}");
  // The data are no script, which the policy does not concern.
  const std::string policy =
      absl::StrCat("default-src 'none'; script-src ", DigestOf(chart), " ", DigestOf(script),
                   "; style-src ", DigestOf(style), "; base-uri 'none'; form-action 'none'");
  // One pass: no text that is put in is looked at again.
  std::string page;
  absl::string_view rest = BodyOf("report.html");
  for (const auto& [mark, text] :
       {std::pair<absl::string_view, absl::string_view>("{{policy}}", policy),
        {"{{style}}", style},
        {"{{data}}", data},
        {"{{chart}}", chart},
        {"{{script}}", script}}) {
    const size_t at = rest.find(mark);
    absl::StrAppend(&page, rest.substr(0, at), text);
    rest.remove_prefix(at + mark.size());
  }
  return absl::StrCat(page, rest);
}

}  // namespace sluice::cli
