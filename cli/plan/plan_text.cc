#include "cli/plan/plan_text.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cli/plan/plan_search.h"
#include "cli/screen/format.h"

namespace sluice::plan {
namespace {

constexpr uint32_t kMostCores = 4096;

std::string Bytes(double bytes) { return cli::ByteCount(static_cast<uint64_t>(bytes)); }

std::string Rate(double per_second) {
  return per_second > 0 ? cli::WithCommas(static_cast<uint64_t>(std::llround(per_second))) : "-";
}

std::string Milliseconds(double seconds) { return absl::StrFormat("%.2f ms", 1e3 * seconds); }

std::string Bits(double bits) {
  if (bits >= 1e9) return absl::StrFormat("%gG", bits / 1e9);
  return absl::StrFormat("%gM", bits / 1e6);
}

constexpr std::pair<PlanMode, const char*> kModes[] = {{PlanMode::kSync, "sync"},
                                                       {PlanMode::kAsync, "async"},
                                                       {PlanMode::kGeo, "Geo"},
                                                       {PlanMode::kCollective, "collective"}};

std::string MainRow(const PlanRow& row, PlanMode mode, bool best) {
  const PlanPrediction& p = PredictionOf(row, mode);
  return absl::StrFormat("%s%8d %7d %15s %11s  %-22s %10s\n", best ? "*" : " ", row.pservers(),
                         row.workers(), Rate(p.examples_per_second()), Bytes(p.bytes_per_second()),
                         absl::StrFormat("%s %.0f%%", p.binds(), 100 * p.share()),
                         row.pservers() > 0 ? Bytes(row.pserver_memory_bytes()) : "-");
}

// The examples per second of the modes that the main table does not show, in a table of their own:
// one table of all columns would be wider than a terminal.
std::string OtherModes(const Plan& plan, PlanMode mode) {
  std::string text = absl::StrFormat(" %8s %8s", "pservers", "workers");
  for (const auto& [other, name] : kModes) {
    if (other != mode) absl::StrAppendFormat(&text, " %15s", absl::StrCat(name, " ex/s"));
  }
  text += '\n';
  for (const PlanRow& row : plan.rows()) {
    absl::StrAppendFormat(&text, " %8d %8d", row.pservers(), row.workers());
    for (const auto& [other, name] : kModes) {
      if (other == mode) continue;
      absl::StrAppendFormat(&text, " %15s", Rate(PredictionOf(row, other).examples_per_second()));
    }
    text += '\n';
  }
  return text;
}

// `transport`: that of PlanCosts, or the --transport of a cluster on one host. What passes through
// shared memory is not encrypted.
std::string Carried(const std::string& transport, bool tls) {
  if (transport != "grpc") return "through shared memory";
  return tls ? "over gRPC with TLS" : "over gRPC";
}

std::string How(const PlanCosts& costs) {
  if (costs.transport().empty()) return "";
  return absl::StrCat(" ", Carried(costs.transport(), costs.tls()));
}

absl::Status UnusableCosts(const std::string& file, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "--costs=", file, ": ", why, "; give the file that sluice plan --json has written"));
}

// Costs are divided by and multiplied; what is negative or not finite would come back as nonsense.
bool AreUsable(const PlanCosts& c) {
  for (const double value : {c.wait_s(),
                             c.worker_cpu_s(),
                             c.pserver_cpu_s(),
                             c.pushed_bytes(),
                             c.pulled_bytes(),
                             c.worker_frame_s(),
                             c.pserver_frame_s(),
                             c.dense_bytes(),
                             c.dense_memory_bytes(),
                             c.row_memory_bytes(),
                             c.rows(),
                             c.process_memory_bytes(),
                             c.step_spread(),
                             c.uncertainty(),
                             c.exchange_batches(),
                             c.exchange_messages(),
                             c.exchange_whole_bytes(),
                             c.geo().step_s(),
                             c.geo().wait_s(),
                             c.geo().worker_cpu_s(),
                             c.geo().pserver_cpu_s(),
                             c.geo().pushed_bytes(),
                             c.geo().pulled_bytes()}) {
    if (!(value >= 0) || !std::isfinite(value)) return false;
  }
  return c.step_s() > 0 && std::isfinite(c.step_s()) && c.examples() > 0 &&
         std::isfinite(c.examples());
}

}  // namespace

std::string WarningOfTransport(const PlanCosts& costs, const std::string& transport, bool tls) {
  const std::string expected = Carried(transport, tls);
  if (costs.transport().empty()) {
    return absl::StrCat(
        "the file does not say how its costs were measured, and predictions for data ", expected,
        " are right only for costs measured so; measure again, by leaving --costs out");
  }
  const std::string measured = Carried(costs.transport(), costs.tls());
  if (measured == expected) return "";
  return absl::StrCat("these costs were measured ", measured,
                      ", but the workers of this plan may reach pservers ", expected,
                      ", where a step costs other CPU time; measure again, by leaving --costs out");
}

std::string CostsText(const PlanCosts& c) {
  std::string text = absl::StrFormat(
      "measured for %.1f s%s: a step takes %s,\n"
      "  computing %s and waiting %s; it has %.0f examples on average\n"
      "  CPU time of a step: worker %s (%s), pserver %s\n"
      "  each further pserver costs a worker %.0f us a step,\n"
      "  and each further worker costs a pserver %.0f us\n"
      "  bytes of a step: pushed %s, pulled %s\n"
      "  dense tables %s; rows after all data: %s\n"
      "  the mean is known to +-%.0f%%; single steps differ by %.0f%%\n",
      c.measured_s(), How(c), Milliseconds(c.step_s()), Milliseconds(c.step_s() - c.wait_s()),
      Milliseconds(c.wait_s()), c.examples(), Milliseconds(c.worker_cpu_s()),
      cli::Counted(c.worker_threads(), "thread"), Milliseconds(c.pserver_cpu_s()),
      1e6 * c.worker_frame_s(), 1e6 * c.pserver_frame_s(), Bytes(c.pushed_bytes()),
      Bytes(c.pulled_bytes()), Bytes(c.dense_bytes()),
      cli::WithCommas(static_cast<uint64_t>(c.rows())), 100 * c.uncertainty(),
      100 * c.step_spread());
  if (c.has_geo()) {
    absl::StrAppendFormat(&text, "  Geo (k_steps %d): a step takes %s, pushes %s and pulls %s\n",
                          c.geo().k_steps(), Milliseconds(c.geo().step_s()),
                          Bytes(c.geo().pushed_bytes()), Bytes(c.geo().pulled_bytes()));
  }
  return text;
}

std::string PlanText(const Plan& plan, PlanMode mode) {
  std::string text = absl::StrFormat(
      "%s; network: %s\n\n %8s %7s %15s %11s  %-22s %10s\n",
      plan.own_hosts() ? "every process on a host of its own"
                       : absl::StrCat(cli::Counted(plan.hosts_size(), "host")),
      plan.bits_per_second() > 0 ? absl::StrCat(Bits(plan.bits_per_second()), "bit/s each way")
                                 : "no limit",
      "pservers", "workers", absl::StrCat(plan.mode(), " ex/s"), "bytes/s", "limited by", "memory");
  for (int i = 0; i < plan.rows_size(); ++i)
    text += MainRow(plan.rows(i), mode, i == static_cast<int>(plan.best()));
  if (plan.rows().empty()) return text;
  absl::StrAppend(
      &text,
      "* the fewest processes that reach 95% of the highest speed\n"
      "ex/s: examples per second; limited by: the largest share of a worker's time;\n"
      "memory: of each pserver\n\n",
      OtherModes(plan, mode));
  const PlanRow& best = plan.rows(static_cast<int>(plan.best()));
  const PlanPrediction& p = PredictionOf(best, mode);
  absl::StrAppendFormat(&text,
                        "\nbest: %s and %s: %s examples/s;\n"
                        "  %.0f%% of a worker's time goes to: %s\n",
                        cli::Counted(best.pservers(), "pserver"),
                        cli::Counted(best.workers(), "worker"), Rate(p.examples_per_second()),
                        100 * p.share(), p.binds());
  return text;
}

std::string ScalingText(const Scaling& scaling) {
  std::string text =
      absl::StrFormat("%8s %8s %14s %14s %14s %14s %14s %10s\n", "pservers", "workers", "sync",
                      "async", "Geo", "collective", "ideal", "sync/ideal");
  for (const ScalingPoint& p : scaling.points()) {
    absl::StrAppendFormat(&text, "%8d %8d %14s %14s %14s %14s %14s %9.0f%%\n", p.pservers(),
                          p.workers(), Rate(p.sync()), Rate(p.async()), Rate(p.geo()),
                          Rate(p.collective()), Rate(p.ideal()),
                          p.ideal() > 0 ? 100 * p.sync() / p.ideal() : 0);
  }
  return text;
}

Plot ScalingPlot(const Scaling& scaling) {
  Plot plot;
  std::set<uint32_t> pservers;
  for (const ScalingPoint& p : scaling.points()) pservers.insert(p.pservers());
  if (pservers.empty()) return plot;
  const uint32_t most = *pservers.rbegin();
  plot.title = absl::StrFormat("%s: %d pservers, %sbit/s", scaling.costs().job(), most,
                               Bits(scaling.bits_per_second()));
  plot.x_name = "workers";
  plot.y_name = "examples/s";
  const auto line = [&](const std::string& name, double (ScalingPoint::*rate)() const,
                        uint32_t of_pservers, bool dashed) {
    Line l{name, dashed, {}};
    for (const ScalingPoint& p : scaling.points()) {
      if (p.pservers() == of_pservers) l.points.emplace_back(p.workers(), (p.*rate)());
    }
    plot.lines.push_back(std::move(l));
  };
  line("sync", &ScalingPoint::sync, most, false);
  line("async", &ScalingPoint::async, most, false);
  line("Geo", &ScalingPoint::geo, most, false);
  line("collective", &ScalingPoint::collective, most, false);
  line("ideal", &ScalingPoint::ideal, most, true);
  size_t others = 0;
  // More than three further lines could not be told apart.
  for (auto it = std::next(pservers.rbegin()); it != pservers.rend() && others < 3; ++it, ++others)
    line(absl::StrCat("sync, ", cli::Counted(*it, "pserver")), &ScalingPoint::sync, *it, true);
  return plot;
}

absl::StatusOr<double> ParseBits(const std::string& flag, const std::string& text) {
  static const auto* const units =
      new std::map<char, double>{{'k', 1e3}, {'K', 1e3}, {'M', 1e6}, {'G', 1e9}, {'T', 1e12}};
  // Units are decimal, as network links are sold.
  const auto unit = text.empty() ? units->end() : units->find(text.back());
  const std::string number = unit == units->end() ? text : text.substr(0, text.size() - 1);
  double value = 0;
  if (!absl::SimpleAtod(number, &value) || !(value > 0) || !std::isfinite(value)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--", flag, "=", text, " is not a bandwidth in bits per second; give e.g. 10G or 400M"));
  }
  return value * (unit == units->end() ? 1 : unit->second);
}

absl::StatusOr<std::vector<uint32_t>> ParseNumbers(const std::string& flag, const std::string& text,
                                                   uint32_t least, uint32_t most) {
  std::vector<uint32_t> numbers;
  for (const absl::string_view piece : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    uint32_t number = 0;
    if (!absl::SimpleAtoi(piece, &number) || number < least || number > most) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", text, ": '", piece,
                                                     "' is not a number from ", least, " to ", most,
                                                     "; give e.g. 1,2,4"));
    }
    numbers.push_back(number);
  }
  return numbers;
}

absl::StatusOr<std::vector<PlanHost>> ParseHosts(const std::string& flag, const std::string& text) {
  std::vector<PlanHost> hosts;
  std::set<std::string> names;
  for (const absl::string_view piece : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const size_t colon = piece.rfind(':');
    uint32_t cores = 0;
    const std::string name(piece.substr(0, colon));
    const bool good = colon != piece.npos && !name.empty() &&
                      absl::SimpleAtoi(piece.substr(colon + 1), &cores) && cores >= 1 &&
                      cores <= kMostCores && names.insert(name).second;
    if (!good) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, "=", text, ": '", piece, "' is not HOST:CORES with 1 to ",
                       kMostCores, " cores, or names its host again; give e.g. a:16,b:16"));
    }
    hosts.emplace_back();
    hosts.back().set_name(name);
    hosts.back().set_cores(cores);
  }
  return hosts;
}

absl::StatusOr<std::string> PlanJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!status.ok())
    return absl::InternalError(absl::StrCat("the plan has no JSON form: ", status.ToString()));
  return json;
}

absl::StatusOr<PlanCosts> ReadCosts(const std::string& file, Env* env) {
  const absl::StatusOr<std::string> json = env->ReadFile(file);
  if (!json.ok()) return UnusableCosts(file, std::string(json.status().message()));
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // of a Plan or a Scaling: only the costs are read
  Scaling plan;                          // both have them in field 1
  const auto status = google::protobuf::util::JsonStringToMessage(*json, &plan, options);
  if (!status.ok()) return UnusableCosts(file, status.ToString());
  // The file may have been edited by hand, or be some other JSON.
  if (!AreUsable(plan.costs())) return UnusableCosts(file, "it has no usable `costs`");
  return plan.costs();
}

}  // namespace sluice::plan
