#include "cli/report/report_page.h"

#include <gmock/gmock.h>

#include <regex>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/file_origin.h"
#include "common/base/sha256.h"

namespace sluice::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string Page(const std::vector<std::string>& jobs = {"{\"folder\":\"a\"}"}) {
  return ReportPage(jobs, "1.2 {{script}}", absl::FromUnixSeconds(1000));
}

// What stands between a tag and its end.
std::string Between(const std::string& page, const std::string& begin, const std::string& end) {
  const size_t from = page.find(begin) + begin.size();
  return page.substr(from, page.find(end, from) - from);
}

TEST(ReportPageTest, IsOneFileThatAsksForNothing) {
  const std::string page = Page();
  EXPECT_THAT(page, StartsWith(kOwnReportStart));
  EXPECT_THAT(page,
              AllOf(HasSubstr("default-src 'none'"), Not(HasSubstr("unsafe-inline")),
                    Not(HasSubstr("unsafe-eval")), Not(HasSubstr("<link")), Not(HasSubstr(" src=")),
                    Not(HasSubstr("<img")), Not(HasSubstr("@import"))));
  EXPECT_THAT(page, HasSubstr("Chart"));
  EXPECT_EQ(page.find("{{policy}}"), std::string::npos);
}

TEST(ReportPageTest, ItsPolicyAllowsExactlyItsScriptsAndStyle) {
  const std::string page = Page();
  const auto digest = [](const std::string& text) {
    return absl::StrCat("'sha256-", absl::Base64Escape(absl::HexStringToBytes(Sha256Hex(text))),
                        "'");
  };
  const std::string policy = Between(page, "content=\"", "\"");
  EXPECT_THAT(policy, HasSubstr(digest(Between(page, "<style>", "</style>"))));
  size_t scripts = 0;
  for (size_t at = page.find("<script>"); at != std::string::npos;
       at = page.find("<script>", at + 1)) {
    EXPECT_THAT(policy, HasSubstr(digest(Between(page.substr(at), "<script>", "</script>"))));
    ++scripts;
  }
  EXPECT_EQ(scripts, 2u);
}

TEST(ReportPageTest, TextsThatLookLikeMarksStayTexts) {
  const std::string page = Page({"{\"a\":\"{{chart}} {{script}}\"}", "{}"});
  EXPECT_EQ(Between(page, "application/json\">", "</script>"),
            "{\"version\":\"1.2 {{script}}\",\"time_s\":1000,\"jobs\":[{\"a\":\"{{chart}} "
            "{{script}}\"},{}]}");
}

}  // namespace
}  // namespace sluice::cli
