#include "model/data/click_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "common/base/output_target.h"
#include "common/base/status_macros.h"
#include "common/daemon/leftover_files.h"

namespace sluice {
namespace {

// Each chunk is a gzip member or zstd frame, so that threads can compress chunks of one file.
constexpr uint64_t kChunkExamples = 4096;

// A piece of one file, compressed on its own.
struct Chunk {
  size_t file = 0;
  uint64_t first = 0, count = 0;
  bool opens = false, closes = false;  // the first or last chunk of its file
};

std::vector<Chunk> CutIntoChunks(const ClickFiles& files) {
  std::vector<Chunk> chunks;
  const uint64_t n = files.examples, k = files.paths.size();
  for (uint64_t f = 0; f < k; ++f) {
    uint64_t at = n / k * f + std::min(f, n % k);
    const uint64_t end = at + n / k + (f < n % k ? 1 : 0);
    // At least one chunk, so that a file without examples is made too.
    bool opens = true;
    do {
      const uint64_t count = std::min(kChunkExamples, end - at);
      chunks.push_back({f, files.skip + at, count, opens, at + count == end});
      at += count;
      opens = false;
    } while (at < end);
  }
  return chunks;
}

absl::Status Gzip(const std::string& text, std::string* out) {
  z_stream stream{};
  // Level 1: the data is random, so more effort gains little.
  if (deflateInit2(&stream, 1, Z_DEFLATED, 16 + 15, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    return absl::ResourceExhaustedError("not enough memory to compress");
  out->resize(deflateBound(&stream, text.size()));
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(&(*out)[0]);
  stream.avail_out = static_cast<uInt>(out->size());
  const int result = deflate(&stream, Z_FINISH);
  out->resize(out->size() - stream.avail_out);
  deflateEnd(&stream);
  if (result == Z_STREAM_END) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("gzip failed with ", result));
}

absl::Status Zstd(const std::string& text, std::string* out) {
  out->resize(ZSTD_compressBound(text.size()));
  const size_t size = ZSTD_compress(&(*out)[0], out->size(), text.data(), text.size(), 1);
  if (ZSTD_isError(size))
    return absl::InternalError(absl::StrCat("zstd failed: ", ZSTD_getErrorName(size)));
  out->resize(size);
  return absl::OkStatus();
}

// Returns whether the file is empty, or begins as these files do.
bool HoldsClicks(const std::string& path) {
  const auto head = Env::Real()->ReadRange(path, 0, 4);
  if (!head.ok()) return false;
  for (const char* const begin : {"0\t", "1\t", "\x1F\x8B", "\x28\xB5\x2F\xFD"}) {
    if (absl::StartsWith(*head, begin)) return true;
  }
  return head->empty();
}

// Writes files in order, one open at a time.
//
// Thread safety: one thread. Writers passes it from thread to thread.
class FileSeries {
 public:
  explicit FileSeries(const ClickFiles& files) : files_(files) {}
  ~FileSeries() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    // After an error: an unfinished file is of no use.
    if (!in_place_) std::remove(written_.c_str());
  }

  absl::Status Write(const Chunk& chunk, const std::string& bytes) {
    if (chunk.opens) SLUICE_RETURN_IF_ERROR(Open(files_.paths[chunk.file]));
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) return Failed("write");
    if (!chunk.closes) return absl::OkStatus();
    if (std::fflush(file_) != 0) return Failed("write");
    // Null also when closing fails, since a stream must not be closed twice.
    const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
    absl::Status status = closed ? absl::OkStatus() : Failed("finish");
    if (status.ok() && !in_place_) status = PutInPlace(written_, path_, files_.replace);
    if (status.ok() && !in_place_ && files_.on_finished) files_.on_finished(chunk.file);
    if (status.ok()) return status;
    if (!in_place_) std::remove(written_.c_str());
    return status;
  }

 private:
  absl::Status Open(const std::string& path) {
    const bool standard = path == kStandardOutput;
    OutputTarget target = standard ? OutputTarget{path, /*in_place=*/true} : ResolveOutput(path);
    in_place_ = target.in_place;
    path_ = std::move(target.path);
    written_ = in_place_ ? path_ : UnfinishedName(path_);
    if (standard) {
      // Not /dev/stdout: a file that is opened again would be written from its begin.
      const int fd = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
      if (fd >= 0) file_ = ::fdopen(fd, "wb");
    } else if (in_place_) {
      file_ = std::fopen(written_.c_str(), "wb");
    } else {
      SLUICE_ASSIGN_OR_RETURN(const int fd, CreateUnfinished(written_, path_));
      // Held until the file is closed, so that no other run takes it for a leftover.
      ::flock(fd, LOCK_EX | LOCK_NB);
      file_ = ::fdopen(fd, "wb");
      // First, because they may have filled the disk.
      RemoveLeftovers(path_, &HoldsClicks);
    }
    return file_ != nullptr ? absl::OkStatus() : Failed("open");
  }
  absl::Status Failed(const char* action) const {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", action, " ", written_,
                                                   "; check its folder and the free space"));
  }

  const ClickFiles& files_;
  std::string path_, written_;  // of the open file
  bool in_place_ = false;
  std::FILE* file_ = nullptr;
};

class Writers {
 public:
  explicit Writers(const ClickFiles& files)
      : files_(files), generator_(files.data), chunks_(CutIntoChunks(files)), series_(files) {}

  absl::StatusOr<ClickSummary> Run() {
    std::vector<std::thread> threads;
    for (int i = 1; i < files_.threads; ++i) threads.emplace_back([this] { Work(); });
    Work();
    for (std::thread& thread : threads) thread.join();
    MutexLock lock(&mutex_);
    SLUICE_RETURN_IF_ERROR(status_);
    return summary_;
  }

 private:
  // Generates and compresses chunks. Each is written once all chunks before it are.
  void Work() {
    ClickSummary own;
    std::string text, packed;
    while (true) {
      size_t mine;
      {
        MutexLock lock(&mutex_);
        if (!status_.ok() || next_ == chunks_.size()) break;
        mine = next_++;
      }
      text.clear();
      generator_.Append(chunks_[mine].first, chunks_[mine].count, &text, &own.sums);
      own.text_bytes += text.size();
      absl::Status status;
      if (files_.compression == Compression::kGzip) status = Gzip(text, &packed);
      if (files_.compression == Compression::kZstd) status = Zstd(text, &packed);
      const std::string& bytes = files_.compression == Compression::kNone ? text : packed;
      own.file_bytes += bytes.size();
      // Generated and compressed in any order, but written in the order of the chunks: the bytes
      // are the same for any number of threads.
      if (!WaitForTurn(mine)) break;
      if (status.ok()) status = series_.Write(chunks_[mine], bytes);
      MutexLock lock(&mutex_);
      status_.Update(status);
      ++turn_;
      changed_.NotifyAll();
    }
    MutexLock lock(&mutex_);
    summary_.sums.Merge(own.sums);
    summary_.text_bytes += own.text_bytes;
    summary_.file_bytes += own.file_bytes;
  }

  // False when another thread has failed.
  bool WaitForTurn(size_t mine) {
    MutexLock lock(&mutex_);
    while (turn_ != mine && status_.ok()) changed_.Wait(&mutex_);
    return status_.ok();
  }

  const ClickFiles& files_;
  const ClickGenerator generator_;
  const std::vector<Chunk> chunks_;
  FileSeries series_;  // used by the thread whose turn it is

  Mutex mutex_;
  CondVar changed_;
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;  // the next chunk to generate
  size_t turn_ ABSL_GUARDED_BY(mutex_) = 0;  // the next chunk to write
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  ClickSummary summary_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

const char* SuffixOf(Compression compression) {
  return compression == Compression::kGzip   ? ".gz"
         : compression == Compression::kZstd ? ".zst"
                                             : "";
}

absl::StatusOr<ClickSummary> WriteClickFiles(const ClickFiles& files) {
  return Writers(files).Run();
}

}  // namespace sluice
