#include "scheduler/service/dashboard.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/shared_memory/file_descriptor.h"
#include "scheduler/page/page_files.h"

namespace sluice {
namespace {

constexpr absl::string_view kJobs = "/api/v1/jobs";
constexpr absl::string_view kLogs = "/api/v1/logs/";

AdminServer::Page Error(int status, const std::string& message) {
  AdminServer::Page page;
  page.status = status;
  page.body = ErrorJson(message);
  return page;
}

// schedulerlog.0, serverlog.N or workerlog.N
bool IsLogName(absl::string_view name) {
  for (const absl::string_view stem : {"schedulerlog.", "serverlog.", "workerlog."}) {
    absl::string_view rank = name;
    if (!absl::ConsumePrefix(&rank, stem)) continue;
    return !rank.empty() && rank.size() <= 9 &&
           std::all_of(rank.begin(), rank.end(),
                       [](unsigned char c) { return absl::ascii_isdigit(c); });
  }
  return false;
}

// The number of a parameter within [least, most]; `usual` when it is absent or no number.
size_t NumberOf(const AdminServer::PageQuery& query, const char* name, size_t least, size_t usual,
                size_t most) {
  uint64_t number = 0;
  if (!query.parameter || !absl::SimpleAtoi(query.parameter(name), &number)) return usual;
  return std::clamp<uint64_t>(number, least, most);
}

}  // namespace

std::optional<AdminServer::Page> Dashboard::Answer(const AdminServer::PageQuery& query) {
  absl::string_view path = query.path;
  if (const PageFile* const file = FindPageFile(path == "/" ? "/page/dashboard.html" : path))
    return AdminServer::Page{std::string(file->body), file->type};
  if (absl::ConsumePrefix(&path, kLogs)) return LogOf(std::string(path), query);
  if (path == kJobs || absl::StartsWith(path, absl::StrCat(kJobs, "/"))) return OfJobs(query);
  return std::nullopt;
}

AdminServer::Page Dashboard::OfJobs(const AdminServer::PageQuery& query) {
  absl::string_view job_id = query.path;
  absl::ConsumePrefix(&job_id, kJobs);
  absl::ConsumePrefix(&job_id, "/");
  const bool curves = absl::ConsumeSuffix(&job_id, "/curves");
  MutexLock lock(&mutex_);
  Refresh();
  if (const auto known = answers_.find(query.path); known != answers_.end()) return known->second;
  DashboardContext context;
  context.time = options_.clock->WallNow();
  context.version = options_.version;
  context.facts = [this](const MemberStatus& member) { return FactsOf(member); };
  AdminServer::Page page;
  if (job_id.empty()) {
    page.body = JobsJson(status_, context);
  } else {
    const auto job = std::find_if(status_.jobs().begin(), status_.jobs().end(),
                                  [&](const JobStatus& one) { return one.job_id() == job_id; });
    if (job == status_.jobs().end()) {
      return Error(404, absl::StrCat("no job ", job_id,
                                     " is known any more; /api/v1/jobs lists those that are"));
    }
    if (curves) return CurvesOf(std::string(job_id), query);
    page.body = JobJson(status_, *job, context);
  }
  if (answers_.size() < kMostAnswers) answers_[query.path] = page;
  return page;
}

void Dashboard::Refresh() {
  const absl::Time now = options_.clock->Now();
  if (now - taken_ < kStatusAge) return;
  status_ = options_.status();
  taken_ = now;
  answers_.clear();
}

AdminServer::Page Dashboard::CurvesOf(const std::string& job_id,
                                      const AdminServer::PageQuery& query) const {
  const size_t most =
      NumberOf(query, "points", 4, ThinCurves::kMostPoints, ThinCurves::kMostPoints);
  AdminServer::Page page;
  page.body = CurvesJson(job_id, options_.curves->Of(job_id, most), most);
  return page;
}

MemberFacts Dashboard::FactsOf(const MemberStatus& member) const {
  MemberFacts facts;
  if (member.host() != options_.host) return facts;
  const std::string& path = member.log_file();
  const size_t slash = path.rfind('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  if (IsLogName(name) && options_.env->Exists(absl::StrCat(options_.log_dir, "/", name)))
    facts.log_name = name;
  return facts;
}

AdminServer::Page Dashboard::LogOf(const std::string& name,
                                   const AdminServer::PageQuery& query) const {
  const std::string path = absl::StrCat(options_.log_dir, "/", name);
  const auto absent = [&] {
    return Error(404, absl::StrCat("the scheduler's folder of logs has no log of this name; "
                                   "members of other hosts have their log there: see log_file"));
  };
  if (!IsLogName(name)) return absent();
  // No link: it would lead out of the folder. No wait for a pipe.
  const auto opened = options_.env->OpenFile(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (!opened.ok()) return absent();
  const FileDescriptor file(*opened);
  struct stat info = {};
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return absent();
  const auto size = static_cast<size_t>(info.st_size);
  const size_t n = std::min(size, NumberOf(query, "bytes", 1, kLogBytes, kMostLogBytes));
  std::string text(n, '\0');
  const ssize_t got = pread(file.get(), text.data(), n, static_cast<off_t>(size - n));
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  // Begins with a whole line.
  if (n < size) text.erase(0, std::min(text.find('\n'), text.size() - 1) + 1);
  AdminServer::Page page;
  page.body = LogJson(name, path, size, text);
  return page;
}

}  // namespace sluice
