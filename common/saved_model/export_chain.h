// Chains of exports: a base, which is a model, and deltas, each of which names what changed since
// the member before it.
//
// Format: proto/model.proto. A member is written like a model (saved_model.h), into a folder that
// no other member has. PrepareModel makes the manifest of a member if it has `export`: a delta
// brings the chain digest of the export before it in export.chain, which becomes its own; that of a
// base is its model_digest, if it has none.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "proto/config.pb.h"
#include "proto/model.pb.h"

namespace sluice {

// The version of a delta's manifest, which programs that do not know deltas refuse.
inline constexpr uint32_t kDeltaVersion = 4;

// The manifest is that of a delta (ExportFacts).
inline bool IsDelta(const Manifest& manifest) { return manifest.export_().from() != 0; }

// In a job with exports the cuts with even numbers are exports, and the others checkpoints.
inline bool IsExportCut(uint64_t cut) { return cut % 2 == 0; }

// The configuration of the job that made a member, whose manifest the caller has read. As
// ReadModelJob.
absl::StatusOr<JobConfig> ReadExportJob(const std::string& dir, const Manifest& manifest, Env* env);
// The digest of a delta (ExportFacts.digest), which does not depend on the number of shards.
absl::StatusOr<std::string> DeltaDigest(const std::string& dir, const Manifest& manifest, Env* env);

// ROOT/INSTANCE-CUT: the folder of the export of this cut.
std::string ExportFolder(const std::string& root, uint64_t instance, uint64_t cut);
// False when `name` is not the name of such a folder.
bool ParseExportName(const std::string& name, uint64_t* instance, uint64_t* cut);

// The chain digest of the member with `digest` that follows one with chain digest `before`.
std::string ChainDigest(const std::string& before, const std::string& digest);

struct ExportMember {
  std::string dir;
  Manifest manifest;
  const ExportFacts& facts() const { return manifest.export_(); }
  bool base() const { return facts().from() == 0; }
};

// Reads the manifest of a base or delta. NOT_FOUND, DATA_LOSS: as ReadManifest. INVALID_ARGUMENT:
// `dir` is a model or checkpoint that no export has written.
absl::StatusOr<ExportMember> ReadExport(const std::string& dir, Env* env);

// OK when `next` is the delta that follows `before`. FAILED_PRECONDITION names both and says why it
// is not: it is a base, of another job, out of order, or behind a gap; or its chain is another one.
absl::Status CheckFollows(const ExportMember& before, const ExportMember& next);
// The same for all of a chain, whose first member must be a base.
absl::Status CheckChain(const std::vector<ExportMember>& chain);

// A member that ends up in no chain.
struct ExportProblem {
  absl::Status status;  // names it
  // It was made before the newest of the chains for certain, which lacks nothing by it.
  bool older = false;
};

// The chains in the folder of an export, the one with the newest base first; the members of each in
// order. Folders without a manifest are left out. A member that is damaged, cannot be read or
// follows no other is described in *problems and ends up in no chain. With null it is only left
// out; but a manifest that could not be read, whatever it contains, is an error, since it may be
// that of the newest base. NOT_FOUND: there is no `root`.
absl::StatusOr<std::vector<std::vector<ExportMember>>> ListChains(
    const std::string& root, Env* env, std::vector<ExportProblem>* problems);

// ALREADY_EXISTS, naming a base under `root` and the fix, if a job with another output folder has
// made it. OK without a `root`; other errors: it cannot be read. A job whose configuration is lost
// counts as another one.
absl::Status CheckOwnExports(const std::string& root, const std::string& output_dir, Env* env);

// Reads every byte of a member and compares it with its digests. DATA_LOSS names what differs.
absl::Status VerifyExport(const ExportMember& member, Env* env);

// Removes all chains but the newest `keep` (at least 1), whole, newest member first, so that what
// remains of one after a crash is a shorter chain. Also removes unfinished exports, except those of
// `instance`, the present run, from cut `below` on; and members of no chain (ListChains) once each
// of the `keep` chains is newer for certain: its base is of this run or, in the run of the member,
// of a later cut. One job at a time uses a folder.
void RemoveOldChains(const std::string& root, uint32_t keep, uint64_t instance, uint64_t below,
                     Env* env);

// Writes the model of the last member of the chain to `output`: shard files equal those of a save
// at that moment, byte for byte. With `as_base` the output also takes the place of the chain, so
// that the deltas that follow apply to it. Nothing is in force in `output` until all of it is
// written; a failure leaves an earlier model there as it was.
// FAILED_PRECONDITION: CheckChain. DATA_LOSS names the damaged file. INVALID_ARGUMENT: the tables
// of the members differ.
// Memory: twice the rows of one shard.
absl::StatusOr<Manifest> ApplyChain(const std::vector<ExportMember>& chain,
                                    const std::string& output, bool as_base, Env* env);

}  // namespace sluice
