#include "model/predict_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/local_path.h"
#include "common/base/mutex.h"
#include "common/base/output_target.h"
#include "common/base/status_macros.h"
#include "common/daemon/leftover_files.h"
#include "model/built_in_models.h"
#include "model/data/expand_files.h"
#include "model/predictor.h"

namespace sluice {
namespace {

// Bytes of text that a thread reads and scores at a time.
constexpr uint64_t kPieceBytes = 1 << 20;
// Pieces for each thread that are read but not written. More than one, so that a thread that is
// ahead of the others need not wait for them after each piece.
constexpr uint64_t kPiecesAhead = 3;

// "nan", or a probability as "%.9g".
bool IsScore(absl::string_view text) {
  if (text == "nan") return true;
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(c) || c == '.' || c == 'e' || c == '-';
  });
  double value = 0;
  return plain && absl::SimpleAtod(text, &value) && value >= 0 && value <= 1;
}

// Returns whether the file is empty, or each complete line in its first bytes is a score, with or
// without an id before it.
bool HoldsScores(const std::string& path) {
  constexpr uint64_t kHeadBytes = 64 << 10;
  const auto head = Env::Real()->ReadRange(path, 0, kHeadBytes);
  if (!head.ok()) return false;
  const size_t end = head->rfind('\n');
  if (end == std::string::npos) return head->empty();
  for (const absl::string_view line : absl::StrSplit(head->substr(0, end), '\n')) {
    if (!IsScore(line.substr(line.rfind('\t') + 1))) return false;  // npos + 1 is 0
  }
  return true;
}

// The output: a file that appears only when it is complete, or a pipe or device that is written
// directly. Opening the file removes the leftovers of killed runs with the same output.
class ScoreWriter {
 public:
  ScoreWriter() = default;
  ~ScoreWriter() {
    if (file_ == nullptr) return;  // nothing was opened, or an object of a store
    std::fclose(file_);
    if (written_ != path_) std::remove(written_.c_str());
  }

  absl::Status Open(const PredictOptions& options) {
    replace_ = options.replace;
    if (HasScheme(options.output_file)) {
      path_ = options.output_file;
      SLUICE_ASSIGN_OR_RETURN(remote_, options.env->StartFile(path_));
      return absl::OkStatus();
    }
    const bool standard = options.output_file == kStandardOutput;
    const OutputTarget target = standard ? OutputTarget{options.output_file, /*in_place=*/true}
                                         : ResolveOutput(options.output_file);
    path_ = target.path;
    written_ = target.in_place ? path_ : UnfinishedName(path_);
    if (standard) {
      // Not /dev/stdout: a file that is opened again would be written from its begin.
      const int fd = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
      if (fd >= 0) file_ = ::fdopen(fd, "wb");
    } else if (target.in_place) {
      file_ = std::fopen(written_.c_str(), "wb");
    } else {
      SLUICE_ASSIGN_OR_RETURN(const int fd, CreateUnfinished(written_, path_));
      // Held until the file is closed. Some file systems have no locks: then only the pid protects
      // the file from RemoveLeftovers.
      ::flock(fd, LOCK_EX | LOCK_NB);
      file_ = ::fdopen(fd, "wb");
      // First, because they may have filled the disk.
      RemoveLeftovers(path_, &HoldsScores);
    }
    return file_ != nullptr ? absl::OkStatus() : Failed("cannot open");
  }
  // Flushes an output that is written directly, so that its reader gets the scores now.
  absl::Status Append(const std::string& text) {
    if (remote_ != nullptr) return remote_->Append(text);
    bool written = std::fwrite(text.data(), 1, text.size(), file_) == text.size();
    if (written && written_ == path_) written = std::fflush(file_) == 0;
    return written ? absl::OkStatus() : Failed("cannot write");
  }
  absl::Status Close() {
    if (remote_ != nullptr) return remote_->Finish();
    // An error here leaves the file to the destructor, which removes it.
    if (std::fflush(file_) != 0) return Failed("cannot write");
    absl::Status finished;
    if (std::fclose(std::exchange(file_, nullptr)) != 0) finished = Failed("cannot finish");
    if (written_ == path_) return finished;
    if (finished.ok()) finished = PutInPlace(written_, path_, replace_);
    if (!finished.ok()) std::remove(written_.c_str());
    return finished;
  }

 private:
  absl::Status Failed(absl::string_view what) const {
    return absl::InternalError(absl::StrCat(what, " the output file ", path_, ": ",
                                            std::strerror(errno),
                                            "; check its folder and free space"));
  }

  std::string path_, written_;
  std::FILE* file_ = nullptr;
  std::unique_ptr<NewFile> remote_;  // instead of the file, for an object of a store
  bool replace_ = true;
};

// The lines of all files, or of standard input, one after another.
class PredictInput {
 public:
  // `source` must outlive the input. An empty path is standard input.
  PredictInput(const DataSource* source, std::vector<std::string> paths, std::string id_column)
      : source_(*source), paths_(std::move(paths)), id_column_(std::move(id_column)) {}

  // Fills *text with lines of one file, and sets *stream to the stream that can parse them. False
  // at the end.
  absl::StatusOr<bool> Read(ExampleStream::Text* text, std::shared_ptr<ExampleStream>* stream) {
    while (stream_ != nullptr || next_path_ < paths_.size()) {
      if (stream_ == nullptr) {
        ExampleStream::Options options;
        options.path = paths_[next_path_++];
        options.id_column = id_column_;
        SLUICE_ASSIGN_OR_RETURN(stream_, source_.OpenStream(options));
      }
      SLUICE_ASSIGN_OR_RETURN(const bool more, stream_->Read(kPieceBytes, text));
      if (more) {
        *stream = stream_;
        return true;
      }
      stream_ = nullptr;
    }
    return false;
  }

 private:
  const DataSource& source_;
  const std::vector<std::string> paths_;
  const std::string id_column_;
  size_t next_path_ = 0;
  std::shared_ptr<ExampleStream> stream_;  // null: between two files
};

// The scores of one piece of text.
struct ScoredPiece {
  absl::Status status;
  std::string text;  // lines of the output
  PredictSummary summary;
};

// The id as one field of a line: one with a tab, a line end or a quote in it is quoted as in CSV.
void AppendId(absl::string_view id, std::string* text) {
  if (id.find_first_of("\t\n\r\"") == absl::string_view::npos) {
    absl::StrAppend(text, id);
  } else {
    absl::StrAppend(text, "\"", absl::StrReplaceAll(id, {{"\"", "\"\""}}), "\"");
  }
}

// Parses and scores pieces. Its buffers are reused for all of them.
//
// Thread safety: one thread.
class PieceScorer {
 public:
  PieceScorer(std::unique_ptr<Predictor::Scorer> scorer, bool ids)
      : scorer_(std::move(scorer)), ids_(ids) {}

  // `stream` has read `text`.
  ScoredPiece Score(const std::shared_ptr<ExampleStream>& stream, ExampleStream::Text* text) {
    if (stream != stream_) {
      parser_ = stream->NewParser();
      stream_ = stream;  // a parser must not outlive its stream
    }
    ScoredPiece scored;
    scored.status = parser_->Parse(text, &piece_, &scored.summary.bad);
    if (scored.status.ok()) scored.status = Compute();
    scored.summary.examples = piece_.examples.n;
    if (scored.status.ok()) Print(&scored.text);
    return scored;
  }

 private:
  absl::Status Compute() {
    const Batch& examples = piece_.examples;
    scores_.resize(examples.n);
    for (size_t first = 0; first < examples.n; first += Predictor::kBatch) {
      batch_.Reset(examples.num_numeric, examples.num_slots);
      const size_t last = std::min(first + Predictor::kBatch, examples.n);
      for (size_t i = first; i < last; ++i) SLUICE_RETURN_IF_ERROR(batch_.Append(examples, i, i));
      SLUICE_RETURN_IF_ERROR(scorer_->Score(batch_, scores_.data() + first));
    }
    return absl::OkStatus();
  }

  // Puts the bad lines back between the examples.
  void Print(std::string* text) const {
    size_t bad = 0, line = 0;
    const auto print = [&](const char* score) {
      if (ids_) {
        AppendId(piece_.ids[line], text);
        text->push_back('\t');
      }
      absl::StrAppend(text, score, "\n");
      ++line;
    };
    for (size_t i = 0; i <= piece_.examples.n; ++i) {
      for (; bad < piece_.bad_positions.size() && piece_.bad_positions[bad] == i; ++bad)
        print("nan");
      if (i == piece_.examples.n) break;
      char score[32];
      std::snprintf(score, sizeof score, "%.9g", static_cast<double>(scores_[i]));
      print(score);
    }
  }

  std::unique_ptr<Predictor::Scorer> scorer_;
  bool ids_;
  std::shared_ptr<ExampleStream> stream_;  // of parser_
  std::unique_ptr<ExampleStream::Parser> parser_;
  ExampleStream::Piece piece_;
  Batch batch_;
  std::vector<float> scores_;
};

// Threads that take pieces of the input in turn, score them, and write them in the order of the
// input. No thread only reads or only writes. A thread without a piece reads the next one. The
// thread that finishes the piece that is due writes it, and those behind it that are done.
//
// Invariants: a piece is due when all pieces before it are written, so the first error that is met
// is the one that is earliest in the input.
//
// Memory: kPiecesAhead pieces for each thread.
class Prediction {
 public:
  // All arguments must outlive the prediction.
  Prediction(const PredictOptions* options, PredictInput* input, ScoreWriter* writer)
      : options_(*options),
        most_ahead_(kPiecesAhead * static_cast<uint64_t>(options->worker_num)),
        input_(*input),
        writer_(*writer) {}

  // Runs one thread for each scorer; the caller's is the first of them.
  absl::StatusOr<PredictSummary> Run(std::vector<PieceScorer>* scorers) {
    std::vector<std::thread> threads;
    absl::Status started;
    for (size_t i = 1; started.ok() && i < scorers->size(); ++i) {
      try {
        threads.emplace_back([this, scorer = &(*scorers)[i]] { Work(scorer); });
      } catch (const std::system_error& error) {
        started = absl::ResourceExhaustedError(
            absl::StrCat("cannot start thread ", i + 1, " of ", scorers->size(), ": ", error.what(),
                         "; raise the limit of processes (ulimit -u), or give fewer workers"));
      }
    }
    if (started.ok()) {
      Work(&scorers->front());
    } else {
      Stop();
    }
    for (std::thread& thread : threads) thread.join();
    SLUICE_RETURN_IF_ERROR(started);
    MutexLock lock(&mutex_);
    SLUICE_RETURN_IF_ERROR(error_);
    return std::move(total_);
  }

 private:
  void Work(PieceScorer* scorer) {
    ExampleStream::Text text;
    std::shared_ptr<ExampleStream> stream;
    uint64_t number = 0;
    while (true) {
      const absl::StatusOr<bool> more = Read(&text, &stream, &number);
      if (!more.ok()) {
        ScoredPiece failed;
        failed.status = more.status();
        return Deliver(number, std::move(failed));
      }
      if (!*more) return;
      Deliver(number, scorer->Score(stream, &text));
    }
  }

  // Reads piece `number` when there is room for it. False when there is nothing more to read.
  absl::StatusOr<bool> Read(ExampleStream::Text* text, std::shared_ptr<ExampleStream>* stream,
                            uint64_t* number) {
    // Held while reading: the order in which pieces are read gives them their numbers.
    MutexLock reading(&input_mutex_);
    {
      MutexLock lock(&mutex_);
      while (!stopped_ && read_ - written_ >= most_ahead_) changed_.Wait(&mutex_);
      if (stopped_) return false;
      *number = read_++;
    }
    const absl::StatusOr<bool> more = input_.Read(text, stream);
    if (!more.ok() || !*more) Stop();
    return more;
  }

  void Stop() {
    MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.NotifyAll();
  }

  // Hands over a piece. If it is due, this thread writes it, and then all others that become due.
  // Output is written without mutex_, so that a slow reader of it does not hold up the other
  // threads.
  void Deliver(uint64_t number, ScoredPiece scored) {
    // Pieces read after a failed one would never be written.
    if (!scored.status.ok()) Stop();
    {
      MutexLock lock(&mutex_);
      waiting_[number] = std::move(scored);
      if (writing_) return;
      writing_ = true;
    }
    ScoredPiece due;
    while (TakeDue(&due)) EndPiece(Write(due));
  }

  bool TakeDue(ScoredPiece* due) {
    MutexLock lock(&mutex_);
    const auto first = waiting_.find(written_);
    writing_ = error_.ok() && first != waiting_.end();
    if (!writing_) return false;
    *due = std::move(first->second);
    waiting_.erase(first);
    return true;
  }

  absl::Status Write(const ScoredPiece& due) {
    SLUICE_RETURN_IF_ERROR(due.status);
    SLUICE_RETURN_IF_ERROR(writer_.Append(due.text));
    total_.examples += due.summary.examples;
    total_.bad.Merge(due.summary.bad);
    if (options_.progress) options_.progress(total_.examples + total_.bad.count);
    return absl::OkStatus();
  }

  void EndPiece(absl::Status status) {
    MutexLock lock(&mutex_);
    ++written_;
    if (!status.ok()) {
      error_ = std::move(status);
      stopped_ = true;
    }
    changed_.NotifyAll();
  }

  const PredictOptions& options_;
  const uint64_t most_ahead_;
  // Lock order: input_mutex_ before mutex_.
  Mutex input_mutex_;
  PredictInput& input_ ABSL_GUARDED_BY(input_mutex_);
  // The writer and the total belong to the thread that has set writing_, and after the threads to
  // Run; mutex_ orders their changes.
  ScoreWriter& writer_;
  PredictSummary total_;
  Mutex mutex_;
  CondVar changed_;                                                  // written_ or stopped_
  uint64_t read_ ABSL_GUARDED_BY(mutex_) = 0;                        // number of the next piece
  uint64_t written_ ABSL_GUARDED_BY(mutex_) = 0;                     // number of the piece due
  std::map<uint64_t, ScoredPiece> waiting_ ABSL_GUARDED_BY(mutex_);  // by number
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;                     // a thread writes
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;                     // nothing more is read
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

bool ReadsStandardInput(const PredictOptions& options) {
  return std::count(options.data_files.begin(), options.data_files.end(), "-") > 0;
}

absl::Status CheckOptions(const PredictOptions& options) {
  if (options.worker_num < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("predict: worker_num is ", options.worker_num, "; give 1 or more"));
  }
  if (options.data_files.empty()) {
    return absl::InvalidArgumentError("predict: no data file; give --data=FILE");
  }
  if (!ReadsStandardInput(options)) return absl::OkStatus();
  if (options.data_files.size() > 1) {
    return absl::InvalidArgumentError(
        "predict: --data=- (standard input) cannot be combined with files; give one or the other");
  }
  // With several threads, an error could wait for ever behind a thread that waits for input.
  if (options.worker_num > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--worker_num=", options.worker_num,
                     " with --data=-: standard input is read and scored by one thread; leave "
                     "--worker_num out, or give a file"));
  }
  return absl::OkStatus();
}

// All files are checked before the first one is scored.
absl::Status CheckFiles(const std::vector<std::string>& paths, const DataSource& source) {
  for (const std::string& path : paths) {
    // If the file has changed, that explains wrong columns, so that error is returned first.
    const absl::Status columns = source.CheckColumns(path, /*need_label=*/false);
    SLUICE_RETURN_IF_ERROR(source.CheckUnchanged(path));
    SLUICE_RETURN_IF_ERROR(columns);
  }
  return absl::OkStatus();
}

// Whether the scores may be used. `max_bad_lines` is the limit of the model's job.
absl::Status CheckScored(const PredictOptions& options, uint64_t max_bad_lines,
                         const PredictSummary& summary) {
  const uint64_t bad = summary.bad.count;
  const uint64_t most = options.max_bad_lines.value_or(max_bad_lines);
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

}  // namespace

absl::Status FixInput(PredictOptions* options) {
  if (ReadsStandardInput(*options)) return absl::OkStatus();
  std::vector<std::string> paths;
  // Who names a file twice gets its scores twice.
  ExpandLimits limits;
  limits.keep_aliases = true;
  for (const std::string& pattern : options->data_files) {
    google::protobuf::RepeatedPtrField<std::string> one;
    *one.Add() = pattern;
    SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> found,
                            ExpandFiles(one, options->env, "the working folder", limits));
    paths.insert(paths.end(), found.begin(), found.end());
  }
  SLUICE_ASSIGN_OR_RETURN(options->seen, DataFiles::SeeForPrediction(paths, options->env));
  options->data_files = std::move(paths);
  return absl::OkStatus();
}

absl::StatusOr<PredictSummary> PredictFile(const PredictOptions& given) {
  PredictOptions options = given;
  SLUICE_RETURN_IF_ERROR(CheckOptions(options));
  if (options.seen == nullptr) SLUICE_RETURN_IF_ERROR(FixInput(&options));
  SLUICE_ASSIGN_OR_RETURN(const auto predictor,
                          Predictor::Load(options.model_dir, BuiltInModels(), options.env));
  SLUICE_ASSIGN_OR_RETURN(
      const auto source,
      DataSource::Create(predictor->job().data(), predictor->model().schema(), options.env));
  source->Expect(options.seen);
  std::vector<std::string> paths = {""};
  if (!ReadsStandardInput(options)) {
    paths = options.data_files;
    SLUICE_RETURN_IF_ERROR(CheckFiles(paths, *source));
  }
  std::vector<PieceScorer> scorers;
  for (int i = 0; i < options.worker_num; ++i) {
    SLUICE_ASSIGN_OR_RETURN(auto scorer, predictor->NewScorer(options.net_threads));
    scorers.emplace_back(std::move(scorer), !options.id_column.empty());
  }

  ScoreWriter writer;
  SLUICE_RETURN_IF_ERROR(writer.Open(options));
  PredictInput input(source.get(), std::move(paths), options.id_column);
  SLUICE_ASSIGN_OR_RETURN(PredictSummary summary,
                          Prediction(&options, &input, &writer).Run(&scorers));
  SLUICE_RETURN_IF_ERROR(CheckScored(options, predictor->job().data().max_bad_lines(), summary));
  SLUICE_RETURN_IF_ERROR(writer.Close());
  return summary;
}

}  // namespace sluice
