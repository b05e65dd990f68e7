// sluice status: what a cluster does.
#include <google/protobuf/util/json_util.h>

#include <iostream>

#include "cli/commands.h"
#include "cli/endpoints.h"
#include "cli/exit_codes.h"
#include "cli/status_text.h"
#include "cli/watch_job.h"
#include "common/daemon/scheduler_client.h"

namespace sluice::cli {
namespace {

int Status(const ParsedCommand& command) {
  const auto address = FindRunningScheduler(command);
  if (!address.ok()) return ReportError(address.status());
  const auto status = SchedulerClient::Create(*address)->GetStatus();
  if (!status.ok()) return ReportError(status.status());
  if (!command.Switch("json")) {
    std::cout << StatusText(*status);
    return kDone;
  }
  google::protobuf::util::JsonPrintOptions print;
  print.add_whitespace = true;
  print.always_print_primitive_fields = true;
  print.preserve_proto_field_names = true;
  std::string json;
  if (const auto printed = google::protobuf::util::MessageToJsonString(*status, &json, print);
      !printed.ok()) {
    return ReportError(absl::InternalError("the status has no JSON form: " + printed.ToString()));
  }
  std::cout << json;
  return kDone;
}

}  // namespace

Command StatusCommand() {
  CommandSpec spec;
  spec.name = "status";
  spec.summary = "Shows members, tables, jobs, progress and what anything waits for.";
  spec.flags = SchedulerFlags();
  spec.flags.push_back({"json", FlagKind::kBool, "", "", "as JSON"});
  spec.examples =
      "  sluice status\n"
      "  sluice status --scheduler=10.0.0.1:7100 --json\n";
  return {spec, &Status};
}

}  // namespace sluice::cli
