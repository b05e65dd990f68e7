// Replaces nccl_library.cc on the simulated devices: NCCL's sends, receives and gathers between
// simulated devices, in one process or several of this host, over local sockets.
//
// As in a non-blocking communicator of NCCL, a call returns "in progress" and is complete once
// ncclCommGetAsyncError says so. A thread of the communicator then takes what the stream's earlier
// work has made, exchanges it, and puts the result on the stream. A peer that has ended gives
// ncclRemoteError; one that is silent is waited for until the communicator is aborted.
//
// SIMULATED_NCCL=absent makes the library missing.
#include <cuda_runtime_api.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/random_id.h"
#include "common/collective/nccl_library.h"
#include "tests/model/wide_deep/cuda/simulated/nccl_calls.h"
#include "tests/model/wide_deep/cuda/simulated/world.h"

using sluice::cuda::simulated::NcclCalls;
using sluice::cuda::simulated::Stream;
using sluice::cuda::simulated::World;

struct CUstream_st : Stream {};

struct Transfer {
  int peer;
  const void* from;  // null: a receive
  void* to;
  size_t bytes;
};

struct ncclComm {
  int rank = 0, ranks = 0;
  std::string id;
  int listener = -1;
  std::vector<int> sockets;  // by rank; -1: this one
  std::atomic<ncclResult_t> state{ncclSuccess};
  std::atomic<bool> aborted{false};
  std::thread thread;
  // The group under way.
  std::vector<Transfer> transfers;
  CUstream_st* stream = nullptr;

  ~ncclComm() {
    if (thread.joinable()) thread.join();
    for (const int fd : sockets)
      if (fd >= 0) close(fd);
    if (listener >= 0) close(listener);
  }
};

namespace {

constexpr int kPauseMs = 5;

thread_local int group_depth = 0;
thread_local ncclComm* grouped = nullptr;

socklen_t AddressOf(const std::string& id, int rank, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  const std::string name = "sluice-simulated-nccl-" + id + "-" + std::to_string(rank);
  std::memcpy(address->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

// Lower ranks listen, higher ones connect and say who they are.
ncclResult_t Connect(ncclComm* comm) {
  for (int peer = 0; peer < comm->rank; ++peer) {
    sockaddr_un address;
    const socklen_t length = AddressOf(comm->id, peer, &address);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    comm->sockets[peer] = fd;
    while (connect(fd, reinterpret_cast<sockaddr*>(&address), length) != 0) {
      if (comm->aborted) return ncclInternalError;
      std::this_thread::sleep_for(std::chrono::milliseconds(kPauseMs));
    }
    const int32_t self = comm->rank;
    if (write(fd, &self, sizeof self) != sizeof self) return ncclRemoteError;
  }
  for (int missing = comm->ranks - 1 - comm->rank; missing > 0;) {
    pollfd state = {comm->listener, POLLIN, 0};
    if (comm->aborted) return ncclInternalError;
    if (poll(&state, 1, kPauseMs) != 1) continue;
    const int fd = accept4(comm->listener, nullptr, nullptr, SOCK_CLOEXEC);
    int32_t peer = 0;
    if (fd < 0 || read(fd, &peer, sizeof peer) != sizeof peer || peer <= comm->rank ||
        peer >= comm->ranks) {
      if (fd >= 0) close(fd);
      return ncclRemoteError;
    }
    comm->sockets[peer] = fd;
    --missing;
  }
  return ncclSuccess;
}

// What is still to be sent to, and received from, a peer.
struct Traffic {
  std::vector<char> out;
  size_t sent = 0, received = 0, expected = 0;
  std::vector<char> in;
};

ncclResult_t Move(ncclComm* comm, std::map<int, Traffic>* all) {
  while (true) {
    std::vector<pollfd> states;
    for (auto& [peer, traffic] : *all) {
      if (peer == comm->rank) continue;
      short events = 0;
      if (traffic.sent < traffic.out.size()) events |= POLLOUT;
      if (traffic.received < traffic.expected) events |= POLLIN;
      if (events != 0) states.push_back({comm->sockets[peer], events, 0});
    }
    if (states.empty()) return ncclSuccess;
    if (comm->aborted) return ncclInternalError;
    if (poll(states.data(), states.size(), kPauseMs) <= 0) continue;
    for (const pollfd& state : states) {
      for (auto& [peer, traffic] : *all) {
        if (peer == comm->rank || comm->sockets[peer] != state.fd) continue;
        ssize_t n = 1;
        if (state.revents & POLLOUT) {
          n = send(state.fd, traffic.out.data() + traffic.sent, traffic.out.size() - traffic.sent,
                   MSG_DONTWAIT | MSG_NOSIGNAL);
          if (n > 0) traffic.sent += static_cast<size_t>(n);
        }
        if (n >= 0 && (state.revents & (POLLIN | POLLHUP | POLLERR))) {
          n = recv(state.fd, traffic.in.data() + traffic.received,
                   traffic.expected - traffic.received, MSG_DONTWAIT);
          if (n == 0 && traffic.received < traffic.expected) return ncclRemoteError;
          if (n > 0) traffic.received += static_cast<size_t>(n);
        }
        if (n < 0 && errno != EAGAIN && errno != EINTR) return ncclRemoteError;
      }
    }
  }
}

// Runs work after what the stream already has, and waits for it.
void RunOnStream(CUstream_st* stream, std::function<void()> work) {
  World::Get().streams().Put(stream, std::move(work));
  World::Get().streams().Finish(stream->last);
}

ncclResult_t Exchange(ncclComm* comm) {
  std::map<int, Traffic> all;
  RunOnStream(comm->stream, [&] {
    for (const Transfer& t : comm->transfers) {
      Traffic& traffic = all[t.peer];
      if (t.from != nullptr) {
        const char* const from = static_cast<const char*>(t.from);
        traffic.out.insert(traffic.out.end(), from, from + t.bytes);
      } else {
        traffic.expected += t.bytes;
      }
    }
  });
  for (auto& [peer, traffic] : all) traffic.in.resize(traffic.expected);
  if (const auto self = all.find(comm->rank); self != all.end()) {
    if (self->second.out.size() != self->second.expected) return ncclInvalidUsage;
    self->second.in = self->second.out;
  }
  if (const ncclResult_t moved = Move(comm, &all); moved != ncclSuccess) return moved;
  auto in = std::make_shared<std::map<int, Traffic>>(std::move(all));
  World::Get().streams().Put(comm->stream, [in, transfers = comm->transfers] {
    std::map<int, size_t> taken;
    for (const Transfer& t : transfers) {
      if (t.from != nullptr) continue;
      std::memcpy(t.to, (*in)[t.peer].in.data() + taken[t.peer], t.bytes);
      taken[t.peer] += t.bytes;
    }
  });
  return ncclSuccess;
}

// Runs `work` on the communicator's thread; its result becomes the communicator's state.
template <typename F>
ncclResult_t InBackground(ncclComm* comm, F work) {
  if (comm->state == ncclInProgress) return comm->state = ncclInvalidUsage;
  if (comm->state != ncclSuccess) return comm->state;
  if (comm->thread.joinable()) comm->thread.join();
  comm->state = ncclInProgress;
  comm->thread = std::thread([comm, work] { comm->state = work(comm); });
  return ncclInProgress;
}

ncclResult_t GetVersion(int* version) { return *version = NCCL_VERSION_CODE, ncclSuccess; }

// Counts a call that would make the real library listen.
void Note(int NcclCalls::*count) {
  NcclCalls& calls = NcclCalls::Get();
  sluice::MutexLock lock(&calls.mutex);
  const char* const interface = std::getenv("NCCL_SOCKET_IFNAME");
  if (calls.ids + calls.groups == 0 && interface != nullptr) calls.interface = interface;
  ++(calls.*count);
}

ncclResult_t GetUniqueId(ncclUniqueId* id) {
  Note(&NcclCalls::ids);
  std::memset(id, 0, sizeof *id);
  std::strcpy(id->internal, std::to_string(sluice::RandomId()).c_str());
  return ncclSuccess;
}

ncclResult_t CommInit(ncclComm_t* to, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->blocking != 0) return ncclInvalidArgument;
  Note(&NcclCalls::groups);
  ncclComm* const comm = *to = new ncclComm;
  ++World::Get().handles();
  comm->rank = rank;
  comm->ranks = ranks;
  comm->id = id.internal;
  comm->sockets.assign(ranks, -1);
  sockaddr_un address;
  const socklen_t length = AddressOf(comm->id, rank, &address);
  comm->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(comm->listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(comm->listener, ranks) != 0) {
    return comm->state = ncclSystemError;
  }
  return InBackground(comm, Connect);
}

ncclResult_t CommAsyncError(ncclComm_t comm, ncclResult_t* state) {
  return *state = comm->state, ncclSuccess;
}
ncclResult_t CommFinalize(ncclComm_t comm) { return comm->state; }
ncclResult_t CommDestroy(ncclComm_t comm) {
  --World::Get().handles();
  return delete comm, ncclSuccess;
}
ncclResult_t CommAbort(ncclComm_t comm) {
  comm->aborted = true;
  return CommDestroy(comm);
}

ncclResult_t GroupStart() { return ++group_depth, ncclSuccess; }
ncclResult_t GroupEnd() {
  ncclComm* const comm = grouped;
  if (--group_depth > 0 || comm == nullptr) return ncclSuccess;
  grouped = nullptr;
  return InBackground(comm, Exchange);
}

size_t BytesOf(ncclDataType_t type) {
  return type == ncclFloat32 ? 4 : type == ncclBfloat16 ? 2 : 1;
}

ncclResult_t Add(ncclComm_t comm, cudaStream_t stream, std::vector<Transfer> transfers) {
  if (group_depth == 0) return ncclInvalidUsage;  // the engine always makes groups
  if (grouped != comm) comm->transfers.clear();
  grouped = comm;
  comm->stream = stream;
  comm->transfers.insert(comm->transfers.end(), transfers.begin(), transfers.end());
  return ncclSuccess;
}

bool OnDevice(const void* at, size_t bytes) {
  for (int device = 0; device < World::Get().devices(); ++device) {
    if (World::Get().memory().Holds(sluice::cuda::simulated::MemoryKind::kDevice, device, at,
                                    bytes)) {
      return true;
    }
  }
  return false;
}

ncclResult_t Send(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
  const size_t bytes = count * BytesOf(type);
  if (!OnDevice(from, bytes)) return ncclInvalidArgument;
  return Add(comm, stream, {{peer, from, nullptr, bytes}});
}

ncclResult_t Receive(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                     cudaStream_t stream) {
  const size_t bytes = count * BytesOf(type);
  if (!OnDevice(to, bytes)) return ncclInvalidArgument;
  return Add(comm, stream, {{peer, nullptr, to, bytes}});
}

ncclResult_t AllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                       ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * BytesOf(type);
  if (!OnDevice(from, bytes) || !OnDevice(to, bytes * comm->ranks)) return ncclInvalidArgument;
  std::vector<Transfer> transfers;
  for (int peer = 0; peer < comm->ranks; ++peer) {
    transfers.push_back({peer, from, nullptr, bytes});
    transfers.push_back({peer, nullptr, static_cast<char*>(to) + peer * bytes, bytes});
  }
  return Add(comm, stream, std::move(transfers));
}

const char* ErrorString(ncclResult_t) { return "a simulated error"; }
const char* LastError(ncclComm_t) { return ""; }

}  // namespace

namespace sluice {

absl::StatusOr<const NcclLibrary*> NcclLibrary::Get() {
  const char* const text = std::getenv("SIMULATED_NCCL");
  if (text != nullptr && std::string(text) == "absent")
    return absl::NotFoundError("cannot load the simulated NCCL");
  static const auto* library = new NcclLibrary{
      GetVersion, GetUniqueId, CommInit,  CommAsyncError, CommFinalize, CommDestroy, CommAbort,
      Send,       Receive,     AllGather, GroupStart,     GroupEnd,     ErrorString, LastError};
  return library;
}

}  // namespace sluice
