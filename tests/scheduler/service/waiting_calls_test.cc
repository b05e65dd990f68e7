#include "scheduler/service/waiting_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/scheduler/fake_cluster.h"

namespace sluice {
namespace {

// A cluster whose members, ranks and operators act at random, with waiting calls like the loop's.
// After every event all calls are checked the slow way: exactly those that are ready or due must
// have been answered, each once.
class World {
 public:
  explicit World(uint32_t seed) : random_(seed), cluster_(kPservers, kWorkers) {}

  void Step() {
    const uint32_t dice = Draw(100);
    if (dice < 45) {
      Report();
    } else if (dice < 70) {
      NextPhase();
    } else if (dice < 78) {
      Watch();
    } else if (dice < 84) {
      Join();
    } else if (dice < 89) {
      Submit();
    } else if (dice < 93) {
      cluster_.WriteOutputs();
    } else if (dice < 96) {
      cluster_.Advance(absl::Milliseconds(Draw(1500)));
    } else if (dice < 98) {
      Cancel();
    } else {
      Lose();
    }
    Settle(/*all=*/false);
    for (const auto& [number, call] : waiting_) {
      ASSERT_LT(cluster_.now_, call.deadline) << "call " << number << " is overdue";
      ASSERT_FALSE(call.ready(cluster_.core_)) << "call " << number << " was not woken";
    }
    ASSERT_EQ(calls_.size(), waiting_.size());
  }
  void End() {
    Settle(/*all=*/true);
    EXPECT_EQ(calls_.size(), 0u);
    EXPECT_TRUE(waiting_.empty());
  }

  std::map<WaitKey::Kind, int> woken_, timed_out_;
  int done_jobs() {
    int done = 0;
    const ClusterStatus status = cluster_.core_.operators().GetStatus(cluster_.now_);
    for (const JobStatus& job : status.jobs()) done += job.state() == JOB_DONE;
    return done;
  }

 private:
  static constexpr uint32_t kPservers = 2, kWorkers = 6;
  struct Rank {
    uint64_t phase = 0;  // the last phase issued
    bool waits = false;
  };

  uint32_t Draw(uint32_t n) { return random_() % n; }
  template <class Container>
  auto Pick(const Container& from) {
    auto it = from.begin();
    std::advance(it, Draw(static_cast<uint32_t>(from.size())));
    return *it;
  }

  void Wait(WaitKey key, std::function<bool(SchedulerCore&)> ready,
            std::function<void(SchedulerCore&)> finish) {
    WaitingCalls::Call call;
    const int number = next_++;
    const absl::Time deadline = cluster_.now_ + absl::Milliseconds(1 + Draw(3000));
    call.key = key;
    call.deadline = deadline;
    call.ready = ready;
    call.finish = [=, kind = key.kind](SchedulerCore& core, absl::Time now) {
      const bool woken = ready(core);
      EXPECT_TRUE(all_ || woken || now >= deadline) << "call " << number << " is answered early";
      if (!all_) ++(woken ? woken_ : timed_out_)[kind];
      EXPECT_EQ(waiting_.erase(number), 1u) << "call " << number << " is answered again";
      finish(core);
      return WaitingCalls::Answer([] {});
    };
    EXPECT_FALSE(ready(cluster_.core_));
    waiting_.emplace(number, call);
    calls_.Add(std::move(call));
  }
  void Settle(bool all) {
    all_ = all;
    for (const auto& answer : calls_.Settle(&cluster_.core_, cluster_.now_, all)) answer();
  }

  void Join() {
    RegisterRequest request;
    request.set_protocol(1);
    request.set_role(Draw(3) == 0 ? ROLE_PSERVER : ROLE_WORKER);
    request.set_rank(Draw(request.role() == ROLE_PSERVER ? kPservers : kWorkers));
    request.set_host("h");
    request.set_pid(1 + Draw(2));
    if (request.role() == ROLE_PSERVER) request.set_address("ps");
    // Replace a living member only now and then.
    const ClusterStatus status = cluster_.core_.operators().GetStatus(cluster_.now_);
    for (const MemberStatus& m : status.members()) {
      const bool taken = m.role() == request.role() && m.rank() == request.rank() && m.alive();
      if (taken && Draw(30) > 0) return;
    }
    const auto reply = cluster_.core_.Register(request, cluster_.now_);
    if (reply.ok() && reply->member_id() != 0) members_.insert(reply->member_id());
  }

  void Report() {
    if (members_.empty()) return;
    const uint64_t id = Pick(members_);
    if (polling_.count(id) > 0) return;
    PollReply& state = cluster_.desired_[id];
    PollRequest request;
    request.set_member_id(id);
    request.set_seen_version(state.version());
    for (const JobSpec& spec : state.host()) {
      HostedJob* hosted = request.add_hosted();
      hosted->set_job_id(spec.job_id());
      hosted->set_instance(spec.instance());
      hosted->set_generation(spec.route().generation());
    }
    if (state.has_assignment()) {
      request.mutable_progress()->set_job_id(state.assignment().job().job_id());
      request.mutable_progress()->set_rank(state.assignment().rank());
      request.mutable_progress()->set_incarnation(state.assignment().incarnation());
    }
    const auto take = [this, id](const absl::StatusOr<PollReply>& reply) {
      polling_.erase(id);
      if (!reply.ok()) {
        members_.erase(id);
      } else if (reply->version() != cluster_.desired_[id].version()) {
        cluster_.desired_[id] = *reply;
      }
    };
    cluster_.BeginOutputs();
    const auto reply = cluster_.core_.Poll(request, cluster_.now_);
    const bool waits = reply.ok() && reply->version() == request.seen_version();
    if (!waits || Draw(3) == 0) return take(reply);
    polling_.insert(id);
    const uint64_t seen = request.seen_version();
    Wait(
        WaitKey::Desired(id),
        [id, seen](SchedulerCore& core) {
          const auto version = core.members().DesiredVersion(id);
          return !version.ok() || *version != seen;
        },
        [id, seen, take](SchedulerCore& core) { take(core.members().Desired(id, seen)); });
  }

  void NextPhase() {
    std::vector<WorkerAssignment> serving;
    for (const auto& [id, state] : cluster_.desired_) {
      if (members_.count(id) > 0 && state.has_assignment()) serving.push_back(state.assignment());
    }
    if (serving.empty()) return;
    const WorkerAssignment assignment = Pick(serving);
    Rank* rank = &ranks_[{assignment.job().job_id(), assignment.rank()}];
    if (rank->waits) return;
    NextPhaseRequest request;
    request.set_job_id(assignment.job().job_id());
    request.set_rank(assignment.rank());
    request.set_incarnation(assignment.incarnation());
    request.set_pass(assignment.pass());
    *request.mutable_report() = Trained(rank->phase, 50);
    *request.mutable_report()->mutable_index() =
        Indexed(100, assignment.rank(), assignment.job().worker_num()).index();
    const auto take = [rank](const absl::StatusOr<NextPhaseReply>& reply) {
      rank->waits = false;
      if (reply.ok() && reply->ready()) rank->phase = reply->phase().number();
    };
    const auto reply = cluster_.core_.NextPhase(request, cluster_.now_);
    if (!reply.ok() || reply->ready()) return take(reply);
    rank->waits = true;
    Wait(
        WaitKey::Phase(request.job_id()),
        [request](SchedulerCore& core) { return core.workers().PhaseReady(request); },
        [this, request, take](SchedulerCore& core) {
          take(core.workers().NextPhase(request, cluster_.now_));
        });
  }

  void Watch() {
    if (jobs_.empty()) return;
    const std::string job = Pick(jobs_);
    const auto version = cluster_.core_.operators().JobVersion(job);
    if (!version.ok()) return;
    const uint64_t seen = *version;
    Wait(
        WaitKey::Status(job),
        [job, seen](SchedulerCore& core) {
          const auto now = core.operators().JobVersion(job);
          return !now.ok() || *now > seen;
        },
        [](SchedulerCore&) {});
  }

  void Submit() {
    JobConfig config = FakeCluster::Config(Draw(5) == 0 ? 0 : -1, 1 + Draw(3), 1 + Draw(2));
    config.mutable_data()->clear_eval_files();  // evaluation sums take time
    const auto job = cluster_.Submit(config);
    if (job.ok()) jobs_.push_back(*job);
  }
  void Cancel() {
    if (!jobs_.empty() && Draw(4) == 0) {
      cluster_.core_.operators().CancelJob(Pick(jobs_), cluster_.now_).IgnoreError();
    }
  }
  void Lose() {
    if (members_.empty() || Draw(8) > 0) return;
    LeaveRequest leave;
    leave.set_member_id(Pick(members_));
    cluster_.core_.Leave(leave, cluster_.now_);
  }

  std::mt19937 random_;
  FakeCluster cluster_;
  WaitingCalls calls_;
  std::map<int, WaitingCalls::Call> waiting_;  // a copy of what calls_ should hold
  int next_ = 0;
  bool all_ = false;
  std::set<uint64_t> members_, polling_;
  std::vector<std::string> jobs_;
  std::map<std::pair<std::string, uint32_t>, Rank> ranks_;
};

TEST(WaitingCallsTest, RandomEventsAnswerEachCallWhenItIsReadyOrDue) {
  std::map<WaitKey::Kind, int> woken, timed_out;
  int done_jobs = 0;
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    for (int i = 0; i < 2500 && !testing::Test::HasFatalFailure(); ++i) world.Step();
    done_jobs += world.done_jobs();
    world.End();
    for (const auto& [kind, n] : world.woken_) woken[kind] += n;
    for (const auto& [kind, n] : world.timed_out_) timed_out[kind] += n;
  }
  // The random events must have reached every kind of answer.
  EXPECT_GT(done_jobs, 5);
  for (const WaitKey::Kind kind : {WaitKey::kDesired, WaitKey::kPhase, WaitKey::kStatus}) {
    EXPECT_GT(woken[kind], 30) << kind;
    EXPECT_GT(timed_out[kind], 10) << kind;
  }
}

TEST(WaitingCallsTest, AnswersFollowTheOrderOfTheCalls) {
  FakeCluster cluster(0, 1);
  const uint64_t id = cluster.Join(ROLE_WORKER, 0);
  WaitingCalls calls;
  cluster.core_.TakeChanged();
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) {
    WaitingCalls::Call call;
    call.key = WaitKey::Desired(id);
    // The first call is due last.
    call.deadline = cluster.now_ + absl::Seconds(3 - i);
    call.ready = [](SchedulerCore&) { return false; };
    call.finish = [i, &order](SchedulerCore&, absl::Time) {
      return WaitingCalls::Answer([i, &order] { order.push_back(i); });
    };
    calls.Add(std::move(call));
  }
  for (const auto& answer : calls.Settle(&cluster.core_, cluster.now_, /*all=*/false)) answer();
  EXPECT_TRUE(order.empty());
  const absl::Time end = cluster.now_ + absl::Seconds(3);
  for (const auto& answer : calls.Settle(&cluster.core_, end, /*all=*/false)) answer();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(calls.size(), 0u);
}

TEST(WaitingCallsTest, AnEventChecksOnlyTheCallsOfItsChangedKeys) {
  FakeCluster cluster(0, 100);
  cluster.JoinAll(0, 100);
  cluster.core_.TakeChanged();
  WaitingCalls calls;
  int looks = 0;
  for (const uint64_t id : cluster.workers_) {
    WaitingCalls::Call call;
    call.key = WaitKey::Desired(id);
    call.deadline = absl::InfiniteFuture();
    call.ready = [&looks](SchedulerCore&) {
      ++looks;
      return false;
    };
    call.finish = [](SchedulerCore&, absl::Time) { return WaitingCalls::Answer([] {}); };
    calls.Add(std::move(call));
  }
  ASSERT_TRUE(cluster.Poll(cluster.workers_[7]).ok());
  calls.Settle(&cluster.core_, cluster.now_, /*all=*/false);
  EXPECT_EQ(looks, 0);
  LeaveRequest leave;
  leave.set_member_id(cluster.workers_[7]);
  cluster.core_.Leave(leave, cluster.now_);
  calls.Settle(&cluster.core_, cluster.now_, /*all=*/false);
  EXPECT_EQ(looks, 1);
}

TEST(WaitingCallsTest, ACallerWithTooManyCallsGetsItsOldestAnsweredEarly) {
  FakeCluster cluster(1, 1);
  CallRoom room;
  room.waiting_per_caller = 2;
  WaitingCalls calls(room);
  std::vector<int> answered;
  const auto add = [&](const std::string& caller, int number) {
    WaitingCalls::Call call;
    call.caller = caller;
    call.key = WaitKey::Status("none");
    call.deadline = cluster.now_ + absl::Seconds(10);
    call.ready = [](SchedulerCore&) { return false; };
    call.finish = [&answered, number](SchedulerCore&, absl::Time) -> WaitingCalls::Answer {
      return [&answered, number] { answered.push_back(number); };
    };
    calls.Add(std::move(call));
    for (const auto& answer : calls.Settle(&cluster.core_, cluster.now_, false)) answer();
  };
  for (int number = 1; number <= 2; ++number) add("a", number);
  add("b", 3);
  EXPECT_TRUE(answered.empty());
  add("a", 4);
  add("a", 5);
  EXPECT_EQ(answered, (std::vector<int>{1, 2}));
  EXPECT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls.crowded_out(), 2u);
}

// Calls that wait for nothing that comes, with the numbers of those that were answered.
class EndlessCalls {
 public:
  EndlessCalls(size_t max_per_caller, size_t max_calls)
      : calls_(RoomOf(max_per_caller, max_calls)) {}

  // Returns whose call has lost its room.
  std::optional<std::string> Add(const std::string& caller, int number,
                                 const std::string& name = "") {
    WaitingCalls::Call call;
    call.caller = caller;
    call.name = name;
    call.key = WaitKey::Status("none");
    call.deadline = cluster_.now_ + absl::Seconds(10);
    call.ready = [](SchedulerCore&) { return false; };
    call.finish = [this, number](SchedulerCore&, absl::Time) -> WaitingCalls::Answer {
      return [this, number] { answered_.push_back(number); };
    };
    const std::optional<std::string> loser = calls_.Add(std::move(call));
    for (const auto& answer : calls_.Settle(&cluster_.core_, cluster_.now_, all_)) answer();
    return loser;
  }
  // All that wait are answered, and so are those that come.
  void Stop() {
    all_ = true;
    for (const auto& answer : calls_.Settle(&cluster_.core_, cluster_.now_, all_)) answer();
  }
  const std::vector<int>& answered() const { return answered_; }
  const WaitingCalls& calls() const { return calls_; }

 private:
  static CallRoom RoomOf(size_t max_per_caller, size_t max_calls) {
    CallRoom room;
    room.waiting_per_caller = max_per_caller;
    room.waiting = max_calls;
    return room;
  }

  FakeCluster cluster_{1, 1};
  WaitingCalls calls_;
  std::vector<int> answered_;
  bool all_ = false;
};

TEST(CallRoomTest, MembersOfALargeClusterHaveRoomThoughTheyAreOneCaller) {
  for (const size_t workers : {0, 100, 5000}) {
    const CallRoom room = CallRoom::For(workers, 50);
    EXPECT_GE(room.waiting_per_caller, 2 * workers + 50);
    EXPECT_GT(room.waiting, room.waiting_per_caller);
    EXPECT_GE(room.open, room.waiting * 4 / 3);
    EXPECT_GT(room.open_per_caller, room.waiting_per_caller);
  }
  EXPECT_EQ(CallRoom::For(100, 50).waiting, CallRoom().waiting) << "small ones have what all have";
}

TEST(WaitingCallsTest, WhenAllCallersHaveTooManyTheOldestOfTheBusiestIsAnsweredEarly) {
  EndlessCalls endless(100, 6);
  endless.Add("honest", 1);
  for (int number = 2; number <= 4; ++number) endless.Add("many", number);
  for (int number = 5; number <= 6; ++number) endless.Add("others", number);
  EXPECT_TRUE(endless.answered().empty());
  EXPECT_EQ(endless.Add("newcomer", 7), "many");
  EXPECT_EQ(endless.answered(), std::vector<int>{2});
  for (int number = 8; number <= 20; ++number) endless.Add("many", number);
  EXPECT_EQ(endless.calls().size(), 6u);
  EXPECT_EQ(endless.calls().crowded_out(), 14u);
  endless.Stop();
  EXPECT_EQ(endless.answered().size(), 20u) << "each is answered once";
  for (const int kept : {1, 7}) {
    const auto at = std::find(endless.answered().begin(), endless.answered().end(), kept);
    EXPECT_GE(at - endless.answered().begin(), 14) << kept << " was answered early";
  }
}

TEST(WaitingCallsTest, ANewerCallOfANameAnswersTheOlderOne) {
  EndlessCalls endless(100, 100);
  endless.Add("a", 1, "poll of member 1");
  EXPECT_EQ(endless.Add("b", 2, "poll of member 2"), std::nullopt);
  EXPECT_TRUE(endless.answered().empty());
  EXPECT_EQ(endless.Add("c", 3, "poll of member 1"), std::nullopt) << "it is replaced";
  EXPECT_EQ(endless.answered(), std::vector<int>{1});
  endless.Add("a", 4, "poll of member 1");
  EXPECT_EQ(endless.answered(), (std::vector<int>{1, 3}));
  for (int number = 5; number <= 6; ++number) endless.Add("a", number);
  EXPECT_EQ(endless.calls().size(), 4u) << "calls without a name do not answer each other";
  endless.Stop();
  endless.Add("a", 7, "poll of member 1");
  EXPECT_EQ(endless.answered().size(), 7u);
}

}  // namespace
}  // namespace sluice
