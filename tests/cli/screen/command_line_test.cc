#include "cli/screen/command_line.h"

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

CommandSpec Spec() {
  CommandSpec spec;
  spec.name = "run";
  spec.summary = "Runs.";
  spec.words = "[WORD]";
  spec.max_words = 1;
  spec.flags = {{"count", FlagKind::kNumber, "N", "2", "how many"},
                {"wait", FlagKind::kBool, "BOOL", "true", "wait"},
                {"set", FlagKind::kText, "PATH=VALUE", "", "set", true}};
  spec.examples = "  sluice run --count=3\n";
  return spec;
}

std::string Error(const std::vector<std::string>& args) {
  const auto parsed = ParseCommand(Spec(), args);
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(parsed.status().message());
}

TEST(CommandLineTest, ANumberMayHaveAWordInstead) {
  CommandSpec spec = Spec();
  spec.flags[0].or_word = "auto";
  const auto word = ParseCommand(spec, {"--count=auto"});
  ASSERT_TRUE(word.ok()) << word.status();
  EXPECT_EQ(word->Text("count"), "auto");
  EXPECT_EQ(ParseCommand(spec, {"--count=7"})->Number("count"), 7);
  EXPECT_FALSE(ParseCommand(spec, {"--count=automatic"}).ok());
  EXPECT_FALSE(ParseCommand(Spec(), {"--count=auto"}).ok());
}

TEST(CommandLineTest, DefaultsHoldUntilAFlagIsGiven) {
  const auto none = ParseCommand(Spec(), {});
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->Number("count"), 2);
  EXPECT_TRUE(none->Switch("wait"));
  EXPECT_FALSE(none->Given("count"));
  EXPECT_EQ(ParseCommand(Spec(), {"--count=7"})->Number("count"), 7);
  EXPECT_EQ(ParseCommand(Spec(), {"--count", "-7"})->Number("count"), -7);
  EXPECT_EQ(ParseCommand(Spec(), {"-count=1", "--count=8"})->Number("count"), 8);
}

TEST(CommandLineTest, SwitchesAreSetAndUnset) {
  EXPECT_FALSE(ParseCommand(Spec(), {"--nowait"})->Switch("wait"));
  EXPECT_FALSE(ParseCommand(Spec(), {"--wait=false"})->Switch("wait"));
  EXPECT_TRUE(ParseCommand(Spec(), {"--nowait", "--wait"})->Switch("wait"));
  EXPECT_THAT(ParseCommand(Spec(), {"--wait", "word"})->words, ElementsAre("word"));
}

TEST(CommandLineTest, RepeatedFlagsKeepEveryValueWithItsEqualsSigns) {
  EXPECT_THAT(ParseCommand(Spec(), {"--set", "a.b=1", "--set=c=d=e"})->All("set"),
              ElementsAre("a.b=1", "c=d=e"));
}

TEST(CommandLineTest, JobGivenAsAWordSuggestsTheJobFlag) {
  CommandSpec launch = Spec();
  launch.max_words = 0;
  launch.flags.push_back({"job", FlagKind::kText, "FILE", "", "the job"});
  const auto parsed = ParseCommand(launch, {"adult.textproto"});
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("--job=adult.textproto"));
}

TEST(CommandLineTest, UrlsAreRefusedWhereAPathIsTaken) {
  CommandSpec spec = Spec();
  spec.flags.push_back({"output_dir", FlagKind::kText, "DIR", "", "the output"});
  spec.flags.push_back({"data", FlagKind::kText, "FILE", "", "the data"});
  const auto error = [&](const std::string& arg) {
    return std::string(ParseCommand(spec, {arg}).status().message());
  };
  EXPECT_THAT(error("--output_dir=s3://bucket/out"),
              AllOf(HasSubstr("--output_dir"), HasSubstr("s3:// is not supported")));
  EXPECT_THAT(error("--data=a.csv,hdfs://h/b.csv"), HasSubstr("'hdfs://h/b.csv'"));
  EXPECT_THAT(error("gs://bucket"), HasSubstr("gs:// is not supported"));
  EXPECT_TRUE(ParseCommand(spec, {"--set", "a=s3://b"}).ok());  // the validation says more
}

TEST(CommandLineTest, FlagsOfOtherLaunchersAreNamed) {
  CommandSpec spec;
  spec.name = "launch";
  spec.flags = {{"worker_num", FlagKind::kNumber, "N", "1", ""},
                {"program", FlagKind::kText, "FILE.py", "", ""},
                {"set", FlagKind::kText, "PATH=VALUE", "", ""}};
  const auto error = [&spec](const std::vector<std::string>& args) {
    return std::string(ParseCommand(spec, args).status().message());
  };
  for (const char* flag : {"--num_workers=2", "--nproc_per_node=2", "--nproc-per-node=2", "--np=2"})
    EXPECT_THAT(error({flag}), HasSubstr("did you mean 'worker_num'? (sluice"));
  EXPECT_THAT(error({"--program=a.py", "--dropped=2"}),
              HasSubstr("no flag --dropped; the choices are: worker_num, program, set; arguments "
                        "of the program follow --"));
  EXPECT_THAT(error({"--program=a.py", "--seed=2"}),
              HasSubstr("--set train.seed=VALUE; arguments of the program follow --"));
  EXPECT_THAT(error({"--np=2", "--program=a.py"}), HasSubstr("arguments of the program follow --"));
}

TEST(CommandLineTest, MistakesAreNamedWithASuggestion) {
  EXPECT_THAT(Error({"--cuont=3"}),
              AllOf(HasSubstr("--cuont"), HasSubstr("did you mean 'count'?")));
  EXPECT_THAT(Error({"--nocount"}), HasSubstr("no flag --nocount"));
  EXPECT_THAT(Error({"--reader_threads=2"}), AllOf(HasSubstr("no flag --reader_threads"),
                                                   HasSubstr("--set train.reader_threads=VALUE")));
  EXPECT_THAT(Error({"--count=many"}), AllOf(HasSubstr("--count=many"), HasSubstr("--count=2")));
  EXPECT_THAT(Error({"--count=1e6"}), HasSubstr("--count=1000000"));
  EXPECT_THAT(Error({"--count"}), HasSubstr("--count=N"));
  EXPECT_THAT(Error({"--wait=perhaps"}), HasSubstr("--wait=perhaps"));
  EXPECT_THAT(Error({"a", "b"}), HasSubstr("'b'"));
  EXPECT_THAT(Error({"--set=output_dir=~/x"}), HasSubstr("$HOME/x"));
}

TEST(CommandLineTest, HelpWinsAndShowsFlagsDefaultsAndExamples) {
  EXPECT_TRUE(ParseCommand(Spec(), {"--help", "--nonsense"})->help);
  EXPECT_THAT(HelpText(Spec()), AllOf(HasSubstr("sluice run [WORD]"), HasSubstr("--count=N"),
                                      HasSubstr("(default 2)"), HasSubstr("sluice run --count=3")));
}

TEST(HelpTextTest, LinesFitIntoEightyColumns) {
  CommandSpec spec = Spec();
  spec.flags[0].help = "";
  for (int i = 0; i < 60; ++i) spec.flags[0].help += "word ";
  spec.summary = spec.flags[0].help;
  const std::string text = HelpText(spec);
  for (const absl::string_view line : absl::StrSplit(text, '\n'))
    EXPECT_LE(line.size(), 80u) << line;
  EXPECT_THAT(text, HasSubstr("\n" + std::string(32, ' ') + "word"));
}

}  // namespace
}  // namespace sluice::cli
