#include "worker/service/job_runner.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/instruction_sets.h"
#include "common/base/status_macros.h"
#include "common/config/mode.h"
#include "common/config/own_data.h"
#include "common/saved_model/saved_model.h"
#include "common/transport/retry.h"
#include "model/model.h"
#include "worker/context/job_context.h"
#include "worker/step/source_state_file.h"
#include "worker/train/step_commit.h"

namespace sluice {
namespace {
constexpr uint32_t kWaitMs = 2000;  // a long poll for the next phase
// The same after the training of an epoch in async and Geo, when others still train and a
// checkpoint may ask for this rank's part. Also if workers keep the dense tables, and another rank
// may need those of this one.
constexpr uint32_t kShortWaitMs = 200;
// The same at first in Geo, where the end of an epoch waits for the answer of every rank.
constexpr uint32_t kQuickWaitMs = 20;
constexpr int kQuickWaits = 50;
constexpr absl::Duration kRetryPause = absl::Milliseconds(200);

TraceBatch::Name PhaseSpanName(Phase::Kind kind) {
  switch (kind) {
    case Phase::INDEX:
      return TraceBatch::INDEX;
    case Phase::TRAIN:
      return TraceBatch::TRAIN;
    case Phase::EVAL:
      return TraceBatch::EVAL;
    case Phase::SAVE:
      return TraceBatch::SAVE;
    default:
      return TraceBatch::NAME_UNSPECIFIED;
  }
}

}  // namespace

JobRunner::JobRunner(Options options)
    : member_(std::move(options.member)),
      options_(std::move(options)),
      trace_(MakeTraceRecorder(member_.spec(), member_.clock())),
      stats_(job_id(), rank(), member_.config().train().log_every(), options_.log, trace_.get()),
      cuts_(job_id(), rank(), incarnation(), options_.report_soon),
      end_(EndOptions()),
      data_(&context_, options_.env, options_.host) {
  cuts_.SetWanted(member_.assignment().checkpoint());
  if (member_.assignment().has_early_end()) end_.Set(member_.assignment().early_end());
}

ProgramEnd::Options JobRunner::EndOptions() {
  ProgramEnd::Options options;
  options.job_id = job_id();
  options.rank = rank();
  options.incarnation = incarnation();
  options.key = [this] { return member_.key(); };
  options.scheduler = member_.scheduler();
  options.patience = options_.scheduler_patience;
  options.clock = member_.clock();
  options.cancelled = &cancelled_;
  options.ends = [this](const EarlyEnd& end) {
    MutexLock lock(&mutex_);
    if (dense_.meetings != nullptr) dense_.meetings->EndAfter(end.last_step());
  };
  return options;
}

// The statistics outlive the network, so they must stop watching it first.
JobRunner::~JobRunner() { stats_.WatchNet(nullptr); }

void JobRunner::Cancel() {
  // The flag first: a thread that starts to wait after the calls below sees it.
  cancelled_ = true;
  MutexLock lock(&mutex_);
  if (client_) client_->Cancel();
  if (dense_.tables) dense_.tables->Cancel();
  if (cancelled_net_ != nullptr) cancelled_net_->Cancel();
}

bool JobRunner::Fail(absl::Status why) {
  {
    MutexLock lock(&mutex_);
    if (failure_taken_) return !failure_.ok();
    if (failure_.ok()) failure_ = std::move(why);
  }
  Cancel();
  return true;
}

absl::Status JobRunner::TakeFailure() {
  MutexLock lock(&mutex_);
  failure_taken_ = true;
  return failure_;
}

void JobRunner::NoteGeneration(uint64_t generation, const RankGroupCards& cards) {
  MutexLock lock(&mutex_);
  // Kept for a client and tables that do not exist yet; Prepare asks again with them.
  generation_ = generation;
  cards_ = cards;
  if (client_) client_->NoteGeneration(generation);
  if (dense_.meetings != nullptr) dense_.meetings->Ask(generation, cards);
}

void JobRunner::AddGroup(PollRequest* report) const {
  MutexLock lock(&mutex_);
  if (dense_.meetings != nullptr) dense_.meetings->AddTo(report);
}

WorkerProgress JobRunner::WithWaiting(WorkerProgress progress) {
  MutexLock lock(&mutex_);
  std::string waiting = client_ ? client_->WaitingFor() : "";
  if (waiting.empty() && dense_.tables) waiting = dense_.tables->WaitingFor();
  if (!waiting.empty()) progress.set_doing(waiting);
  progress.set_incarnation(incarnation());
  return progress;
}

uint64_t JobRunner::Acknowledged() const {
  MutexLock lock(&mutex_);
  return client_ ? client_->acknowledged() : 0;
}

bool JobRunner::Holds(HeldJob* held) const {
  member_.Describe(held);
  held->set_checkpoint(cuts_.newest());
  return !cancelled_ && !ended_;
}

absl::Status JobRunner::Prepare() {
  const JobConfig& config = member_.config();
  SLUICE_RETURN_IF_ERROR(member_.Check());
  SLUICE_ASSIGN_OR_RETURN(model_, Model::Create(config, *options_.models));
  SLUICE_RETURN_IF_ERROR(data_.Open(config, model_->schema(), options_.own_data));
  SLUICE_ASSIGN_OR_RETURN(const NetOptions net,
                          NetOptionsOf(config, options_.device, options_.threads));
  SLUICE_ASSIGN_OR_RETURN(net_, model_->CreateNet(net));
  stats_.WatchNet(net_.get());
  SLUICE_ASSIGN_OR_RETURN(ParameterClient::Options client, member_.ClientOptions());
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<ParameterClient> created,
                          ParameterClient::Create(std::move(client)));

  context_.spec = &member_.spec();
  context_.mode = ModeOf(config.strategy());
  context_.rank = rank();
  context_.incarnation = incarnation();
  context_.pass = member_.assignment().pass();
  context_.model = model_.get();
  if (!ProgramGivesData(config)) {
    context_.cache =
        MakeExampleCache(config, *model_->schema(), options_.env, member_.clock(), options_.log);
  }
  context_.net = net_.get();
  // A plain pointer: the client moves to client_ below, under the lock that Cancel takes.
  context_.client = created.get();
  SLUICE_ASSIGN_OR_RETURN(JobDenseTables dense, MakeDense(created->tables()));
  context_.dense = dense.tables.get();
  context_.meetings = dense.meetings;
  context_.scheduler = member_.scheduler();
  context_.scheduler_patience = options_.scheduler_patience;
  context_.scheduler_silent = options_.scheduler_silent;
  context_.stats = &stats_;
  context_.cuts = &cuts_;
  context_.end = &end_.end();
  context_.end_training = [this](uint64_t steps) { return EndTraining(steps); };
  context_.clock = member_.clock();
  context_.env = options_.env;
  context_.line_counts = options_.line_counts;
  context_.log_env = options_.log_env;
  context_.cancelled = &cancelled_;
  context_.log = options_.log;
  {
    MutexLock lock(&mutex_);
    client_ = std::move(created);
    dense_ = std::move(dense);
    cancelled_net_ = net_.get();
    if (dense_.meetings != nullptr) {
      dense_.meetings->Ask(generation_, cards_);
      if (end_.end().known()) dense_.meetings->EndAfter(end_.end().last_step());
    }
  }
  // Cancel may have come before there was a client that it could cancel.
  if (cancelled_) return absl::CancelledError("the job was cancelled");
  trainer_ = Trainer::Create(context_);
  evaluator_ = std::make_unique<Evaluator>(context_);
  return absl::OkStatus();
}

absl::StatusOr<JobDenseTables> JobRunner::MakeDense(TableLayouts layouts) const {
  DenseTablesOptions options;
  options.model = model_.get();
  options.spec = &member_.spec();
  options.layouts = std::move(layouts);
  options.env = options_.env;
  options.rejoins = member_.assignment().rejoins();
  options.group.job_id = job_id();
  options.group.rank = rank();
  options.group.incarnation = incarnation();
  options.group.patience = options_.attempt_patience;
  options.group.clock = member_.clock();
  options.group.report_soon = options_.report_soon;
  options.group.log = options_.log;
  options.make_collective = options_.make_collective;
  return MakeDenseTables(std::move(options));
}

void JobRunner::LogHowItComputes(const CpuPin* pin) const {
  const TrainConfig& train = member_.config().train();
  if (pin != nullptr) {
    options_.log(pin->cpus().empty()
                     ? "train.pin_threads: the operating system refused to pin the threads"
                     : absl::StrCat("computes on CPU ", absl::StrJoin(pin->cpus(), ", ")));
  }
  if (options_.device.kind == ComputeDevice::kCuda) {
    if (net_ != nullptr) options_.log(absl::StrCat("computes on ", net_->Describe()));
    return;
  }
  if (train.compute_dtype() == TrainConfig::BF16 && !HasBf16Instructions()) {
    options_.log(
        "train.compute_dtype BF16: this processor has no bf16 instructions; F32 is faster on it");
  }
  if (train.has_device_memory_fraction())
    options_.log("train.device_memory_fraction has no effect: this worker computes on the CPU");
}

absl::Status JobRunner::Run() {
  absl::Status status = Prepare();
  // Pin only now: the client's threads already run and stay unpinned. The training that runs on
  // this thread, and the threads that it starts, inherit the pinning.
  std::optional<CpuPin> pin;
  if (status.ok() && member_.config().train().pin_threads()) {
    pin.emplace(options_.slot * options_.threads, options_.threads);
  }
  LogHowItComputes(pin ? &*pin : nullptr);
  if (status.ok()) status = RunPhases();
  // From here on the rank is not held any more: a new scheduler must not count on it.
  ended_ = true;
  // The loss that has caused the error also makes the scheduler begin another attempt. A failure
  // that is reported before that would end the job.
  if (MayGoWellInNextAttempt(status.code())) AwaitNextAttempt(status);
  // Errors of waits that Fail has ended only follow from its own. Fail cancels as well.
  const absl::Status own = TakeFailure();
  if (!own.ok()) status = own;
  if (!status.ok() && (!cancelled_ || !own.ok())) {
    const absl::Status told = member_.Fail(status, Progress(), /*of_process=*/!own.ok());
    if (!told.ok()) options_.log(absl::StrCat("could not report the failure: ", told.ToString()));
  }
  return status;
}

void JobRunner::AwaitNextAttempt(const absl::Status& error) {
  constexpr absl::Duration kLook = absl::Milliseconds(20);
  if (cancelled_) return;
  options_.log(absl::StrCat("waits for the job's next attempt: ", error.ToString()));
  stats_.SetDoing("waiting for the job's next attempt");
  const absl::Time begin = member_.clock()->Now();
  while (!cancelled_ && member_.clock()->Now() - begin < options_.attempt_patience)
    member_.clock()->Sleep(kLook);
}

absl::Status JobRunner::EndTraining(uint64_t steps) {
  options_.log(
      absl::StrCat("the program has left its loop",
                   context_.mode == Mode::kSync ? absl::StrCat(" after step ", steps) : ""));
  stats_.SetDoing("ending the job");
  return end_.EndTraining(steps);
}

absl::Status JobRunner::RunPhases() {
  PhaseReport report;
  if (member_.assignment().rejoins()) {
    // The phase of the job may be any, and each needs the data files. The others wait, so nothing
    // is read that the job knows already.
    SLUICE_ASSIGN_OR_RETURN(*report.mutable_index(), data_.SeeFiles());
  }
  Phase::Kind after = Phase::KIND_UNSPECIFIED;
  for (;;) {
    stats_.SetDoing("waiting for the next phase");
    SLUICE_ASSIGN_OR_RETURN(const Phase phase, NextPhase(report, after));
    if (phase.kind() == Phase::FINISH) {
      if (!phase.failure().empty())
        job_end_ = absl::FailedPreconditionError(absl::StrCat("the job has ", phase.failure()));
      return absl::OkStatus();
    }
    SLUICE_ASSIGN_OR_RETURN(report, RunPhase(phase));
    after = phase.kind();
    // Says which phase the report answers: a retried call may arrive after the next phase has
    // begun.
    report.set_number(phase.number());
  }
}

absl::StatusOr<Phase> JobRunner::NextPhase(const PhaseReport& report, Phase::Kind after) {
  NextPhaseRequest request = member_.PhaseRequest();
  const bool answers = after == Phase::TRAIN && context_.mode != Mode::kSync;
  RankMeetings* const meetings = context_.meetings;
  request.set_wait_ms(answers || meetings != nullptr ? kShortWaitMs : kWaitMs);
  *request.mutable_report() = report;
  if (after == Phase::TRAIN) *request.mutable_losses() = stats_.UnreportedLosses();
  SilenceTimer silence;
  for (int calls = 0;; ++calls) {
    if (cancelled_) return absl::CancelledError("the job was cancelled");
    if (answers) trainer_->AnswerCheckpoint();
    if (answers && context_.mode == Mode::kGeo)
      request.set_wait_ms(calls < kQuickWaits ? kQuickWaitMs : kShortWaitMs);
    const absl::Time due = member_.clock()->Now() + absl::Milliseconds(request.wait_ms());
    absl::StatusOr<NextPhaseReply> reply = member_.scheduler()->NextPhase(request);
    if (reply.ok()) {
      if (reply->ready()) {
        cuts_.GoOn();
        return reply->phase();
      }
      // The others may need the tables of this rank in order to end their phase.
      if (meetings != nullptr && meetings->asked()) SLUICE_RETURN_IF_ERROR(meetings->Attend());
      // Nothing changes here before the next phase, so the rank waits for its release at the same
      // time.
      if (answers && cuts_.wanted().released()) cuts_.GoOn();
      if (!reply->waiting_for().empty())
        stats_.SetDoing(absl::StrCat("waiting for ", reply->waiting_for()));
      silence.Answered();
      // Early without a phase: the scheduler has no room for all calls that wait.
      const absl::Duration early = due - member_.clock()->Now();
      if (early > absl::ZeroDuration()) member_.clock()->Sleep(std::min(early, kRetryPause));
      continue;
    }
    if (!MayBeAnsweredLater(reply.status()) ||
        silence.Unanswered(member_.clock()->Now()) > options_.scheduler_patience) {
      return reply.status();
    }
    member_.clock()->Sleep(kRetryPause);
  }
}

absl::StatusOr<PhaseReport> JobRunner::RunPhase(const Phase& phase) {
  const bool reads_data = phase.kind() == Phase::TRAIN || phase.kind() == Phase::EVAL;
  if (reads_data && context_.files == nullptr) {
    return absl::InternalError(absl::StrCat("the scheduler asks for phase ", phase.number(), " (",
                                            Phase::Kind_Name(phase.kind()),
                                            ") before the data files were looked at"));
  }
  SpanTimer span(trace_.get(), PhaseSpanName(phase.kind()),
                 trace_ == nullptr ? 0 : trace_->Track(kTrainerTrack));
  span.set_step(phase.epoch() + 1);
  SLUICE_RETURN_IF_ERROR(MeetRanks(phase));
  PhaseReport report;
  switch (phase.kind()) {
    case Phase::INDEX: {
      stats_.SetDoing("reading the data");
      SLUICE_ASSIGN_OR_RETURN(*report.mutable_index(), data_.Index());
      break;
    }
    case Phase::TRAIN: {
      stats_.SetDoing("training");
      SLUICE_ASSIGN_OR_RETURN(*report.mutable_train(), Train(phase));
      SLUICE_RETURN_IF_ERROR(DescribeEnd(phase, &report));
      break;
    }
    case Phase::EVAL: {
      stats_.SetDoing("evaluating");
      if (!phase.resume().net_state().empty())
        SLUICE_RETURN_IF_ERROR(net_->RestoreState(phase.resume().net_state()));
      SLUICE_ASSIGN_OR_RETURN(*report.mutable_eval(),
                              evaluator_->Run(report.mutable_train()->mutable_summary()));
      break;
    }
    case Phase::SAVE: {
      if (rank() != 0) break;
      stats_.SetDoing("saving the model");
      SLUICE_ASSIGN_OR_RETURN(*report.mutable_save(), Save(phase));
      break;
    }
    default:
      return absl::InternalError(absl::StrCat("phase of unknown kind ", phase.kind()));
  }
  return report;
}

absl::Status JobRunner::MeetRanks(const Phase& phase) {
  RankMeetings* const meetings = context_.meetings;
  // INDEX needs no tables, and the ranks end it at different times.
  if (meetings == nullptr || phase.kind() == Phase::INDEX) return absl::OkStatus();
  stats_.SetDoing("meeting the other workers");
  return meetings->Meet(phase.commit_again());
}

absl::Status JobRunner::AnswerOthers() {
  if (context_.mode != Mode::kSync) {
    trainer_->AnswerCheckpoint();
    // Nothing changes here, so the rank waits for its release at the same time.
    if (cuts_.wanted().released()) cuts_.GoOn();
  }
  RankMeetings* const meetings = context_.meetings;
  return meetings != nullptr && meetings->asked() ? meetings->Attend() : absl::OkStatus();
}

absl::Status JobRunner::ContinueWithRanks(Phase* phase) {
  const bool first = !std::exchange(trained_, true);
  if (!first || !member_.assignment().rejoins() || !StepCommit::IsAmongRanks(context_))
    return absl::OkStatus();
  RankMeetings* const meetings = context_.meetings;
  const uint64_t closed = meetings->closed();
  const ClosedStep& newest = *meetings->newest();
  const uint64_t known = phase->first_step() + phase->skip_steps();
  // The ranks and the scheduler agree. Otherwise the ranks have closed a step of which the
  // scheduler has not heard yet.
  if (closed == known) return absl::OkStatus();
  if (closed < known || closed > phase->first_step() + phase->global_steps() ||
      newest.steps != closed) {
    return meetings->GiveUp(absl::AbortedError(
        absl::StrCat("rank ", rank(), " cannot continue after step ", closed,
                     ", because the others do not know its sums after that step")));
  }
  phase->set_skip_steps(closed - phase->first_step());
  const TrainTotals& totals = newest.totals[rank()];
  TrainReport* const train = phase->mutable_resume()->mutable_train();
  train->set_examples(totals.examples());
  train->set_steps(totals.steps());
  train->set_loss_sum(totals.loss_sum());
  train->set_weight_sum(totals.weight_sum());
  return absl::OkStatus();
}

absl::StatusOr<TrainReport> JobRunner::Train(const Phase& issued) {
  Phase phase = issued;
  SLUICE_RETURN_IF_ERROR(ContinueWithRanks(&phase));
  SLUICE_RETURN_IF_ERROR(data_.Prepare());
  // Before Resume, which adds to what this clears.
  stats_.BeginEpoch(phase.epoch());
  if (phase.has_resume() || phase.skip_steps() > 0) SLUICE_RETURN_IF_ERROR(Resume(phase));
  EpochPlan plan;
  plan.epoch = phase.epoch();
  plan.first_step = phase.first_step() + phase.skip_steps();
  plan.steps_done = phase.skip_steps();
  plan.commit_again = phase.commit_again();
  if (plan.commit_again != 0 && plan.commit_again != plan.first_step) {
    return absl::InternalError(absl::StrCat("the scheduler asks to repeat the commit of step ",
                                            plan.commit_again, ", but ", plan.first_step,
                                            " steps are done"));
  }
  uint64_t dropped = 0;
  SLUICE_RETURN_IF_ERROR(context_.mode == Mode::kSync
                             ? data_.TrainSteps(plan, phase, trainer_.get(), &dropped)
                             : data_.TrainTasks(plan, trainer_.get(), &dropped));
  SLUICE_RETURN_IF_ERROR(trainer_->EndEpoch(phase.epoch()));
  SLUICE_RETURN_IF_ERROR(net_->EndEpoch(phase.epoch(), [this] {
    stats_.SetDoing("waiting for the program at the end of the epoch");
    return AnswerOthers();
  }));
  TrainReport report = stats_.EpochReport();
  if (const uint64_t steps = StepsDone(phase); steps < phase.global_steps()) {
    // What was read ahead counts for nothing.
    report = stats_.ReportAfter(steps);
    dropped = 0;
  }
  report.set_dropped(report.dropped() + dropped);
  return report;
}

uint64_t JobRunner::StepsDone(const Phase& phase) {
  const uint64_t all = phase.global_steps();
  return end_.end().known() ? std::min(stats_.EpochSteps(), all) : all;
}

absl::Status JobRunner::DescribeEnd(const Phase& phase, PhaseReport* report) {
  SLUICE_ASSIGN_OR_RETURN(const std::string net_state, net_->SaveState());
  if (!net_state.empty()) report->mutable_end()->set_net_state(net_state);
  if (context_.mode != Mode::kSync) return absl::OkStatus();
  const uint64_t steps = StepsDone(phase);
  // Data after the last step was only read to count it. A job that resumes there reads it again.
  if (context_.config().data().drop_last())
    *report->mutable_end()->mutable_train() = stats_.ReportAfter(steps);
  const WorkerCuts::Named named = cuts_.named();
  // Named in the commit of a step that never closes.
  if (named.step > phase.first_step() + steps) return absl::OkStatus();
  report->set_checkpoint(named.number);
  report->set_checkpoint_step(named.step);
  return absl::OkStatus();
}

absl::Status JobRunner::Resume(const Phase& phase) {
  const WorkerState& state = phase.resume();
  const bool sync = context_.mode == Mode::kSync;
  const uint64_t done = sync ? phase.skip_steps() : state.train().steps();
  // In async and Geo first_step also counts the steps of this epoch.
  const uint64_t before = phase.first_step() - (sync ? 0 : std::min(done, phase.first_step()));
  stats_.StartFrom(state.train(), done, before);
  if (context_.mode == Mode::kGeo) {
    GeoRestore restore;
    restore.directory = context_.spec->restore().directory();
    if (state.has_file()) restore.file = state.file();
    restore.step = phase.first_step();
    SLUICE_RETURN_IF_ERROR(trainer_->Restore(restore));
  }
  if (context_.mode != Mode::kGeo && state.has_file() && context_.own_data != nullptr &&
      context_.own_data->states() != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(
        SourceState kept,
        ReadSourceState(options_.env, context_.spec->restore().directory(), state.file()));
    context_.own_data->states()->Keep(std::move(kept));
  }
  options_.log(sync ? absl::StrCat("resumes epoch ", phase.epoch() + 1, " after ", done, " of ",
                                   phase.global_steps(), " steps")
                    : absl::StrCat("resumes epoch ", phase.epoch() + 1, " after ",
                                   state.train().examples(), " examples of this rank"));
  return state.net_state().empty() ? absl::OkStatus() : net_->RestoreState(state.net_state());
}

absl::StatusOr<SaveReport> JobRunner::Save(const Phase& phase) {
  Manifest manifest;
  manifest.set_version(1);
  manifest.set_job_id(job_id());
  manifest.set_global_step(phase.global_step());
  manifest.set_epochs(phase.epoch() + 1);
  *manifest.mutable_tables() = context_.spec->tables();
  // What the tables have begun with is not theirs any more.
  for (TableConfig& table : *manifest.mutable_tables()) table.clear_start();
  const auto files = context_.client->SaveShards(phase.model_dir(), phase.save_id());
  // A rollback begins another attempt.
  if (PserverMayBeLost(files.status().code())) return absl::AbortedError(files.status().message());
  SLUICE_RETURN_IF_ERROR(files.status());
  for (const SavedFile& file : *files) *manifest.add_files() = file;
  // After the shards: all ranks have ended the last step by now, and so have the workers' own
  // tables.
  SLUICE_ASSIGN_OR_RETURN(const std::vector<SavedFile> dense,
                          context_.dense->SaveModel(phase.model_dir(), phase.save_id()));
  for (const SavedFile& file : dense) *manifest.add_files() = file;
  // The scheduler commits the model after the job has ended well.
  SLUICE_ASSIGN_OR_RETURN(manifest,
                          PrepareModel(phase.model_dir(), context_.config(), std::move(manifest),
                                       context_.env, phase.save_id()));
  SaveReport report;
  report.set_model_dir(phase.model_dir());
  report.set_model_digest(manifest.model_digest());
  return report;
}

}  // namespace sluice
