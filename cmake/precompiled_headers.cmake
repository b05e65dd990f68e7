# Compiles the headers that most sources include only once, which halves the time of a build. A source still includes
# what it uses: the clang preset has no precompiled headers, so ./dev check clang fails when an include is missing.
#
# gcc uses precompiled headers only for sources that are compiled with the same flags, and warns otherwise (invalid-pch).
# Sources with flags of their own set SKIP_PRECOMPILE_HEADERS.
option(SLUICE_PRECOMPILED_HEADERS "Precompile the headers that most sources include" ON)

set(sluice_precompiled_headers
  <algorithm> <atomic> <condition_variable> <cstdint> <deque> <filesystem> <functional> <map> <memory> <mutex> <optional> <set>
  <string> <thread> <unordered_map> <utility> <vector>
  <absl/base/thread_annotations.h> <absl/container/flat_hash_map.h> <absl/container/flat_hash_set.h>
  <absl/functional/function_ref.h> <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/str_format.h>
  <absl/strings/str_join.h> <absl/strings/str_split.h> <absl/time/time.h> <absl/types/span.h>)
set(sluice_precompiled_messages <proto/scheduler.pb.h> <proto/checkpoint.pb.h>)

# Targets whose sources include neither config.pb.h nor scheduler.pb.h, for which precompiled messages would be a loss: at the end of
# each source gcc instantiates every template that precompiled headers leave pending, used or not, and the messages leave half of
# them. A target that is missing here only compiles a little longer.
set(sluice_targets_without_messages
  sluice_audit_log sluice_base sluice_bounded_http_server sluice_cert_authority sluice_click_data
  sluice_cuda sluice_daemon_usage sluice_gradient_buckets sluice_grpc_credentials sluice_handshake_failure
  sluice_handshake_watch sluice_job_passes sluice_leftover_files sluice_local_sockets sluice_meta_store_interface
  sluice_net sluice_net_cuda sluice_net_steps sluice_peer_host sluice_peer_identity sluice_pem_reader
  sluice_process_info sluice_refusal_reason sluice_served_streams sluice_server_guard sluice_shared_memory
  sluice_tls_files sluice_tls_server sluice_transport)

# sluice_precompile(NAME header...): a target whose precompiled headers others use.
function(sluice_precompile name)
  file(CONFIGURE OUTPUT ${name}.cc CONTENT "")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
  target_link_libraries(${name} PRIVATE sluice_options sluice_proto)
  target_precompile_headers(${name} PRIVATE ${ARGN})
  if(CCACHE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/cmake/precompile.sh)
  endif()
endfunction()

if(SLUICE_PRECOMPILED_HEADERS)
  sluice_precompile(sluice_precompiled ${sluice_precompiled_headers} ${sluice_precompiled_messages})
  sluice_precompile(sluice_precompiled_without_messages ${sluice_precompiled_headers})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(sluice_options INTERFACE -fpch-preprocess)  # ccache needs it
  endif()
endif()

# sluice_use_precompiled(TARGET FROM): the target uses the precompiled headers of FROM, a target of sluice_precompile.
function(sluice_use_precompiled target from)
  if(target IN_LIST sluice_targets_without_messages)
    set(from sluice_precompiled_without_messages)
  endif()
  if(SLUICE_PRECOMPILED_HEADERS)
    target_precompile_headers(${target} REUSE_FROM ${from})
  endif()
endfunction()
