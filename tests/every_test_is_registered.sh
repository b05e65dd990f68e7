#!/usr/bin/env bash
# Fails when a test file is in no CMake list: a test outside the build does not exist.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bad=0
while read -r file; do
  name=$(basename "$file")
  grep -rqwF "$name" --include=CMakeLists.txt --include="*.cmake" tests || { echo "in no CMake list: $file"; bad=1; }
done < <(find tests -name '*_test.cc' -o -name '*_test.sh' -o -name '*_test.py')
exit $bad
