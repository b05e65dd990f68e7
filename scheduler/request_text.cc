#include "scheduler/request_text.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <initializer_list>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/message_text.h"
#include "common/base/printable.h"

namespace sluice {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

bool IsIn(const std::string& name, std::initializer_list<absl::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}
// For people; it may be cut.
bool IsSentence(const FieldDescriptor* field) {
  return IsIn(field->name(),
              {"reason", "message", "error", "doing", "waiting_for", "first_bad_lines"});
}
size_t BoundOf(const FieldDescriptor* field) {
  const bool path =
      IsIn(field->full_name(), {"sluice.RegisterRequest.log_file", "sluice.SavedFile.name"});
  return path || IsSentence(field) ? kMaxSentenceBytes : kMaxIdentifierBytes;
}

// Fields that hold `bytes` are secrets and states of members; a message bounds them.
absl::Status CheckTexts(const Message& request) {
  absl::Status status;
  EachText(request, [&](const FieldDescriptor* field, const std::string& text) {
    if (IsSentence(field) || text.size() <= BoundOf(field)) return true;
    status = absl::InvalidArgumentError(absl::StrCat(field->full_name(), " has ", text.size(),
                                                     " bytes; at most ", BoundOf(field),
                                                     " are allowed"));
    return false;
  });
  return status;
}

absl::Status CheckCount(absl::string_view field, int n) {
  if (n <= kMaxListed) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " has ", n, " entries; at most ", kMaxListed, " are allowed"));
}

std::string Clean(const FieldDescriptor* field, const std::string& text) {
  if (text.size() <= BoundOf(field)) return PrintableLine(text);
  return absl::StrCat(PrintableLine(absl::string_view(text).substr(0, BoundOf(field))), "...");
}

}  // namespace

absl::Status CheckBounds(const RegisterRequest& request) {
  const absl::Status counted = CheckCount("RegisterRequest.holds", request.holds_size());
  return counted.ok() ? CheckTexts(request) : counted;
}

absl::Status CheckBounds(const PollRequest& request) {
  absl::Status status = CheckCount("PollRequest.hosted", request.hosted_size());
  if (status.ok()) status = CheckCount("WorkerProgress.losses", request.progress().losses_size());
  if (!status.ok()) return status;
  size_t bytes = 0;
  for (const HostedJob& hosted : request.hosted()) bytes += hosted.ByteSizeLong();
  if (bytes > kMaxHostedBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "PollRequest.hosted has ", bytes, " bytes; at most ", kMaxHostedBytes, " are allowed"));
  }
  return CheckTexts(request);
}

absl::Status CheckBounds(const LeaveRequest& request) { return CheckTexts(request); }
absl::Status CheckBounds(const FailJobRequest& request) { return CheckTexts(request); }
absl::Status CheckBounds(const MemberEndedRequest& request) { return CheckTexts(request); }

bool HasCleanText(const Message& request) {
  return EachText(request, [](const FieldDescriptor* field, const std::string& text) {
    return text.size() <= BoundOf(field) && IsPrintableLine(text);
  });
}

void CleanText(Message* request) { ChangeTexts(request, &Clean); }

}  // namespace sluice
