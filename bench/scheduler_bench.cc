// scheduler/{poll_p50,poll_p99,cpu}/members1000/jobs200: a real SchedulerLoop without gRPC. 980
// workers and 20 pservers report every second; 140 jobs of 7 workers run and 60 queue. These calls
// wait all the time: one poll per member, three ranks of each running job for its next phase, and
// one watcher per job. Every report of a worker brings a loss and wakes its job's watcher.
//
// poll_*: microseconds from a report until its caller is answered or waits. cpu: percent of one
// core that the scheduler uses. The limits are the messages alone: writing and reading the same
// requests and answers, which any service must do besides deciding.
#include <sys/resource.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/standard_model.h"
#include "bench/suite.h"
#include "scheduler/service/job_spec_builder.h"
#include "scheduler/service/request_intake.h"

namespace sluice::bench {
namespace {

constexpr uint32_t kPservers = 20, kWorkers = 980, kJobs = 200, kWorkersAJob = 7;
constexpr uint32_t kRunning = kWorkers / kWorkersAJob;
constexpr uint32_t kWaitingRanks = 3;  // in each running job
constexpr uint32_t kHeartbeatMs = 1000, kLongWaitMs = 30000;

double ProcessSeconds() {
  rusage use;
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) { return t.tv_sec + t.tv_usec * 1e-6; };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

double Percentile(std::vector<double>* values, double share) {
  if (values->empty()) return 0;
  const auto at = values->begin() + static_cast<ptrdiff_t>(share * (values->size() - 1));
  std::nth_element(values->begin(), at, values->end());
  return *at;
}

// The members of the cluster and its operators, all on the calling thread.
class SchedulerLoad {
 public:
  explicit SchedulerLoad(std::string folder)
      : folder_(std::move(folder)),
        loop_(std::make_unique<SchedulerLoop>(Options())),
        intake_(IntakeOptions()) {}
  ~SchedulerLoad() {
    loop_.reset();  // first, because it answers all waiting calls
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  absl::Status Begin() {
    for (uint32_t i = 0; i < kPservers + kWorkers; ++i) Join(i);
    for (uint32_t i = 0; i < kJobs; ++i) {
      const absl::Status submitted = Submit(i);
      if (!submitted.ok()) return submitted;
    }
    for (Member& member : members_) Poll(&member);
    const double end = Now() + 60;
    while (Now() < end && phases_ < kRunning * kWorkersAJob) Answer(Now() + 0.1);
    if (phases_ < kRunning * kWorkersAJob)
      return absl::InternalError(absl::StrCat("scheduler: ", phases_, " ranks have begun in 60 s"));
    Answer(Now() + 2);  // let the heartbeats settle
    return absl::OkStatus();
  }

  struct Figures {
    double p50_us = 0, p99_us = 0, cpu_percent = 0;
    double message_p50_us = 0, message_p99_us = 0, message_cpu_percent = 0;
  };
  Figures Measure(double seconds) {
    reports_us_.clear();
    messages_us_.clear();
    in_calls_ = 0;
    message_seconds_ = 0;
    measuring_ = true;
    const double begin = Now(), process = ProcessSeconds(), own = ThreadNow();
    Answer(begin + seconds);
    const double wall = Now() - begin;
    const double outside_calls = ThreadNow() - own - in_calls_;
    measuring_ = false;
    Figures figures;
    figures.p50_us = Percentile(&reports_us_, 0.5);
    figures.p99_us = Percentile(&reports_us_, 0.99);
    figures.cpu_percent = 100 * (ProcessSeconds() - process - outside_calls) / wall;
    figures.message_p50_us = Percentile(&messages_us_, 0.5);
    figures.message_p99_us = Percentile(&messages_us_, 0.99);
    figures.message_cpu_percent = 100 * message_seconds_ / wall;
    // Too few reports mean that the scheduler does not keep up, or that members were lost.
    const double expected = (kPservers + kWorkers) * wall * 1000 / kHeartbeatMs;
    if (reports_us_.size() < expected / 2) {
      std::fprintf(stderr, "scheduler: %zu reports in %.1f s, expected %.0f\n", reports_us_.size(),
                   wall, expected);
    }
    return figures;
  }

 private:
  struct Member {
    uint64_t id = 0;
    std::string secret;
    bool pserver = false;
    PollRequest request;
    std::unique_ptr<NextPhaseRequest> phase;
  };
  struct Answered {
    Member* member = nullptr;
    std::unique_ptr<PollReply> poll;
    std::unique_ptr<NextPhaseReply> phase;
    WatchJobRequest* watch = nullptr;
    std::unique_ptr<WatchJobReply> job;
  };

  static SchedulerLoop::Options Options() {
    SchedulerLoop::Options options;
    options.core.cluster = "bench";
    options.core.pass_key = std::string(32, 'k');
    options.core.pserver_num = kPservers;
    options.core.worker_num = kWorkers;
    options.core.lease = absl::Minutes(10);
    options.core.heartbeat = absl::Milliseconds(kHeartbeatMs);
    options.core.place = PlaceJob;
    options.clock = Clock::Real();
    options.env = Env::Real();
    options.host = "h";
    options.log = [](const std::string&) {};
    options.job_log = [](const std::string&, const std::string&) {};
    return options;
  }
  RequestIntake::Options IntakeOptions() const {
    RequestIntake::Options options;
    options.loop = loop_.get();
    options.clock = Clock::Real();
    options.env = Env::Real();
    options.pserver_num = kPservers;
    options.default_output = folder_;
    options.log = [](const std::string&) {};
    return options;
  }

  void Join(uint32_t i) {
    RegisterRequest request;
    request.set_protocol(1);
    request.set_role(i < kPservers ? ROLE_PSERVER : ROLE_WORKER);
    request.set_rank(i < kPservers ? i : i - kPservers);
    request.set_host("h");
    request.set_pid(1000 + i);
    if (i < kPservers) request.set_address(absl::StrCat("10.0.0.1:", 5000 + i));
    members_.emplace_back();
    members_.back().pserver = i < kPservers;
    const auto reply = intake_.Register(request);
    members_.back().id = reply->member_id();
    members_.back().secret = reply->secret();
  }
  absl::Status Submit(uint32_t i) {
    OptimizerConfig sgd;
    sgd.mutable_sgd();
    SubmitJobRequest request;
    *request.mutable_config() = StandardJob("none*.tsv", 2048, sgd);
    request.mutable_config()->set_worker_num(kWorkersAJob);
    request.mutable_config()->mutable_strategy()->set_a_sync(true);
    request.mutable_config()->set_output_dir(absl::StrCat(folder_, "/", i));
    const auto reply = intake_.SubmitJob(request);
    if (!reply.ok()) return reply.status();
    watches_.push_back(std::make_unique<WatchJobRequest>());
    watches_.back()->set_job_id(reply->job_id());
    watches_.back()->set_wait_ms(kLongWaitMs);
    Watch(watches_.back().get());
    return absl::OkStatus();
  }

  // Takes answers and repeats the calls until `end`.
  void Answer(double end) {
    for (;;) {
      Answered answered;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        const auto left = std::chrono::duration<double>(end - Now());
        if (left.count() <= 0) return;
        changed_.wait_for(lock, left, [this] { return !answers_.empty(); });
        if (answers_.empty()) return;
        answered = std::move(answers_.front());
        answers_.pop_front();
      }
      if (answered.poll != nullptr) {
        TakePoll(answered.member, *answered.poll);
      } else if (answered.phase != nullptr) {
        TakePhase(answered.member, *answered.phase);
      } else if (answered.job != nullptr) {
        Weigh(*answered.watch, *answered.job, nullptr);
        answered.watch->set_seen_version(answered.job->status().version());
        answered.watch->set_seen_steps(answered.job->steps_seen());
        Watch(answered.watch);
      }
    }
  }
  void Put(Answered answered) {
    const std::lock_guard<std::mutex> lock(mutex_);
    answers_.push_back(std::move(answered));
    changed_.notify_one();
  }
  // Makes a call into the loop and adds its wall time in us to `to`.
  template <class Call>
  void Timed(std::vector<double>* to, const Call& call) {
    const double wall = Now(), processor = ThreadNow();
    call();
    if (!measuring_) return;
    in_calls_ += ThreadNow() - processor;
    if (to != nullptr) to->push_back(1e6 * (Now() - wall));
  }
  // Measures the limit: writes and reads the two messages of a call.
  template <class Request, class Reply>
  void Weigh(const Request& request, const Reply& reply, std::vector<double>* to) {
    if (!measuring_) return;
    const double begin = Now();
    Request request_read;
    request_read.ParseFromString(request.SerializeAsString());
    Reply reply_read;
    reply_read.ParseFromString(reply.SerializeAsString());
    const double seconds = Now() - begin;
    message_seconds_ += seconds;
    if (to != nullptr) to->push_back(1e6 * seconds);
  }

  void Poll(Member* member) {
    PollRequest* request = &member->request;
    request->set_member_id(member->id);
    request->set_secret(member->secret);
    request->set_wait_ms(kHeartbeatMs);
    request->set_memory_bytes(123456789);
    if (request->has_progress()) {
      WorkerProgress* progress = request->mutable_progress();
      progress->set_step(progress->step() + 100);
      progress->set_examples(progress->examples() + 204800);
      progress->set_loss(0.5);
      progress->set_examples_per_second(204800);
      progress->set_doing("training");
      progress->clear_losses();
      StepLoss* loss = progress->add_losses();
      loss->set_step(progress->step());
      loss->set_loss(0.5);
      loss->set_examples_per_second(204800);
    }
    for (HostedJob& hosted : *request->mutable_hosted())
      hosted.set_frames_applied(hosted.frames_applied() + 700);
    Timed(&reports_us_, [&] {
      intake_.Poll(request, [this, member](absl::StatusOr<PollReply> reply) {
        if (reply.ok()) Put({member, std::make_unique<PollReply>(*std::move(reply))});
      });
    });
  }
  void TakePoll(Member* member, const PollReply& reply) {
    Weigh(member->request, reply, &messages_us_);
    if (reply.version() != member->request.seen_version()) {
      member->request.set_seen_version(reply.version());
      if (member->pserver) Host(member, reply);
      if (reply.has_assignment() && member->phase == nullptr) Serve(member, reply.assignment());
    }
    Poll(member);
  }
  void Host(Member* member, const PollReply& reply) {
    member->request.clear_hosted();
    for (const JobSpec& spec : reply.host()) {
      HostedJob* hosted = member->request.add_hosted();
      hosted->set_job_id(spec.job_id());
      hosted->set_instance(spec.instance());
      hosted->set_generation(spec.route().generation());
      for (const TableConfig& table : spec.tables()) {
        TableStatus* status = hosted->add_tables();
        status->set_name(table.name());
        status->set_rows(1000000);
        status->set_bytes(100000000);
      }
    }
  }
  void Serve(Member* member, const WorkerAssignment& assignment) {
    member->request.mutable_progress()->set_job_id(assignment.job().job_id());
    member->request.mutable_progress()->set_rank(assignment.rank());
    member->request.mutable_progress()->set_incarnation(assignment.incarnation());
    member->phase = std::make_unique<NextPhaseRequest>();
    member->phase->set_job_id(assignment.job().job_id());
    member->phase->set_rank(assignment.rank());
    member->phase->set_incarnation(assignment.incarnation());
    member->phase->set_pass(assignment.pass());
    NextPhase(member);
  }
  void NextPhase(Member* member) {
    Timed(nullptr, [&] {
      intake_.NextPhase(member->phase.get(), [this, member](absl::StatusOr<NextPhaseReply> reply) {
        if (reply.ok()) Put({member, nullptr, std::make_unique<NextPhaseReply>(*std::move(reply))});
      });
    });
  }
  // Some ranks end the first phase and wait for the others, which never do.
  void TakePhase(Member* member, const NextPhaseReply& reply) {
    if (reply.ready()) ++phases_;
    if (member->phase->rank() >= kWaitingRanks) return;
    if (reply.ready()) {
      member->phase->mutable_report()->set_number(reply.phase().number());
      member->phase->mutable_report()->mutable_index();
      member->phase->set_wait_ms(kLongWaitMs);
    }
    NextPhase(member);
  }
  void Watch(WatchJobRequest* request) {
    Timed(nullptr, [&] {
      intake_.WatchJob(request, [this, request](absl::StatusOr<WatchJobReply> reply) {
        if (!reply.ok()) return;
        Put({nullptr, nullptr, nullptr, request,
             std::make_unique<WatchJobReply>(*std::move(reply))});
      });
    });
  }

  const std::string folder_;
  std::deque<Member> members_;
  std::vector<std::unique_ptr<WatchJobRequest>> watches_;
  uint32_t phases_ = 0;  // ranks that have received their first phase
  bool measuring_ = false;
  double in_calls_ = 0, message_seconds_ = 0;
  std::vector<double> reports_us_, messages_us_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Answered> answers_;
  std::unique_ptr<SchedulerLoop> loop_;  // answers calls until it is destroyed
  RequestIntake intake_;
};

absl::StatusOr<std::shared_ptr<SchedulerLoad>> BeginLoad() {
  std::string folder = (std::filesystem::temp_directory_path() / "sluice_bench_XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr)
    return absl::UnavailableError(absl::StrCat("cannot make ", folder));
  auto load = std::make_shared<SchedulerLoad>(folder);
  const absl::Status begun = load->Begin();
  if (!begun.ok()) return begun;
  return load;
}

using Choose = Sample (*)(const SchedulerLoad::Figures&);

void Add(const char* name, const char* unit, Choose choose, std::vector<Benchmark>* to) {
  Benchmark benchmark;
  benchmark.name = absl::StrCat("scheduler/", name, "/members1000/jobs200");
  benchmark.unit = unit;
  benchmark.limit_name = "messages";
  benchmark.few_repetitions = 3;
  benchmark.prepare =
      [choose](const Settings& settings) -> absl::StatusOr<std::function<Sample()>> {
    auto load = BeginLoad();
    if (!load.ok()) return load.status();
    const double seconds = settings.quick ? 1 : 5;
    return std::function<Sample()>([load = *load, choose, seconds] {
      const SchedulerLoad::Figures figures = load->Measure(seconds);
      return choose(figures);
    });
  };
  to->push_back(std::move(benchmark));
}

}  // namespace

void AddSchedulerBenchmarks(std::vector<Benchmark>* to) {
  using Figures = SchedulerLoad::Figures;
  Add(
      "poll_p50", "us",
      [](const Figures& f) {
        return Sample{f.p50_us, f.message_p50_us};
      },
      to);
  Add(
      "poll_p99", "us",
      [](const Figures& f) {
        return Sample{f.p99_us, f.message_p99_us};
      },
      to);
  Add(
      "cpu", "%",
      [](const Figures& f) {
        return Sample{f.cpu_percent, f.message_cpu_percent};
      },
      to);
}

}  // namespace sluice::bench
