// sluice join: becomes the daemons whose place the environment names.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/cluster/child_process.h"
#include "cli/cluster/log_files.h"
#include "cli/commands/commands.h"
#include "cli/hosts/own_folder.h"
#include "cli/hosts/place.h"
#include "cli/jobs/watch_job.h"
#include "cli/screen/command_line.h"
#include "cli/screen/stderr_lines.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/status_macros.h"
#include "common/config/address.h"
#include "common/config/environment.h"
#include "common/config/job_config.h"
#include "common/daemon/endpoint_list.h"
#include "common/daemon/identity.h"
#include "common/daemon/scheduler_client.h"
#include "common/daemon/stop_signal.h"
#include "common/security/cert_authority.h"

namespace sluice::cli {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(50), kAskEvery = absl::Seconds(2);
// How long daemons have to end by themselves after the job, and after SIGTERM.
constexpr absl::Duration kEndWithin = absl::Seconds(20);
constexpr int kTail = 12;

Variables AllVariables() {
  Variables variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

// SLUICE_ROLE: the daemon reads its place itself, and takes the place of this process.
int BecomeDaemon(const std::string& role, const std::vector<std::string>& words) {
  const auto folder = ExecutableFolder();
  if (!folder.ok()) return ReportError(folder.status());
  if (role != "scheduler" && role != "pserver" && role != "worker") {
    return ReportError(absl::InvalidArgumentError(
        absl::StrCat("SLUICE_ROLE=", role, " is neither scheduler, pserver nor worker")));
  }
  std::vector<std::string> args = {absl::StrCat(*folder, "/sluice-", role)};
  args.insert(args.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  std::cout << std::flush;
  execv(argv[0], argv.data());
  return ReportError(
      absl::InternalError(absl::StrCat("cannot start ", args[0], ": ", std::strerror(errno))));
}

// The daemons of one place, and for its leader the job.
class JoinedPlace {
 public:
  JoinedPlace(const ParsedCommand& command, Place place)
      : command_(command), place_(std::move(place)), log_dir_(command.Text("log_dir")) {}

  // Returns the exit code.
  int Run();

 private:
  absl::Status Prepare();
  absl::Status Start(const Place::Daemon& daemon);
  std::vector<std::string> BindFlags(const std::string& address) const;
  // Waits for the scheduler, submits the job, follows it and stops the cluster.
  int LeadJob();
  // Whether a daemon has failed, which is then said; its code is in code_.
  bool SomeFailed();
  bool AllEnded();
  void EndAll(absl::Duration by_themselves);
  int Ended(int code) {
    EndAll(absl::ZeroDuration());
    return code;
  }
  bool Secured() const { return command_.Given("certs"); }

  const ParsedCommand& command_;
  const Place place_;
  const std::string log_dir_;
  std::string binaries_;
  std::unique_ptr<OwnFolder> folder_;  // with the cluster file
  std::vector<ChildProcess> daemons_;
  GrpcCredentials credentials_;
  int code_ = kDone;
};

absl::Status JoinedPlace::Prepare() {
  SLUICE_ASSIGN_OR_RETURN(binaries_, ExecutableFolder());
  SLUICE_RETURN_IF_ERROR(CreateLogFolder(log_dir_));
  SLUICE_ASSIGN_OR_RETURN(folder_, OwnFolder::Make("join"));
  ClusterConfig config;
  config.set_name("joined");
  config.set_scheduler(place_.scheduler);
  for (const std::string& address : place_.pservers) config.add_pservers(address);
  config.set_worker_num(place_.worker_num);
  config.mutable_security()->set_insecure(command_.Switch("insecure"));
  if (Secured()) {
    const std::string certs = command_.Text("certs");
    config.mutable_security()->set_tls_ca(FilesOf(certs, "").ca);
    if (place_.leads) {
      SLUICE_ASSIGN_OR_RETURN(credentials_, GrpcCredentials::Create(FilesOf(certs, "operator")));
    }
  }
  config = WithDefaults(config);
  SLUICE_RETURN_IF_ERROR(ValidateClusterConfig(config));
  return Env::Real()->WriteFile(folder_->path() + "/cluster.textproto", {ToTextproto(config)});
}

std::vector<std::string> JoinedPlace::BindFlags(const std::string& address) const {
  const auto parsed = ParseAddress(address);
  if (!parsed.ok() || IsLoopback(parsed->host)) return {absl::StrCat("--bind=", address)};
  // The name of a service may lead here only once this process serves.
  const char* const any = absl::StrContains(parsed->host, ':') ? "[::]" : "0.0.0.0";
  return {absl::StrCat("--bind=", any, ":", parsed->port), absl::StrCat("--advertise=", address)};
}

absl::Status JoinedPlace::Start(const Place::Daemon& daemon) {
  const std::string role = RoleName(daemon.role);
  ChildOptions child;
  child.name = absl::StrCat("sluice-", role, " rank ", daemon.rank);
  child.log_file = absl::StrCat(log_dir_, "/", LogFileName(daemon.role, daemon.rank));
  child.argv = {absl::StrCat(binaries_, "/sluice-", role),
                absl::StrCat("--cluster=", folder_->path(), "/cluster.textproto"),
                absl::StrCat("--log_dir=", log_dir_), "--die_with_parent"};
  const auto add = [&](const auto&... text) { child.argv.push_back(absl::StrCat(text...)); };
  if (daemon.role != ROLE_SCHEDULER) {
    add("--scheduler=", place_.scheduler);
    add("--rank=", daemon.rank);
  }
  if (daemon.role != ROLE_WORKER) {
    const std::string& address =
        daemon.role == ROLE_SCHEDULER ? place_.scheduler : place_.pservers[daemon.rank];
    for (const std::string& flag : BindFlags(address)) child.argv.push_back(flag);
  } else if (command_.Given("device")) {
    add("--device=", command_.Text("device"));
  }
  if (Secured()) {
    const TlsFiles files = FilesOf(command_.Text("certs"), role);
    add("--tls_cert=", files.cert);
    add("--tls_key=", files.key);
  }
  // The place is known; what else the daemon reads is the user's.
  for (const auto& [name, value] : AllVariables()) {
    for (const char* kept : {"ADMIN_BIND", "DATA_ROOT", "OUTPUT_ROOT", "DEVICE", "TRANSPORT"}) {
      if (name == absl::StrCat("SLUICE_", kept) && ReadsVariable("sluice-" + role, kept))
        child.environment.push_back(absl::StrCat(name, "=", value));
    }
  }
  SLUICE_ASSIGN_OR_RETURN(ChildProcess process, ChildProcess::Start(std::move(child)));
  PrintOnStderr(absl::StrCat("sluice join: ", process.name(), " (", place_.origin,
                             "), scheduler at ", place_.scheduler, ", log in ",
                             process.log_file()));
  daemons_.push_back(std::move(process));
  return absl::OkStatus();
}

bool JoinedPlace::SomeFailed() {
  for (ChildProcess& daemon : daemons_) {
    const auto status = daemon.Poll();
    if (!status.has_value() || *status == 0) continue;
    PrintOnStderr(absl::StrCat("sluice join: ", daemon.name(), " ", DescribeExit(*status),
                               "; the end of ", daemon.log_file(), ":\n",
                               TailOfLog(daemon.log_file(), kTail)));
    code_ = WIFEXITED(*status) ? WEXITSTATUS(*status) : kJobFailed;
    return true;
  }
  return false;
}

bool JoinedPlace::AllEnded() {
  return std::all_of(daemons_.begin(), daemons_.end(),
                     [](ChildProcess& daemon) { return daemon.Poll().has_value(); });
}

void JoinedPlace::EndAll(absl::Duration by_themselves) {
  const auto await = [this](absl::Duration time) {
    const absl::Time deadline = Clock::Real()->Now() + time;
    while (!AllEnded() && Clock::Real()->Now() < deadline) Clock::Real()->Sleep(kLook);
    return AllEnded();
  };
  if (await(by_themselves)) return;
  // The last first: the scheduler hears of its members.
  for (auto daemon = daemons_.rbegin(); daemon != daemons_.rend(); ++daemon)
    daemon->Signal(SIGTERM);
  if (await(kEndWithin)) return;
  for (ChildProcess& daemon : daemons_) daemon.Signal(SIGKILL);
  await(absl::Seconds(3));
}

int JoinedPlace::LeadJob() {
  const auto client = SchedulerClient::Create(place_.scheduler, Clock::Real(), credentials_);
  // Its host may start much later than this one.
  while (!client->WaitReady(kAskEvery, nullptr).ok()) {
    if (StopSignal::IsWanted(0)) return Ended(StopSignal::Wait());
    if (SomeFailed()) return Ended(code_);
  }
  ChildOptions submit;
  submit.name = "sluice submit";
  submit.log_file = "/dev/null";
  submit.shows_output = true;
  submit.argv = {binaries_ + "/sluice",
                 "submit",
                 "--cancel_on_interrupt",
                 absl::StrCat("--job=", command_.Text("job")),
                 absl::StrCat("--scheduler=", place_.scheduler),
                 absl::StrCat("--worker_num=", place_.worker_num)};
  if (Secured()) {
    const TlsFiles files = FilesOf(command_.Text("certs"), "operator");
    for (const std::string& flag :
         {absl::StrCat("--tls_cert=", files.cert), absl::StrCat("--tls_key=", files.key),
          absl::StrCat("--tls_ca=", files.ca)}) {
      submit.argv.push_back(flag);
    }
  } else if (command_.Switch("insecure")) {
    submit.argv.push_back("--insecure");
  }
  submit.argv.insert(submit.argv.end(), command_.words.begin(), command_.words.end());
  std::cout << std::flush;
  auto job = ChildProcess::Start(std::move(submit));
  if (!job.ok()) return Ended(ReportError(job.status()));
  bool told = false;
  while (!job->Poll().has_value()) {
    if (!told && StopSignal::IsWanted(0)) {
      told = true;
      job->Signal(SIGTERM);  // it saves a checkpoint and cancels the job
    }
    Clock::Real()->Sleep(kLook);
  }
  const int status = *job->Poll();
  (void)client->Shutdown();
  EndAll(kEndWithin);
  if (told) return StopSignal::Wait();
  return WIFEXITED(status) ? WEXITSTATUS(status) : kJobFailed;
}

int JoinedPlace::Run() {
  if (const absl::Status ready = Prepare(); !ready.ok()) return ReportError(ready);
  for (const Place::Daemon& daemon : place_.daemons) {
    if (const absl::Status started = Start(daemon); !started.ok())
      return Ended(ReportError(started));
  }
  if (place_.leads && command_.Given("job")) return LeadJob();
  while (!AllEnded()) {
    if (StopSignal::IsWanted(0)) return Ended(StopSignal::Wait());
    // A place with some of its daemons is of no use: end, so that the whole place is started again.
    if (SomeFailed()) return Ended(code_);
    Clock::Real()->Sleep(kLook);
  }
  return SomeFailed() ? code_ : kDone;
}

int Join(const ParsedCommand& command) {
  const char* const role = std::getenv("SLUICE_ROLE");
  if (role != nullptr && *role != '\0') {
    for (const char* flag : {"log_dir", "certs", "insecure", "device", "port"}) {
      if (!command.Given(flag)) continue;
      return ReportError(absl::InvalidArgumentError(
          absl::StrCat("--", flag, " with SLUICE_ROLE=", role, ": the daemon reads its own flags ",
                       "and SLUICE_* variables; set them there, or write its flags behind --")));
    }
    return BecomeDaemon(role, command.words);
  }
  const long port = command.Number("port");
  if (port < 0 || port > 65534) {
    return ReportError(absl::InvalidArgumentError(
        absl::StrCat("--port=", port, " is out of range; give 1 to 65534")));
  }
  auto place = PlaceOf(AllVariables(), static_cast<uint32_t>(port));
  if (absl::IsNotFound(place.status()))
    return ReportError(absl::InvalidArgumentError(place.status().message()));
  if (!place.ok()) return ReportError(place.status());
  if (place->daemons.empty()) {
    PrintOnStderr(
        "sluice join: the workers evaluate (eval in the job file), so an evaluator has nothing to "
        "do");
    return kDone;
  }
  if (command.Given("certs") && command.Switch("insecure")) {
    return ReportError(absl::InvalidArgumentError(
        "--certs with --insecure: TLS is on or off; remove one of them"));
  }
  StopSignal::Install(false);
  return JoinedPlace(command, *std::move(place)).Run();
}

}  // namespace

Command JoinCommand() {
  CommandSpec spec;
  spec.name = "join";
  spec.summary =
      "Becomes the daemon whose place the environment names: SLUICE_ROLE, TF_CONFIG, Paddle's "
      "TRAINING_ROLE, or Slurm's variables.";
  spec.flags = {
      {"job", FlagKind::kText, "FILE", "",
       "the process that leads submits this job, follows it and then ends the cluster; all others "
       "ignore it. It is the chief or worker 0 (TF_CONFIG), trainer 0 (Paddle), task 0 (Slurm)"},
      {"log_dir", FlagKind::kText, "DIR", "log", "folder for the logs and the scheduler's state"},
      {"certs", FlagKind::kText, "DIR", "",
       "mutual TLS, with the certificates that sluice certs made in this folder"},
      {"insecure", FlagKind::kBool, "", "", "no TLS, on a network that you trust"},
      {"device", FlagKind::kText, "cpu|cuda|auto", "", "where a worker computes"},
      {"port", FlagKind::kNumber, "N", "0",
       "Slurm: port of the scheduler, and N + 1 of the pservers; 0: from the job's number"}};
  spec.words = "[-- FLAG...]";
  spec.max_words = 1000;
  spec.examples =
      "  sluice join --job=J --insecure                   # command of a TFJob or PaddleJob\n"
      "  srun sluice join --job=J --certs=certs -- --epochs=3   # flags of sluice submit\n"
      "  SLUICE_ROLE=pserver SLUICE_RANK=0 SLUICE_CLUSTER=C sluice join\n";
  return {spec, &Join};
}

}  // namespace sluice::cli
