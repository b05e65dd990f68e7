#include "cli/screen/completion.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// tests/system/package_test.py lets shells read the scripts.
std::vector<CommandSpec> Commands() {
  CommandSpec run;
  run.name = "run";
  run.summary = "Runs: it's quick.";
  run.words = "list|verify DIR";
  run.flags = {{"count", FlagKind::kNumber, "N|auto", "2", "how many [of them]"},
               {"job", FlagKind::kText, "FILE", "", "the job"},
               {"json", FlagKind::kBool, "", "", "as JSON"},
               {"set", FlagKind::kText, "PATH=VALUE", "", "a: b", true}};
  return {run};
}

TEST(CompletionTest, BashKnowsFlagsWordsAndValues) {
  EXPECT_THAT(
      BashCompletion(Commands()),
      AllOf(HasSubstr("flags='--count= --job= --json --set= --help'\n"),
            HasSubstr("words='list verify'\n"), HasSubstr("--count) kind=words values='auto' ;;\n"),
            HasSubstr("--job) kind=file ;;\n"), HasSubstr("--set) kind=text ;;\n")));
}

TEST(CompletionTest, ZshSeesNoSeparatorInATextAndShellsSeeNoQuote) {
  EXPECT_THAT(
      ZshCompletion(Commands()),
      AllOf(HasSubstr("'run:Runs\\: it'\\''s quick.'\n"),
            HasSubstr("'--count=[how many \\[of them\\]]:N|auto:(auto)'"),
            HasSubstr("'--job=[the job]:FILE:_files'"), HasSubstr("'--json[as JSON]'"),
            HasSubstr("'*--set=[a\\: b]:PATH=VALUE: '"), HasSubstr("'1:word:(list verify)'")));
}

}  // namespace
}  // namespace sluice::cli
