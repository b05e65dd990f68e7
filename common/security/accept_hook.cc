#include "common/security/accept_hook.h"

#include <grpc/support/sync.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <vector>

#include "absl/strings/match.h"

// From gRPC 1.51, src/core/lib/iomgr/socket_mutator.h, which is not installed.
enum grpc_fd_usage {
  GRPC_FD_CLIENT_CONNECTION_USAGE,
  GRPC_FD_SERVER_LISTENER_USAGE,
  GRPC_FD_SERVER_CONNECTION_USAGE,
};
struct grpc_mutate_socket_info {
  int fd;
  grpc_fd_usage usage;
};
struct grpc_socket_mutator_vtable {
  bool (*mutate_fd)(int fd, grpc_socket_mutator* mutator);
  int (*compare)(grpc_socket_mutator* a, grpc_socket_mutator* b);
  void (*destroy)(grpc_socket_mutator* mutator);
  bool (*mutate_fd_2)(const grpc_mutate_socket_info* info, grpc_socket_mutator* mutator);
};
struct grpc_socket_mutator {
  const grpc_socket_mutator_vtable* vtable;
  gpr_refcount refcount;
};

namespace sluice {
namespace {

struct Hook : grpc_socket_mutator {
  void (*on_accept)(int fd);
};

// gRPC gives the server up when this returns false.
bool OnSocket(const grpc_mutate_socket_info* info, grpc_socket_mutator* mutator) {
  if (info->usage == GRPC_FD_SERVER_CONNECTION_USAGE)
    static_cast<Hook*>(mutator)->on_accept(info->fd);
  return true;
}

constexpr grpc_socket_mutator_vtable kHook = {
    [](int, grpc_socket_mutator*) { return true; },
    [](grpc_socket_mutator* a, grpc_socket_mutator* b) { return a < b   ? -1
                                                                : a > b ? 1
                                                                        : 0; },
    [](grpc_socket_mutator* mutator) { delete static_cast<Hook*>(mutator); },
    &OnSocket,
};

class HookOption : public grpc::ServerBuilderOption {
 public:
  explicit HookOption(void (*on_accept)(int fd)) : on_accept_(on_accept) {}
  // gRPC may build its arguments more than once, and owns each mutator.
  void UpdateArguments(grpc::ChannelArguments* args) override {
    Hook* const hook = new Hook;
    hook->vtable = &kHook;
    gpr_ref_init(&hook->refcount, 1);
    hook->on_accept = on_accept_;
    args->SetSocketMutator(hook);
  }
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>*) override {}

 private:
  void (*const on_accept_)(int fd);
};

}  // namespace

void OnEachAccept(void (*on_accept)(int fd), grpc::ServerBuilder* builder) {
  if (absl::StartsWith(grpc::Version(), "1.51."))
    builder->SetOption(std::make_unique<HookOption>(on_accept));
}

}  // namespace sluice
