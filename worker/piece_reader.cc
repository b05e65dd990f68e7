#include "worker/piece_reader.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/batch_source.h"

namespace sluice {

absl::StatusOr<Examples> PieceReader::ReadPiece(const CountedPiece& piece, BadLines* bad,
                                                DataSummary* summary) {
  const FeatureSchema& schema = *context_.model->schema();
  const std::string& path = table_.files[piece.file];
  std::shared_ptr<Batch> parsed = pool_.Take();
  // Reserved, because a growing vector holds up to three times its size for a moment.
  parsed->Reserve(piece.lines, schema.numerics().size(), schema.slots().size());
  SLUICE_ASSIGN_OR_RETURN(Examples examples,
                          ReadExamples(*context_.data, schema, context_.cache.get(),
                                       table_.KeyOf(piece), parsed.get(), bad, summary));
  if (examples.view.n + bad->count != piece.lines) {
    return absl::FailedPreconditionError(
        absl::StrCat("the data file ", path, " has changed since the job began: from text byte ",
                     piece.begin, " it has ", examples.view.n + bad->count, " lines instead of ",
                     piece.lines, "; start the job again"));
  }
  if (examples.owner == nullptr) examples.owner = std::move(parsed);
  return examples;
}

absl::Status PieceReader::Count(const BadLines& bad) {
  if (bad.count == 0) return absl::OkStatus();
  bad_.Merge(bad);
  context_.stats->AddBadLines(bad);
  context_.log(absl::StrCat(bad.count, " malformed lines skipped: ", bad.Describe()));
  return CheckBadLines(context_, bad_);
}

absl::StatusOr<Examples> PieceReader::Read(const LanePart& part) {
  if (last_.owner != nullptr && last_piece_ == part.piece) return last_;
  last_ = Examples();  // returns its buffer to the pool, if nothing else holds it
  // A piece may be read by two ranks; the one with its first line counts it.
  const bool counts = part.from == 0;
  const bool summarize = counts && context_.stats->summarizes();
  BadLines bad;
  DataSummary summary;
  SLUICE_ASSIGN_OR_RETURN(
      last_, ReadPiece(table_.pieces[part.piece], &bad, summarize ? &summary : nullptr));
  last_piece_ = part.piece;
  if (summarize) context_.stats->AddSummary(summary);
  if (counts) SLUICE_RETURN_IF_ERROR(Count(bad));
  return last_;
}

}  // namespace sluice
