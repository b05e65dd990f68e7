#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/output_target.h"
#include "common/base/status_macros.h"
#include "model/built_in_models.h"
#include "model/data/expand_files.h"
#include "model/predictor.h"

namespace sluice {
namespace {

// Bytes of text that are read and scored at a time.
constexpr uint64_t kPieceBytes = 1 << 20;

// The output: a file that appears only when it is complete, or a pipe or device that is written
// directly.
class ScoreWriter {
 public:
  ScoreWriter() = default;
  ~ScoreWriter() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    if (written_ != path_) std::remove(written_.c_str());
  }

  absl::Status Open(const PredictOptions& options) {
    replace_ = options.replace;
    const OutputTarget target =
        options.in_place ? OutputTarget{options.output_file} : ResolveOutput(options.output_file);
    path_ = target.path;
    written_ = target.in_place || options.in_place ? path_ : UnfinishedName(path_);
    if (target.in_place) {
      file_ = std::fopen(written_.c_str(), "wb");
    } else {
      SLUICE_ASSIGN_OR_RETURN(const int fd, CreateUnfinished(written_));
      file_ = ::fdopen(fd, "wb");
    }
    if (file_ == nullptr) return Failed("cannot open");
    // The lock tells a cleaner of unfinished files that this process lives. Failing to lock is
    // fine: some file systems have no locks.
    if (written_ != path_) flock(fileno(file_), LOCK_EX | LOCK_NB);
    return absl::OkStatus();
  }
  void WriteId(const std::string& id) {
    failed_ |= std::fwrite(id.data(), 1, id.size(), file_) != id.size();
    failed_ |= std::fputc('\t', file_) == EOF;
  }
  void Write(float score) {
    failed_ |= std::fprintf(file_, "%.9g\n", static_cast<double>(score)) < 0;
  }
  void WriteBad() { failed_ |= std::fputs("nan\n", file_) < 0; }
  // Flushes an output that is written directly, so that its reader gets the scores now. Fails if
  // any write has failed.
  absl::Status EndPiece() {
    if (written_ == path_) failed_ |= std::fflush(file_) != 0;
    return failed_ ? Failed("cannot write") : absl::OkStatus();
  }
  absl::Status Close() {
    failed_ |= std::fflush(file_) != 0;
    const absl::Status status = failed_ ? Failed("cannot write") : absl::OkStatus();
    if (!status.ok()) return status;  // the destructor removes the file
    failed_ = std::fclose(std::exchange(file_, nullptr)) != 0;
    absl::Status finished = failed_ ? Failed("cannot finish") : absl::OkStatus();
    if (finished.ok() && written_ != path_) finished = PutInPlace(written_, path_, replace_);
    if (!finished.ok() && written_ != path_) std::remove(written_.c_str());
    return finished;
  }

 private:
  absl::Status Failed(absl::string_view what) const {
    return absl::InternalError(absl::StrCat(what, " the output file ", written_, ": ",
                                            std::strerror(errno),
                                            "; check its folder and free space"));
  }

  std::string path_, written_;
  std::FILE* file_ = nullptr;
  bool replace_ = true;
  bool failed_ = false;
};

struct InputFile {
  std::string path;
  uint64_t begin = 0, end = 0;  // bytes of its text, counted over the texts of all files
};

// `paths` come from FixInput. All files are checked before the first one is scored.
absl::StatusOr<std::vector<InputFile>> ListInput(const std::vector<std::string>& paths,
                                                 const DataSource& source) {
  std::vector<InputFile> files;
  uint64_t total = 0;
  for (const std::string& path : paths) {
    // If the file has changed, that explains wrong columns, so that error is returned first.
    const absl::Status columns = source.CheckColumns(path, /*need_label=*/false);
    SLUICE_RETURN_IF_ERROR(source.CheckUnchanged(path));
    SLUICE_RETURN_IF_ERROR(columns);
    SLUICE_ASSIGN_OR_RETURN(const uint64_t bytes, source.TextBytes(path));
    files.push_back({path, total, total + bytes});
    total += bytes;
  }
  return files;
}

// Reads, scores and writes piece by piece. Its buffers are reused for all pieces and files.
class FilePrediction {
 public:
  FilePrediction(const PredictOptions& options, Predictor* predictor, const DataSource* source,
                 ScoreWriter* writer)
      : options_(options), predictor_(predictor), source_(source), writer_(writer) {}

  // Scores the lines of the file that start in [begin, end).
  absl::Status Run(const std::string& path, uint64_t begin, uint64_t end) {
    ExampleStream::Options options;
    options.path = path;
    options.begin = begin;
    options.end = end;
    options.id_column = options_.id_column;
    SLUICE_ASSIGN_OR_RETURN(const auto stream, source_->OpenStream(options));
    while (true) {
      SLUICE_ASSIGN_OR_RETURN(const bool more, stream->Next(kPieceBytes, &piece_, &summary_.bad));
      if (!more) return absl::OkStatus();
      SLUICE_RETURN_IF_ERROR(Score());
      Write();
      SLUICE_RETURN_IF_ERROR(writer_->EndPiece());
      if (options_.progress) options_.progress(summary_.examples + summary_.bad.count);
    }
  }
  PredictSummary TakeSummary() { return std::move(summary_); }

 private:
  absl::Status Score() {
    const Batch& examples = piece_.examples;
    scores_.resize(examples.n);
    for (size_t first = 0; first < examples.n; first += Predictor::kBatch) {
      batch_.Reset(examples.num_numeric, examples.num_slots);
      const size_t last = std::min(first + Predictor::kBatch, examples.n);
      for (size_t i = first; i < last; ++i) SLUICE_RETURN_IF_ERROR(batch_.Append(examples, i, i));
      SLUICE_RETURN_IF_ERROR(predictor_->Score(batch_, scores_.data() + first));
    }
    summary_.examples += examples.n;
    return absl::OkStatus();
  }

  void Write() {
    const size_t n = piece_.examples.n;
    size_t bad = 0, line = 0;
    const auto id = [&] {
      if (!options_.id_column.empty()) writer_->WriteId(piece_.ids[line]);
      ++line;
    };
    for (size_t i = 0; i <= n; ++i) {
      for (; bad < piece_.bad_positions.size() && piece_.bad_positions[bad] == i; ++bad) {
        id();
        writer_->WriteBad();
      }
      if (i == n) break;
      id();
      writer_->Write(scores_[i]);
    }
  }

  const PredictOptions& options_;
  Predictor* const predictor_;
  const DataSource* const source_;
  ScoreWriter* const writer_;
  PredictSummary summary_;
  ExampleStream::Piece piece_;
  Batch batch_;
  std::vector<float> scores_;
};

bool ReadsStandardInput(const PredictOptions& options) {
  return std::count(options.data_files.begin(), options.data_files.end(), "-") > 0;
}

absl::Status CheckOptions(const PredictOptions& options) {
  if (options.worker_num < 1 || options.part < -1 || options.part >= options.worker_num) {
    return absl::InvalidArgumentError(
        absl::StrCat("predict: part ", options.part, " of ", options.worker_num,
                     " does not exist; parts are 0 to worker_num - 1, or -1 for all"));
  }
  if (options.data_files.empty()) {
    return absl::InvalidArgumentError("predict: no data file; give --data=FILE");
  }
  if (ReadsStandardInput(options) && options.data_files.size() > 1) {
    return absl::InvalidArgumentError(
        "predict: --data=- (standard input) cannot be combined with files; give one or the other");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status FixInput(PredictOptions* options) {
  if (ReadsStandardInput(*options)) return absl::OkStatus();
  std::vector<std::string> paths;
  for (const std::string& pattern : options->data_files) {
    google::protobuf::RepeatedPtrField<std::string> one;
    *one.Add() = pattern;
    SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> found,
                            ExpandFiles(one, Env::Real(), "the working folder"));
    paths.insert(paths.end(), found.begin(), found.end());
  }
  SLUICE_ASSIGN_OR_RETURN(options->seen, DataFiles::SeeForPrediction(paths));
  options->data_files = std::move(paths);
  return absl::OkStatus();
}

absl::Status CheckScored(const PredictOptions& options, const PredictSummary& summary) {
  const uint64_t bad = summary.bad.count;
  const uint64_t most = options.max_bad_lines.value_or(summary.max_bad_lines);
  if (bad > most) {
    return absl::FailedPreconditionError(absl::StrCat(
        summary.bad.Describe(), "; that is more than ",
        options.max_bad_lines ? "--max_bad_lines " : "data.max_bad_lines of the model's job, ",
        most, "; correct the data, or raise --max_bad_lines"));
  }
  if (summary.examples > 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      bad > 0
          ? absl::StrCat("no line could be parsed: ", summary.bad.Describe(),
                         "; check that --data has the format of the model's job")
          : "--data has no lines to score; check that it is the right file and that the program "
            "that writes it succeeded");
}

absl::StatusOr<PredictSummary> PredictFile(const PredictOptions& given) {
  PredictOptions options = given;
  SLUICE_RETURN_IF_ERROR(CheckOptions(options));
  if (options.seen == nullptr) SLUICE_RETURN_IF_ERROR(FixInput(&options));
  SLUICE_ASSIGN_OR_RETURN(const auto predictor, Predictor::Load(options.model_dir, options.threads,
                                                                BuiltInModels(), options.env));
  SLUICE_ASSIGN_OR_RETURN(const auto source,
                          DataSource::Create(predictor->job().data(), predictor->model().schema()));
  source->Expect(options.seen);
  std::vector<InputFile> files = {{"", 0, UINT64_MAX}};
  if (!ReadsStandardInput(options)) {
    SLUICE_ASSIGN_OR_RETURN(files, ListInput(options.data_files, *source));
  }
  // The lines that start in [begin, end) of all texts.
  const uint64_t total = files.back().end, parts = options.worker_num;
  const auto border = [&](uint64_t part) {
    return static_cast<uint64_t>(static_cast<unsigned __int128>(total) * part / parts);
  };
  const uint64_t begin = options.part < 0 ? 0 : border(options.part);
  const uint64_t end = options.part < 0 ? total : border(options.part + 1);

  ScoreWriter writer;
  SLUICE_RETURN_IF_ERROR(writer.Open(options));
  FilePrediction prediction(options, predictor.get(), source.get(), &writer);
  for (const InputFile& file : files) {
    const uint64_t from = std::max(begin, file.begin), to = std::min(end, file.end);
    if (from < to)
      SLUICE_RETURN_IF_ERROR(prediction.Run(file.path, from - file.begin, to - file.begin));
  }
  PredictSummary summary = prediction.TakeSummary();
  summary.max_bad_lines = predictor->job().data().max_bad_lines();
  if (options.part < 0) SLUICE_RETURN_IF_ERROR(CheckScored(options, summary));
  SLUICE_RETURN_IF_ERROR(writer.Close());
  return summary;
}

}  // namespace sluice
