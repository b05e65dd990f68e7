#include "common/daemon/role_name.h"

namespace sluice {

const char* RoleName(Role role) {
  switch (role) {
    case ROLE_SCHEDULER:
      return "scheduler";
    case ROLE_PSERVER:
      return "pserver";
    case ROLE_WORKER:
      return "worker";
    default:
      return "member without a role";
  }
}

}  // namespace sluice
