#include "scheduler/job/seen_files.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

using Files = google::protobuf::RepeatedPtrField<SeenFile>;

// One side of the comparison.
struct View {
  const Files& files;
  std::string who;  // "rank 1 on host b"
};

std::string Who(uint32_t rank, const IndexReport& report) {
  return absl::StrCat("rank ", rank, " on host ", report.host().empty() ? "?" : report.host());
}

// Says how the hosts' copies of one path differ; empty when they do not.
std::string Difference(const SeenFile& a, const View& a_view, const SeenFile& b,
                       const View& b_view) {
  if (a.bytes() != b.bytes()) {
    return absl::StrCat("differs in size: ", a.bytes(), " bytes for ", a_view.who, ", ", b.bytes(),
                        " bytes for ", b_view.who);
  }
  if (a.sample_crc32c() == b.sample_crc32c()) return "";
  return absl::StrCat("differs in content between ", a_view.who, " and ", b_view.who,
                      "; both have ", a.bytes(), " bytes");
}

std::string Missing(const View& has, const View& lacks) {
  return absl::StrCat("is missing for ", lacks.who, "; ", has.who, " sees it");
}

// Counts the differing files and describes the first.
struct Differences {
  std::string first;
  size_t count = 0;
  void Add(const std::string& path, const std::string& what) {
    if (count++ == 0) first = absl::StrCat("data file ", PrintableLine(path), " ", what);
  }
};

// Both lists are sorted by path, each path once.
Differences Compare(const View& a, const View& b) {
  Differences differences;
  int i = 0, j = 0;
  while (i < a.files.size() || j < b.files.size()) {
    const bool a_ended = i == a.files.size(), b_ended = j == b.files.size();
    if (b_ended || (!a_ended && a.files[i].path() < b.files[j].path())) {
      differences.Add(a.files[i++].path(), Missing(a, b));
    } else if (a_ended || b.files[j].path() < a.files[i].path()) {
      differences.Add(b.files[j++].path(), Missing(b, a));
    } else {
      const std::string how = Difference(a.files[i], a, b.files[j], b);
      if (!how.empty()) differences.Add(a.files[i].path(), how);
      ++i, ++j;
    }
  }
  return differences;
}

// `must`: what the field must be, at the end of the message.
absl::Status CheckSame(const char* field, const View& a, const View& b,
                       const char* must = "the same files on every host of the job") {
  const Differences differences = Compare(a, b);
  if (differences.count == 0) return absl::OkStatus();
  const std::string more =
      differences.count == 1 ? "" : absl::StrCat(" (", differences.count - 1, " more differ)");
  return absl::FailedPreconditionError(
      absl::StrCat(differences.first, more, "; ", field, " must be ", must));
}

}  // namespace

absl::Status SeenFiles::Take(uint32_t rank, const IndexReport& report) {
  if (!first_) {
    rank_ = rank;
    first_.emplace();
    *first_->mutable_train_seen() = report.train_seen();
    *first_->mutable_eval_seen() = report.eval_seen();
    first_->set_host(report.host());
    return absl::OkStatus();
  }
  const std::string first = Who(rank_, *first_), other = Who(rank, report);
  SLUICE_RETURN_IF_ERROR(
      CheckSame("data.train_files", {first_->train_seen(), first}, {report.train_seen(), other}));
  return CheckSame("data.eval_files", {first_->eval_seen(), first}, {report.eval_seen(), other});
}

absl::Status SeenFiles::CheckSameAs(
    const google::protobuf::RepeatedPtrField<SeenFile>& earlier) const {
  return CheckSame("data.train_files", {earlier, "the job of the checkpoint"},
                   {first_->train_seen(), Who(rank_, *first_)},
                   "the files that the checkpoint's job was trained on");
}

}  // namespace sluice
