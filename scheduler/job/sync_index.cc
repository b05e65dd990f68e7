#include "scheduler/job/sync_index.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/config/mode.h"
#include "model/data/lane_plan.h"

namespace sluice {
namespace {

struct Piece {
  uint32_t file = 0;
  uint64_t begin = 0, end = 0, examples = 0;
  uint32_t rank = 0;
  bool goes_on = false;
};

// Ties go to the lower rank, so that a message about an overlap is always the same.
bool Before(const Piece& a, const Piece& b) {
  return std::tie(a.file, a.begin, a.rank) < std::tie(b.file, b.begin, b.rank);
}

// Stays at the largest number instead of wrapping.
uint64_t Sum(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

absl::StatusOr<std::vector<Piece>> Gather(const std::vector<IndexReport>& by_rank) {
  int64_t n = 0;
  for (const IndexReport& report : by_rank) n += report.pieces().file_size();
  // The sum over all ranks: each report alone may be within its bound.
  SLUICE_RETURN_IF_ERROR(CheckPieces(n));
  std::vector<Piece> all;
  for (uint32_t rank = 0; rank < by_rank.size(); ++rank) {
    const DataPieces& p = by_rank[rank].pieces();
    const int n = p.file_size();
    // Below they are read side by side.
    const int goes_on = p.goes_on_size();
    if (p.begin_size() != n || p.end_size() != n || p.examples_size() != n ||
        (goes_on != 0 && goes_on != n)) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", rank, " reports pieces with columns of different lengths"));
    }
    for (int i = 0; i < n; ++i)
      all.push_back(
          {p.file(i), p.begin(i), p.end(i), p.examples(i), rank, goes_on != 0 && p.goes_on(i)});
  }
  std::sort(all.begin(), all.end(), Before);
  return all;
}

absl::Status Refuse(const std::string& file, const std::string& why) {
  return absl::FailedPreconditionError(absl::StrCat(
      "the ranks' counts of the training file ", PrintableLine(file), " do not match: ", why,
      "; data.train_files must be the same files on every host, and must not change "
      "while the job runs"));
}

// OK when the pieces [first, last) cover one file without gaps or overlaps. `rows`: the file ends
// where the last one does.
absl::Status CheckFile(const Piece* first, const Piece* last, const std::string& name,
                       uint64_t bytes, bool rows) {
  const char* const unit = rows ? "row" : "byte";
  uint64_t at = 0;
  for (const Piece* p = first; p < last; ++p) {
    // The second condition keeps `at` growing: empty or inverted pieces from a faulty worker would
    // pass for progress.
    if (p->begin != at || p->end <= p->begin) {
      return Refuse(name,
                    absl::StrCat("rank ", p->rank, " counted from ", unit, " ", p->begin, " to ",
                                 p->end, ", but the next piece must begin at ", unit, " ", at));
    }
    at = p->end;
  }
  // The last piece of a compressed file ends at kTextEnd, because the size of its text is not
  // known.
  if (rows || at == bytes || at == kTextEnd) return absl::OkStatus();
  // A file may have no pieces at all.
  const std::string who = first < last ? absl::StrCat("rank ", last[-1].rank) : "no rank";
  return Refuse(
      name, absl::StrCat(who, " counted up to byte ", at, ", but the file has ", bytes, " bytes"));
}

}  // namespace

absl::Status CheckPieces(int64_t n) {
  if (n <= kMaxDataPieces) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the ranks report ", n, " pieces of data.train_files; at most ", kMaxDataPieces,
      " are possible: join small files, train fewer of them in one job, or use data.assignment: ",
      "PER_RANK_FILES"));
}

absl::StatusOr<DataPieces> MergePieces(const std::vector<IndexReport>& by_rank,
                                       const google::protobuf::RepeatedPtrField<SeenFile>& files,
                                       bool rows) {
  const absl::StatusOr<std::vector<Piece>> all = Gather(by_rank);
  if (!all.ok()) return all.status();
  const Piece* const end = all->data() + all->size();
  const Piece* at = all->data();
  for (int file = 0; file < files.size(); ++file) {
    const Piece* const first = at;
    while (at < end && at->file == static_cast<uint32_t>(file)) ++at;
    const absl::Status covered =
        CheckFile(first, at, files[file].path(), files[file].bytes(), rows);
    if (!covered.ok()) return covered;
  }
  // A file number beyond the list.
  if (at < end) {
    return Refuse(absl::StrCat("number ", at->file),
                  absl::StrCat("rank ", at->rank, " counted it, but there are only ", files.size(),
                               " training files"));
  }
  DataPieces pieces;
  for (const Piece& piece : *all) {
    pieces.add_file(piece.file);
    pieces.add_begin(piece.begin);
    pieces.add_end(piece.end);
    pieces.add_examples(piece.examples);
    if (rows) pieces.add_goes_on(piece.goes_on);
  }
  return pieces;
}

uint64_t CountExamples(const DataPieces& pieces) {
  uint64_t sum = 0;
  for (const uint64_t examples : pieces.examples()) sum = Sum(sum, examples);
  return sum;
}

absl::Status NoExamples(const BadLines& bad) {
  constexpr char kNone[] = "the training data has no examples";
  if (bad.count == 0)
    return absl::FailedPreconditionError(absl::StrCat(kNone, "; see data.train_files"));
  return absl::FailedPreconditionError(
      absl::StrCat(kNone, ", only ", bad.Describe(),
                   "; check data.train_files, and that data and features describe them"));
}

absl::StatusOr<uint64_t> SyncSteps(const JobConfig& config, uint64_t global_batch,
                                   const std::vector<uint64_t>& examples) {
  const bool per_rank = config.data().assignment() == DataConfig::PER_RANK_FILES;
  const uint64_t lines = per_rank
                             ? *std::max_element(examples.begin(), examples.end())
                             : std::accumulate(examples.begin(), examples.end(), uint64_t{0}, Sum);
  if (lines == 0) return NoExamples({});
  // Steps are multiplied by epochs and batches later. This keeps the products within 64 bits.
  if (lines > kMaxExamples) {
    return absl::InvalidArgumentError(absl::StrCat("the ranks report ", lines,
                                                   " examples; an epoch has at most ", kMaxExamples,
                                                   ": check data.train_files"));
  }
  const uint64_t batch = per_rank ? std::max<uint64_t>(StepExamples(config), 1) : global_batch;
  const uint64_t steps = GlobalSteps(lines, batch, config.data().drop_last());
  // Otherwise the job would be done at once, without having trained.
  if (steps == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "data.drop_last leaves nothing to train: ", lines, " examples do not fill a batch of ",
        batch, "; lower train.batch_size or set data.drop_last: false"));
  }
  return steps;
}

absl::StatusOr<uint64_t> StepsOfSources(const std::vector<IndexReport>& by_rank) {
  const uint64_t steps = by_rank[0].examples();
  for (uint32_t rank = 0; rank < by_rank.size(); ++rank) {
    const uint64_t own = by_rank[rank].examples();
    if (own == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("the source of rank ", rank,
                       " does not say how many batches it has, and in sync mode all ",
                       "ranks make the same steps; give sluice.torch.worker(..., epoch_steps=N), "
                       "or a source with ",
                       "len()"));
    }
    if (own != steps) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the source of rank ", rank, " has ", own, " batches in an epoch, and that of ",
          "rank 0 has ", steps, "; in sync mode all ranks make the same steps: give ",
          "sluice.torch.worker(..., epoch_steps=N) the same N everywhere"));
    }
  }
  if (steps <= kMaxExamples) return steps;
  return absl::InvalidArgumentError(absl::StrCat("the ranks report ", steps,
                                                 " steps of an epoch; at most ", kMaxExamples,
                                                 " are possible: lower epoch_steps"));
}

}  // namespace sluice
