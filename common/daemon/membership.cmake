sluice_library(role_name SOURCES role_name.cc DEPS sluice_proto)

# Facts for reports, without log and flags.
sluice_library(process_info SOURCES process_info.cc DEPS sluice_base absl::strings)
set_source_files_properties(process_info.cc PROPERTIES COMPILE_DEFINITIONS
  "SLUICE_VERSION=\"${PROJECT_VERSION}\";SLUICE_COMMIT=\"${SLUICE_COMMIT}\"")

# What processes say while they have no scheduler.
sluice_library(scheduler_wait
  SOURCES scheduler_wait.cc
  DEPS sluice_base sluice_proto absl::status absl::statusor absl::strings absl::time)

# The scheduler's calls, for members and operators.
sluice_library(scheduler_client
  SOURCES scheduler_choice.cc scheduler_client.cc
  DEPS sluice_base sluice_grpc_proto sluice_grpc_credentials sluice_grpc_transport sluice_scheduler_wait sluice_server_guard absl::status absl::statusor absl::strings absl::time)

sluice_library(member_session
  SOURCES member_session.cc place_claim.cc
  DEPS sluice_base sluice_proto sluice_process_info sluice_role_name sluice_scheduler_wait sluice_transport absl::status absl::statusor absl::strings absl::time)
