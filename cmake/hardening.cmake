# Hardening of the optimized builds, for every target that links sluice_options: position-independent programs, a
# read-only GOT that is filled at start (RELRO, BIND_NOW), stack protector, fortified calls of the C library, probes of
# each page of a large stack frame, and no executable stack. tests/hardening_test.py reads the result from the programs,
# their objects and the commands that made these.
#
# Generated code (proto/) links sluice_hardening, which has the same options without the warnings.
#
# Sanitizer builds have none of it: the sanitizers replace the fortified calls and lay out stack frames themselves.
#
# Indirect branch tracking and shadow stacks (-fcf-protection): the code has the landing pads, but a program carries the
# property that switches them on only if all its objects do. Debian 12's start files (Scrt1.o, crti.o) do not.
#
# Left out:
# - _GLIBCXX_ASSERTIONS. They check each operator[] of a vector, also in the loops over rows and parsed fields. Switching
#   them on in some libraries only would not work: a program has one copy of each inline function, and the linker takes
#   any of them.
# - _FORTIFY_SOURCE=3, whose sizes are computed at run time.
# - CUDA sources: their part on the host only starts kernels.
#
# SLUICE_NOT_HARDENED: why this build is not; "" if it is.
set(SLUICE_NOT_HARDENED "")
add_library(sluice_hardening INTERFACE)
if(SLUICE_SANITIZE)
  set(SLUICE_NOT_HARDENED "a build with sanitizers is not hardened")
  return()
endif()
if(NOT CMAKE_BUILD_TYPE MATCHES "^(Release|RelWithDebInfo|MinSizeRel)$")
  set(SLUICE_NOT_HARDENED "a build without optimization is not hardened")
endif()
set(optimized "$<CONFIG:Release,RelWithDebInfo,MinSizeRel>")
set(optimized_host "$<AND:${optimized},$<COMPILE_LANGUAGE:C,CXX>>")
foreach(target sluice_options sluice_hardening)
  # -fPIC and not -fPIE, so that programs and the extension module for Python are made of the same objects and precompiled
  # headers. With hidden symbols the code is the same: nothing can be replaced when a program is loaded.
  target_compile_options(${target} INTERFACE
    "$<${optimized_host}:-fPIC;-fvisibility=hidden;-fvisibility-inlines-hidden>"
    "$<${optimized_host}:-fstack-protector-strong;-fstack-clash-protection;-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|i.86)$")
    target_compile_options(${target} INTERFACE "$<${optimized_host}:-fcf-protection=full>")
  endif()
endforeach()
# Not for the extension module, which is a shared library.
target_link_options(sluice_options INTERFACE
  "$<$<AND:${optimized},$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>>:$<HOST_LINK:-pie>>")
foreach(option -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
  string(REPLACE "," "$<COMMA>" option "${option}")
  target_link_options(sluice_options INTERFACE "$<${optimized}:$<HOST_LINK:${option}>>")
endforeach()
