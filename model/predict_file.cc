#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/status_macros.h"
#include "model/predictor.h"

namespace sluice {
namespace {

// Text read and scored at a time.
constexpr uint64_t kPieceBytes = 1 << 20;

// The output: a file that appears whole, or a pipe or device written as it is.
class ScoreWriter {
 public:
  ScoreWriter() = default;
  ~ScoreWriter() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    if (written_ != path_) std::remove(written_.c_str());
  }

  absl::Status Open(const std::string& path) {
    const OutputTarget target = ResolveOutput(path);
    path_ = target.path;
    written_ = target.in_place ? path_ : path_ + kUnfinishedSuffix;
    file_ = std::fopen(written_.c_str(), "wb");
    return file_ != nullptr ? absl::OkStatus() : Failed("cannot open");
  }
  void Write(float score) {
    failed_ |= std::fprintf(file_, "%.9g\n", static_cast<double>(score)) < 0;
  }
  void WriteBad() { failed_ |= std::fputs("nan\n", file_) < 0; }
  absl::Status Close() {
    failed_ |= std::fflush(file_) != 0;
    const absl::Status status = failed_ ? Failed("cannot write") : absl::OkStatus();
    if (!status.ok()) return status;  // the destructor removes the file
    failed_ = std::fclose(std::exchange(file_, nullptr)) != 0;
    if (failed_ || (written_ != path_ && std::rename(written_.c_str(), path_.c_str()) != 0)) {
      const absl::Status why = Failed("cannot finish");
      if (written_ != path_) std::remove(written_.c_str());
      return why;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Failed(absl::string_view what) const {
    return absl::InternalError(absl::StrCat(what, " the output file ", written_, ": ",
                                            std::strerror(errno), "; check its folder and space"));
  }

  std::string path_, written_;
  std::FILE* file_ = nullptr;
  bool failed_ = false;
};

struct InputFile {
  std::string path;
  uint64_t begin = 0, end = 0;  // of its text, within all texts
};

absl::StatusOr<std::vector<InputFile>> ListInput(const PredictOptions& options,
                                                 const DataSource& source) {
  std::vector<InputFile> files;
  uint64_t total = 0;
  for (const std::string& pattern : options.data_files) {
    google::protobuf::RepeatedPtrField<std::string> one;
    *one.Add() = pattern;
    SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                            ExpandFiles(one, "the working folder"));
    for (const std::string& path : paths) {
      // Of all files before the first is scored.
      SLUICE_RETURN_IF_ERROR(source.CheckColumns(path, /*need_label=*/false));
      SLUICE_ASSIGN_OR_RETURN(const uint64_t bytes, source.TextBytes(path));
      files.push_back({path, total, total + bytes});
      total += bytes;
    }
  }
  return files;
}

// Reads, scores and writes; its buffers live as long as the file.
class FilePrediction {
 public:
  FilePrediction(Predictor* predictor, const DataSource* source, ScoreWriter* writer)
      : predictor_(predictor), source_(source), writer_(writer) {
    summary_.bad.positions = &bad_positions_;
  }

  // Lines of the file that start in [begin, end).
  absl::Status Run(const std::string& path, uint64_t begin, uint64_t end) {
    for (; begin < end; begin += std::min(end - begin, kPieceBytes)) {
      SLUICE_RETURN_IF_ERROR(RunPiece(path, begin, begin + std::min(end - begin, kPieceBytes)));
    }
    return absl::OkStatus();
  }
  PredictSummary TakeSummary() {
    summary_.bad.positions = nullptr;
    return std::move(summary_);
  }

 private:
  absl::Status RunPiece(const std::string& path, uint64_t begin, uint64_t end) {
    const FeatureSchema& schema = *predictor_->model().schema();
    examples_.Reset(schema.numerics().size(), schema.slots().size());
    bad_positions_.clear();
    SLUICE_RETURN_IF_ERROR(
        source_->ReadPiece(path, begin, end, /*need_label=*/false, &examples_, &summary_.bad));
    scores_.resize(examples_.n);
    for (size_t first = 0; first < examples_.n; first += Predictor::kBatch) {
      batch_.Reset(examples_.num_numeric, examples_.num_slots);
      const size_t last = std::min(first + Predictor::kBatch, examples_.n);
      for (size_t i = first; i < last; ++i) batch_.Append(examples_, i, i);
      SLUICE_RETURN_IF_ERROR(predictor_->Score(batch_, scores_.data() + first));
    }
    size_t bad = 0;
    for (size_t i = 0; i <= examples_.n; ++i) {
      for (; bad < bad_positions_.size() && bad_positions_[bad] == i; ++bad) writer_->WriteBad();
      if (i < examples_.n) writer_->Write(scores_[i]);
    }
    summary_.examples += examples_.n;
    return absl::OkStatus();
  }

  Predictor* const predictor_;
  const DataSource* const source_;
  ScoreWriter* const writer_;
  PredictSummary summary_;
  Batch examples_, batch_;
  std::vector<float> scores_;
  std::vector<uint64_t> bad_positions_;
};

}  // namespace

OutputTarget ResolveOutput(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr int kMostLinks = 40;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) return {path, true};
  fs::path target = path;
  for (int i = 0; i < kMostLinks && fs::is_symlink(fs::symlink_status(target, error)); ++i) {
    const fs::path to = fs::read_symlink(target, error);
    if (error) break;
    target = to.is_absolute() ? to : target.parent_path() / to;
  }
  // A link of /proc to a file that has no name any more.
  if (fs::exists(status) && !fs::equivalent(path, target, error)) return {path, true};
  return {target.string(), false};
}

absl::StatusOr<PredictSummary> PredictFile(const PredictOptions& options) {
  if (options.worker_num < 1 || options.part < -1 || options.part >= options.worker_num) {
    return absl::InvalidArgumentError(
        absl::StrCat("predict: part ", options.part, " of ", options.worker_num,
                     " does not exist; parts are 0 to worker_num - 1, or -1 for all"));
  }
  if (options.data_files.empty()) {
    return absl::InvalidArgumentError("predict: no data file; give --data=FILE");
  }
  SLUICE_ASSIGN_OR_RETURN(const auto predictor,
                          Predictor::Load(options.model_dir, options.threads));
  SLUICE_ASSIGN_OR_RETURN(const auto source,
                          DataSource::Create(predictor->job().data(), predictor->model().schema()));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<InputFile> files, ListInput(options, *source));
  // The lines that start in [begin, end) of all texts.
  const uint64_t total = files.back().end, parts = options.worker_num;
  const auto border = [&](uint64_t part) {
    return static_cast<uint64_t>(static_cast<unsigned __int128>(total) * part / parts);
  };
  const uint64_t begin = options.part < 0 ? 0 : border(options.part);
  const uint64_t end = options.part < 0 ? total : border(options.part + 1);

  ScoreWriter writer;
  SLUICE_RETURN_IF_ERROR(writer.Open(options.output_file));
  FilePrediction prediction(predictor.get(), source.get(), &writer);
  for (const InputFile& file : files) {
    const uint64_t from = std::max(begin, file.begin), to = std::min(end, file.end);
    if (from < to)
      SLUICE_RETURN_IF_ERROR(prediction.Run(file.path, from - file.begin, to - file.begin));
  }
  SLUICE_RETURN_IF_ERROR(writer.Close());
  PredictSummary summary = prediction.TakeSummary();
  summary.max_bad_lines = predictor->job().data().max_bad_lines();
  return summary;
}

}  // namespace sluice
