#include "cli/plan/scaling_simulator.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <random>
#include <utility>

namespace sluice::plan {
namespace {

constexpr uint64_t kLeastExchanges = 3000;

// Serves one after another, in the order of the calls.
class Server {
 public:
  explicit Server(double service) : service_(service) {}
  // Returns when a client that arrives at `time` has been served.
  double Serve(double time) { return free_at_ = std::max(free_at_, time) + service_; }
  // The same for a client that stays longer than the server is busy with it. Sets *waited if the
  // client had to wait.
  double Serve(double time, double client_seconds, bool* waited) {
    const double begin = std::max(free_at_, time);
    *waited = *waited || begin > time;
    free_at_ = begin + service_;
    return begin + std::max(service_, client_seconds);
  }

 private:
  const double service_;
  double free_at_ = 0;
};

class JobSimulator {
 public:
  JobSimulator(const PlanCosts& costs, PlanMode mode, uint32_t workers, uint32_t pservers,
               const Simulation& simulation)
      : mode_(mode),
        workers_(workers),
        load_(LoadOf(costs, mode, workers, pservers,
                     costs.fixed_threads() ? costs.worker_threads() : simulation.cores)),
        network_(simulation.network),
        spread_(costs.step_spread() / std::sqrt(load_.steps)),
        examples_(costs.examples() * load_.steps),
        push_alone_(load_.pushed_bytes / network_.bytes_per_s),
        pull_alone_(load_.pulled_bytes / network_.bytes_per_s),
        push_service_(push_alone_ / std::max(1u, pservers)),
        pull_service_(pull_alone_ / std::max(1u, pservers)),
        pserver_service_(load_.pserver_cpu_s /
                         std::min<double>(std::max(1u, costs.pserver_threads()), simulation.cores)),
        pserver_alone_(std::max(0.0, load_.pserver_s - pserver_service_)),
        latency_(load_.round_trips * network_.latency_s),
        duplex_(DuplexSeconds(load_, pservers, network_)),
        sharing_(SyncSharing(workers, pservers)),
        reduce_s_(ReduceSeconds(load_, workers, network_) +
                  MessageSeconds(load_, workers, workers, network_)),
        random_(simulation.seed),
        exchanges_(std::max<uint64_t>(uint64_t{simulation.steps} * workers, kLeastExchanges)) {}

  double Run() {
    return mode_ == PlanMode::kSync || mode_ == PlanMode::kCollective ? RunTogether() : RunAlone();
  }

 private:
  double Compute() {
    if (spread_ <= 0) return load_.compute_s;
    return load_.compute_s * std::exp(spread_ * normal_(random_) - spread_ * spread_ / 2);
  }

  // Sync and collective: the mean over global steps.
  double RunTogether() {
    const uint64_t steps = std::max<uint64_t>(exchanges_ / workers_, 10);
    std::vector<double> ready(workers_);
    double seconds = 0;
    // Every step is independent of the last: all workers start it together.
    for (uint64_t i = 0; i < steps; ++i) {
      for (double& at : ready) at = Compute();
      // The link serves pushes in the order in which workers are ready.
      std::sort(ready.begin(), ready.end());
      Server in(sharing_ * push_service_);
      double closed = 0;
      for (const double at : ready)
        closed = std::max({closed, in.Serve(at), at + sharing_ * push_alone_});
      seconds += closed + workers_ * pserver_service_ + pserver_alone_ +
                 sharing_ * std::max(workers_ * pull_service_, pull_alone_) + latency_ +
                 load_.other_s + reduce_s_;
    }
    return steps * workers_ * examples_ / seconds;
  }

  // Async and Geo: each worker goes on by itself.
  double RunAlone() {
    Server in(push_service_), pserver(pserver_service_), out(pull_service_);
    const size_t depth = static_cast<size_t>(load_.depth);
    struct Worker {
      std::vector<double> answered;  // of the last `depth` exchanges
      uint64_t steps = 0;
    };
    std::vector<Worker> all(workers_, {std::vector<double>(depth, 0.0), 0});
    using Event = std::pair<double, uint32_t>;  // when a worker sends
    std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events;
    for (uint32_t i = 0; i < workers_; ++i) events.push({Compute(), i});
    // At first all workers send at once, which they never do again.
    const uint64_t warm_up = exchanges_ / 3;
    double begin = 0, now = 0;
    for (uint64_t done = 0; done < exchanges_; ++done) {
      const auto [at, i] = events.top();
      events.pop();
      now = at;
      if (done == warm_up) begin = now;
      bool waited = false;
      const double arrived = in.Serve(at, push_alone_, &waited);
      const double applied = pserver.Serve(arrived) + pserver_alone_;
      const double received = out.Serve(applied, pull_alone_, &waited);
      const double answered = received + latency_ - (waited ? 0 : duplex_);
      Worker& worker = all[i];
      const double compute = Compute();
      if (mode_ == PlanMode::kGeo) {
        const double hidden = compute / load_.steps * load_.hidden_steps;
        const double merged = std::max(at + hidden, answered) + load_.other_s;
        events.push({merged + compute - hidden, i});
        continue;
      }
      worker.answered[worker.steps++ % depth] = answered + load_.other_s;
      // The values of the next step were asked for `depth` steps before it.
      events.push({std::max(at, worker.answered[worker.steps % depth]) + compute, i});
    }
    return now > begin ? static_cast<double>(exchanges_ - 1 - warm_up) * examples_ / (now - begin)
                       : 0;
  }

  const PlanMode mode_;
  const uint32_t workers_;
  const StepLoad load_;
  const Network network_;
  const double spread_, examples_;  // of one exchange
  // Seconds of one exchange: through a worker's link, and at a pserver.
  const double push_alone_, pull_alone_, push_service_, pull_service_;
  const double pserver_service_, pserver_alone_, latency_, duplex_, sharing_, reduce_s_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  const uint64_t exchanges_;
};

}  // namespace

double Simulate(const PlanCosts& costs, PlanMode mode, uint32_t workers, uint32_t pservers,
                const Simulation& simulation) {
  if (workers < 1 || (mode == PlanMode::kGeo && !costs.has_geo())) return 0;
  if (pservers < 1 && PserversKeepTables(costs, mode)) return 0;
  return JobSimulator(costs, mode, workers, pservers, simulation).Run();
}

double IdealRate(const PlanCosts& costs, uint32_t workers, double cores) {
  const double threads = costs.fixed_threads() ? costs.worker_threads() : cores;
  const double seconds = LoadOf(costs, PlanMode::kAsync, 1, 1, threads).compute_s;
  return seconds > 0 ? workers * costs.examples() / seconds : 0;
}

ScalingPoint SimulateAll(const PlanCosts& costs, uint32_t workers, uint32_t pservers,
                         const Simulation& simulation) {
  ScalingPoint point;
  point.set_workers(workers);
  point.set_pservers(pservers);
  point.set_sync(Simulate(costs, PlanMode::kSync, workers, pservers, simulation));
  point.set_async(Simulate(costs, PlanMode::kAsync, workers, pservers, simulation));
  point.set_geo(Simulate(costs, PlanMode::kGeo, workers, pservers, simulation));
  point.set_collective(Simulate(costs, PlanMode::kCollective, workers, pservers, simulation));
  point.set_ideal(IdealRate(costs, workers, simulation.cores));
  return point;
}

uint32_t WorkersAtHalfOfIdeal(const PlanCosts& costs, PlanMode mode, uint32_t pservers,
                              uint32_t most, const Simulation& simulation) {
  const auto below = [&](uint32_t workers) {
    return Simulate(costs, mode, workers, pservers, simulation) <
           IdealRate(costs, workers, simulation.cores) / 2;
  };
  // The efficiency falls with the number of workers, so halving finds where.
  if (!below(most)) return 0;
  uint32_t above = 0, at = most;  // at least half with `above`, less with `at`
  while (at - above > 1) {
    const uint32_t middle = above + (at - above) / 2;
    (below(middle) ? at : above) = middle;
  }
  return at;
}

}  // namespace sluice::plan
