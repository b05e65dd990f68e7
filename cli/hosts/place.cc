#include "cli/hosts/place.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/config/address.h"

namespace sluice::cli {
namespace {

constexpr uint32_t kMostMembers = 10'000;

const std::string& Value(const Variables& variables, const std::string& name) {
  static const std::string* const none = new std::string;
  const auto found = variables.find(name);
  return found == variables.end() ? *none : found->second;
}

absl::Status Refused(const std::string& name, const std::string& value, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, "=", PrintableLine(value.substr(0, 200)), ": ", why));
}

absl::StatusOr<uint32_t> NumberOf(const Variables& variables, const std::string& name) {
  const std::string& value = Value(variables, name);
  uint32_t number = 0;
  if (absl::SimpleAtoi(value, &number) && number <= kMostMembers) return number;
  return Refused(name, value, absl::StrCat("not a number from 0 to ", kMostMembers));
}

absl::Status CheckAddresses(const std::string& name, const std::vector<std::string>& addresses) {
  for (const std::string& address : addresses) {
    const auto parsed = ParseAddress(address);
    if (parsed.ok() && parsed->port != 0) continue;
    return Refused(name, address, "not an address HOST:PORT");
  }
  return absl::OkStatus();
}

// ------------------------------------------------------------------------------------- TensorFlow

const google::protobuf::Value* Field(const google::protobuf::Struct& object,
                                     const std::string& name) {
  const auto found = object.fields().find(name);
  return found == object.fields().end() ? nullptr : &found->second;
}

std::vector<std::string> TasksOf(const google::protobuf::Struct& cluster, const std::string& type) {
  std::vector<std::string> addresses;
  const google::protobuf::Value* const list = Field(cluster, type);
  if (list == nullptr) return addresses;
  for (const google::protobuf::Value& one : list->list_value().values())
    addresses.push_back(one.string_value());
  return addresses;
}

absl::StatusOr<Place> PlaceOfTensorFlow(const std::string& text) {
  constexpr char kName[] = "TF_CONFIG";
  google::protobuf::Struct config;
  if (!google::protobuf::util::JsonStringToMessage(text, &config).ok())
    return Refused(kName, text, "not a JSON object");
  const google::protobuf::Value* const cluster = Field(config, "cluster");
  const google::protobuf::Value* const task = Field(config, "task");
  if (Field(config, "sparseCluster") != nullptr) {
    return Refused(kName, text,
                   "a job with dynamic workers does not name all of them; set enableDynamicWorker: "
                   "false");
  }
  if (cluster == nullptr || !cluster->has_struct_value() || task == nullptr ||
      !task->has_struct_value()) {
    return Refused(kName, text, "it has no cluster and task");
  }
  const google::protobuf::Value* const type_field = Field(task->struct_value(), "type");
  const google::protobuf::Value* const index_field = Field(task->struct_value(), "index");
  const std::string type = type_field == nullptr ? "" : type_field->string_value();
  // An index may be a number or, as some write it, a string.
  double index = index_field == nullptr ? 0 : index_field->number_value();
  if (index_field != nullptr && index_field->has_string_value() &&
      !absl::SimpleAtod(index_field->string_value(), &index)) {
    return Refused(kName, text, "task.index is no number");
  }
  Place place;
  place.origin = kName;
  place.pservers = TasksOf(cluster->struct_value(), "ps");
  std::vector<std::string> workers = TasksOf(cluster->struct_value(), "chief");
  // The name of the chief in older versions.
  if (workers.empty()) workers = TasksOf(cluster->struct_value(), "master");
  const size_t chiefs = workers.size();
  for (std::string& worker : TasksOf(cluster->struct_value(), "worker"))
    workers.push_back(std::move(worker));
  if (workers.empty()) return Refused(kName, text, "cluster has neither chief nor worker");
  if (chiefs > 1) return Refused(kName, text, "cluster has more than one chief");
  if (workers.size() > kMostMembers || place.pservers.size() > kMostMembers)
    return Refused(kName, text, "the cluster is too large");
  SLUICE_RETURN_IF_ERROR(CheckAddresses(kName, place.pservers));
  SLUICE_RETURN_IF_ERROR(CheckAddresses(kName, workers));
  place.worker_num = static_cast<uint32_t>(workers.size());
  // Workers only call others, so the address of the first one is free for the scheduler.
  place.scheduler = workers[0];
  if (type == "evaluator") return place;
  const bool is_chief = type == "chief" || type == "master";
  const size_t tasks = type == "ps"       ? place.pservers.size()
                       : is_chief         ? chiefs
                       : type == "worker" ? workers.size() - chiefs
                                          : 0;
  // In this direction, an index that is no number fails, too.
  if (!(index >= 0 && index < static_cast<double>(tasks) && index == std::floor(index))) {
    return Refused(kName, text,
                   absl::StrCat("the cluster has no task of type '", PrintableLine(type),
                                "' with this index"));
  }
  auto rank = static_cast<uint32_t>(index);
  if (type == "worker") rank += static_cast<uint32_t>(chiefs);
  if (type == "ps") {
    place.daemons = {{ROLE_PSERVER, rank}};
    return place;
  }
  place.leads = rank == 0;
  if (place.leads) place.daemons.push_back({ROLE_SCHEDULER, 0});
  place.daemons.push_back({ROLE_WORKER, rank});
  return place;
}

// ----------------------------------------------------------------------------------------- Paddle

absl::StatusOr<Place> PlaceOfPaddle(const Variables& variables) {
  constexpr char kPservers[] = "PADDLE_PSERVERS_IP_PORT_LIST";
  Place place;
  place.origin = "TRAINING_ROLE";
  const std::string& list = Value(variables, kPservers);
  if (list.empty()) {
    return Refused(kPservers, list,
                   "not set; it names the pservers (a collective job has none: start it with "
                   "sluice launch)");
  }
  place.pservers = absl::StrSplit(list, ',');
  SLUICE_RETURN_IF_ERROR(CheckAddresses(kPservers, place.pservers));
  SLUICE_ASSIGN_OR_RETURN(place.worker_num, NumberOf(variables, "PADDLE_TRAINERS_NUM"));
  SLUICE_ASSIGN_OR_RETURN(Address scheduler, ParseAddress(place.pservers[0]));
  ++scheduler.port;
  place.scheduler = ToText(scheduler);
  const auto taken = std::find(place.pservers.begin(), place.pservers.end(), place.scheduler);
  // Several pservers of one host have ports in a row.
  if (taken != place.pservers.end()) {
    scheduler.port = 0;
    for (const std::string& address : place.pservers) {
      SLUICE_ASSIGN_OR_RETURN(const Address one, ParseAddress(address));
      scheduler.port = std::max<uint16_t>(scheduler.port, one.port);
    }
    ++scheduler.port;
    place.scheduler = ToText(scheduler);
  }
  if (scheduler.port == 0)
    return Refused(kPservers, list, "no port is left for the scheduler after port 65535");
  const std::string& role = Value(variables, "TRAINING_ROLE");
  if (role == "TRAINER") {
    SLUICE_ASSIGN_OR_RETURN(const uint32_t rank, NumberOf(variables, "PADDLE_TRAINER_ID"));
    if (rank >= place.worker_num)
      return Refused("PADDLE_TRAINER_ID", absl::StrCat(rank), "not below PADDLE_TRAINERS_NUM");
    place.daemons = {{ROLE_WORKER, rank}};
    place.leads = rank == 0;
    return place;
  }
  if (role != "PSERVER") return Refused("TRAINING_ROLE", role, "neither PSERVER nor TRAINER");
  const std::string own =
      absl::StrCat(Value(variables, "POD_IP"), ":", Value(variables, "PADDLE_PORT"));
  const auto found = std::find(place.pservers.begin(), place.pservers.end(), own);
  if (found == place.pservers.end()) {
    return Refused("POD_IP and PADDLE_PORT", own,
                   absl::StrCat("not in ", kPservers, "=", PrintableLine(list)));
  }
  const auto rank = static_cast<uint32_t>(found - place.pservers.begin());
  if (rank == 0) place.daemons.push_back({ROLE_SCHEDULER, 0});
  place.daemons.push_back({ROLE_PSERVER, rank});
  return place;
}

// ------------------------------------------------------------------------------------------ Slurm

absl::StatusOr<Place> PlaceOfSlurm(const Variables& variables, uint32_t first_port) {
  const char* const name = Value(variables, "SLURM_STEP_NODELIST").empty() ? "SLURM_JOB_NODELIST"
                                                                           : "SLURM_STEP_NODELIST";
  const auto nodes = ExpandHostList(Value(variables, name));
  if (!nodes.ok())
    return Refused(name, Value(variables, name), std::string(nodes.status().message()));
  Place place;
  place.origin = "SLURM_PROCID";
  SLUICE_ASSIGN_OR_RETURN(const uint32_t rank, NumberOf(variables, "SLURM_PROCID"));
  const char* const tasks =
      Value(variables, "SLURM_STEP_NUM_TASKS").empty() ? "SLURM_NTASKS" : "SLURM_STEP_NUM_TASKS";
  SLUICE_ASSIGN_OR_RETURN(place.worker_num, NumberOf(variables, tasks));
  SLUICE_ASSIGN_OR_RETURN(const uint32_t node, NumberOf(variables, "SLURM_NODEID"));
  SLUICE_ASSIGN_OR_RETURN(const uint32_t local, NumberOf(variables, "SLURM_LOCALID"));
  if (rank >= place.worker_num)
    return Refused("SLURM_PROCID", absl::StrCat(rank), absl::StrCat("not below ", tasks));
  if (node >= nodes->size())
    return Refused("SLURM_NODEID", absl::StrCat(node), absl::StrCat("not a node of ", name));
  if (first_port == 0) {
    // Jobs that share a node have different numbers. Below the ports of outgoing connections.
    uint32_t job = 0;
    (void)absl::SimpleAtoi(Value(variables, "SLURM_JOB_ID"), &job);
    first_port = 10'000 + 2 * (job % 10'000);
  }
  place.scheduler = absl::StrCat((*nodes)[0], ":", first_port);
  for (const std::string& host : *nodes)
    place.pservers.push_back(absl::StrCat(host, ":", first_port + 1));
  place.leads = rank == 0;
  if (place.leads) place.daemons.push_back({ROLE_SCHEDULER, 0});
  if (local == 0) place.daemons.push_back({ROLE_PSERVER, node});
  place.daemons.push_back({ROLE_WORKER, rank});
  return place;
}

// Appends the hosts of "gpu[01-03,7]".
absl::Status ExpandOne(absl::string_view text, std::vector<std::string>* hosts) {
  const size_t open = text.find('[');
  if (open == absl::string_view::npos) {
    if (text.empty()) return absl::InvalidArgumentError("a name is empty");
    hosts->emplace_back(text);
    return absl::OkStatus();
  }
  const size_t close = text.find(']', open);
  if (close == absl::string_view::npos) return absl::InvalidArgumentError("a [ without its ]");
  const absl::string_view before = text.substr(0, open), after = text.substr(close + 1);
  for (const absl::string_view part :
       absl::StrSplit(text.substr(open + 1, close - open - 1), ',')) {
    const std::vector<std::string> ends = absl::StrSplit(part, '-');
    uint32_t from = 0, to = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &from) ||
        !absl::SimpleAtoi(ends.back(), &to) || from > to || to - from >= kMostMembers) {
      return absl::InvalidArgumentError("no numbers in its brackets");
    }
    for (uint32_t number = from; number <= to; ++number) {
      if (hosts->size() >= kMostMembers) return absl::InvalidArgumentError("too many hosts");
      const std::string digits =
          absl::StrFormat("%0*d", static_cast<int>(ends.front().size()), number);
      // A name may have a second pair of brackets.
      SLUICE_RETURN_IF_ERROR(ExpandOne(absl::StrCat(before, digits, after), hosts));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandHostList(const std::string& list) {
  std::vector<std::string> hosts;
  // Commas separate hosts outside of brackets only.
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] == '[') ++depth;
    if (i < list.size() && list[i] == ']') --depth;
    if (i < list.size() && (list[i] != ',' || depth > 0)) continue;
    SLUICE_RETURN_IF_ERROR(ExpandOne(absl::string_view(list).substr(begin, i - begin), &hosts));
    begin = i + 1;
  }
  return hosts;
}

absl::StatusOr<Place> PlaceOf(const Variables& variables, uint32_t first_port) {
  if (!Value(variables, "TF_CONFIG").empty())
    return PlaceOfTensorFlow(Value(variables, "TF_CONFIG"));
  if (!Value(variables, "TRAINING_ROLE").empty()) return PlaceOfPaddle(variables);
  if (!Value(variables, "SLURM_PROCID").empty()) return PlaceOfSlurm(variables, first_port);
  return absl::NotFoundError(
      "the environment names no place in a cluster: none of SLUICE_ROLE, TF_CONFIG, TRAINING_ROLE "
      "and SLURM_PROCID is set; on one host use sluice launch, on hosts with ssh sluice launch "
      "--hosts=a:4,b:4");
}

}  // namespace sluice::cli
