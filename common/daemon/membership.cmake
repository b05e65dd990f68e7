sluice_library(role_name SOURCES role_name.cc DEPS sluice_proto)

# What members and operators need of the scheduler.
sluice_library(scheduler_client
  SOURCES scheduler_client.cc
  DEPS sluice_base sluice_grpc_proto absl::status absl::statusor absl::strings absl::time)

sluice_library(member_session
  SOURCES member_session.cc
  DEPS sluice_base sluice_proto absl::status absl::statusor absl::strings absl::time)
