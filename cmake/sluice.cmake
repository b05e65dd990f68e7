# Warnings and sanitizers, on one interface target that every Sluice target links.
add_library(sluice_options INTERFACE)
target_include_directories(sluice_options INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
target_compile_options(sluice_options INTERFACE -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare
  -Wno-missing-field-initializers -Werror=unused-result -Werror=return-type -pthread)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  target_compile_options(sluice_options INTERFACE -Wthread-safety -Werror=thread-safety)
endif()
set(SLUICE_TIME_SCALE 1)        # multiplies the tests' time limits
set(SLUICE_TEST_ENVIRONMENT "")  # for every test
if(SLUICE_SANITIZE)
  # No vptr: it needs the type information of every class it meets, and Debian's gRPC and protobuf hide part of theirs.
  target_compile_options(sluice_options INTERFACE -fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all -fno-sanitize=vptr)
  target_link_options(sluice_options INTERFACE -fsanitize=${SLUICE_SANITIZE})
  set(SLUICE_TIME_SCALE 5)
  # OMP_THREAD_LIMIT: gcc's OpenMP runtime is not built with the thread sanitizer, which cannot see its barriers.
  if(SLUICE_SANITIZE STREQUAL "thread")
    list(APPEND SLUICE_TEST_ENVIRONMENT "OMP_THREAD_LIMIT=1" "TSAN_OPTIONS=second_deadlock_stack=1:suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp")
  else()
    list(APPEND SLUICE_TEST_ENVIRONMENT "UBSAN_OPTIONS=print_stacktrace=1")
  endif()
endif()
# Coverage in all code, by which libFuzzer chooses inputs. The targets in tests/fuzz link the fuzzer itself.
if(SLUICE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "SLUICE_FUZZ needs clang's libFuzzer: configure with cmake --preset fuzz")
  endif()
  target_compile_options(sluice_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
# What `ninja sluice_tsan_tests` builds: the tests with the label tsan.
add_custom_target(sluice_tsan_tests)

# Fails the build when code reads the time of day outside the clock. Every program depends on it.
add_custom_target(sluice_wall_clock_check ALL
  COMMAND ${PROJECT_SOURCE_DIR}/tests/wall_clock_check.sh
  COMMENT "Checking that only the clock reads the time of day" VERBATIM)

# sluice_library(NAME SOURCES a.cc ... DEPS target ...): static library with the alias sluice::NAME.
function(sluice_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  if(ARG_SOURCES)
    add_library(sluice_${name} STATIC ${ARG_SOURCES})
    target_link_libraries(sluice_${name} PUBLIC sluice_options ${ARG_DEPS})
    sluice_use_precompiled(sluice_${name} sluice_precompiled)
    sluice_unity(sluice_${name})
  else()
    add_library(sluice_${name} INTERFACE)
    target_link_libraries(sluice_${name} INTERFACE sluice_options ${ARG_DEPS})
  endif()
  add_library(sluice::${name} ALIAS sluice_${name})
endfunction()

# sluice_control_plane([TARGET...]): these targets, or those of this folder and below it, are not on the way of a push or pull, nor
# in the compute of a step. -Og compiles in 0.85 of the time of -O1, and that in three quarters of the time of -O2.
macro(sluice_control_plane)
  set(sluice_control_plane_options "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-Og>")
  if(${ARGC} EQUAL 0)
    add_compile_options(${sluice_control_plane_options})
  endif()
  foreach(target ${ARGN})
    target_compile_options(${target} PRIVATE ${sluice_control_plane_options})
  endforeach()
endmacro()

# sluice_loop_files(FILES PORTABLE a.cc ... [AVX2 b.cc] [AVX512 c.cc]): says how files of elementwise loops are compiled, and
# makes FILES the list of those that belong to the processors of this build. common/base/instruction_sets.h chooses among them.
# The flags vectorize the loops. Without errno and trap semantics gcc also vectorizes sqrt and selects; neither changes a
# result. A fused multiply-add would: bits would then depend on the instruction set.
function(sluice_loop_files files)
  cmake_parse_arguments(ARG "" "AVX2;AVX512" "PORTABLE" ${ARGN})
  set(flags "-O3;-fno-math-errno;-fno-trapping-math;-ffp-contract=off")
  set(flags_AVX2 "-mavx2;-mfma")
  set(flags_AVX512 "-mavx512f;-mavx512dq;-mavx512vl;-mavx512bw;-mprefer-vector-width=512")
  set(sets PORTABLE)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND sets AVX2 AVX512)
  endif()
  set(all "")
  foreach(set ${sets})
    if(ARG_${set})
      set_source_files_properties(${ARG_${set}} PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS "${flags};${flags_${set}}")
      list(APPEND all ${ARG_${set}})
    endif()
  endforeach()
  set(${files} ${all} PARENT_SCOPE)
endfunction()

# sluice_binary(NAME SOURCES a.cc ... DEPS target ...)
function(sluice_binary name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  list(APPEND ARG_DEPS sluice_absl_waits)
  list(REMOVE_DUPLICATES ARG_DEPS)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE sluice_options ${ARG_DEPS})
  sluice_use_precompiled(${name} sluice_precompiled)
  sluice_unity(${name})
  add_dependencies(${name} sluice_wall_clock_check)
endfunction()

# sluice_test(NAME SOURCES a_test.cc ... DEPS target ... [LABEL unit|system] [TIMEOUT seconds] [PARTS n] [ALONE Suite ...]
#   [COST seconds] [TSAN])
# A test program with gtest's main; a folder has few of them, because each is linked by itself. Label unit (default): under a
# second or so a test; system: real processes.
# PARTS: n ctest tests NAME_1, NAME_2, ... that share the work, so that a long program does not keep one core busy at the end.
# ALONE: test suites that ctest runs as NAME_Suite, each in a process of its own: they change or count what belongs to the
# whole process (limits, signals, environment, descriptors, threads) or fork. NAME runs the others.
# TSAN: has threads and links no gRPC (Debian's is not built with the thread sanitizer, which then reports false races):
# also has the label tsan, belongs to the target sluice_tsan_tests, and gets tests/tsan_status.cc under that sanitizer.
function(sluice_test name)
  cmake_parse_arguments(ARG "TSAN" "LABEL;TIMEOUT;PARTS;COST" "SOURCES;DEPS;ALONE" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * ${SLUICE_TIME_SCALE}")
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE sluice_options ${ARG_DEPS} GTest::gmock_main)
  # The code under test has the flags of its own target; tests only have to compile fast.
  target_compile_options(${name} PRIVATE "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>")
  sluice_use_precompiled(${name} sluice_test_precompiled)
  sluice_unity(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/bin)
  if(ARG_TSAN)
    list(APPEND ARG_LABEL tsan)
    add_dependencies(sluice_tsan_tests ${name})
    if(SLUICE_SANITIZE STREQUAL "thread")
      target_link_libraries(${name} PRIVATE sluice_tsan_status)
    endif()
  endif()
  set(own_folder ${PROJECT_SOURCE_DIR}/tests/own_folder.sh)
  set(tests "")
  set(environment "SLUICE_BIN_DIR=${PROJECT_BINARY_DIR}/bin;OMP_WAIT_POLICY=passive;${SLUICE_TEST_ENVIRONMENT}")
  set(others "")
  foreach(suite ${ARG_ALONE})
    add_test(NAME ${name}_${suite} COMMAND ${own_folder} $<TARGET_FILE:${name}> --gtest_filter=${suite}.*:*/${suite}.* WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    # A suite that was renamed must not be left out without a word.
    set_tests_properties(${name}_${suite} PROPERTIES FAIL_REGULAR_EXPRESSION "Running 0 tests from")
    list(APPEND tests ${name}_${suite})
    string(APPEND others ":${suite}.*:*/${suite}.*")
  endforeach()
  if(others)
    string(REGEX REPLACE "^:" "--gtest_filter=-" others "${others}")
  endif()
  if(ARG_PARTS)
    math(EXPR last "${ARG_PARTS} - 1")
    foreach(part RANGE ${last})
      math(EXPR number "${part} + 1")
      add_test(NAME ${name}_${number} COMMAND ${own_folder} $<TARGET_FILE:${name}> ${others} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
      list(APPEND tests ${name}_${number})
      set(environment_${name}_${number} "GTEST_TOTAL_SHARDS=${ARG_PARTS};GTEST_SHARD_INDEX=${part}")
    endforeach()
  else()
    add_test(NAME ${name} COMMAND ${own_folder} $<TARGET_FILE:${name}> ${others} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    list(APPEND tests ${name})
  endif()
  foreach(test ${tests})
    set_tests_properties(${test} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "${environment};${environment_${test}}")
    if(ARG_COST)
      set_tests_properties(${test} PROPERTIES COST ${ARG_COST})
    endif()
  endforeach()
endfunction()
