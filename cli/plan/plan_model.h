// Predicts how fast a job trains on given hosts from the measured costs of one worker's step.
//
// A step passes stages: the worker computes, its frame crosses the network, the pservers apply it
// and read values, and the values cross the network. Between hosts, the links of both ends carry a
// frame at the same time, so that stage takes as long as the slower end.
//
// Async and Geo: the workers are the customers of a closed queueing network whose stations are the
// links and the cores of the most loaded hosts. Response R and throughput X of a station with
// service S that n workers visit follow from
//   R = S (1 + Q (n-1)/n),  Q = X R,  X = n / (sum of all R + what nobody shares)
// (approximate mean value analysis; Schweitzer 1979, exact for one worker and for saturation).
// A wait at a pserver's link comes on top of the time that a worker's own link takes.
// - Async with pipeline_depth d: a step takes max(compute, (compute + rest) / d).
// - Geo: k steps and one exchange take k compute + max(0, rest - (k/8) compute).
//
// Sync: all workers are in the same stage, so a stage takes the time of all of their work (links:
// as SyncSharing says), and computing takes the expected slowest of n: T_0 exp(s z_n - s^2/2),
// where s is step_spread and z_n = Phi^-1((n - 3/8)/(n + 1/4)) (Blom 1958). There are two round
// trips: push, then commit and pull.
//
// Collective: as sync for the tables that pservers keep, which are the sparse ones and the dense
// ones that the job leaves there. Without tables on pservers there is nothing else to exchange, and
// no need for pservers. For the other dense tables:
// - 2 (n-1)/n of the bytes pass each worker's link both ways (common/collective/gloo_engine.h).
//   A small batch goes whole to all n - 1 others instead. With more than two hosts, workers
//   exchange with one other at a time, and links are idle while the last transfers of a turn
//   end: 1.10 times the time of the bytes, which is assumed for small batches too.
// - Every worker exchanges M messages with each of the n - 1 others, in M rounds. A round takes
//   half of a round trip, and n - 1 times the cost of a frame. (A message in each direction took 25
//   to 60 us of CPU time between 2 to 32 ranks of one host.)
// - Every worker applies the update itself, and reduces as many bytes as it contributes. This takes
//   as long as the measured pserver took to receive, apply and send these bytes. The reduction of
//   the small batches of all other workers is not counted.
// n counts hosts: workers of one host reduce in its memory first (two_level_engine.h). The model
// assumes that none of this overlaps with backward, although gradients leave during it.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "proto/plan.pb.h"

namespace sluice::plan {

enum class PlanMode { kSync, kAsync, kGeo, kCollective };

// A group of identical hosts.
struct HostGroup {
  double count = 1;
  double cores = 1;
  double workers = 0, pservers = 0;  // on each of them
};

struct Placement {
  double workers = 0, pservers = 0;  // in all
  std::vector<HostGroup> hosts;
};

// Every process has a host of its own.
Placement OnOwnHosts(uint32_t workers, uint32_t pservers, double cores);
// Spreads pservers evenly over the hosts, then gives each worker to the host with the most cores
// for each process that it then has. Sets the numbers of `hosts` too. REQUIRES: hosts is not empty.
Placement OnHosts(uint32_t workers, uint32_t pservers, std::vector<PlanHost>* hosts);

struct Network {
  // Bytes of messages that a link carries each way; below the rate of the link (PayloadRate).
  double bytes_per_s = std::numeric_limits<double>::infinity();
  double latency_s = 0;  // of a round trip between hosts
};

// Converts the bits per second of a link to bytes per second of messages; LinkBits converts back. A
// packet of 1,448 bytes has 66 bytes of Ethernet, IP and TCP headers. Acknowledgements of the other
// direction take about 1 % more.
double PayloadRate(double bits_per_s);
double LinkBits(double bytes_per_s);

// The costs of a step in a mode, in seconds and bytes.
struct StepLoad {
  double steps = 1;         // between two exchanges; the other fields are sums over them
  double compute_s = 0;     // on `threads` threads, while nobody else uses the cores
  double worker_cpu_s = 0;  // with the threads that read and send
  double pserver_s = 0;     // wall time at one pserver while nobody else uses it
  double pserver_cpu_s = 0;
  double other_s = 0;  // the rest of the time that the worker waits
  double pushed_bytes = 0, pulled_bytes = 0;
  // Collective: bytes of the dense tables that workers keep, those of them that go whole to every
  // other worker, the batches in which gradients travel, and their messages to each other worker.
  double reduced_bytes = 0, whole_bytes = 0, batches = 0, messages = 0;
  double message_s = 0;  // of one message in each direction, without the time of its bytes
  double round_trips = 1;
  double hidden_steps = 0;  // Geo: steps during which the exchange is on its way
  double depth = 1;         // async: steps in flight
};
StepLoad LoadOf(const PlanCosts& costs, PlanMode mode, double workers, double pservers,
                double threads);

// The expected factor by which the slowest of n equally fast workers is slower than their mean.
double SlowestOf(double n, double spread);

// Async and Geo with several pservers: the first ones already send values while frames to the last
// ones leave. Returns for how many seconds a worker's link then carries both directions, if no
// other worker uses the links of the pservers.
double DuplexSeconds(const StepLoad& load, double pservers, const Network& network);

// Sync: how long the transfers of a step take between `workers` hosts and `pservers` others, in
// units of the time in which the fullest link carries its bytes. TCP shares links unevenly: with
// more workers than pservers, those that get their values first already push while the pservers
// still answer the others, so it is below 1; and where every host has transfers with several
// others, links are idle while the last of them end.
// Fitted to such steps over plain TCP between 2 to 10 hosts (docs/scaling.md).
double SyncSharing(double workers, double pservers);

// Collective: the bytes that one of n workers, each on a host of its own, sends to the others.
double ExchangedBytes(const StepLoad& load, double n);

// Collective: the seconds in which `workers` workers on `hosts` hosts exchange the dense tables
// that they keep: those of the bytes, and those of the messages besides. Workers of one host reach
// each other without its link. 0 on one host.
double ReduceSeconds(const StepLoad& load, double hosts, const Network& network);
double MessageSeconds(const StepLoad& load, double workers, double hosts, const Network& network);

// True when pservers keep tables of the job, also in collective mode: rows of a sparse table, which
// the measured job had, or dense tables that the job leaves there.
bool PserversKeepTables(const PlanCosts& costs, PlanMode mode);

// examples_per_second is 0 if the costs lack the mode, or if the mode needs pservers and there are
// none. Only a collective job whose workers keep all tables needs none.
PlanPrediction Predict(const PlanCosts& costs, const Placement& placement, const Network& network,
                       PlanMode mode);

// Bytes of one pserver. In collective mode it has only the dense tables that the job leaves there.
double PserverMemory(const PlanCosts& costs, PlanMode mode, double pservers);

// T(e) = T_0/(e n) + V e/((1-e) B): the time of a global step whose work takes one worker T_0, on n
// processes of which the share e are workers, each of which exchanges V bytes.
double FormulaStep(double t0, double bytes, double bytes_per_s, double n, double share);
// The best e = 1/(1 + sqrt(V n/(B T_0))).
double FormulaShare(double t0, double bytes, double bytes_per_s, double n);

}  // namespace sluice::plan
