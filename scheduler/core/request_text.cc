#include "scheduler/core/request_text.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/message_text.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/daemon/control_plane.h"
#include "scheduler/job/rank_gathers.h"

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
// Returned to members, or compared with what others say, so that it must not change.
bool IsDataFile(const FieldDescriptor* field) {
  return IsIn(field->full_name(), {"sluice.DataFile.path", "sluice.SeenFile.path"});
}
// Every text of a request has a bound. Fields that are added later count as identifiers.
size_t BoundOf(const FieldDescriptor* field) {
  const bool path =
      IsDataFile(field) ||
      IsIn(field->full_name(), {"sluice.RegisterRequest.log_file", "sluice.SavedFile.name",
                                "sluice.SaveReport.model_dir"});
  return path || IsSentence(field) ? kMaxSentenceBytes : kMaxIdentifierBytes;
}

absl::Status CheckCount(absl::string_view field, int n, int most = kMaxListed) {
  if (n <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " has ", n, " entries; at most ", most, " are allowed"));
}

absl::Status CheckCounts(absl::string_view field, std::initializer_list<int> counts, int most) {
  return CheckCount(field, std::max(counts), most);
}

absl::Status CheckTraces(const google::protobuf::RepeatedPtrField<TraceBatch>& traces) {
  SLUICE_RETURN_IF_ERROR(CheckCount("PollRequest.traces", traces.size()));
  for (const TraceBatch& t : traces) {
    SLUICE_RETURN_IF_ERROR(CheckCount("TraceBatch.tracks", t.tracks_size()));
    SLUICE_RETURN_IF_ERROR(
        CheckCounts("TraceBatch",
                    {t.name_size(), t.start_us_size(), t.duration_us_size(), t.track_size(),
                     t.step_size(), t.rank_size(), t.bytes_size()},
                    kMaxReportedSpans));
  }
  return absl::OkStatus();
}

absl::Status CheckReportedPieces(const DataPieces& p) {
  return CheckCounts("DataPieces", {p.file_size(), p.begin_size(), p.end_size(), p.examples_size()},
                     kMaxReportedPieces);
}

// Names become tags of curves and members of result.json.
bool IsUserName(absl::string_view name) {
  if (name.empty() || name.size() > kMaxUserNameBytes) return false;
  if (!absl::ascii_isalpha(name[0]) && name[0] != '_') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '/' || c == '-';
  });
}

template <typename Named>
absl::Status CheckNames(absl::string_view field,
                        const google::protobuf::RepeatedPtrField<Named>& list, int most) {
  SLUICE_RETURN_IF_ERROR(CheckCount(field, list.size(), most));
  for (int i = 0; i < list.size(); ++i) {
    const std::string& name = list[i].name();
    if (!IsUserName(name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          field, " has the name '", PrintableLine(name.substr(0, kMaxUserNameBytes)),
          "'; a name is [A-Za-z_][A-Za-z0-9_./-]*, at most ", kMaxUserNameBytes, " characters"));
    }
    for (int before = 0; before < i; ++before) {
      if (list[before].name() == name)
        return absl::InvalidArgumentError(absl::StrCat(field, " has '", name, "' twice"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLosses(absl::string_view field,
                         const google::protobuf::RepeatedPtrField<StepLoss>& losses) {
  SLUICE_RETURN_IF_ERROR(CheckCount(field, losses.size()));
  for (const StepLoss& loss : losses)
    SLUICE_RETURN_IF_ERROR(CheckNames("StepLoss.user", loss.user(), kMaxLoggedValues));
  return absl::OkStatus();
}

absl::Status CheckNetState(const WorkerState& state) {
  if (state.net_state().size() <= kMaxNetStateBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("WorkerState.net_state has ",
                                                 state.net_state().size(), " bytes; at most ",
                                                 kMaxNetStateBytes, " are allowed"));
}

absl::Status CheckSums(const EvalSums& sums) {
  SLUICE_RETURN_IF_ERROR(CheckNames("EvalSums.user", sums.user(), kMaxUserMetrics));
  return CheckCounts("EvalSums",
                     {sums.positive_bin_delta_size(), sums.positive_weight_size(),
                      sums.negative_bin_delta_size(), sums.negative_weight_size(),
                      sums.positive_weight_high_size(), sums.negative_weight_high_size()},
                     kMaxBins);
}

absl::Status CheckIndex(const IndexReport& report) {
  SLUICE_RETURN_IF_ERROR(CheckReportedPieces(report.pieces()));
  SLUICE_RETURN_IF_ERROR(CheckCount("IndexReport.files", report.files_size(), kMaxDataFiles));
  SLUICE_RETURN_IF_ERROR(
      CheckCount("IndexReport.train_seen", report.train_seen_size(), kMaxDataFiles));
  return CheckCount("IndexReport.eval_seen", report.eval_seen_size(), kMaxDataFiles);
}

// May have several lines, such as the traceback of a program.
bool HasLines(const FieldDescriptor* field) {
  return field->full_name() == "sluice.FailJobRequest.message";
}

// Cuts first: the text may have any length, and making it printable may lengthen it.
std::string Cut(absl::string_view text, size_t most, std::string (*printable)(absl::string_view)) {
  if (text.size() <= most) return printable(text);
  return absl::StrCat(printable(text.substr(0, most)), "...");
}

std::string Clean(const FieldDescriptor* field, const std::string& text) {
  if (IsDataFile(field)) return text;
  return Cut(text, BoundOf(field), HasLines(field) ? &PrintableLines : &PrintableLine);
}

}  // namespace

absl::Status CheckLists(const RegisterRequest& request) {
  return CheckCount("RegisterRequest.holds", request.holds_size());
}

absl::Status CheckLists(const PollRequest& request) {
  SLUICE_RETURN_IF_ERROR(CheckCount("PollRequest.hosted", request.hosted_size()));
  SLUICE_RETURN_IF_ERROR(CheckTraces(request.traces()));
  SLUICE_RETURN_IF_ERROR(CheckLosses("WorkerProgress.losses", request.progress().losses()));
  SLUICE_RETURN_IF_ERROR(
      CheckCount("RankGroupReport.totals", request.group().totals_size(), kMaxReportedRanks));
  if (request.group().card().size() > kMaxReportedCardBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("RankGroupReport.card has ", request.group().card().size(), " bytes; at most ",
                     kMaxReportedCardBytes, " are allowed"));
  }
  SLUICE_RETURN_IF_ERROR(CheckNetState(request.cut().state()));
  // The reports of one pserver are kept until its next one, for each job that it hosts.
  size_t bytes = 0;
  for (const HostedJob& hosted : request.hosted()) bytes += hosted.ByteSizeLong();
  if (bytes <= kMaxHostedBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "PollRequest.hosted has ", bytes, " bytes; at most ", kMaxHostedBytes, " are allowed"));
}

absl::Status CheckLists(const NextPhaseRequest& request) {
  const PhaseReport& report = request.report();
  SLUICE_RETURN_IF_ERROR(CheckLosses("NextPhaseRequest.losses", request.losses()));
  SLUICE_RETURN_IF_ERROR(CheckNetState(report.end()));
  SLUICE_RETURN_IF_ERROR(CheckIndex(report.index()));
  SLUICE_RETURN_IF_ERROR(CheckSums(report.eval()));
  for (const int lines :
       {report.index().first_bad_lines_size(), report.train().first_bad_lines_size(),
        report.eval().first_bad_lines_size()}) {
    SLUICE_RETURN_IF_ERROR(CheckCount("PhaseReport.first_bad_lines", lines));
  }
  return absl::OkStatus();
}

absl::Status CheckLists(const GatherRequest& request) {
  if (request.data().size() <= RankGathers::kMaxCallBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("GatherRequest.data has ", request.data().size(),
                                                 " bytes; at most ", RankGathers::kMaxCallBytes,
                                                 " are allowed"));
}

std::string Sentence(absl::string_view text) {
  return Cut(text, kMaxSentenceBytes, &PrintableLine);
}

std::string SentenceWithLines(absl::string_view text) {
  return Cut(text, kMaxSentenceBytes, [](absl::string_view cut) {
    std::vector<std::string> lines;
    for (const absl::string_view line : absl::StrSplit(cut, '\n'))
      lines.push_back(PrintableLine(line));
    return absl::StrJoin(lines, "\n");
  });
}

absl::StatusOr<bool> HasCleanText(const Message& request) {
  absl::Status bounded;
  bool clean = true;
  // Fields that hold `bytes` are secrets and states of members; a message bounds them.
  EachText(request, [&](const FieldDescriptor* field, const std::string& text) {
    const bool long_text = text.size() > BoundOf(field);
    if (long_text && !IsSentence(field)) {
      bounded = absl::InvalidArgumentError(absl::StrCat(field->full_name(), " has ", text.size(),
                                                        " bytes; at most ", BoundOf(field),
                                                        " are allowed"));
      return false;
    }
    clean = clean && (IsDataFile(field) || (!long_text && IsPrintableLine(text)));
    return true;
  });
  if (!bounded.ok()) return bounded;
  return clean;
}

void CleanText(Message* request) { ChangeTexts(request, &Clean); }

}  // namespace sluice
