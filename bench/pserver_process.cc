#include "bench/pserver_process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/shm_transport/shm_handshake.h"
#include "common/shm_transport/shm_stream_server.h"
#include "common/table/placement.h"
#include "common/transport/grpc_stream_server.h"
#include "server/service/available_memory.h"
#include "server/service/pserver.h"

namespace sluice::bench {
namespace {

// Reads a line without its newline; false at the end of the pipe.
bool ReadLine(int fd, std::string* line) {
  line->clear();
  for (char c; read(fd, &c, 1) == 1;) {
    if (c == '\n') return true;
    line->push_back(c);
  }
  return false;
}

bool WriteAll(int fd, const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = write(fd, bytes.data() + done, bytes.size() - done);
    if (n <= 0) return false;
    done += n;
  }
  return true;
}

bool ReadExactly(int fd, size_t n, std::string* bytes) {
  bytes->resize(n);
  for (size_t done = 0; done < n;) {
    const ssize_t got = read(fd, &(*bytes)[done], n - done);
    if (got <= 0) return false;
    done += got;
  }
  return true;
}

absl::StatusOr<JobSpec> MakeJob(const std::vector<TableConfig>& tables, uint32_t workers,
                                const std::string& address) {
  JobSpec job;
  job.set_job_id("bench");
  job.set_worker_num(workers);
  JobConfig* config = job.mutable_config();
  config->set_worker_num(workers);
  config->mutable_train()->set_seed(1);
  StrategyConfig* strategy = config->mutable_strategy();
  strategy->set_a_sync(true);
  strategy->mutable_a_sync_configs()->set_gradients_to_wait(1);
  for (const TableConfig& table : tables) *job.add_tables() = table;
  SLUICE_ASSIGN_OR_RETURN(const TableLayouts layouts, CreateTableLayouts(job.tables(), 1));
  *job.mutable_route() = PlaceShards(layouts, {address}, 1);
  return job;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PserverProcess>> PserverProcess::Start(
    const std::vector<TableConfig>& tables, uint32_t workers, const TlsFiles& tls) {
  std::unique_ptr<PserverProcess> process(new PserverProcess());
  int down[2], up[2];
  if (pipe2(down, O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("no pipe: ", std::strerror(errno)));
  }
  if (pipe2(up, O_CLOEXEC) != 0) {
    close(down[0]);
    close(down[1]);
    return absl::ResourceExhaustedError(absl::StrCat("no pipe: ", std::strerror(errno)));
  }
  process->to_child_ = down[1];
  process->from_child_ = up[0];
  const std::string cert = "--tls_cert=" + tls.cert, key = "--tls_key=" + tls.key,
                    ca = "--tls_ca=" + tls.ca;
  process->pid_ = fork();
  if (process->pid_ == 0) {
    dup2(down[0], STDIN_FILENO);
    dup2(up[1], STDOUT_FILENO);
    execl("/proc/self/exe", "sluice-bench", "--serve", cert.c_str(), key.c_str(), ca.c_str(),
          nullptr);
    _exit(127);
  }
  close(down[0]);
  close(up[1]);
  std::string port;
  if (process->pid_ < 0 || !ReadLine(process->from_child_, &port)) {
    return absl::UnavailableError("the pserver process did not start");
  }
  SLUICE_ASSIGN_OR_RETURN(process->job_,
                          MakeJob(tables, workers, absl::StrCat("127.0.0.1:", port)));
  const std::string spec = process->job_.SerializeAsString();
  std::string answer;
  if (!WriteAll(process->to_child_, absl::StrCat(spec.size(), "\n", spec)) ||
      !ReadLine(process->from_child_, &answer)) {
    return absl::UnavailableError("the pserver process ended");
  }
  if (!answer.empty()) return absl::InvalidArgumentError(answer);
  return process;
}

PserverProcess::~PserverProcess() {
  if (to_child_ >= 0) close(to_child_);
  if (from_child_ >= 0) close(from_child_);
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
}

int ServePserver(int threads, const TlsFiles& tls) {
  JobResources resources;
  resources.clock = Clock::Real();
  resources.env = Env::Real();
  resources.available_memory = [] { return AvailableMemory(); };
  Pserver pserver(std::move(resources), nullptr, threads);
  GrpcStreamServer::Options options;
  options.threads = threads;
  auto credentials = GrpcCredentials::Create(tls);
  if (!credentials.ok()) {
    std::fprintf(stderr, "%s\n", credentials.status().ToString().c_str());
    return 1;
  }
  options.credentials = *std::move(credentials);
  GrpcStreamServer server(options, [&](std::shared_ptr<Stream> stream, const PeerIdentity&) {
    return pserver.NewHandler(std::move(stream));
  });
  ShmStreamServer::Options shm_options;
  shm_options.threads = threads;
  ShmStreamServer shm(shm_options, [&](std::shared_ptr<Stream> stream, const PeerIdentity&) {
    return pserver.NewHandler(std::move(stream));
  });
  server.RegisterUnary(
      kOpenSharedMemoryMethod,
      [&](const PeerIdentity& peer, const std::string& request) {
        return shm.Invite(peer, request);
      },
      GrpcStreamServer::UnaryThread::kOfStreams);
  absl::Status started = shm.Start();
  started.Update(server.Start());
  if (!started.ok()) {
    std::fprintf(stderr, "%s\n", started.ToString().c_str());
    return 1;
  }
  if (!WriteAll(STDOUT_FILENO, absl::StrCat(server.port(), "\n"))) return 1;
  std::string size, spec;
  size_t n = 0;
  google::protobuf::RepeatedPtrField<JobSpec> desired;
  if (!ReadLine(STDIN_FILENO, &size) || !absl::SimpleAtoi(size, &n) ||
      !ReadExactly(STDIN_FILENO, n, &spec) || !desired.Add()->ParseFromString(spec)) {
    return 1;
  }
  pserver.Reconcile(absl::StrCat("127.0.0.1:", server.port()), desired);
  if (!WriteAll(STDOUT_FILENO, absl::StrCat(pserver.Report()[0].error(), "\n"))) return 1;
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  shm.Shutdown();
  server.Shutdown();
  return 0;
}

}  // namespace sluice::bench
