#!/usr/bin/env bash
# Fails when a test file is in no CMake list (a test outside the build does not exist), or is named after a unit and does not
# lie in the mirror of the unit's folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bad=0
units=$'\n'$(find bench cli client common model python scheduler server worker -name '*.h' -o -name '*.cc' -o -name '*.cu' |
  sed 's/\.[a-z]*$//' | sort -u)$'\n'
while read -r file; do
  name=${file##*/}
  grep -rqwF "$name" --include=CMakeLists.txt --include="*.cmake" tests || { echo "in no CMake list: $file"; bad=1; }
  [[ $file == *.cc ]] || continue
  mirrored=${file#tests/} mirrored=${mirrored%_test.cc}
  # Other tests are named after what they cover.
  [[ $units == *"/${mirrored##*/}"$'\n'* && $units != *$'\n'"$mirrored"$'\n'* ]] || continue
  echo "not in the mirror of its unit's folder: $file"
  bad=1
done < <(find tests -name '*_test.cc' -o -name '*_test.sh' -o -name '*_test.py')
exit $bad
