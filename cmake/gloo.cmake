# Gloo, for collective operations between hosts (Debian: libgloo-dev). A build without it works, and its engine gloo says so.
set(SLUICE_WITH_GLOO AUTO CACHE STRING "Collective operations between hosts: ON, OFF or AUTO (when libgloo-dev is installed)")
set_property(CACHE SLUICE_WITH_GLOO PROPERTY STRINGS AUTO ON OFF)
set(SLUICE_HAS_GLOO FALSE)
if(NOT SLUICE_WITH_GLOO STREQUAL OFF)
  find_package(Gloo CONFIG QUIET)
  if(TARGET gloo)
    # Debian leaves out one header that others include.
    find_path(SLUICE_GLOO_MEMORY_HEADER gloo/common/memory.h)
    set(SLUICE_GLOO_HEADERS "")
    if(NOT SLUICE_GLOO_MEMORY_HEADER)
      set(SLUICE_GLOO_HEADERS ${PROJECT_SOURCE_DIR}/common/collective/gloo_headers)
    endif()
    # common/collective/gloo_pair.cc derives from Gloo's pair, which differs in later versions.
    include(CheckCXXSourceCompiles)
    set(CMAKE_REQUIRED_INCLUDES ${SLUICE_GLOO_HEADERS})
    set(CMAKE_REQUIRED_FLAGS -std=c++17)
    check_cxx_source_compiles("
      #include <gloo/transport/tcp/pair.h>
      struct P : gloo::transport::tcp::Pair {
        P(gloo::transport::tcp::Context* c, gloo::transport::tcp::Device* d) : Pair(c, d, 0, std::chrono::milliseconds(1)) {
          listen();
          fd_ = -1;
          handleConnected();
        }
        void handleReadWrite(int events) override { Pair::handleReadWrite(events); }
      };
      int main() { return 0; }" SLUICE_GLOO_PAIR_IS_KNOWN)
    unset(CMAKE_REQUIRED_INCLUDES)
    unset(CMAKE_REQUIRED_FLAGS)
    if(SLUICE_GLOO_PAIR_IS_KNOWN)
      set(SLUICE_HAS_GLOO TRUE)
    elseif(SLUICE_WITH_GLOO STREQUAL ON)
      message(FATAL_ERROR "SLUICE_WITH_GLOO is ON, but this version of Gloo is not supported: use Debian 12's libgloo-dev")
    endif()
  elseif(SLUICE_WITH_GLOO STREQUAL ON)
    message(FATAL_ERROR "SLUICE_WITH_GLOO is ON, but Gloo was not found: install libgloo-dev")
  endif()
endif()
message(STATUS "collective operations between hosts (Gloo): ${SLUICE_HAS_GLOO}")
