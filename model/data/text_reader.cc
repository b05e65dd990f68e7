#include "model/data/text_reader.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "model/data/text_form.h"

namespace sluice {
namespace {

constexpr size_t kInputBytes = 128 << 10;
constexpr size_t kMagicBytes = 4;  // begin every compressed format
constexpr size_t kSampleBytes = 64 << 10;

absl::Status FileError(const std::string& path, absl::string_view action, int error) {
  return absl::ErrnoToStatus(error, absl::StrCat("cannot ", action, " data file ", path));
}

absl::Status FileError(const std::string& path, absl::string_view action, const absl::Status& why) {
  return absl::Status(why.code(),
                      absl::StrCat("cannot ", action, " data file ", path, ": ", why.message()));
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Standard input, read in order.
class StandardInput : public FileReader {
 public:
  explicit StandardInput(FileDescriptor file) : FileReader(FileInfo()), file_(std::move(file)) {}
  absl::StatusOr<size_t> ReadAt(uint64_t, void* to, size_t n) override {
    while (true) {
      const ssize_t got = read(file_.get(), to, n);
      if (got >= 0) return static_cast<size_t>(got);
      const int error = errno;
      if (error != EINTR) return absl::Status(absl::ErrnoToStatusCode(error), std::strerror(error));
    }
  }

 private:
  FileDescriptor file_;
};

absl::StatusOr<size_t> ReadAt(FileReader* file, const std::string& path, uint64_t offset, void* to,
                              size_t n) {
  absl::StatusOr<size_t> got = file->ReadAt(offset, to, n);
  if (!got.ok()) return FileError(path, "read", got.status());
  return got;
}

// The bytes that a reader reads: at any offset of a file, or in order from a pipe.
class ByteSource {
 public:
  explicit ByteSource(std::unique_ptr<FileReader> file, bool in_order = false)
      : file_(std::move(file)), in_order_(in_order) {}

  // With `in_order`, each offset must be where the previous read ended. Only the bytes of Head may
  // be read once more.
  absl::StatusOr<size_t> ReadAt(const std::string& path, uint64_t offset, void* to, size_t n) {
    // The format was recognized from these bytes, which a pipe does not give twice.
    if (in_order_ && offset < head_.size()) {
      const size_t got = std::min<size_t>(n, head_.size() - offset);
      std::memcpy(to, head_.data() + offset, got);
      return got;
    }
    return sluice::ReadAt(file_.get(), path, offset, to, n);
  }
  void ExpectEnd(uint64_t offset) { file_->ExpectEnd(offset); }
  // A file that is near needs no plan.
  void ExpectPieces(std::vector<FileRange> pieces) {
    if (auto* const ranges = dynamic_cast<RangesReader*>(file_.get()))
      ranges->ExpectPieces(std::move(pieces));
  }

  // The first n bytes, or fewer if the source is shorter. Of a pipe, whose writer may wait for an
  // answer, what is there: kMagicBytes or more.
  absl::StatusOr<std::string> Head(const std::string& path, size_t n) {
    std::string head(n, '\0');
    size_t done = 0;
    while (done < (in_order_ ? kMagicBytes : n)) {
      SLUICE_ASSIGN_OR_RETURN(const size_t got, ReadAt(path, done, &head[done], n - done));
      if (got == 0) break;
      done += got;
      if (in_order_) head_.assign(head, 0, done);
    }
    head.resize(done);
    return head;
  }

 private:
  std::unique_ptr<FileReader> file_;
  const bool in_order_;
  std::string head_;  // with in_order_: the bytes that Head has read
};

absl::Status CheckIsFile(const std::string& path, const FileInfo& info) {
  // Reported apart from other kinds, because forgetting the pattern is the usual mistake.
  if (info.kind == FileInfo::Kind::kFolder) {
    return absl::InvalidArgumentError(
        absl::StrCat("data file ", path, " is a folder; write ", path, "/*"));
  }
  if (info.kind == FileInfo::Kind::kFile) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("data file ", path, " is not a regular file; copy its data to one"));
}

class PlainReader : public TextReader {
 public:
  PlainReader(std::string path, const FileIdentity& identity, ByteSource bytes)
      : TextReader(std::move(path), identity), bytes_(std::move(bytes)) {}
  bool compressed() const override { return false; }
  absl::Status SkipTo(uint64_t offset) override {
    // A plain file needs no reading to skip. Its size is that at the opening; bytes appended since
    // are not skipped over.
    offset_ = std::min(offset, std::max(identity_.size, offset_));
    return absl::OkStatus();
  }
  void ExpectEnd(uint64_t offset) override { bytes_.ExpectEnd(offset); }
  void ExpectPieces(std::vector<FileRange> pieces) override {
    bytes_.ExpectPieces(std::move(pieces));
  }

 private:
  absl::StatusOr<size_t> ReadSome(char* to, size_t n) override {
    return bytes_.ReadAt(path_, offset_, to, n);
  }

  ByteSource bytes_;
};

// Plain text from a pipe, read in order.
class PipeReader : public TextReader {
 public:
  PipeReader(std::string path, ByteSource bytes)
      : TextReader(std::move(path), FileIdentity()), bytes_(std::move(bytes)) {}
  bool compressed() const override { return false; }
  absl::Status SkipTo(uint64_t offset) override {
    char scratch[4096];
    while (offset_ < offset) {
      SLUICE_ASSIGN_OR_RETURN(const size_t got,
                              Read(scratch, std::min<uint64_t>(sizeof(scratch), offset - offset_)));
      if (got == 0) break;
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<size_t> ReadSome(char* to, size_t n) override {
    return bytes_.ReadAt(path_, offset_, to, n);
  }

  ByteSource bytes_;
};

// The common part of compressed formats: input in pieces, and skipping by decompressing.
class CompressedReader : public TextReader {
 public:
  bool compressed() const override { return true; }
  absl::Status SkipTo(uint64_t offset) override;

 protected:
  // `format`, such as "gzip", is also the name of the program that checks such files.
  CompressedReader(std::string path, const FileIdentity& identity, ByteSource bytes,
                   const char* format)
      : TextReader(std::move(path), identity),
        bytes_(std::move(bytes)),
        format_(format),
        input_(new unsigned char[kInputBytes]) {
    // Nobody knows where in the file an offset of the text is.
    bytes_.ExpectEnd(UINT64_MAX);
  }

  // Reads the next input to input() + `kept`; 0 at the end of the file.
  absl::StatusOr<size_t> NextInput(size_t kept = 0) {
    SLUICE_ASSIGN_OR_RETURN(
        const size_t got,
        bytes_.ReadAt(path_, file_offset_, input_.get() + kept, kInputBytes - kept));
    file_offset_ += got;
    return got;
  }
  unsigned char* input() const { return input_.get(); }
  absl::Status Truncated() const { return Failed("data is truncated"); }
  absl::Status Damaged(absl::string_view why) const {
    return Failed(absl::StrCat("data is damaged (", why, ")"));
  }

 private:
  absl::Status Failed(absl::string_view problem) const {
    return absl::DataLossError(absl::StrCat("data file ", path_, ": ", format_, " ", problem,
                                            " at text byte ", offset_, "; check it with ", format_,
                                            " -t"));
  }

  ByteSource bytes_;
  const char* const format_;
  const std::unique_ptr<unsigned char[]> input_;
  uint64_t file_offset_ = 0;  // next compressed byte to read
};

absl::Status CompressedReader::SkipTo(uint64_t offset) {
  const auto scratch = std::make_unique<char[]>(kInputBytes);
  while (offset_ < offset) {
    const size_t n = static_cast<size_t>(std::min<uint64_t>(kInputBytes, offset - offset_));
    SLUICE_ASSIGN_OR_RETURN(const size_t got, Read(scratch.get(), n));
    if (got == 0) break;
  }
  return absl::OkStatus();
}

class GzipReader : public CompressedReader {
 public:
  GzipReader(std::string path, const FileIdentity& identity, ByteSource bytes)
      : CompressedReader(std::move(path), identity, std::move(bytes), "gzip") {}
  ~GzipReader() override {
    if (ready_) inflateEnd(&stream_);
  }

 private:
  absl::StatusOr<size_t> ReadSome(char* to, size_t n) override;

  z_stream stream_{};
  bool ready_ = false;       // stream_ is initialized
  bool in_member_ = false;   // between the first byte of a member and its end
  bool any_member_ = false;  // a member has begun
};

absl::StatusOr<size_t> GzipReader::ReadSome(char* to, size_t n) {
  if (!ready_) {
    // 16 asks for a gzip header, 15 for the largest window.
    if (inflateInit2(&stream_, 16 + 15) != Z_OK)
      return absl::ResourceExhaustedError("not enough memory to decompress gzip");
    ready_ = true;
  }
  // zlib counts in 32 bits.
  n = std::min(n, size_t{1} << 30);
  stream_.next_out = reinterpret_cast<Bytef*>(to);
  stream_.avail_out = static_cast<uInt>(n);
  // Until some text arrives: input may be used up without giving any, and 0 would mean the end.
  while (stream_.avail_out == n) {
    if (stream_.avail_in == 0) {
      SLUICE_ASSIGN_OR_RETURN(const size_t got, NextInput());
      // Only the end of a member may be the end of the file.
      if (got == 0 && in_member_) return Truncated();
      if (got == 0) return 0;
      stream_.next_in = input();
      stream_.avail_in = static_cast<uInt>(got);
    }
    // Zeros fill the last block on tapes and some stores. Programs of gzip ignore them.
    if (!in_member_ && any_member_) {
      while (stream_.avail_in > 0 && *stream_.next_in == 0) ++stream_.next_in, --stream_.avail_in;
      if (stream_.avail_in == 0) continue;
    }
    in_member_ = any_member_ = true;
    const int result = inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      in_member_ = false;
      inflateReset(&stream_);  // keeps next_in and avail_in: the next member begins there
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      return Damaged(stream_.msg != nullptr ? stream_.msg : "zlib");
    }
  }
  return n - stream_.avail_out;
}

constexpr uint64_t kMostZstdWindow = 128 << 20;  // of the library, unless it is told otherwise

class ZstdReader : public CompressedReader {
 public:
  ZstdReader(std::string path, const FileIdentity& identity, ByteSource bytes)
      : CompressedReader(std::move(path), identity, std::move(bytes), "zstd"),
        stream_(ZSTD_createDStream()) {}
  ~ZstdReader() override { ZSTD_freeDStream(stream_); }

 private:
  absl::StatusOr<size_t> ReadSome(char* to, size_t n) override;
  // Begins the frame whose first bytes are in in_, or come next. False at the end of the file.
  absl::StatusOr<bool> BeginFrame();

  ZSTD_DStream* const stream_;
  ZSTD_inBuffer in_{};
  bool in_frame_ = false;      // a frame has begun and has more input or text to come
  uint64_t frame_begin_ = 0;   // where its text begins
  uint64_t frame_length_ = 0;  // of its text, as its header says, or ZSTD_CONTENTSIZE_UNKNOWN
};

absl::StatusOr<bool> ZstdReader::BeginFrame() {
  constexpr size_t kMostHeaderBytes = 18;  // RFC 8878, section 3.1.1
  size_t left = in_.size - in_.pos;
  while (left < kMostHeaderBytes) {
    // A frame's header may lie across two reads, and its length must be known at once.
    std::memmove(input(), input() + in_.pos, left);
    SLUICE_ASSIGN_OR_RETURN(const size_t got, NextInput(left));
    left += got;
    in_ = {input(), left, 0};
    if (got == 0) break;
  }
  frame_begin_ = offset_;
  frame_length_ = ZSTD_getFrameContentSize(input() + in_.pos, left);
  // An incomplete header is found by ZSTD_decompressStream.
  if (frame_length_ == ZSTD_CONTENTSIZE_ERROR) frame_length_ = ZSTD_CONTENTSIZE_UNKNOWN;
  return left > 0;
}

absl::StatusOr<size_t> ZstdReader::ReadSome(char* to, size_t n) {
  if (stream_ == nullptr)
    return absl::ResourceExhaustedError("not enough memory to decompress zstd");
  ZSTD_outBuffer out{to, n, 0};
  while (out.pos == 0) {
    if (!in_frame_) {
      SLUICE_ASSIGN_OR_RETURN(const bool more, BeginFrame());
      if (!more) return 0;
    }
    const size_t result = ZSTD_decompressStream(stream_, &out, &in_);
    if (ZSTD_isError(result) &&
        ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge) {
      return absl::InvalidArgumentError(absl::StrCat(
          "data file ", path(), ": its zstd window is larger than ", kMostZstdWindow >> 20,
          " MiB (zstd --long or --ultra), which is not read; compress it again: zstd -dc "
          "--long=31 ",
          path(), " | zstd > FILE.zst"));
    }
    if (ZSTD_isError(result)) return Damaged(ZSTD_getErrorName(result));
    in_frame_ = result != 0;
    // The library does not look at the length when the last block of a frame is empty.
    const uint64_t length = offset_ + out.pos - frame_begin_;
    if (!in_frame_ && frame_length_ != ZSTD_CONTENTSIZE_UNKNOWN && length != frame_length_) {
      return Damaged(
          absl::StrCat("a frame of ", frame_length_, " bytes of text has ", length, " of them"));
    }
    if (out.pos > 0 || !in_frame_ || in_.pos < in_.size) continue;
    // All input is used and gave no text, so the frame continues in the file.
    SLUICE_ASSIGN_OR_RETURN(const size_t got, NextInput());
    if (got == 0) return Truncated();
    in_ = {input(), got, 0};
  }
  return out.pos;
}

// Files of parallel zstd begin with a frame of metadata (RFC 8878, section 3.1.2).
bool BeginsSkippableFrame(const std::string& head) {
  return head.size() >= 4 && (static_cast<unsigned char>(head[0]) & 0xF0) == 0x50 &&
         head.compare(1, 3, "\x2a\x4d\x18") == 0;
}

// Returns null, and leaves *bytes untouched, when `head` does not begin a compressed format.
std::unique_ptr<TextReader> OpenCompressed(const std::string& path, const FileIdentity& identity,
                                           const std::string& head, ByteSource* bytes) {
  // By content and not by name: files without a suffix, or with a wrong one, are common.
  if (absl::StartsWith(head, "\x1f\x8b"))
    return std::make_unique<GzipReader>(path, identity, std::move(*bytes));
  if (absl::StartsWith(head, "\x28\xb5\x2f\xfd") || BeginsSkippableFrame(head))
    return std::make_unique<ZstdReader>(path, identity, std::move(*bytes));
  return nullptr;
}

}  // namespace

absl::StatusOr<FileIdentity> IdentifyFile(const std::string& path, Env* env) {
  const auto info = env->Look(path);
  if (!info.ok()) return FileError(path, "find", info.status());
  SLUICE_RETURN_IF_ERROR(CheckIsFile(path, *info));
  return info->identity;
}

namespace {

absl::StatusOr<std::unique_ptr<FileReader>> OpenFile(const std::string& path, Env* env) {
  auto file = env->NewReader(path);
  if (!file.ok()) return FileError(path, "open", file.status());
  SLUICE_RETURN_IF_ERROR(CheckIsFile(path, (*file)->info()));
  return file;
}

// True for a strong ETag, which tells contents apart on all hosts. Weak ones and times do not.
bool NamesContents(const std::string& tag) { return absl::StartsWith(tag, "\""); }

// Extends the CRC-32C *crc by at most kSampleBytes of the file from `offset`.
absl::Status ExtendSample(FileReader* file, const std::string& path, uint64_t offset,
                          uint32_t* crc) {
  std::vector<char> bytes(kSampleBytes);
  for (size_t done = 0; done < kSampleBytes;) {
    SLUICE_ASSIGN_OR_RETURN(const size_t got, ReadAt(file, path, offset + done, bytes.data() + done,
                                                     kSampleBytes - done));
    // The file may be shorter than a sample.
    if (got == 0) {
      bytes.resize(done);
      break;
    }
    done += got;
  }
  *crc = ExtendCrc32c(*crc, bytes.data(), bytes.size());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FileSample> SampleFile(const std::string& path, Env* env) {
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<FileReader> file, OpenFile(path, env));
  FileSample sample;
  sample.identity = file->info().identity;
  const uint64_t size = sample.identity.size;
  // A start looks at every file, and a request to a store lasts long.
  if (const std::string& tag = sample.identity.tag; NamesContents(tag)) {
    sample.crc32c = Crc32c(tag.data(), tag.size());
    return sample;
  }
  file->ExpectEnd(kSampleBytes);
  SLUICE_RETURN_IF_ERROR(ExtendSample(file.get(), path, 0, &sample.crc32c));
  // A short file is in the first part as a whole.
  if (size > kSampleBytes) {
    file->ExpectEnd(size);
    SLUICE_RETURN_IF_ERROR(ExtendSample(file.get(), path, size - kSampleBytes, &sample.crc32c));
  }
  return sample;
}

absl::StatusOr<size_t> TextReader::Read(char* to, size_t n) {
  SLUICE_ASSIGN_OR_RETURN(const size_t got, ReadSome(to, n));
  // The form of plain text was checked when it was opened.
  if (offset_ == 0 && compressed())
    SLUICE_RETURN_IF_ERROR(CheckTextForm(path_, {to, std::min(got, kTextFormBytes)}, json_));
  offset_ += got;
  return got;
}

absl::StatusOr<std::unique_ptr<TextReader>> TextReader::Open(const std::string& path, Env* env,
                                                             bool json) {
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<FileReader> file, OpenFile(path, env));
  const FileIdentity identity = file->info().identity;
  file->ExpectEnd(kTextFormBytes);
  ByteSource bytes(std::move(file));
  SLUICE_ASSIGN_OR_RETURN(const std::string head, bytes.Head(path, kTextFormBytes));
  if (auto compressed = OpenCompressed(path, identity, head, &bytes)) {
    compressed->json_ = json;
    return compressed;
  }
  SLUICE_RETURN_IF_ERROR(CheckTextForm(path, head, json));
  return std::unique_ptr<TextReader>(
      std::make_unique<PlainReader>(path, identity, std::move(bytes)));
}

absl::StatusOr<std::unique_ptr<TextReader>> TextReader::OpenStandardInput(bool json) {
  const std::string path = kStandardInput;
  // A duplicate, since closing the reader must not close standard input.
  FileDescriptor file(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));
  if (file.get() < 0) return FileError(path, "open", errno);
  ByteSource bytes(std::make_unique<StandardInput>(std::move(file)), /*in_order=*/true);
  SLUICE_ASSIGN_OR_RETURN(const std::string head, bytes.Head(path, kTextFormBytes));
  if (auto compressed = OpenCompressed(path, FileIdentity(), head, &bytes)) {
    compressed->json_ = json;
    return compressed;
  }
  const absl::Status form = CheckTextForm(path, head, json);
  if (!form.ok() && head.substr(0, 4) == "PAR1") {
    return absl::InvalidArgumentError(absl::StrCat(
        "data file ", path,
        " is a Parquet file, and those are read from their end; put it into a file and name that"));
  }
  SLUICE_RETURN_IF_ERROR(form);
  return std::unique_ptr<TextReader>(std::make_unique<PipeReader>(path, std::move(bytes)));
}

}  // namespace sluice
