#include "cli/plan/plan_json.h"

#include <google/protobuf/util/json_util.h>

#include <cmath>

#include "absl/strings/str_cat.h"

namespace sluice::plan {
namespace {

absl::Status Unusable(const std::string& file, const std::string& why) {
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
  if (!json.ok()) return Unusable(file, std::string(json.status().message()));
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // of a Plan or a Scaling: only the costs are read
  Scaling plan;                          // both have them in field 1
  const auto status = google::protobuf::util::JsonStringToMessage(*json, &plan, options);
  if (!status.ok()) return Unusable(file, status.ToString());
  if (!AreUsable(plan.costs())) return Unusable(file, "it has no usable `costs`");
  return plan.costs();
}

}  // namespace sluice::plan
