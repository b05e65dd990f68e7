// Writes a plan, and the curves of a simulation, for people and as JSON, and reads the costs of an
// earlier plan.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/plan/line_plot.h"
#include "cli/plan/plan_model.h"
#include "common/base/env.h"
#include "proto/plan.pb.h"

namespace sluice::plan {

std::string CostsText(const PlanCosts& costs);
// Says that a cluster whose --transport is `transport`, with or without TLS, would not carry data
// as the measured one did, and what to do. Empty: it would.
std::string WarningOfTransport(const PlanCosts& costs, const std::string& transport, bool tls);
// The table and the best row.
std::string PlanText(const Plan& plan, PlanMode mode);
std::string ScalingText(const Scaling& scaling);
// The curves of the largest number of pservers, and of sync with the others.
Plot ScalingPlot(const Scaling& scaling);

// Format: protobuf's JSON mapping, indented, with the names of proto/plan.proto. `message` is a
// Plan or a Scaling.
absl::StatusOr<std::string> PlanJson(const google::protobuf::Message& message);

// Reads the costs from a file that PlanJson has written. INVALID_ARGUMENT names the file.
absl::StatusOr<PlanCosts> ReadCosts(const std::string& file, Env* env);

// Parses bits per second: "10G", "400M", "1e9". INVALID_ARGUMENT names the flag.
absl::StatusOr<double> ParseBits(const std::string& flag, const std::string& text);
// Parses "1,2,4": numbers from `least` to `most`. INVALID_ARGUMENT names the flag.
absl::StatusOr<std::vector<uint32_t>> ParseNumbers(const std::string& flag, const std::string& text,
                                                   uint32_t least, uint32_t most);
// Parses "a:16,b:16": hosts with their cores. INVALID_ARGUMENT names the flag.
absl::StatusOr<std::vector<PlanHost>> ParseHosts(const std::string& flag, const std::string& text);

}  // namespace sluice::plan
