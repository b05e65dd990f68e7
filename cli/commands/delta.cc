// sluice delta: applies, compacts and verifies the exports of a job; needs no cluster.
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/commands/commands.h"
#include "cli/jobs/watch_job.h"
#include "cli/screen/command_line.h"
#include "cli/screen/format.h"
#include "cli/screen/stderr_lines.h"
#include "common/base/env.h"
#include "common/base/output_target.h"
#include "common/base/status_macros.h"
#include "common/config/closest_name.h"
#include "common/places/places_env.h"
#include "common/saved_model/export_chain.h"

namespace sluice::cli {
namespace {

using Chain = std::vector<ExportMember>;

// The newest chain in the folder of all exports. It must be whole: what is damaged or missing could
// make it older than the newest export, or shorter, without a word. Exports before it that cannot
// be used cost a warning.
absl::StatusOr<Chain> NewestChain(const std::string& verb, const std::string& root, Env* env) {
  std::vector<ExportProblem> problems;
  SLUICE_ASSIGN_OR_RETURN(std::vector<Chain> chains, ListChains(root, env, &problems));
  std::stable_partition(problems.begin(), problems.end(),
                        [](const ExportProblem& problem) { return !problem.older; });
  if (problems.empty()) return chains.empty() ? Chain() : std::move(chains.front());
  const std::string text =
      absl::StrCat(problems.front().status.message(),
                   problems.size() == 1 ? "" : absl::StrCat("; and ", problems.size() - 1, " more"),
                   "; sluice ", "delta verify ", root, " lists all exports");
  if (problems.front().older) {
    PrintOnStderr(absl::StrCat("warning: exports before the newest base cannot be used: ", text));
    return std::move(chains.front());
  }
  std::string fix = absl::StrCat("Name a base and its deltas to use these alone: sluice delta ",
                                 verb, " BASE DELTA...");
  if (!chains.empty()) {
    const Chain& whole = chains.front();
    absl::StrAppend(&fix, "; ", whole.front().dir, " is a base");
    if (whole.size() > 1) {
      absl::StrAppend(&fix, ", and ", Counted(whole.size() - 1, "delta"), " up to ",
                      whole.back().dir, " can be applied to it");
    }
  }
  return absl::Status(problems.front().status.code(), absl::StrCat(text, ". ", fix));
}

// The chain that the words name: a base and its deltas, or one folder with all of them.
absl::StatusOr<Chain> ReadChain(const ParsedCommand& command, Env* env) {
  const std::string& verb = command.words[0];
  if (command.words.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat("no folder is given; run sluice delta ", verb,
                                                   " BASE DELTA... or sluice ", "delta ", verb,
                                                   " EXPORT_DIR"));
  }
  Chain chain;
  if (command.words.size() == 2) {
    SLUICE_ASSIGN_OR_RETURN(chain, NewestChain(verb, command.words[1], env));
    if (!chain.empty()) return chain;
  }
  for (size_t i = 1; i < command.words.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(ExportMember member, ReadExport(command.words[i], env));
    chain.push_back(std::move(member));
  }
  return chain;
}

absl::Status CheckModelOutput(const ParsedCommand& command, Env* env) {
  const std::string output = command.Text("output");
  if (output.empty()) return absl::InvalidArgumentError("no output is given; give --output=DIR");
  for (size_t i = 1; i < command.words.size(); ++i)
    SLUICE_RETURN_IF_ERROR(CheckIsOutside(output, command.words[i]));
  if (!env->Exists(absl::StrCat(output, "/MANIFEST")) || command.Switch("overwrite"))
    return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat(output, " holds a model; give another folder, or --overwrite to replace it"));
}

std::string DescribeMember(const ExportMember& member) {
  const ExportFacts& facts = member.facts();
  return absl::StrCat(
      member.base() ? absl::StrFormat("base   cut %-6d", facts.to())
                    : absl::StrFormat("delta  cut %d -> %d", facts.from(), facts.to()),
      "  step ", member.manifest.global_step(), "  ", Counted(facts.rows(), "row"), ", ",
      facts.gone(), " gone  ",
      (member.base() ? member.manifest.model_digest() : facts.digest()).substr(0, 16), "  ",
      member.dir);
}

// Writes the model of the chain's last member, as a base of its own or not.
absl::StatusOr<int> Write(const ParsedCommand& command, bool as_base) {
  Env* const env = AllPlaces();
  SLUICE_ASSIGN_OR_RETURN(const Chain chain, ReadChain(command, env));
  SLUICE_RETURN_IF_ERROR(CheckModelOutput(command, env));
  SLUICE_ASSIGN_OR_RETURN(const Manifest made,
                          ApplyChain(chain, command.Text("output"), as_base, env));
  std::cout << command.Text("output") << ": step " << made.global_step() << ", "
            << Counted(chain.size() - 1, "delta") << " on " << chain.front().dir
            << "\nmodel_digest: " << made.model_digest() << "\n";
  return kDone;
}

absl::StatusOr<int> Apply(const ParsedCommand& command) { return Write(command, false); }
absl::StatusOr<int> Compact(const ParsedCommand& command) { return Write(command, true); }

// Prints a line for each member. False: something is damaged or does not follow.
bool Verify(const Chain& chain, Env* env) {
  bool intact = true;
  for (size_t i = 0; i < chain.size(); ++i) {
    absl::Status status =
        i > 0 ? CheckFollows(chain[i - 1], chain[i]) : CheckChain({chain.front()});
    status.Update(VerifyExport(chain[i], env));
    intact = intact && status.ok();
    std::cout << (status.ok() ? "ok       " : "DAMAGED  ") << DescribeMember(chain[i]);
    if (!status.ok()) std::cout << ": " << status.message();
    std::cout << std::endl;
  }
  return intact;
}

absl::StatusOr<int> VerifyAll(const ParsedCommand& command) {
  for (const char* const flag : {"output", "overwrite"}) {
    if (!command.Given(flag)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("sluice delta verify writes nothing, so it has no flag --", flag));
  }
  Env* const env = AllPlaces();
  std::vector<Chain> chains;
  std::vector<ExportProblem> problems;
  if (command.words.size() == 2 && !env->Exists(absl::StrCat(command.words[1], "/MANIFEST"))) {
    SLUICE_ASSIGN_OR_RETURN(chains, ListChains(command.words[1], env, &problems));
    if (chains.empty() && problems.empty()) {
      return absl::NotFoundError(
          absl::StrCat(command.words[1], " has no exports; give the folder `export.dir` of a job"));
    }
  } else {
    SLUICE_ASSIGN_OR_RETURN(Chain chain, ReadChain(command, env));
    chains.push_back(std::move(chain));
  }
  bool intact = problems.empty();
  for (const Chain& chain : chains) intact = Verify(chain, env) && intact;
  for (const ExportProblem& problem : problems)
    std::cout << "DAMAGED  " << problem.status.message() << std::endl;
  if (intact) return kDone;
  return absl::DataLossError("not all exports can be used; the lines above say which");
}

struct DeltaVerb {
  const char* name;
  absl::StatusOr<int> (*run)(const ParsedCommand&);
};
constexpr DeltaVerb kDeltaVerbs[] = {
    {"apply", &Apply}, {"compact", &Compact}, {"verify", &VerifyAll}};

int Delta(const ParsedCommand& command) {
  if (command.words.empty()) {
    return ReportError(absl::InvalidArgumentError(
        "nothing to do is given; run sluice delta apply|compact|verify EXPORT_DIR"));
  }
  std::vector<std::string> names;
  for (const DeltaVerb& verb : kDeltaVerbs) {
    names.push_back(verb.name);
    if (command.words[0] != verb.name) continue;
    const absl::StatusOr<int> code = verb.run(command);
    return code.ok() ? *code : ReportError(code.status());
  }
  return ReportError(absl::InvalidArgumentError(absl::StrCat(
      "sluice delta cannot '", command.words[0], "'", DidYouMeanOrAll(command.words[0], names))));
}

}  // namespace

Command DeltaCommand() {
  CommandSpec spec;
  spec.name = "delta";
  spec.summary =
      "Works on exports: a base, which is a model, and deltas, which say what has changed since. "
      "apply: makes the model of the last delta. compact: makes one base of a base "
      "and its deltas, to which later deltas apply. verify: reads every byte, and prints a line "
      "for each. Needs no cluster.";
  spec.words = "apply|compact|verify EXPORT_DIR|URL | BASE DELTA...";
  spec.max_words = 100001;
  spec.flags = {
      {"output", FlagKind::kText, "DIR|URL", "",
       "apply, compact: the folder of the new model or base (required)"},
      {"overwrite", FlagKind::kBool, "", "", "replace a model in that folder"},
  };
  spec.examples =
      "  sluice delta verify output/adult/export             # exit code 1: damaged, or a gap\n"
      "  sluice delta apply output/adult/export --output=model   # the newest base and its deltas\n"
      "  sluice delta apply BASE DELTA1 DELTA2 --output=model\n"
      "  sluice delta compact BASE DELTA1 --output=base\n";
  return {spec, &Delta};
}

}  // namespace sluice::cli
