#include "cli/plan/plan_search.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"

namespace sluice::plan {
namespace {

// A few percent are within the error of a prediction, so the smaller cluster wins.
constexpr double kAsGoodAsTheBest = 0.95;
// Processes; beyond one for each core, so that the table shows that more of them bring nothing.
constexpr uint32_t kMostOwnHosts = 256, kLeastOnOneHost = 6, kMostOnOneHost = 64;

class Search {
 public:
  Search(const PlanCosts& costs, const PlanQuestion& question)
      : costs_(costs), question_(question), hosts_(question.hosts) {}

  Plan Run() {
    *plan_.mutable_costs() = costs_;
    plan_.set_mode(question_.mode == PlanMode::kSync    ? "sync"
                   : question_.mode == PlanMode::kGeo   ? "geo"
                   : question_.mode == PlanMode::kAsync ? "async"
                                                        : "collective");
    const double bytes_per_s = question_.network.bytes_per_s;
    plan_.set_bits_per_second(std::isfinite(bytes_per_s) ? LinkBits(bytes_per_s) : 0);
    plan_.set_own_hosts(question_.hosts.empty());
    if (!question_.workers.empty() && !question_.pservers.empty()) {
      for (const uint32_t pservers : question_.pservers) {
        for (const uint32_t workers : question_.workers)
          *plan_.add_rows() = RowOf(workers, pservers);
      }
    } else if (!question_.workers.empty()) {
      for (const uint32_t workers : question_.workers) *plan_.add_rows() = BestPservers(workers);
    } else if (!question_.pservers.empty()) {
      for (const uint32_t processes : Numbers()) {
        for (const uint32_t pservers : question_.pservers) {
          if (pservers < processes) *plan_.add_rows() = RowOf(processes - pservers, pservers);
        }
      }
    } else {
      for (const uint32_t processes : Numbers()) *plan_.add_rows() = BestSplit(processes);
    }
    ChooseBest();
    return std::move(plan_);
  }

 private:
  Placement Place(uint32_t workers, uint32_t pservers) {
    return question_.hosts.empty() ? OnOwnHosts(workers, pservers, question_.cores)
                                   : OnHosts(workers, pservers, &hosts_);
  }

  PlanRow RowOf(uint32_t workers, uint32_t pservers) {
    const Placement placement = Place(workers, pservers);
    const Network& network = question_.network;
    PlanRow row;
    row.set_processes(workers + pservers);
    row.set_workers(workers);
    row.set_pservers(pservers);
    *row.mutable_sync() = Predict(costs_, placement, network, PlanMode::kSync);
    *row.mutable_async() = Predict(costs_, placement, network, PlanMode::kAsync);
    *row.mutable_geo() = Predict(costs_, placement, network, PlanMode::kGeo);
    *row.mutable_collective() = Predict(costs_, placement, network, PlanMode::kCollective);
    row.set_pserver_memory_bytes(PserverMemory(costs_, question_.mode, pservers));
    // The closed formula is about pservers that take all bytes.
    if (question_.mode == PlanMode::kCollective || pservers == 0) return row;
    const double t0 = costs_.step_s() - costs_.wait_s();
    const double bytes = costs_.pushed_bytes() + costs_.pulled_bytes();
    if (std::isfinite(network.bytes_per_s) && t0 > 0 && bytes > 0) {
      const double share = FormulaShare(t0, bytes, network.bytes_per_s, row.processes());
      row.set_formula_share(share);
      row.set_formula_step_s(FormulaStep(t0, bytes, network.bytes_per_s, row.processes(), share));
    }
    return row;
  }

  double RateOf(uint32_t workers, uint32_t pservers) {
    return Predict(costs_, Place(workers, pservers), question_.network, question_.mode)
        .examples_per_second();
  }

  // Without tables on them, pservers would only take the places of workers.
  bool NeedsPservers() const { return PserversKeepTables(costs_, question_.mode); }

  // Fewer pservers win when more are not clearly better.
  PlanRow BestPservers(uint32_t workers) {
    if (!NeedsPservers()) return RowOf(workers, 0);
    uint32_t best = 1;
    double rate = RateOf(workers, best);
    for (uint32_t pservers = best + 1; pservers <= std::max(2u, workers); ++pservers) {
      const double other = RateOf(workers, pservers);
      if (other * kAsGoodAsTheBest > rate) best = pservers, rate = other;
    }
    return RowOf(workers, best);
  }

  PlanRow BestSplit(uint32_t processes) {
    if (!NeedsPservers()) return RowOf(processes, 0);
    uint32_t best = 1;
    double rate = RateOf(processes - best, best);
    for (uint32_t pservers = best + 1; pservers < processes; ++pservers) {
      const double other = RateOf(processes - pservers, pservers);
      // A gain below a thousandth is rounding, and would only cost workers.
      if (other > rate * 1.001) best = pservers, rate = other;
    }
    return RowOf(processes - best, best);
  }

  // All up to 8, then steps of about a third.
  std::vector<uint32_t> Numbers() const {
    uint32_t most = kMostOwnHosts;
    if (!question_.hosts.empty()) {
      most = 0;
      for (const PlanHost& host : question_.hosts) most += host.cores();
      most = std::clamp(most + static_cast<uint32_t>(question_.hosts.size()), kLeastOnOneHost,
                        kMostOnOneHost * static_cast<uint32_t>(question_.hosts.size()));
    }
    std::vector<uint32_t> numbers;
    for (uint32_t n = NeedsPservers() ? 2 : 1; n < most; n += n < 8 ? 1 : std::max(1u, n / 3))
      numbers.push_back(n);
    numbers.push_back(most);
    return numbers;
  }

  void ChooseBest() {
    double highest = 0;
    for (const PlanRow& row : plan_.rows())
      highest = std::max(highest, PredictionOf(row, question_.mode).examples_per_second());
    int best = -1;
    for (int i = 0; i < plan_.rows_size(); ++i) {
      const double rate = PredictionOf(plan_.rows(i), question_.mode).examples_per_second();
      const bool good = rate > 0 && rate >= kAsGoodAsTheBest * highest;
      if (good && (best < 0 || plan_.rows(i).processes() < plan_.rows(best).processes())) best = i;
    }
    // No row can run, such as Geo without costs of it.
    if (best < 0) return;
    plan_.set_best(static_cast<uint32_t>(best));
    if (question_.hosts.empty()) return;
    // Place leaves the numbers of processes in hosts_.
    Place(plan_.rows(best).workers(), plan_.rows(best).pservers());
    for (const PlanHost& host : hosts_) *plan_.add_hosts() = host;
  }

  const PlanCosts& costs_;
  const PlanQuestion& question_;
  std::vector<PlanHost> hosts_;  // of the placement that was looked at last
  Plan plan_;
};

}  // namespace

Plan AnswerPlan(const PlanCosts& costs, const PlanQuestion& question) {
  return Search(costs, question).Run();
}

uint32_t PserversFor(const PlanCosts& costs, PlanMode mode, uint32_t workers, uint32_t cores) {
  PlanQuestion question;
  question.mode = mode;
  question.hosts.resize(1);
  question.hosts[0].set_cores(cores);
  question.workers = {workers};
  return AnswerPlan(costs, question).rows(0).pservers();
}

const PlanPrediction& PredictionOf(const PlanRow& row, PlanMode mode) {
  switch (mode) {
    case PlanMode::kSync:
      return row.sync();
    case PlanMode::kGeo:
      return row.geo();
    case PlanMode::kCollective:
      return row.collective();
    case PlanMode::kAsync:
      break;
  }
  return row.async();
}

absl::StatusOr<ClusterConfig> ClusterOf(const Plan& plan, uint32_t port) {
  if (plan.hosts().empty()) {
    return absl::InvalidArgumentError(
        "--output needs the names of the hosts; give --hosts=HOST:CORES[,HOST:CORES...]");
  }
  ClusterConfig cluster;
  cluster.set_version(1);
  cluster.set_name("plan");
  cluster.set_scheduler(absl::StrCat(plan.hosts(0).name(), ":", port));
  for (const PlanHost& host : plan.hosts()) {
    for (uint32_t i = 0; i < host.pservers(); ++i)
      cluster.add_pservers(absl::StrCat(host.name(), ":", port + 100 + i));
    for (uint32_t i = 0; i < host.workers(); ++i) cluster.add_worker_hosts(host.name());
    cluster.set_worker_num(cluster.worker_num() + host.workers());
  }
  return cluster;
}

}  // namespace sluice::plan
