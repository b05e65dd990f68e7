#include "cli/plan/plan_model.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/base/normal_quantile.h"

namespace sluice::plan {
namespace {

// One passage of a frame or of a computation through a station.
struct Visit {
  size_t station = 0;
  double service = 0;  // seconds, alone
  double share = 1;    // of all workers that come to this very station
};

// One stage of a step. The visits of a stage happen at the same time.
struct Stage {
  enum What { kCompute, kNetwork, kPserver } what = kCompute;
  double alone = 0;  // seconds that no station adds to
  std::vector<Visit> visits;
};

// Where a worker's time goes, in seconds between two exchanges.
struct Times {
  double compute = 0, cores = 0, network = 0, pserver = 0, latency = 0, slowest = 0, reduce = 0,
         messages = 0;
  double exchange() const { return network + pserver + latency + reduce + messages; }
};

// The cores, and both directions of the link, of the hosts with the most workers and of those with
// the most pservers.
enum Station : size_t {
  kWorkerCores,
  kWorkerOut,
  kWorkerIn,
  kPserverCores,
  kPserverOut,
  kPserverIn,
  kPserverThreads
};
constexpr size_t kStations = kPserverThreads + 1;

constexpr double kWireBytesPerByte = 1.055;

double Safe(double a, double b) { return b > 0 ? a / b : 0; }

double HostsOfWorkers(const Placement& placement) {
  double hosts = 0;
  for (const HostGroup& host : placement.hosts) hosts += host.workers > 0 ? host.count : 0;
  return hosts;
}

const HostGroup& MostLoaded(const Placement& placement, double HostGroup::*processes) {
  const HostGroup* most = &placement.hosts.front();
  for (const HostGroup& host : placement.hosts) {
    if (host.*processes / host.cores > most->*processes / most->cores) most = &host;
  }
  return *most;
}

class StageModel {
 public:
  StageModel(const PlanCosts& costs, const Placement& placement, const Network& network,
             PlanMode mode)
      : workers_(placement.workers),
        pservers_(std::max(1.0, placement.pservers)),
        worker_host_(MostLoaded(placement, &HostGroup::workers)),
        pserver_host_(MostLoaded(placement, &HostGroup::pservers)),
        shared_(worker_host_.pservers > 0),
        one_host_(placement.hosts.size() == 1 && placement.hosts[0].count == 1),
        hosts_of_workers_(HostsOfWorkers(placement)),
        network_(network),
        spread_(costs.step_spread()),
        load_(LoadOf(costs, mode, placement.workers, placement.pservers,
                     Threads(costs, worker_host_))) {
    AddCompute();
    AddNetwork(load_.pushed_bytes, kWorkerOut, kPserverIn);
    AddPserver(costs);
    AddNetwork(load_.pulled_bytes, kPserverOut, kWorkerIn);
  }

  const StepLoad& load() const { return load_; }

  // Async and Geo.
  Times Queued(double* seconds) const {
    double seen[kStations] = {};  // how many others a visit finds at the station
    double busy = 0;              // the share of time in which others use a pserver's link
    Times times;
    const auto response = [&](const Visit& v) { return v.service * (1 + seen[v.station]); };
    const auto transfer = [&](const Stage& stage) {
      const Visit &worker = stage.visits[0], &pserver = stage.visits[1];
      return std::max(response(worker), pserver.service) + response(pserver) - pserver.service;
    };
    // A fixed point: the time of a step depends on how many others a visit finds, and their number
    // on the time of a step. This is approximate mean value analysis (Schweitzer), damped by 0.3
    // against oscillation.
    for (int i = 0; i < 2000; ++i) {
      times = TimesOf(response, transfer);
      times.network = std::max(0.0, times.network - Duplex() * (1 - busy));
      *seconds = Cycle(times);
      double next[kStations] = {}, change = 0, busiest = 0;
      for (const Stage& stage : stages_) {
        for (const Visit& v : stage.visits) {
          const double visitors = workers_ * v.share;
          // Alone at a station, a worker never meets another.
          if (visitors <= 1) continue;
          const double others = visitors / *seconds * (1 - 1 / visitors);
          next[v.station] += std::min(visitors - 1, others * response(v));
          if (stage.what == Stage::kNetwork) busiest = std::max(busiest, others * v.service);
        }
      }
      busy += 0.3 * (std::min(1.0, busiest) - busy);
      for (size_t k = 0; k < kStations; ++k) {
        change = std::max(change, std::abs(next[k] - seen[k]) / (1 + seen[k]));
        seen[k] += 0.3 * (next[k] - seen[k]);
      }
      if (change < 1e-9) break;
    }
    return times;
  }

  // Sync and collective: everybody is in the same stage.
  Times Together(double* seconds) const {
    const auto response = [&](const Visit& v) {
      return v.service * std::max(1.0, workers_ * v.share);
    };
    const double sharing = SyncSharing(workers_, pservers_);
    Times times = TimesOf(response, [&](const Stage& stage) {
      return sharing * std::max(response(stage.visits[0]), response(stage.visits[1]));
    });
    times.slowest = (times.compute + times.cores) * (SlowestOf(workers_, spread_) - 1);
    if (!one_host_) {
      times.reduce = ReduceSeconds(load_, hosts_of_workers_, network_);
      times.messages = MessageSeconds(load_, workers_, hosts_of_workers_, network_);
    }
    *seconds = times.compute + times.cores + times.slowest + times.exchange();
    return times;
  }

  double Cycle(const Times& times) const {
    const double compute = times.compute + times.cores;
    // With several steps in flight, a step takes as long as the worker computes, or as its share of
    // a round through all stations.
    if (load_.depth > 1) return std::max(compute, (compute + times.exchange()) / load_.depth);
    // Geo computes the first steps after an exchange while the answer is on its way.
    const double hidden = compute / load_.steps * load_.hidden_steps;
    return compute + load_.other_s + std::max(0.0, times.exchange() - load_.other_s - hidden);
  }

 private:
  static double Threads(const PlanCosts& costs, const HostGroup& host) {
    if (costs.fixed_threads()) return costs.worker_threads();
    return std::max(1.0, std::floor(host.cores / std::max(1.0, host.workers)));
  }

  // On a host with workers and pservers they share the cores and the link.
  size_t At(size_t station) const {
    return shared_ && station >= kPserverCores ? station - kPserverCores : station;
  }

  void AddCompute() {
    const double service = load_.worker_cpu_s / worker_host_.cores;
    Stage stage{Stage::kCompute, std::max(0.0, load_.compute_s - service), {}};
    stage.visits.push_back({kWorkerCores, std::min(service, load_.compute_s), WorkerShare()});
    stages_.push_back(stage);
  }

  void AddPserver(const PlanCosts& costs) {
    if (load_.pserver_cpu_s <= 0) return;
    const double threads = std::max(1u, costs.pserver_threads());
    const double here = std::max(1.0, pserver_host_.pservers);
    const double on_cores = load_.pserver_cpu_s * here / pserver_host_.cores;
    const double on_threads = load_.pserver_cpu_s / std::min(threads, pserver_host_.cores);
    const double alone = std::max(0.0, load_.pserver_s - std::max(on_cores, on_threads));
    Stage stage{Stage::kPserver, alone, {}};
    stage.visits.push_back({At(kPserverCores), on_cores, 1});
    stage.visits.push_back({kPserverThreads, on_threads, 1});
    stages_.push_back(stage);
  }

  // A host's own pservers are reached without its link.
  void AddNetwork(double bytes, size_t from, size_t to) {
    if (one_host_ || !std::isfinite(network_.bytes_per_s)) return;
    const double at_worker = bytes * (1 - worker_host_.pservers / pservers_);
    const double at_pserver =
        bytes * pserver_host_.pservers / pservers_ * (1 - pserver_host_.workers / workers_);
    const size_t worker_end = from == kWorkerOut ? from : to,
                 pserver_end = from == kWorkerOut ? to : from;
    stages_.push_back({Stage::kNetwork,
                       0,
                       {{worker_end, at_worker / network_.bytes_per_s, WorkerShare()},
                        {At(pserver_end), at_pserver / network_.bytes_per_s, 1}}});
  }

  double WorkerShare() const { return worker_host_.workers / workers_; }

  // Seconds for which both directions of a worker's link are in use when nobody else is there.
  double Duplex() const {
    return one_host_ || !std::isfinite(network_.bytes_per_s)
               ? 0
               : DuplexSeconds(load_, pservers_, network_);
  }

  // `response`: of a visit; `transfer`: of a network stage.
  template <class Response, class Transfer>
  Times TimesOf(const Response& response, const Transfer& transfer) const {
    Times times;
    times.latency = load_.other_s + (one_host_ ? 0 : load_.round_trips * network_.latency_s);
    for (const Stage& stage : stages_) {
      double longest = 0;
      for (const Visit& v : stage.visits) longest = std::max(longest, response(v));
      switch (stage.what) {
        case Stage::kCompute:
          times.compute += stage.alone + stage.visits[0].service;
          times.cores += longest - stage.visits[0].service;
          break;
        case Stage::kNetwork:
          times.network += transfer(stage);
          break;
        case Stage::kPserver:
          times.pserver += stage.alone + longest;
          break;
      }
    }
    return times;
  }

  const double workers_, pservers_;
  const HostGroup& worker_host_;
  const HostGroup& pserver_host_;
  const bool shared_;  // the hosts of workers also have pservers
  const bool one_host_;
  const double hosts_of_workers_;
  const Network network_;
  const double spread_;
  const StepLoad load_;
  std::vector<Stage> stages_;
};

// Computing takes compute_s on the threads with which it was measured, and all of the CPU time on
// one thread (Amdahl's law).
double ComputeSeconds(double measured, double cpu, double measured_threads, double threads) {
  if (measured_threads <= 1 || cpu <= measured) return measured;
  const double parallel = (cpu - measured) / (1 - 1 / measured_threads);
  return std::max(0.0, measured - parallel / measured_threads) + parallel / threads;
}

// Moves dense tables from the pservers to the workers. Returns the share of the bytes that still
// goes through pservers.
double MoveDenseTables(const PlanCosts& costs, StepLoad* load) {
  const double bytes = load->pushed_bytes + load->pulled_bytes;
  load->reduced_bytes = std::min(costs.dense_bytes() - costs.kept_dense_bytes(),
                                 std::min(load->pushed_bytes, load->pulled_bytes));
  // Costs from a file may be of other tables, so no part may be larger than the whole.
  load->whole_bytes = std::min(costs.exchange_whole_bytes(), load->reduced_bytes);
  load->batches = costs.exchange_batches();
  load->messages = costs.exchange_messages();
  load->message_s = costs.worker_frame_s();
  // Without tables on pservers, the rest of the measured bytes are headers of frames with dense
  // tables.
  const bool kept = PserversKeepTables(costs, PlanMode::kCollective);
  load->pushed_bytes = kept ? load->pushed_bytes - load->reduced_bytes : 0;
  load->pulled_bytes = kept ? load->pulled_bytes - load->reduced_bytes : 0;
  return Safe(load->pushed_bytes + load->pulled_bytes, bytes);
}

// Bytes that each of n workers sends to reduce `bytes` part by part.
double BytesInParts(double bytes, double n) { return 2 * (n - 1) / n * bytes; }

// The work of a worker that updates `share` of the parameters itself. It takes the time that a
// pserver takes for them, during which the worker would wait.
struct DenseWork {
  double seconds = 0, cpu_s = 0;
};
DenseWork DenseWorkOf(const PlanCosts& costs, double share, double pserver_cpu_s, double waited) {
  const double threads = std::max(1u, costs.pserver_threads());
  return {share * std::max(waited, pserver_cpu_s / threads), share * pserver_cpu_s};
}

void SetBinds(const Times& times, double seconds, double hidden_exchange, PlanPrediction* to) {
  const double exchange = times.exchange();
  const double seen = exchange > 0 ? std::max(0.0, exchange - hidden_exchange) / exchange : 0;
  const std::pair<const char*, double> parts[] = {
      {"worker compute", times.compute},
      {"cores of the host", times.cores},
      {"network", (times.network + times.reduce) * seen},
      {"pserver CPU", times.pserver * seen},
      {"latency", times.latency * seen},
      {"worker messages", times.messages * seen},
      {"slowest worker", times.slowest}};
  const auto* most = std::max_element(std::begin(parts), std::end(parts),
                                      [](auto& a, auto& b) { return a.second < b.second; });
  to->set_binds(most->first);
  to->set_share(std::min(1.0, Safe(most->second, seconds)));
}

}  // namespace

double PayloadRate(double bits_per_s) { return bits_per_s / 8 / kWireBytesPerByte; }
double LinkBits(double bytes_per_s) { return 8 * kWireBytesPerByte * bytes_per_s; }

Placement OnOwnHosts(uint32_t workers, uint32_t pservers, double cores) {
  Placement placement{static_cast<double>(workers), static_cast<double>(pservers), {}};
  placement.hosts.push_back({static_cast<double>(workers), cores, 1, 0});
  if (pservers > 0) placement.hosts.push_back({static_cast<double>(pservers), cores, 0, 1});
  return placement;
}

Placement OnHosts(uint32_t workers, uint32_t pservers, std::vector<PlanHost>* hosts) {
  for (PlanHost& host : *hosts) host.set_pservers(0), host.set_workers(0);
  // Pservers are spread evenly, because all of them get the same share of the bytes. Workers then
  // fill the hosts with most cores to spare.
  for (uint32_t i = 0; i < pservers; ++i) {
    PlanHost& host = (*hosts)[i % hosts->size()];
    host.set_pservers(host.pservers() + 1);
  }
  for (uint32_t i = 0; i < workers; ++i) {
    const auto load = [](const PlanHost& host) {
      return (host.pservers() + host.workers() + 1.0) / std::max(1u, host.cores());
    };
    auto least = std::min_element(hosts->begin(), hosts->end(),
                                  [&](const auto& a, const auto& b) { return load(a) < load(b); });
    least->set_workers(least->workers() + 1);
  }
  Placement placement{static_cast<double>(workers), static_cast<double>(pservers), {}};
  for (const PlanHost& host : *hosts) {
    placement.hosts.push_back({1, static_cast<double>(std::max(1u, host.cores())),
                               static_cast<double>(host.workers()),
                               static_cast<double>(host.pservers())});
  }
  return placement;
}

StepLoad LoadOf(const PlanCosts& costs, PlanMode mode, double workers, double pservers,
                double threads) {
  const bool geo = mode == PlanMode::kGeo;
  const GeoCosts& g = costs.geo();
  StepLoad load;
  load.steps = geo ? std::max(1u, g.k_steps()) : 1;
  const double step = geo ? g.step_s() : costs.step_s(), wait = geo ? g.wait_s() : costs.wait_s();
  double cpu = geo ? g.pserver_cpu_s() : costs.pserver_cpu_s();
  // The worker waited for the pserver's work, except for what the pserver did meanwhile.
  // In Geo the wait is what the steps on the way have not hidden.
  double waited = geo ? cpu : std::min(wait, cpu);
  DenseWork own;
  load.worker_cpu_s = geo ? g.worker_cpu_s() : costs.worker_cpu_s();
  load.pushed_bytes = geo ? g.pushed_bytes() : costs.pushed_bytes();
  load.pulled_bytes = geo ? g.pulled_bytes() : costs.pulled_bytes();
  if (mode == PlanMode::kCollective) {
    const double kept = MoveDenseTables(costs, &load);
    own = DenseWorkOf(costs, 1 - kept, cpu, waited);
    cpu *= kept;
    waited *= kept;
  }
  load.compute_s = ComputeSeconds(std::max(0.0, step - wait), load.worker_cpu_s,
                                  costs.worker_threads(), threads);
  const double frames_s = std::max(0.0, pservers - 1) / load.steps * costs.worker_frame_s();
  load.compute_s += frames_s + own.seconds;
  load.worker_cpu_s += frames_s + own.cpu_s;
  load.other_s = geo ? wait : wait - std::min(wait, costs.pserver_cpu_s());
  const double frame = std::min(cpu, costs.pserver_frame_s() / load.steps);
  const auto of_one = [&](double all) {
    return pservers < 1 ? 0 : (all - std::min(all, frame)) / pservers + std::min(all, frame);
  };
  load.pserver_s = of_one(waited);
  load.pserver_cpu_s = of_one(cpu);
  load.round_trips = mode == PlanMode::kSync || mode == PlanMode::kCollective ? 2 : 1;
  // Without pservers only the exchange between workers is left, which MessageSeconds counts.
  if (pservers < 1) load.round_trips = 0;
  if (mode == PlanMode::kAsync) load.depth = std::max(1u, costs.pipeline_depth());
  if (geo) load.hidden_steps = std::floor(load.steps / 8);
  // All of the above is of one step; a Geo exchange has `steps` of them.
  for (double* each : {&load.compute_s, &load.worker_cpu_s, &load.pserver_s, &load.pserver_cpu_s,
                       &load.other_s, &load.pushed_bytes, &load.pulled_bytes})
    *each *= load.steps;
  return load;
}

double DuplexSeconds(const StepLoad& load, double pservers, const Network& network) {
  // Fitted to runs between hosts with two pservers; it would be 1 if frames left one after another.
  constexpr double kInOrder = 0.8;
  if (pservers <= 1) return 0;
  return kInOrder * (1 - 1 / pservers) * std::min(load.pushed_bytes, load.pulled_bytes) /
         network.bytes_per_s;
}

double SyncSharing(double workers, double pservers) {
  constexpr double kIdle = 0.28, kEarly = 0.18;
  const double fewer = std::max(1.0, std::min(workers, pservers)),
               more = std::max(workers, pservers);
  const double idle = (1 - 1 / fewer) * fewer / more;
  const double early = workers > pservers ? 1 - pservers / workers : 0;
  return 1 + kIdle * idle - kEarly * early;
}

double ExchangedBytes(const StepLoad& load, double n) {
  if (n <= 1) return 0;
  return BytesInParts(load.reduced_bytes - load.whole_bytes, n) + (n - 1) * load.whole_bytes;
}

double ReduceSeconds(const StepLoad& load, double hosts, const Network& network) {
  // Measured over plain TCP: 1.11, 1.10 and 1.08 with 3, 4 and 6 ranks (docs/scaling.md).
  constexpr double kTurns = 1.10;
  if (load.reduced_bytes <= 0 || hosts <= 1) return 0;
  return (hosts > 2 ? kTurns : 1) * ExchangedBytes(load, hosts) / network.bytes_per_s;
}

double MessageSeconds(const StepLoad& load, double workers, double hosts, const Network& network) {
  if (load.reduced_bytes <= 0 || hosts <= 1) return 0;
  // With several workers on a host, their leaders exchange the headers of all workers first.
  const double messages = load.messages + (workers > hosts ? load.batches : 0);
  return messages * ((hosts - 1) * load.message_s + network.latency_s / 2);
}

bool PserversKeepTables(const PlanCosts& costs, PlanMode mode) {
  return mode != PlanMode::kCollective || costs.rows() > 0 || costs.kept_dense_bytes() > 0;
}

double SlowestOf(double n, double spread) {
  // The expected maximum of n log-normal times, by Blom's approximation.
  if (n <= 1 || spread <= 0) return 1;
  return std::max(
      1.0, std::exp(spread * NormalQuantile((n - 0.375) / (n + 0.25)) - spread * spread / 2));
}

PlanPrediction Predict(const PlanCosts& costs, const Placement& placement, const Network& network,
                       PlanMode mode) {
  PlanPrediction prediction;
  if (placement.workers < 1 || (mode == PlanMode::kGeo && !costs.has_geo())) return prediction;
  if (placement.pservers < 1 && PserversKeepTables(costs, mode)) return prediction;
  const StageModel model(costs, placement, network, mode);
  const StepLoad& load = model.load();
  const bool together = mode == PlanMode::kSync || mode == PlanMode::kCollective;
  double seconds = 0;
  const Times times = together ? model.Together(&seconds) : model.Queued(&seconds);
  // Costs of nothing would divide by 0 below.
  if (!(seconds > 0)) return prediction;
  const double rate = placement.workers / seconds;  // exchanges per second
  prediction.set_examples_per_second(rate * load.steps * costs.examples());
  prediction.set_step_s(seconds / load.steps);
  // Workers of one host reduce in its memory, part by part.
  const double hosts = HostsOfWorkers(placement);
  const double exchanged =
      hosts > 1 ? hosts * ExchangedBytes(load, hosts)
                : placement.workers * BytesInParts(load.reduced_bytes, placement.workers);
  prediction.set_bytes_per_second(rate * (load.pushed_bytes + load.pulled_bytes) +
                                  exchanged / seconds);
  const double hidden = times.compute + times.cores + times.slowest + times.exchange() - seconds;
  SetBinds(times, seconds, std::max(0.0, hidden), &prediction);
  return prediction;
}

double PserverMemory(const PlanCosts& costs, PlanMode mode, double pservers) {
  if (pservers < 1) return 0;
  const double dense =
      mode == PlanMode::kCollective ? costs.kept_dense_memory_bytes() : costs.dense_memory_bytes();
  return costs.process_memory_bytes() +
         (dense + costs.rows() * costs.row_memory_bytes()) / pservers;
}

double FormulaStep(double t0, double bytes, double bytes_per_s, double n, double share) {
  return t0 / (share * n) + bytes * share / ((1 - share) * bytes_per_s);
}

double FormulaShare(double t0, double bytes, double bytes_per_s, double n) {
  return 1 / (1 + std::sqrt(bytes * n / (bytes_per_s * t0)));
}

}  // namespace sluice::plan
