#include "common/saved_model/export_chain.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/saved_model/manifest.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file.h"

namespace sluice {
namespace {

constexpr char kManifestFile[] = "/MANIFEST";
constexpr size_t kInstanceDigits = 16;

// "cut 6 of 00c4..."
std::string Place(const ExportMember& member, uint64_t cut) {
  return absl::StrFormat("cut %d of %016x", cut, member.facts().instance());
}

absl::Status Refuse(const ExportMember& next, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat(next.dir, " cannot be applied: ", why));
}

std::string WithoutSlashes(std::string dir) {
  while (dir.size() > 1 && dir.back() == '/') dir.pop_back();
  return dir;
}

// ReadExport has read the manifest, and would say the same another time.
bool IsOfContents(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsFailedPrecondition(status) ||
         absl::IsInvalidArgument(status);
}

// The newest base first. Those of earlier versions have no order: within a run of the job the cuts
// tell it, whatever the clock did between them; runs are in the order of their newest bases.
void SortBases(std::vector<ExportMember>* bases) {
  std::map<uint64_t, double> newest;  // by instance
  for (const ExportMember& base : *bases) {
    const auto [at, added] = newest.emplace(base.facts().instance(), base.facts().unix_time());
    if (!added) at->second = std::max(at->second, base.facts().unix_time());
  }
  const auto order = [&](const ExportMember& base) {
    const uint64_t instance = base.facts().instance();
    return std::make_tuple(base.facts().order(), newest.at(instance), instance, base.facts().to());
  };
  std::sort(bases->begin(), bases->end(),
            [&](const ExportMember& a, const ExportMember& b) { return order(a) > order(b); });
}

// Whether the member with these facts, of which a damaged one has only instance and cut, is older
// than the newest of `chains` for certain. Runs follow one another, so a run whose bases are all
// older is older as a whole.
bool IsOlder(const ExportFacts& facts, const std::vector<std::vector<ExportMember>>& chains) {
  if (chains.empty()) return false;
  const ExportFacts& newest = chains.front().front().facts();
  if (facts.instance() == newest.instance()) return facts.to() < newest.to();
  return (facts.order() != 0 && facts.order() < newest.order()) ||
         std::any_of(chains.begin(), chains.end(), [&](const std::vector<ExportMember>& chain) {
           return chain.front().facts().instance() == facts.instance();
         });
}

}  // namespace

std::string ExportFolder(const std::string& root, uint64_t instance, uint64_t cut) {
  return absl::StrFormat("%s/%016x-%06d", root, instance, cut);
}

bool ParseExportName(const std::string& name, uint64_t* instance, uint64_t* cut) {
  if (name.size() < kInstanceDigits + 2 || name[kInstanceDigits] != '-' ||
      !IsSaveId(name.substr(0, kInstanceDigits)) ||
      !absl::SimpleHexAtoi(name.substr(0, kInstanceDigits), instance) ||
      !absl::SimpleAtoi(name.substr(kInstanceDigits + 1), cut)) {
    return false;
  }
  return name == ExportFolder("", *instance, *cut).substr(1);  // one spelling only
}

std::string ChainDigest(const std::string& before, const std::string& digest) {
  return Sha256Hex(before + digest);
}

absl::StatusOr<ExportMember> ReadExport(const std::string& dir, Env* env) {
  const std::string path = dir + kManifestFile;
  const absl::StatusOr<std::string> text = env->ReadFile(path);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(
        absl::StrCat(dir,
                     " is not a base or delta of an export: it has no MANIFEST; give the folder "
                     "`export.dir` of a job, or its folders INSTANCE-CUT"));
  }
  SLUICE_RETURN_IF_ERROR(text.status());
  ExportMember member{dir, {}};
  SLUICE_ASSIGN_OR_RETURN(member.manifest, ParseManifest(path, *text));
  if (member.manifest.has_export_()) return member;
  return absl::InvalidArgumentError(absl::StrCat(
      dir,
      " is a model or checkpoint that no export has written; a chain begins with a base, which "
      "a job with `export` writes"));
}

absl::Status CheckFollows(const ExportMember& before, const ExportMember& next) {
  const ExportFacts& facts = next.facts();
  if (next.base()) return Refuse(next, "it is a base, not a delta");
  if (facts.instance() != before.facts().instance()) {
    return Refuse(next, absl::StrFormat("it is of another job or another run of the job (instance "
                                        "%016x) than %s (%016x)",
                                        facts.instance(), before.dir, before.facts().instance()));
  }
  const uint64_t at = before.facts().to();
  if (facts.to() <= at) {
    return Refuse(
        next, absl::StrCat("it leads to cut ", facts.to(), ", but ", before.dir, " is of cut ", at,
                           " already; give deltas in ascending order"));
  }
  if (facts.from() > at) {
    return Refuse(next, absl::StrCat("it begins at cut ", facts.from(), ", but ", before.dir,
                                     " ends at cut ", at, "; the delta between them is missing"));
  }
  if (facts.from() < at) {
    return Refuse(next, absl::StrCat("it begins at cut ", facts.from(), ", before cut ", at, " of ",
                                     before.dir));
  }
  if (facts.chain() == ChainDigest(before.facts().chain(), facts.digest())) return absl::OkStatus();
  return Refuse(next, absl::StrCat("it belongs to another chain: its chain digest does not follow "
                                   "from that of ",
                                   before.dir, " (", Place(before, at), ")"));
}

absl::Status CheckChain(const std::vector<ExportMember>& chain) {
  if (chain.empty()) return absl::FailedPreconditionError("the chain has no member");
  if (!chain.front().base()) {
    return Refuse(chain.front(), absl::StrCat("a chain begins with a base, and this is the delta "
                                              "from cut ",
                                              chain.front().facts().from(), " to cut ",
                                              chain.front().facts().to()));
  }
  for (size_t i = 1; i < chain.size(); ++i)
    SLUICE_RETURN_IF_ERROR(CheckFollows(chain[i - 1], chain[i]));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::vector<ExportMember>>> ListChains(
    const std::string& root, Env* env, std::vector<ExportProblem>* problems) {
  std::vector<std::pair<absl::Status, ExportFacts>> noted;
  const auto note = [&](absl::Status problem, const ExportFacts& of) {
    noted.emplace_back(std::move(problem), of);
  };
  const auto names = env->List(root);
  if (absl::IsNotFound(names.status())) {
    return absl::NotFoundError(
        absl::StrCat(root, " is not the folder of an export: ", names.status().message()));
  }
  SLUICE_RETURN_IF_ERROR(names.status());
  std::vector<ExportMember> bases;
  std::map<std::pair<uint64_t, uint64_t>, ExportMember> deltas;  // by instance and `from`
  for (const std::string& name : *names) {
    uint64_t instance = 0, cut = 0;
    if (!ParseExportName(name, &instance, &cut)) continue;
    absl::StatusOr<ExportMember> member = ReadExport(absl::StrCat(root, "/", name), env);
    if (absl::IsNotFound(member.status())) continue;  // unfinished, or being removed
    if (!member.ok()) {
      if (problems == nullptr && !IsOfContents(member.status())) return member.status();
      ExportFacts facts;
      facts.set_instance(instance);
      facts.set_to(cut);
      note(member.status(), facts);
      continue;
    }
    if (member->base()) {
      bases.push_back(*std::move(member));
      continue;
    }
    const auto place = std::make_pair(member->facts().instance(), member->facts().from());
    const auto [other, added] = deltas.emplace(place, *member);
    if (!added) {
      note(Refuse(*member, absl::StrCat("it begins where ", other->second.dir, " does")),
           member->facts());
    }
  }
  SortBases(&bases);
  std::vector<std::vector<ExportMember>> chains;
  for (ExportMember& base : bases) {
    chains.emplace_back();
    chains.back().push_back(std::move(base));
    std::vector<ExportMember>& chain = chains.back();
    while (true) {
      const ExportMember& last = chain.back();
      const auto next = deltas.find({last.facts().instance(), last.facts().to()});
      if (next == deltas.end()) break;
      if (const absl::Status follows = CheckFollows(last, next->second); !follows.ok()) {
        note(follows, next->second.facts());
        deltas.erase(next);
        break;
      }
      chain.push_back(std::move(next->second));
      deltas.erase(next);
    }
  }
  for (const auto& [place, delta] : deltas) {
    note(Refuse(delta, absl::StrCat("the export of ", Place(delta, place.second),
                                    ", at which it begins, is missing or damaged")),
         delta.facts());
  }
  if (problems != nullptr) {
    for (auto& [problem, facts] : noted)
      problems->push_back({std::move(problem), IsOlder(facts, chains)});
  }
  return chains;
}

absl::Status CheckOwnExports(const std::string& root, const std::string& output_dir, Env* env) {
  const auto chains = ListChains(root, env, nullptr);
  if (absl::IsNotFound(chains.status())) return absl::OkStatus();
  SLUICE_RETURN_IF_ERROR(chains.status());
  for (const std::vector<ExportMember>& chain : *chains) {
    const ExportMember& base = chain.front();
    const auto job = ReadExportJob(base.dir, base.manifest, env);
    if (job.ok() && WithoutSlashes(job->output_dir()) == WithoutSlashes(output_dir)) continue;
    const std::string whose =
        job.ok() ? absl::StrCat("of the job with output_dir ", job->output_dir())
                 : absl::StrCat("whose job is not known: ", job.status().message());
    return absl::AlreadyExistsError(absl::StrCat(
        root, " holds exports ", whose, " (", base.dir,
        "); give another export.dir, or --overwrite to add to them and have export.keep count and "
        "remove them"));
  }
  return absl::OkStatus();
}

absl::Status VerifyExport(const ExportMember& member, Env* env) {
  SLUICE_RETURN_IF_ERROR(CheckSizes(member.dir, member.manifest, env));
  SLUICE_RETURN_IF_ERROR(ReadExportJob(member.dir, member.manifest, env).status());
  const ExportFacts& facts = member.facts();
  const bool base = member.base();
  SLUICE_ASSIGN_OR_RETURN(const std::string digest,
                          base ? ModelDigest(member.dir, member.manifest, env)
                               : DeltaDigest(member.dir, member.manifest, env));
  if (digest == (base ? member.manifest.model_digest() : facts.digest())) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(member.dir, " is damaged: its digest is ", digest,
                                          ", and its MANIFEST says another one; use another copy"));
}

void RemoveOldChains(const std::string& root, uint32_t keep, uint64_t instance, uint64_t below,
                     Env* env) {
  const auto chains = ListChains(root, env, nullptr);
  if (!chains.ok()) return;
  const size_t kept = std::max<uint32_t>(keep, 1);
  for (size_t c = kept; c < chains->size(); ++c) {
    const std::vector<ExportMember>& chain = (*chains)[c];
    for (auto member = chain.rbegin(); member != chain.rend(); ++member)
      RemoveModel(member->dir, env);
  }
  // Runs of other jobs and earlier runs are over, so they are older than any of this run.
  const auto older_than_kept = [&](uint64_t of, uint64_t cut) {
    const auto newer = [&](const std::vector<ExportMember>& chain) {
      const ExportFacts& base = chain.front().facts();
      return base.instance() == of ? cut < base.to() : base.instance() == instance;
    };
    return chains->size() >= kept &&
           std::all_of(chains->begin(), chains->begin() + static_cast<int64_t>(kept), newer);
  };
  for (const std::string& name : env->List(root).value_or(std::vector<std::string>())) {
    uint64_t of = 0, cut = 0;
    if (!ParseExportName(name, &of, &cut) || (of == instance && cut >= below)) continue;
    const std::string dir = absl::StrCat(root, "/", name);
    if (older_than_kept(of, cut) || absl::IsNotFound(env->ReadFile(dir + kManifestFile).status()))
      RemoveModel(dir, env);
  }
}

}  // namespace sluice
