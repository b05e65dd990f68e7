// Model check of replicas: random histories of changes, confirmations, broken streams, pauses,
// deaths, pservers that are only believed dead, other changes of the route, takeovers and new
// copies. Checks the claim of server/requests/ack_gate.h with the three classes that decide:
// AckGate, CopyRegister and FollowerPlan. Reports are held back as JobTables does it.
//
// A takeover from a checkpoint loses acknowledged updates, so each one must have its reason: copies
// that the scheduler knew as complete must not be passed over or given up without one.
//
// A failure prints the seed of its history; REPLICA_MODEL_SEED=N repeats it alone, and
// REPLICA_MODEL_HISTORIES=N runs so many.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/job/follower_plan.h"
#include "server/copies/copy_register.h"
#include "server/requests/ack_gate.h"

namespace sluice {
namespace {

using Updates = std::set<int>;

struct Spec {
  uint64_t generation = 0;
  std::vector<uint32_t> followers;
  std::vector<int> processes;  // by pserver; -1: vacant
};

struct Message {
  enum Kind { kHello, kImage, kChange, kComplete } kind;
  uint64_t number = 0;  // hello: generation; else position
  int update = 0;
  Updates image;
};

struct Process {
  uint32_t index = 0;
  bool alive = true, open = false;
  bool paused = false;  // it does nothing, but what it has sent is under way
  bool closed = false;  // it serves the job no more, but requests may still be under way in it
  Spec spec;
  Updates shard;
  // The route that its reports name, and a later one that waits until the follower has what was
  // applied before (JobTables::Report).
  uint64_t told = 0;
  struct Untold {
    uint64_t generation = 0, session = 0, position = 0;
    int newest = 0;  // update
  };
  std::optional<Untold> untold;
  // As a primary (Replicator).
  AckGate gate;
  struct Session {
    uint64_t assignment = 0;
    int peer = -1;
    std::deque<Message> out;
    std::deque<uint64_t> confirmations;
    uint64_t end = 0, copies = 0;
    bool imaged = false, refused = false;
  };
  std::optional<Session> session;
  uint64_t assignments = 0;
  bool broken = false;                                   // Replication.error
  std::vector<std::pair<int, uint64_t>> unacknowledged;  // updates and positions
  // As a follower (JobCopies).
  CopyRegister copies;
  std::map<uint32_t, Updates> held;
  std::map<uint32_t, uint64_t> begun;  // number of the latest copies
  std::map<uint32_t, int> writers;     // processes
  // As a successor (CopyReader).
  enum { kNotToldYet, kReads, kHasAll } opening = kNotToldYet;
  uint64_t read_number = 0;
  int read_from = -1;
  std::deque<HostedJob> reports;  // under way to the scheduler
};

class World {
 public:
  World(uint32_t seed, uint32_t pservers) : random_(seed), n_(pservers), plan_(pservers) {
    spec_.generation = 1;
    spec_.followers = plan_.followers();
    for (uint32_t i = 0; i < n_; ++i) spec_.processes.push_back(static_cast<int>(i));
    for (uint32_t i = 0; i < n_; ++i) {
      processes_.push_back(std::make_unique<Process>());
      processes_.back()->index = i;
      Open(processes_.back().get(), spec_);
    }
    acknowledged_.resize(n_);
    known_complete_.resize(n_);
    vacant_.resize(n_);
  }

  void Run(int events) {
    for (int i = 0; i < events && problem_.empty(); ++i) Step();
  }
  // Nothing breaks any more: after some time all copies must be complete.
  void CalmDown() {
    calm_ = true;
    for (const auto& process : processes_) process->paused = false;
    for (int i = 0; i < 100 && problem_.empty() && !AllComplete(); ++i) Run(300);
    if (problem_.empty() && !AllComplete()) Problem("copies are not made again");
  }
  const std::string& problem() const { return problem_; }
  int takeovers_from_copies = 0, takeovers_from_checkpoints = 0, acknowledgements = 0;

 private:
  struct Vacancy {
    bool lost = false;    // vacant_pservers has it
    int registered = -1;  // the next process
    bool taken = false, copies = false;
  };

  uint32_t Draw(size_t n) { return static_cast<uint32_t>(random_() % n); }
  bool Chance(int percent) { return Draw(100) < static_cast<uint32_t>(percent); }
  Process* Any() { return processes_[Draw(processes_.size())].get(); }
  int NumberOf(const Process* p) const {
    for (size_t i = 0; i < processes_.size(); ++i) {
      if (processes_[i].get() == p) return static_cast<int>(i);
    }
    return -1;
  }
  bool IsMember(const Process* p) const {
    const int number = NumberOf(p);
    return spec_.processes[p->index] == number || vacant_[p->index].registered == number;
  }

  bool AllComplete() const {
    return std::all_of(spec_.processes.begin(), spec_.processes.end(), [this](int number) {
      return number >= 0 && processes_[number]->open &&
             processes_[number]->gate.state() == AckGate::State::kHolding;
    });
  }

  void Step() {
    const uint32_t what = Draw(103);
    Process* const p = Any();
    if (p->paused && what < 100 && !InTransit(what)) return;
    if (what < 25) {
      Push(p);
    } else if (what < 45) {
      DeliverToFollower(p);
    } else if (what < 60) {
      DeliverConfirmation(p);
    } else if (what < 66) {
      AdvanceSession(p);
    } else if (what < 68) {
      // The death of the follower breaks the stream, too.
      const bool dead = p->session && p->session->peer >= 0 && !processes_[p->session->peer]->alive;
      if (p->session && (dead || p->session->peer < 0 || (!calm_ && Chance(40)))) BreakSession(p);
    } else if (what < 78) {
      TakeSpec(p);
    } else if (what < 88) {
      Report(p);
    } else if (what < 94) {
      DeliverReport(p);
    } else if (what < 97) {
      Read(p);
    } else if (what < 98) {
      if (!calm_ && Chance(10)) Kill(p);
    } else if (what < 100) {
      Schedule(Draw(n_));
    } else if (what < 101) {
      // Another process has a worker's place, for example.
      if (!calm_ && Chance(30)) Publish();
    } else if (what < 102) {
      if (!calm_ && Chance(10)) BreakBothWays(p);
      if (!calm_ && Chance(3)) Close(p);
    } else {
      p->paused = !calm_ && !p->paused && Chance(30);
    }
  }
  // Steps of the network and of the scheduler, which continue while the process is paused.
  static bool InTransit(uint32_t what) {
    return (what >= 25 && what < 45) || (what >= 88 && what < 94) || what >= 97;
  }

  // -------------------------------------------------------------------------------- primary

  void Push(Process* p) {
    if (!p->alive || !p->open) return;
    const int update = ++next_update_;
    p->shard.insert(update);
    uint64_t position = 0;
    if (p->session) {
      if (p->session->imaged) {
        position = ++p->session->end;
        p->session->out.push_back({Message::kChange, position, update, {}});
      } else {
        position = p->session->end;
      }
    }
    if (p->gate.MayLeave(position)) return Acknowledge(p, update);
    if (p->closed) return;  // refused
    p->unacknowledged.emplace_back(update, position);
  }

  // The job ends here, as when the scheduler has given the pserver up.
  void Close(Process* p) {
    if (!p->alive || !p->open || p->paused) return;
    p->closed = true;
    p->reports.clear();
    p->unacknowledged.clear();
    if (p->session) BreakSession(p);
  }

  // No path between a pserver and its follower.
  void BreakBothWays(Process* p) {
    if (!p->session || p->session->peer < 0 || p->paused) return;
    Process* const other = processes_[p->session->peer].get();
    if (other->paused) return;
    BreakSession(p);
    if (other->session && other->session->peer == NumberOf(p)) BreakSession(other);
  }

  void Release(Process* p) {
    std::vector<std::pair<int, uint64_t>> kept;
    for (const auto& [update, position] : p->unacknowledged) {
      if (p->gate.MayLeave(position)) {
        Acknowledge(p, update);
      } else {
        kept.emplace_back(update, position);
      }
    }
    p->unacknowledged = std::move(kept);
  }

  void Acknowledge(Process* p, int update) {
    ++acknowledgements;
    const uint32_t i = p->index;
    bool superseded = false;  // by a process that is open or has all copies
    for (size_t later = NumberOf(p) + 1; later < processes_.size(); ++later) {
      const Process& other = *processes_[later];
      if (other.index != i) continue;
      superseded |= other.open || other.opening == Process::kHasAll;
    }
    if (!superseded) {
      acknowledged_[i].insert(update);
    } else if (const auto read = was_read_.find(NumberOf(p)); read != was_read_.end()) {
      // A confirmation may have been under way.
      if (read->second.count(update) == 0) {
        Problem("pserver ", i, " acknowledged ", update, ", which the copies lack that were read");
      }
    }
    // Otherwise a checkpoint came between, and a rank's hello counts what is lost.
  }

  void AdvanceSession(Process* p) {
    if (!p->alive || !p->open || p->closed) return;
    if (p->session && (p->session->refused || p->session->assignment != p->assignments)) {
      return BreakSession(p);
    }
    if (!p->session) {
      if (p->gate.state() != AckGate::State::kSeeding) return;
      p->gate.BeginSession();
      p->session = Process::Session();
      p->session->assignment = p->assignments;
      p->session->peer = p->spec.processes[p->spec.followers[p->index]];
      p->session->out.push_back({Message::kHello, p->spec.generation, 0, {}});
    } else if (!p->session->imaged) {
      p->session->out.push_back({Message::kImage, 0, 0, p->shard});
      p->session->imaged = true;
    } else if (p->gate.state() == AckGate::State::kSeeding) {
      p->session->out.push_back({Message::kComplete, ++p->session->end, 0, {}});
      p->gate.Hold();
      p->broken = false;
    }
  }

  void BreakSession(Process* p) {
    const Process::Session session = *std::move(p->session);
    p->session.reset();
    p->gate.Break();
    p->broken = session.assignment == p->assignments;
    if (session.peer < 0 || session.copies == 0) return;
    // The follower drops incomplete copies when it notices.
    Process* const f = processes_[session.peer].get();
    if (f->alive && !f->paused && Chance(70) && !f->copies.complete(p->index, session.copies) &&
        f->copies.Drop(p->index, session.copies)) {
      f->held.erase(p->index);
    }
  }

  // ------------------------------------------------------------------------------- follower

  void DeliverToFollower(Process* p) {
    if (!p->session || p->session->out.empty() || p->session->peer < 0) return;
    Process::Session* const session = &*p->session;
    Process* const f = processes_[session->peer].get();
    if (f->paused) return;
    if (!f->alive || !f->open || f->closed || f == p) {
      session->refused = true;
      return;
    }
    const Message message = std::move(session->out.front());
    session->out.pop_front();
    if (message.kind == Message::kHello) {
      const auto number = f->copies.Begin(p->index, message.number);
      session->refused = !number.ok();
      if (number.ok()) session->copies = f->begun[p->index] = *number;
      return;
    }
    if (!f->copies.TakesChanges(p->index, session->copies)) {
      session->refused = true;
      return;
    }
    Updates* const held = &f->held[p->index];
    if (message.kind == Message::kImage) *held = message.image;
    f->writers[p->index] = NumberOf(p);
    if (message.kind == Message::kChange) held->insert(message.update);
    if (message.kind == Message::kComplete) f->copies.Complete(p->index, session->copies);
    session->confirmations.push_back(message.number);
  }

  void DeliverConfirmation(Process* p) {
    // A process that is stopped or dead takes nothing.
    if (!p->alive || !p->session || p->session->confirmations.empty()) return;
    p->gate.Confirm(p->session->confirmations.front());
    p->session->confirmations.pop_front();
    Release(p);
  }

  // ---------------------------------------------------------------------------------- routes

  void Take(Process* p, const Spec& spec) {
    p->spec = spec;
    for (uint32_t i = 0; i < n_; ++i) {
      const bool mine = i != p->index && spec.followers[i] == p->index;
      if (p->copies.Assign(i, mine, spec.generation)) p->held.erase(i);
    }
    const bool follows = spec.followers[p->index] != p->index;
    p->gate.Assign(follows);
    if (!follows) {
      ++p->assignments;
      p->broken = false;
    }
    p->untold = {spec.generation, p->gate.session(), p->session ? p->session->end : 0,
                 next_update_};
    Release(p);
  }

  void Open(Process* p, const Spec& spec) {
    p->open = true;
    Take(p, spec);
    p->untold.reset();
    p->told = spec.generation;
  }

  // The report names a later route as soon as nothing that it tells can be lost.
  void Tell(Process* p) {
    if (!p->untold) return;
    const Process::Untold& untold = *p->untold;
    if (untold.session == p->gate.session() && !p->gate.MayLeave(untold.position)) return;
    p->told = untold.generation;
    // The examples behind these updates are not trained again.
    for (const int update : p->shard) {
      if (update <= untold.newest) Acknowledge(p, update);
    }
    p->untold.reset();
  }

  void TakeSpec(Process* p) {
    if (!p->alive || p->closed || !IsMember(p)) return;
    if (p->spec.generation == spec_.generation) return;
    if (p->open) return Take(p, spec_);
    if (spec_.processes[p->index] != NumberOf(p)) return;
    const bool copies = spec_.followers[p->index] != p->index;
    if (p->opening == Process::kReads && copies) return;  // a later route waits
    if (p->opening == Process::kHasAll) {
      if (!copies) Open(p, spec_);  // the copies are void, so it need not have them dropped
      return;
    }
    p->spec = spec_;
    if (copies) {
      p->opening = Process::kReads;
      return;
    }
    // From a checkpoint: what is lost is counted, and not looked at here.
    ++takeovers_from_checkpoints;
    acknowledged_[p->index].clear();
    p->shard.clear();
    Open(p, spec_);
  }

  // ------------------------------------------------------------------------------- successor

  void Read(Process* p) {
    if (!p->alive || p->open || p->opening == Process::kNotToldYet) return;
    const int from = p->opening == Process::kHasAll
                         ? p->read_from
                         : p->spec.processes[p->spec.followers[p->index]];
    if (from < 0) return;
    Process* const f = processes_[from].get();
    if (!f->alive || !f->open || f->closed || f->paused) return;
    if (p->opening == Process::kHasAll) {
      const absl::Status reads =
          f->copies.CheckReader(p->index, p->read_number, p->spec.generation);
      if (absl::IsFailedPrecondition(reads)) return;  // a later successor reads
      if (reads.ok() && f->copies.Drop(p->index, p->read_number)) f->held.erase(p->index);
      known_complete_[p->index] = false;
      return Open(p, p->spec);
    }
    const auto number = f->copies.Seal(p->index, p->spec.generation);
    if (!number.ok()) return;
    p->shard = f->held[p->index];
    p->read_number = *number;
    p->read_from = from;
    p->opening = Process::kHasAll;
    was_read_[f->writers.at(p->index)] = p->shard;
    // A successor that is believed dead serves nobody.
    if (spec_.processes[p->index] != NumberOf(p)) return;
    ++takeovers_from_copies;
    for (const int update : acknowledged_[p->index]) {
      if (p->shard.count(update) > 0) continue;
      Problem("update ", update, " of pserver ", p->index,
              " was acknowledged, but is not in the "
              "copies that its successor reads");
    }
  }

  // ------------------------------------------------------------------------------- scheduler

  void Kill(Process* p) {
    p->alive = false;
    p->session.reset();
    p->reports.clear();
  }

  HostedJob ReportOf(const Process& p) const {
    HostedJob report;
    report.set_generation(p.open ? p.told : 0);
    report.mutable_replication()->set_generation(p.open ? p.spec.generation : 0);
    const AckGate::State state = p.gate.state();
    report.mutable_replication()->set_complete(state == AckGate::State::kHolding ||
                                               state == AckGate::State::kVoiding);
    if (state != AckGate::State::kHolding && p.broken)
      report.mutable_replication()->set_error("broken");
    for (const auto& [primary, held] : p.held) {
      ShardCopies* const copies = report.add_copies();
      copies->set_pserver(primary);
      copies->set_complete(p.copies.complete(primary, p.begun.at(primary)));
    }
    return report;
  }
  void Report(Process* p) {
    if (!p->alive || p->closed || !IsMember(p) || p->reports.size() >= 2) return;
    if (p->open) Tell(p);
    p->reports.push_back(ReportOf(*p));
  }

  void Publish() {
    spec_.followers = plan_.followers();
    ++spec_.generation;
    for (uint32_t i = 0; i < n_; ++i) {
      if (spec_.followers[i] == i) known_complete_[i] = false;
    }
  }

  void DeliverReport(Process* p) {
    if (p->reports.empty() || spec_.processes[p->index] != NumberOf(p)) return;
    const HostedJob report = p->reports.front();
    p->reports.pop_front();
    const uint32_t i = p->index;
    Vacancy& mine = vacant_[i];
    bool changed = plan_.Note(i, spec_.generation, report);
    if (changed && p->gate.state() != AckGate::State::kVoiding && !p->closed) {
      Problem("the copies of pserver ", i, " are void, though it does not wait for that");
    }
    for (uint32_t v = 0; v < n_; ++v) {
      if (v != i && plan_.followers()[v] == i) known_complete_[v] = false;
    }
    for (const ShardCopies& copies : report.copies()) {
      const uint32_t primary = copies.pserver();
      // Unless a successor has had them dropped meanwhile.
      if (!copies.complete() || !p->copies.HasCompleteForTest(primary)) continue;
      if (plan_.followers()[primary] == i) known_complete_[primary] = true;
    }
    for (uint32_t v = 0; v < n_; ++v) {
      if (vacant_[v].taken && vacant_[v].copies && report.generation() != 0 &&
          plan_.SourceOf(v, spec_.generation) == FollowerPlan::Source::kCheckpoint) {
        if (known_complete_[v] && plan_.followers()[v] != v) {
          Problem("the complete copies of pserver ", v, " are given up");
        }
        changed |= plan_.GiveUpCopies(v, spec_.generation);
        vacant_[v].copies = false;
      }
    }
    changed |= plan_.Advance(spec_.generation);
    if (mine.lost && mine.taken && report.generation() == spec_.generation) {
      mine = Vacancy();
      plan_.Return(i);
    }
    if (changed) Publish();
  }

  // Looks after one pserver: its lease, its next process, its takeover.
  void Schedule(uint32_t i) {
    Vacancy& vacancy = vacant_[i];
    const int number = vacancy.taken || !vacancy.lost ? spec_.processes[i] : vacancy.registered;
    if (number >= 0) {
      const bool alive = processes_[number]->alive && !processes_[number]->closed;
      // A lease may expire on a process that keeps running.
      if (!alive ? Chance(70) : !calm_ && Chance(2)) return Lose(i);
    }
    if (!vacancy.lost) return;
    if (vacancy.registered < 0) {
      processes_.push_back(std::make_unique<Process>());
      processes_.back()->index = i;
      vacancy.registered = static_cast<int>(processes_.size()) - 1;
      return;
    }
    if (vacancy.taken) return;
    const FollowerPlan::Source source = plan_.SourceOf(i, spec_.generation);
    if (source == FollowerPlan::Source::kNotKnown) return;
    vacancy.copies = source == FollowerPlan::Source::kCopies;
    if (!vacancy.copies && known_complete_[i]) {
      Problem("pserver ", i, " continues from a checkpoint, though its copies are complete");
    }
    if (!vacancy.copies) plan_.GiveUpCopies(i, spec_.generation);
    vacancy.taken = true;
    spec_.processes[i] = vacancy.registered;
    Publish();
  }

  void Lose(uint32_t i) {
    vacant_[i] = Vacancy();
    vacant_[i].lost = true;
    spec_.processes[i] = -1;
    if (plan_.Lose(i, spec_.generation)) Publish();
  }

  template <typename... Args>
  void Problem(const Args&... what) {
    if (problem_.empty()) problem_ = absl::StrCat(what...);
  }

  std::mt19937 random_;
  const uint32_t n_;
  FollowerPlan plan_;
  Spec spec_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::map<int, Updates> was_read_;    // by process: its copies that a successor has read
  std::vector<Updates> acknowledged_;  // by pserver: those that must not be lost
  // By pserver: the follower's newest report has said that its present copies are complete, and
  // they are not void.
  std::vector<bool> known_complete_;
  std::vector<Vacancy> vacant_;
  bool calm_ = false;
  int next_update_ = 0;
  std::string problem_;
};

TEST(ReplicaModelTest, AnAcknowledgedUpdateIsInTheCopiesThatASuccessorReads) {
  const char* const only = std::getenv("REPLICA_MODEL_SEED");
  const char* const many = std::getenv("REPLICA_MODEL_HISTORIES");
  const uint32_t first = only != nullptr ? std::strtoul(only, nullptr, 10) : 1;
  const uint32_t count = only != nullptr   ? 1
                         : many != nullptr ? std::strtoul(many, nullptr, 10)
                                           : 1500;
  int copies = 0, checkpoints = 0, acknowledgements = 0;
  for (uint32_t seed = first; seed < first + count; ++seed) {
    World world(seed, 2 + seed % 3);
    world.Run(3000);
    world.CalmDown();
    ASSERT_EQ(world.problem(), "") << "repeat with REPLICA_MODEL_SEED=" << seed;
    copies += world.takeovers_from_copies;
    checkpoints += world.takeovers_from_checkpoints;
    acknowledgements += world.acknowledgements;
  }
  std::cout << count << " histories from seed " << first << ": " << acknowledgements
            << " acknowledgements, " << copies << " takeovers from copies, " << checkpoints
            << " from checkpoints\n";
  if (only != nullptr) return;
  EXPECT_GT(copies, static_cast<int>(count) / 4);
  EXPECT_GT(checkpoints, static_cast<int>(count) / 4);
}

}  // namespace
}  // namespace sluice
