#include "scheduler/core/request_text.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/daemon/control_plane.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

std::string Bytes(size_t n) { return std::string(n, 'x'); }

template <typename Request>
void ExpectRefused(const Request& request, const std::string& field) {
  const auto taken = TakeIn(request);
  EXPECT_TRUE(absl::IsInvalidArgument(taken.status())) << taken.status();
  EXPECT_THAT(taken.status().message(), HasSubstr(field));
}

TEST(RequestTextTest, IdentifiersThatAreTooLongAreRefusedByName) {
  for (const char* name : {"host", "address", "admin_address", "device", "process_space"}) {
    RegisterRequest request;
    const auto* const field = RegisterRequest::descriptor()->FindFieldByName(name);
    ASSERT_NE(field, nullptr) << name;
    request.GetReflection()->SetString(&request, field, Bytes(kMaxIdentifierBytes));
    EXPECT_TRUE(TakeIn(request).ok()) << name;
    request.GetReflection()->SetString(&request, field, Bytes(kMaxIdentifierBytes + 1));
    ExpectRefused(request, name);
  }
  RegisterRequest paths;
  paths.set_log_file(Bytes(kMaxSentenceBytes));
  EXPECT_TRUE(TakeIn(paths).ok());
  paths.set_log_file(Bytes(kMaxSentenceBytes + 1));
  ExpectRefused(paths, "log_file");
  FailJobRequest fail;
  fail.set_job_id(Bytes(1000));
  ExpectRefused(fail, "job_id");
  MemberEndedRequest ended;
  ended.set_process_space(Bytes(1000));
  ExpectRefused(ended, "process_space");
  PollRequest poll;
  poll.add_hosted()->add_tables()->set_name(Bytes(1000));
  ExpectRefused(poll, "name");
}

TEST(RequestTextTest, SentencesAreCut) {
  LeaveRequest leave;
  leave.set_reason(Bytes(10000));
  EXPECT_LE((*TakeIn(leave))->reason().size(), kMaxSentenceBytes + 3);
  FailJobRequest fail;
  fail.set_message(Bytes(10000));
  EXPECT_LE((*TakeIn(fail))->message().size(), kMaxSentenceBytes + 3);
  PollRequest poll;
  poll.mutable_progress()->set_doing(Bytes(10000));
  poll.add_hosted()->set_error(Bytes(10000));
  const auto taken = *TakeIn(poll);
  EXPECT_LE(taken->progress().doing().size(), kMaxSentenceBytes + 3);
  EXPECT_LE(taken->hosted(0).error().size(), kMaxSentenceBytes + 3);
}

TEST(RequestTextTest, ListsThatAreTooLongAreRefused) {
  RegisterRequest self;
  PollRequest losses, hosted;
  for (int i = 0; i < kMaxListed; ++i) {
    self.add_holds();
    losses.mutable_progress()->add_losses();
    hosted.add_hosted();
  }
  EXPECT_TRUE(TakeIn(self).ok());
  EXPECT_TRUE(TakeIn(losses).ok());
  EXPECT_TRUE(TakeIn(hosted).ok());
  self.add_holds();
  losses.mutable_progress()->add_losses();
  hosted.add_hosted();
  ExpectRefused(self, "holds");
  ExpectRefused(losses, "losses");
  ExpectRefused(hosted, "hosted");
  PollRequest ranks;
  for (int i = 0; i < kMaxReportedRanks; ++i) ranks.mutable_group()->add_totals();
  EXPECT_TRUE(TakeIn(ranks).ok());
  ranks.mutable_group()->add_totals();
  ExpectRefused(ranks, "totals");
  PollRequest large;
  for (int i = 0; i < 1000; ++i) large.add_hosted()->set_error(Bytes(40000));
  ExpectRefused(large, "hosted");
}

TEST(RequestTextTest, ListsOfTracesPiecesAndSumsAreBounded) {
  PollRequest traces;
  for (int i = 0; i < kMaxListed; ++i) traces.add_traces();
  for (int i = 0; i < kMaxReportedSpans; ++i) traces.mutable_traces(0)->add_bytes(0);
  EXPECT_TRUE(TakeIn(traces).ok());
  traces.mutable_traces(0)->add_bytes(0);
  ExpectRefused(traces, "TraceBatch");
  PollRequest tracks;
  for (int i = 0; i <= kMaxListed; ++i) tracks.add_traces();
  ExpectRefused(tracks, "traces");
  tracks.clear_traces();
  TraceBatch* const batch = tracks.add_traces();
  for (int i = 0; i <= kMaxListed; ++i) batch->add_tracks();
  ExpectRefused(tracks, "tracks");
  NextPhaseRequest pieces, bins;
  DataPieces* const reported = pieces.mutable_report()->mutable_index()->mutable_pieces();
  reported->mutable_examples()->Resize(kMaxReportedPieces, 1);
  EXPECT_TRUE(TakeIn(pieces).ok());
  reported->add_examples(1);
  ExpectRefused(pieces, "DataPieces");
  EvalSums* const sums = bins.mutable_report()->mutable_eval();
  sums->mutable_negative_weight()->Resize(kMaxBins, 1);
  EXPECT_TRUE(TakeIn(bins).ok());
  sums->add_negative_weight(1);
  ExpectRefused(bins, "EvalSums");
}

TEST(RequestTextTest, AFailureMayHaveLinesNoneOfWhichLooksLikeOneOfOurs) {
  FailJobRequest request;
  request.set_message("Traceback:\nI2026 the job is done\x1b[2J");
  CleanText(&request);
  EXPECT_EQ(request.message(), "Traceback:\n    I2026 the job is done\\x1b[2J");
}

TEST(RequestTextTest, TextStaysOnItsLineAndCannotCommandATerminal) {
  const std::string evil = "a\nb\x1B]0;t\x07\xC2\x9B\xE2\x80\xAE";
  const std::string safe = "a\\x0ab\\x1b]0;t\\x07\\xc2\\x9b\\xe2\\x80\\xae";
  RegisterRequest self;
  self.set_host(evil);
  self.set_device(evil);
  EXPECT_EQ((*TakeIn(self))->host(), safe);
  EXPECT_EQ((*TakeIn(self))->device(), safe);
  PollRequest poll;
  poll.set_secret(evil);
  poll.mutable_progress()->set_doing(evil);
  EXPECT_EQ((*TakeIn(poll))->progress().doing(), safe);
  EXPECT_EQ((*TakeIn(poll))->secret(), evil) << "not text";
  FailJobRequest fail;
  fail.set_message(evil);
  fail.set_job_id(evil);
  EXPECT_EQ((*TakeIn(fail))->message(), "a\n    " + safe.substr(5)) << "may have lines";
  EXPECT_EQ((*TakeIn(fail))->job_id(), safe);
  LeaveRequest leave;
  leave.set_reason(evil);
  EXPECT_EQ((*TakeIn(leave))->reason(), safe);
  MemberEndedRequest ended;
  ended.set_reason(evil);
  EXPECT_EQ((*TakeIn(ended))->reason(), safe);
}

TEST(RequestTextTest, TheCardOfARankIsBounded) {
  PollRequest request;
  request.mutable_group()->set_card(Bytes(kMaxReportedCardBytes));
  EXPECT_TRUE(TakeIn(request).ok());
  request.mutable_group()->set_card(Bytes(kMaxReportedCardBytes + 1));
  ExpectRefused(request, "card");
}

TEST(RequestTextTest, NamesOfProgramsAreTags) {
  const auto expect = [](const std::string& name, bool taken) {
    NextPhaseRequest request;
    request.mutable_report()->mutable_eval()->add_user()->set_name(name);
    EXPECT_EQ(CheckLists(request).ok(), taken) << name;
    PollRequest poll;
    poll.mutable_progress()->add_losses()->add_user()->set_name(name);
    EXPECT_EQ(CheckLists(poll).ok(), taken) << name;
  };
  for (const char* name : {"a", "_", "Z9", "recall.at/10-best"}) expect(name, true);
  for (const char* name : {"", "9a", "-a", "/a", "a b", "a\"", "\xc3\xa4", "a\n"})
    expect(name, false);
  expect(Bytes(kMaxUserNameBytes), true);
  expect(Bytes(kMaxUserNameBytes + 1), false);
  NextPhaseRequest twice;
  for (int i = 0; i < 2; ++i) twice.mutable_report()->mutable_eval()->add_user()->set_name("a");
  EXPECT_THAT(std::string(CheckLists(twice).message()), testing::HasSubstr("'a' twice"));
}

TEST(RequestTextTest, NamesOfProgramsAreFew) {
  NextPhaseRequest request;
  EvalSums* const sums = request.mutable_report()->mutable_eval();
  while (sums->user_size() < kMaxUserMetrics)
    sums->add_user()->set_name(absl::StrCat("m", sums->user_size()));
  StepLoss* const loss = request.add_losses();
  while (loss->user_size() < kMaxLoggedValues)
    loss->add_user()->set_name(absl::StrCat("v", loss->user_size()));
  request.mutable_report()->mutable_end()->set_net_state(Bytes(kMaxNetStateBytes));
  EXPECT_TRUE(CheckLists(request).ok()) << CheckLists(request);
  NextPhaseRequest more = request;
  more.mutable_report()->mutable_eval()->add_user()->set_name("more");
  ExpectRefused(more, "EvalSums.user");
  more = request;
  more.mutable_losses(0)->add_user()->set_name("more");
  ExpectRefused(more, "StepLoss.user");
  more = request;
  more.mutable_report()->mutable_end()->set_net_state(Bytes(kMaxNetStateBytes + 1));
  ExpectRefused(more, "net_state");
}

TEST(RequestTextTest, ReportsOfPhasesAreBounded) {
  const auto expect_bound = [](size_t most, const std::string& field, const auto& set) {
    NextPhaseRequest request;
    set(most, request.mutable_report());
    EXPECT_TRUE(TakeIn(request).ok()) << field;
    set(most + 1, request.mutable_report());
    ExpectRefused(request, field);
  };
  expect_bound(kMaxIdentifierBytes, "host",
               [](size_t n, PhaseReport* r) { r->mutable_index()->set_host(Bytes(n)); });
  expect_bound(kMaxSentenceBytes, "model_dir",
               [](size_t n, PhaseReport* r) { r->mutable_save()->set_model_dir(Bytes(n)); });
  expect_bound(kMaxSentenceBytes, "path", [](size_t n, PhaseReport* r) {
    r->mutable_index()->add_train_seen()->set_path(Bytes(n));
  });
  expect_bound(kMaxDataFiles, "eval_seen", [](size_t n, PhaseReport* r) {
    while (r->index().eval_seen_size() < static_cast<int>(n)) r->mutable_index()->add_eval_seen();
  });
  expect_bound(kMaxListed, "first_bad_lines", [](size_t n, PhaseReport* r) {
    while (r->train().first_bad_lines_size() < static_cast<int>(n))
      r->mutable_train()->add_first_bad_lines("f:1: bad");
  });
  NextTaskRequest task;
  task.set_job_id(Bytes(kMaxIdentifierBytes + 1));
  ExpectRefused(task, "job_id");
}

TEST(RequestTextTest, NamesOfDataFilesStayAsTheyAre) {
  NextPhaseRequest request;
  IndexReport* const index = request.mutable_report()->mutable_index();
  index->set_host("a\nb");
  index->add_first_bad_lines("c\nd");
  index->add_train_seen()->set_path("e\nf");
  index->add_files()->set_path("g\nh");
  const auto taken = TakeIn(request);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ((*taken)->report().index().host(), "a\\x0ab");
  EXPECT_EQ((*taken)->report().index().first_bad_lines(0), "c\\x0ad");
  EXPECT_EQ((*taken)->report().index().train_seen(0).path(), "e\nf");
  EXPECT_EQ((*taken)->report().index().files(0).path(), "g\nh");
}

TEST(RequestTextTest, ACleanRequestIsNotCopied) {
  PollRequest poll;
  poll.mutable_progress()->set_doing("training");
  EXPECT_EQ(TakeIn(poll)->get(), &poll);
}

}  // namespace
}  // namespace sluice
