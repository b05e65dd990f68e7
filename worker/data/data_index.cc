#include "worker/data/data_index.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/crc32c.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/config/data_format.h"
#include "model/data/line_format.h"
#include "model/data/row_groups.h"
#include "model/data/text_reader.h"

namespace sluice {
namespace {

constexpr uint64_t kCountedBytes = 64 << 20;  // plain text counted between checks for cancellation
constexpr uint64_t kUsualRatio = 4;           // usual bytes of text in a byte of compressed text

bool Mine(const JobContext& context, size_t file) {
  return file % context.worker_num() == context.rank;
}

// A training file with lines in this rank's lanes.
struct LaneFile {
  uint32_t number = 0;  // index in the list of all files
  std::string path;
  FileIdentity identity;
  bool compressed = false;
};

absl::StatusOr<std::vector<LaneFile>> OpenFiles(const JobContext& context,
                                                const std::vector<std::string>& paths) {
  std::vector<LaneFile> files;
  for (uint32_t i = 0; i < paths.size(); ++i) {
    if (context.reads_own_files() && !Mine(context, i)) continue;
    SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<TextReader> text,
                            OpenText(context.config().data(), paths[i], context.data->env()));
    files.push_back({i, paths[i], text->identity(), text->compressed()});
  }
  return files;
}

// All ranks must cut the same pieces, so this depends only on what every rank knows.
uint64_t PieceBytes(const JobContext& context, const std::vector<LaneFile>& files) {
  uint64_t bytes = 0;
  for (const LaneFile& file : files)
    bytes += file.identity.size * (file.compressed ? kUsualRatio : 1);
  return LanePieceBytes(bytes, context.config().data().shuffle_lanes());
}

// The lines of pieces that earlier jobs have counted, so that text on a store is not read once more
// at each start. They are kept for a version of a file, which its ETag names.
//
// Format: a file of the log folder, to which processes append. A line is the checksum of what
// follows, the digest of what was counted, and the lines of each piece. Others are ignored.
class KeptCounts {
 public:
  explicit KeptCounts(const JobContext& context) : context_(context) {
    if (context.line_counts.empty()) return;
    if (context.log_env->FileSize(context.line_counts).value_or(0) > kMostKeptBytes)
      context.log_env->RemoveFile(context.line_counts).IgnoreError();
    const std::string text = context.log_env->ReadFile(context.line_counts).value_or("");
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
      if (words.size() < 3 || words[0] != CheckOf(line.substr(words[0].size() + 1))) continue;
      std::vector<uint64_t> lines(words.size() - 2);
      for (size_t i = 0; i < lines.size(); ++i) (void)absl::SimpleAtoi(words[i + 2], &lines[i]);
      known_[std::string(words[1])] = std::move(lines);
    }
  }

  // The name of the pieces [first, last) of a version of a file; "": their counts are not kept.
  std::string KeyOf(const LaneFile& file, uint64_t piece_bytes, uint64_t first,
                    uint64_t last) const {
    if (context_.line_counts.empty() || file.identity.tag.empty()) return "";
    DataConfig format;  // what decides where lines end, and which count
    format.set_format(context_.config().data().format());
    *format.mutable_csv() = context_.config().data().csv();
    return Sha256Hex(
               absl::StrJoin(std::make_tuple(file.path, file.identity.tag, file.identity.size,
                                             piece_bytes, first, last, format.SerializeAsString()),
                             "\n"))
        .substr(0, 32);
  }

  // Null: they were not counted.
  const std::vector<uint64_t>* Find(const std::string& key) const {
    const auto found = known_.find(key);
    return found == known_.end() ? nullptr : &found->second;
  }

  // `counted`: the pieces from `begin` on.
  void Keep(const std::string& key, const std::vector<CountedPiece>& counted, size_t begin) const {
    if (key.empty() || begin == counted.size()) return;
    std::string line = key;
    for (size_t i = begin; i < counted.size(); ++i) absl::StrAppend(&line, " ", counted[i].lines);
    // Without it, the next job counts again.
    context_.log_env
        ->AppendToFile(context_.line_counts, absl::StrCat(CheckOf(line), " ", line, "\n"))
        .IgnoreError();
  }

 private:
  static constexpr uint64_t kMostKeptBytes = 16 << 20;  // then the file begins anew
  static std::string CheckOf(absl::string_view text) {
    return absl::StrFormat("%08x", Crc32c(text.data(), text.size()));
  }

  const JobContext& context_;
  absl::flat_hash_map<std::string, std::vector<uint64_t>> known_;
};

class PieceCounter {
 public:
  PieceCounter(const JobContext& context, const std::vector<LaneFile>& files)
      : context_(context), piece_bytes_(PieceBytes(context, files)), kept_(context) {}

  // Counts the pieces [first, last) of a plain file.
  absl::Status CountPlain(const LaneFile& file, uint64_t first, uint64_t last) {
    const std::string key = kept_.KeyOf(file, piece_bytes_, first, last);
    if (AddKept(file, key, first, last)) return absl::OkStatus();
    const size_t before = counted_.size();
    const uint64_t at_once = std::max<uint64_t>(kCountedBytes / piece_bytes_, 1);
    for (uint64_t p = first; p < last;) {
      if (*context_.cancelled) return absl::CancelledError("the job was cancelled");
      if (const std::optional<uint64_t> known = Cached(file, p, EndOf(file, p))) {
        Add(file, p++, *known);
        continue;
      }
      uint64_t end = p + 1;
      // Neighbours that are not cached are counted in one pass over the text, in stretches that end
      // soon after a cancellation.
      while (end < last && end - p < at_once && !Cached(file, end, EndOf(file, end))) ++end;
      SLUICE_ASSIGN_OR_RETURN(const std::vector<uint64_t> lines,
                              context_.data->CountLines(file.path, p * piece_bytes_,
                                                        EndOf(file, end - 1), piece_bytes_));
      for (uint64_t i = 0; p < end; ++p, ++i) Add(file, p, i < lines.size() ? lines[i] : 0);
    }
    kept_.Keep(key, counted_, before);
    return absl::OkStatus();
  }

  // Counts all pieces of a compressed file.
  absl::Status CountCompressed(const LaneFile& file) {
    const std::string key = kept_.KeyOf(file, piece_bytes_, 0, kTextEnd);
    if (AddKept(file, key, 0, kTextEnd)) {
      counted_.back().end = kTextEnd;
      return absl::OkStatus();
    }
    if (AddCached(file)) return absl::OkStatus();
    const size_t before = counted_.size();
    SLUICE_ASSIGN_OR_RETURN(std::vector<uint64_t> lines,
                            context_.data->CountLines(file.path, 0, kTextEnd, piece_bytes_));
    if (lines.empty()) lines.push_back(0);
    for (uint64_t p = 0; p < lines.size(); ++p) Add(file, p, lines[p]);
    counted_.back().end = kTextEnd;
    kept_.Keep(key, counted_, before);
    return absl::OkStatus();
  }

  // The number of pieces of a plain file.
  uint64_t PiecesOf(const LaneFile& file) const {
    return (file.identity.size + piece_bytes_ - 1) / piece_bytes_;
  }
  uint64_t piece_bytes() const { return piece_bytes_; }
  std::vector<CountedPiece> Take() { return std::move(counted_); }

 private:
  uint64_t EndOf(const LaneFile& file, uint64_t piece) const {
    return std::min((piece + 1) * piece_bytes_, file.identity.size);
  }
  std::optional<uint64_t> Cached(const LaneFile& file, uint64_t piece, uint64_t end) const {
    if (context_.cache == nullptr) return std::nullopt;
    // The end of compressed text is not known, so the piece's key has the size of the others
    // instead (DataPiece).
    const uint64_t cut = end == kTextEnd ? piece_bytes_ : 0;
    return context_.cache->CountLines({file.path, piece * piece_bytes_, end, cut}, file.identity);
  }
  // Adds the pieces [first, last) of a file, `last` at most, as they were kept. False: they were
  // not.
  bool AddKept(const LaneFile& file, const std::string& key, uint64_t first, uint64_t last) {
    const std::vector<uint64_t>* const lines = kept_.Find(key);
    if (lines == nullptr || (last != kTextEnd && lines->size() != last - first)) return false;
    for (uint64_t i = 0; i < lines->size(); ++i) Add(file, first + i, (*lines)[i]);
    return true;
  }
  // Adds all pieces of a compressed file from their cache files. False, adding none, when a piece
  // is not cached. The last piece is the one that was cached with an end of kTextEnd.
  bool AddCached(const LaneFile& file) {
    const size_t before = counted_.size();
    for (uint64_t p = 0;; ++p) {
      const uint64_t end = (p + 1) * piece_bytes_;
      const std::optional<uint64_t> lines = Cached(file, p, end);
      const std::optional<uint64_t> rest = lines ? std::nullopt : Cached(file, p, kTextEnd);
      if (!lines && !rest) {
        counted_.resize(before);
        return false;
      }
      Add(file, p, lines ? *lines : *rest);
      if (lines) continue;
      counted_.back().end = kTextEnd;
      return true;
    }
  }
  void Add(const LaneFile& file, uint64_t piece, uint64_t lines) {
    const uint64_t end = (piece + 1) * piece_bytes_;
    counted_.push_back({file.number, piece * piece_bytes_,
                        file.compressed ? end : std::min(end, file.identity.size), lines});
  }

  const JobContext& context_;
  const uint64_t piece_bytes_;
  const KeptCounts kept_;
  std::vector<CountedPiece> counted_;
};

// Counts this rank's share of the pieces; with PER_RANK_FILES, all pieces of its files.
absl::StatusOr<std::vector<CountedPiece>> CountShare(const JobContext& context,
                                                     const std::vector<LaneFile>& files,
                                                     uint64_t* piece_bytes) {
  PieceCounter counter(context, files);
  *piece_bytes = counter.piece_bytes();
  uint64_t plain = 0;
  for (const LaneFile& file : files) plain += file.compressed ? 0 : counter.PiecesOf(file);
  const uint64_t ranks = context.reads_own_files() ? 1 : context.worker_num();
  const uint64_t rank = context.reads_own_files() ? 0 : context.rank;
  // By piece and not by file, since files may differ in size.
  const uint64_t first = plain * rank / ranks, last = plain * (rank + 1) / ranks;
  uint64_t before = 0;
  for (const LaneFile& file : files) {
    if (file.compressed) {
      // Compressed text has no places where a second rank could begin, so one rank counts the file.
      if (context.reads_own_files() || Mine(context, file.number))
        SLUICE_RETURN_IF_ERROR(counter.CountCompressed(file));
      continue;
    }
    const uint64_t pieces = counter.PiecesOf(file);
    const uint64_t from = std::max(first, before), to = std::min(last, before + pieces);
    if (from < to) SLUICE_RETURN_IF_ERROR(counter.CountPlain(file, from - before, to - before));
    before += pieces;
  }
  return counter.Take();
}

// Says why nothing is trained yet, when all data first comes over the network.
void NoteRemoteData(const JobContext& context, const std::vector<LaneFile>& files) {
  uint64_t bytes = 0;
  std::string place;
  for (const LaneFile& file : files) {
    if (file.identity.tag.empty()) continue;
    bytes += file.identity.size;
    place = context.data->env()->PlaceOf(file.path).name;
  }
  if (bytes == 0 || !context.log) return;
  context.log(absl::StrCat(
      "sync training needs the number of lines before its first step: the workers count those of ",
      bytes, " bytes at ", place, "://, each its share (", bytes / context.worker_num(),
      " bytes), but for files that an earlier job has counted (",
      context.line_counts.empty() ? "" : absl::StrCat(context.line_counts, ", "),
      "data.cache_dir)"));
}

bool ReadsRows(const JobContext& context) { return FormatOf(context.config().data()).rows; }

// All pieces of formats of rows, which the ends of the files tell; with PER_RANK_FILES, of this
// rank's files. The units depend on all files, so each rank looks at all of them.
absl::StatusOr<std::vector<CountedPiece>> PiecesOfRows(const JobContext& context,
                                                       const std::vector<std::string>& paths) {
  std::vector<FileOfRows> files;
  for (uint32_t i = 0; i < paths.size(); ++i) {
    if (context.reads_own_files() && !Mine(context, i)) continue;
    if (*context.cancelled) return absl::CancelledError("the job was cancelled");
    SLUICE_ASSIGN_OR_RETURN(std::vector<RowGroup> groups, context.data->RowGroups(paths[i]));
    files.push_back({i, std::move(groups)});
  }
  return CutRows(files, context.config().data().shuffle_lanes());
}

absl::StatusOr<std::vector<CountedPiece>> PiecesOfText(const JobContext& context,
                                                       PieceTable* table) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<LaneFile> files, OpenFiles(context, table->files));
  NoteRemoteData(context, files);
  return CountShare(context, files, &table->piece_bytes);
}

absl::Status IndexLanes(const JobContext& context, PieceTable* table, IndexReport* report) {
  const bool rows = ReadsRows(context);
  SLUICE_ASSIGN_OR_RETURN(
      std::vector<CountedPiece> counted,
      rows ? PiecesOfRows(context, table->files) : PiecesOfText(context, table));
  if (rows && !context.reads_own_files()) {
    const auto others = [&](const CountedPiece& piece) { return !Mine(context, piece.file); };
    counted.erase(std::remove_if(counted.begin(), counted.end(), others), counted.end());
  }
  uint64_t lines = 0;
  for (const CountedPiece& piece : counted) lines += piece.lines;
  report->set_examples(lines);
  if (context.reads_own_files()) {
    table->pieces = std::move(counted);
    return absl::OkStatus();
  }
  DataPieces* const pieces = report->mutable_pieces();
  for (const CountedPiece& piece : counted) {
    pieces->add_file(piece.file);
    pieces->add_begin(piece.begin);
    pieces->add_end(piece.end);
    pieces->add_examples(piece.lines);
    if (rows) pieces->add_goes_on(piece.goes_on);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status IndexTrainingData(const JobContext& context, PieceTable* table, IndexReport* report) {
  StageTimer timer(context.stats, Stage::kRead);
  table->files = context.files->train();
  if (context.mode == Mode::kSync) return IndexLanes(context, table, report);
  for (size_t i = 0; i < table->files.size(); ++i) {
    if (!Mine(context, i)) continue;
    if (ReadsRows(context)) {
      SLUICE_ASSIGN_OR_RETURN(const std::vector<RowGroup> groups,
                              context.data->RowGroups(table->files[i]));
      DataFile* const file = report->add_files();
      file->set_path(table->files[i]);
      file->set_bytes(SumOf(groups).bytes);
      for (const RowGroup& group : groups) {
        file->add_group_rows(group.rows);
        file->add_group_bytes(group.bytes);
      }
      continue;
    }
    SLUICE_ASSIGN_OR_RETURN(const uint64_t bytes, context.data->TextBytes(table->files[i]));
    DataFile* const file = report->add_files();
    file->set_path(table->files[i]);
    file->set_bytes(bytes);
  }
  return absl::OkStatus();
}

absl::Status ListTrainingData(const JobContext& context, PieceTable* table) {
  if (context.reads_own_files()) {
    IndexReport ignored;
    return IndexTrainingData(context, table, &ignored);
  }
  table->files = context.files->train();
  if (context.mode != Mode::kSync || ReadsRows(context)) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const std::vector<LaneFile> files, OpenFiles(context, table->files));
  table->piece_bytes = PieceBytes(context, files);
  return absl::OkStatus();
}

absl::Status UsePieces(const DataPieces& pieces, PieceTable* table) {
  const int n = pieces.file_size();
  const int goes_on = pieces.goes_on_size();
  if (pieces.begin_size() != n || pieces.end_size() != n || pieces.examples_size() != n ||
      (goes_on != 0 && goes_on != n))
    return absl::InvalidArgumentError(
        "the scheduler sent a piece table whose columns differ in length");
  table->pieces.clear();
  table->pieces.reserve(n);
  for (int i = 0; i < n; ++i) {
    if (pieces.file(i) >= table->files.size() || pieces.examples(i) > UINT32_MAX) {
      return absl::InvalidArgumentError(
          absl::StrCat("the scheduler sent a piece of training file ", pieces.file(i), " with ",
                       pieces.examples(i), " lines, but this worker sees ", table->files.size(),
                       " files; data.train_files must match the same files on every host"));
    }
    table->pieces.push_back({pieces.file(i), pieces.begin(i), pieces.end(i), pieces.examples(i),
                             goes_on != 0 && pieces.goes_on(i)});
  }
  return absl::OkStatus();
}

}  // namespace sluice
