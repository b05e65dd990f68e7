#!/usr/bin/env bash
# Fails when code reads the time of day, or waits by it, outside the clock's own file: it breaks when somebody sets the
# machine's clock. Part of the build and of the tests. Two more files may: absl_waits.cc keeps Abseil from waiting so,
# and clock_step.cc sets the clock for a test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
forbidden='absl::(Now|SleepFor|GetCurrentTimeNanos)\(|absl/time/clock\.h'
forbidden+='|(system|high_resolution)_clock|CLOCK_REALTIME|\b(gettimeofday|timespec_get|ftime)\('
forbidden+='|\b(std::)?time\((nullptr|NULL|0|&)|\b(Wait|Await|LockWhen)WithDeadline\('
if grep -rnE "$forbidden" --include='*.h' --include='*.cc' --include='*.cu' --include='*.inc' \
    common model client server worker scheduler cli bench tests |
    grep -vE '^(common/base/(absl_waits|clock)|tests/system/clock_step)\.cc:'; then
  echo "the lines above read the time of day: use Now() of a Clock (common/base/clock.h) for leases, timeouts and" \
    "durations, WallNow() for stamps" >&2
  exit 1
fi
