// sluice ckpt: lists, verifies and describes checkpoints on disk or on a store.
#include <iostream>

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/jobs/watch_job.h"
#include "cli/screen/checkpoint_text.h"
#include "cli/screen/command_line.h"
#include "common/base/clock.h"
#include "common/config/closest_name.h"
#include "common/places/places_env.h"

namespace sluice::cli {
namespace {

int Print(const absl::StatusOr<std::string>& text) {
  if (!text.ok()) return ReportError(text.status());
  std::cout << *text << std::flush;
  return kDone;
}

int Ckpt(const ParsedCommand& command) {
  const std::vector<std::string> verbs = {"list", "verify", "inspect"};
  if (command.words.empty()) {
    return ReportError(absl::InvalidArgumentError(
        "nothing to do is given; run sluice ckpt list|verify|inspect DIR"));
  }
  const std::string& verb = command.words[0];
  if (verb != "list" && verb != "verify" && verb != "inspect") {
    return ReportError(absl::InvalidArgumentError(
        absl::StrCat("sluice ckpt cannot '", verb, "'", DidYouMeanOrAll(verb, verbs))));
  }
  if (command.words.size() < 2) {
    return ReportError(absl::InvalidArgumentError(
        absl::StrCat("no folder is given; run sluice ckpt ", verb, " DIR")));
  }
  const std::string& dir = command.words[1];
  Env* const env = AllPlaces();
  if (verb == "list") return Print(CheckpointList(dir, env, Clock::Real()->WallNow()));
  if (verb == "inspect") return Print(DescribeCheckpoint(dir, env, Clock::Real()->WallNow()));
  const absl::Status intact =
      VerifyCheckpoints(dir, env, [](const std::string& line) { std::cout << line << std::endl; });
  return intact.ok() ? kDone : ReportError(intact);
}

}  // namespace

Command CkptCommand() {
  CommandSpec spec;
  spec.name = "ckpt";
  spec.only_prints = true;
  spec.summary = "Lists, verifies and describes the checkpoints in a folder; needs no cluster.";
  spec.words = "list|verify|inspect DIR|URL";
  spec.max_words = 2;
  spec.examples =
      "  sluice ckpt list output/adult-1           # steps, ages, sizes and states\n"
      "  sluice ckpt verify output/adult-1         # reads every byte; exit code 1: damaged, or "
      "not finite\n"
      "  sluice ckpt verify s3://bucket/adult-1\n"
      "  sluice ckpt inspect output/adult-1/checkpoints/step-1200\n";
  return {spec, &Ckpt};
}

}  // namespace sluice::cli
