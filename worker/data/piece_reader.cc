#include "worker/data/piece_reader.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "model/data/read_examples.h"
#include "worker/data/batch_source.h"

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
  // All ranks have planned the epoch with the counted lines. One line more or less would shift the
  // batches of this rank against those of the others.
  if (examples.view.n + bad->count != piece.lines) {
    return absl::FailedPreconditionError(
        absl::StrCat("the data file ", path, " has changed since the job began: from position ",
                     piece.begin, " it has ", examples.view.n + bad->count, " lines instead of ",
                     piece.lines, "; start the job again"));
  }
  if (examples.owner == nullptr) examples.owner = std::move(parsed);
  return examples;
}

absl::Status PieceReader::Count(const BadLines& bad, uint64_t done_after) {
  if (bad.count == 0) return absl::OkStatus();
  bad_.Merge(bad);
  context_.stats->AddBadLines(bad, done_after);
  // Before the limit is checked, so that the log names the lines that end the job.
  context_.log(absl::StrCat(bad.count, " malformed lines skipped: ", bad.Describe()));
  return CheckBadLines(context_, bad_, bad.count > last_.view.n);
}

absl::StatusOr<Examples> PieceReader::Read(const LanePart& part, uint64_t done_after) {
  if (last_.owner == nullptr || last_piece_ != part.piece) {
    last_ = Examples();  // returns its buffer to the pool, if nothing else holds it
    last_bad_ = BadLines();
    last_summary_.reset();
    if (context_.stats->summarizes()) last_summary_.emplace();
    SLUICE_ASSIGN_OR_RETURN(last_, ReadPiece(table_.pieces[part.piece], &last_bad_,
                                             last_summary_ ? &*last_summary_ : nullptr));
    last_piece_ = part.piece;
  }
  // A piece may be read by two ranks; the one with its first line counts it.
  if (part.from > 0) return last_;
  if (last_summary_) context_.stats->AddSummary(*last_summary_, done_after);
  SLUICE_RETURN_IF_ERROR(Count(last_bad_, done_after));
  return last_;
}

}  // namespace sluice
