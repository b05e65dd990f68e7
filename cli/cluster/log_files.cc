#include "cli/cluster/log_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice::cli {
namespace {

constexpr size_t kMostBytes = 64 << 20;  // of the lines of Tail
constexpr size_t kReadBytes = 256 << 10;
constexpr size_t kMostLineBytes = 1 << 20;  // a longer line is cut here

// The highest number among the older files of the log, 0 without any.
int HighestNumber(const std::string& path) {
  const std::filesystem::path name(path);
  const std::string prefix = name.filename().string() + ".";
  const std::string folder = name.has_parent_path() ? name.parent_path().string() : ".";
  int highest = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string file = entry.path().filename().string();
    int number = 0;
    if (absl::StartsWith(file, prefix) && absl::SimpleAtoi(file.substr(prefix.size()), &number)) {
      highest = std::max(highest, number);
    }
  }
  return highest;
}

}  // namespace

// One open file of a log, read from its begin on.
class LogReader::File {
 public:
  // Null: there is no such file.
  static std::unique_ptr<File> Open(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return nullptr;
    auto file = std::unique_ptr<File>(new File(fd));
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return nullptr;
    file->device_ = info.st_dev, file->inode_ = info.st_ino;
    return file;
  }
  ~File() { close(fd_); }

  bool Is(const File& other) const { return device_ == other.device_ && inode_ == other.inode_; }
  bool IsAt(const std::string& path) const {
    struct stat info;
    // While the log is renamed by hand, the name may be free for a moment.
    if (stat(path.c_str(), &info) != 0) return true;
    return info.st_dev == device_ && info.st_ino == inode_;
  }

  // Calls `take` with each further complete line. With `last` also with a line that has no end:
  // nobody writes to the file any more.
  template <typename Take>
  void Read(bool last, const Take& take) {
    struct stat info;
    if (fstat(fd_, &info) == 0 && info.st_size < offset_) {  // somebody has emptied it
      offset_ = 0;
      begun_.clear();
    }
    std::string chunk(kReadBytes, '\0');
    for (;;) {
      const ssize_t n = pread(fd_, chunk.data(), chunk.size(), offset_);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      offset_ += n;
      Split(absl::string_view(chunk.data(), static_cast<size_t>(n)), take);
    }
    if (last && !begun_.empty()) take(std::exchange(begun_, ""));
  }

 private:
  explicit File(int fd) : fd_(fd) {}

  template <typename Take>
  void Split(absl::string_view text, const Take& take) {
    for (;;) {
      const size_t end = text.find('\n');
      const absl::string_view part = text.substr(0, end);
      if (begun_.size() < kMostLineBytes)
        begun_.append(part.data(), std::min(part.size(), kMostLineBytes - begun_.size()));
      if (end == absl::string_view::npos) return;
      take(std::exchange(begun_, ""));
      text.remove_prefix(end + 1);
    }
  }

  const int fd_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  off_t offset_ = 0;
  std::string begun_;  // the line whose end was not there yet
};

LogReader::LogReader(std::string path) : path_(std::move(path)) {}

LogReader::LogReader(LogReader&& other) noexcept = default;

LogReader::~LogReader() = default;

std::vector<std::unique_ptr<LogReader::File>> LogReader::OpenAll() const {
  std::vector<std::unique_ptr<File>> files;
  // Files move towards higher numbers. So while they are renamed, going upwards meets one of them
  // twice, but passes none by.
  for (int number = 0; number <= HighestNumber(path_) + 1; ++number) {
    auto file = File::Open(number == 0 ? path_ : absl::StrCat(path_, ".", number));
    if (file == nullptr) continue;
    const bool known = std::any_of(files.begin(), files.end(),
                                   [&](const auto& other) { return other->Is(*file); });
    if (!known) files.push_back(std::move(file));
  }
  return files;
}

std::vector<std::string> LogReader::Tail(size_t lines, const Filter& filter) {
  std::vector<std::unique_ptr<File>> files = OpenAll();
  std::deque<std::string> tail;
  size_t bytes = 0;
  for (size_t i = 0; i < files.size() && tail.size() < lines && bytes < kMostBytes; ++i) {
    std::deque<std::string> of_file;  // older than those in `tail`
    files[i]->Read(/*last=*/i > 0, [&](std::string line) {
      if (filter && !filter(line)) return;
      bytes += line.size() + 1;
      of_file.push_back(std::move(line));
      while (tail.size() + of_file.size() > lines || (bytes > kMostBytes && !of_file.empty())) {
        bytes -= of_file.front().size() + 1;
        of_file.pop_front();
      }
    });
    tail.insert(tail.begin(), std::make_move_iterator(of_file.begin()),
                std::make_move_iterator(of_file.end()));
  }
  current_ = nullptr;
  if (!files.empty()) current_ = std::move(files[0]);
  // Without a line to read, New would otherwise begin at the file's first one.
  if (lines == 0 && current_ != nullptr) current_->Read(false, [](const std::string&) {});
  return {std::make_move_iterator(tail.begin()), std::make_move_iterator(tail.end())};
}

std::unique_ptr<LogReader::File> LogReader::Next() const {
  if (current_ == nullptr) {
    std::vector<std::unique_ptr<File>> files = OpenAll();
    return files.empty() ? nullptr : std::move(files.back());
  }
  if (current_->IsAt(path_)) return nullptr;
  std::unique_ptr<File> next;
  for (auto& file : OpenAll()) {
    if (file->Is(*current_)) break;
    next = std::move(file);
  }
  return next;
}

std::vector<std::string> LogReader::New(const Filter& filter) {
  std::vector<std::string> lines;
  const auto take = [&](std::string line) {
    if (!filter || filter(line)) lines.push_back(std::move(line));
  };
  for (;;) {
    // Next comes before the read: what was written before the rename is then read completely.
    std::unique_ptr<File> next = Next();
    if (current_ != nullptr) current_->Read(/*last=*/next != nullptr, take);
    if (next == nullptr) return lines;
    current_ = std::move(next);
  }
}

std::string TailOfLog(const std::string& path, int lines) {
  return absl::StrJoin(LogReader(path).Tail(static_cast<size_t>(std::max(lines, 0))), "\n");
}

bool IsStepLine(const std::string& line) {
  const size_t job = line.find("] job ");
  if (job == std::string::npos) return false;
  const size_t rank = line.find(" rank ", job), epoch = line.find(" epoch ", job),
               step = line.find(" step ", job), loss = line.find(" loss ", job);
  return loss != std::string::npos && rank < epoch && epoch < step && step < loss &&
         absl::StrContains(line, " examples/s ");
}

bool NamesJob(const std::string& line, const std::string& job_id) {
  const auto is_of_word = [&](size_t at) {
    return at < line.size() && (absl::ascii_isalnum(static_cast<unsigned char>(line[at])) ||
                                line[at] == '_' || line[at] == '-');
  };
  for (size_t at = line.find(job_id); at != std::string::npos; at = line.find(job_id, at + 1)) {
    if ((at == 0 || !is_of_word(at - 1)) && !is_of_word(at + job_id.size())) return true;
  }
  return false;
}

std::string JobNamedIn(const std::string& line) {
  const std::string kJob = "job ";
  for (size_t at = line.find(kJob); at != std::string::npos; at = line.find(kJob, at + 1)) {
    if (at > 0 && absl::ascii_isalnum(static_cast<unsigned char>(line[at - 1]))) continue;
    const size_t begin = at + kJob.size();
    const std::string word = line.substr(begin, line.find_first_of(" :,;", begin) - begin);
    // A job_id ends with the number of the job.
    const size_t dash = word.rfind('-');
    if (dash == std::string::npos || dash == 0 || dash + 1 == word.size()) continue;
    if (word.find_first_not_of("0123456789", dash + 1) == std::string::npos) return word;
  }
  return "";
}

}  // namespace sluice::cli
