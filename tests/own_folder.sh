#!/usr/bin/env bash
# own_folder.sh PROGRAM [ARGUMENT...]: runs a test program whose files (gtest's TempDir) lie in a new folder, which is
# removed afterwards. So parts of a program, and other builds on this machine, may run at the same time.
set -euo pipefail
TEST_TMPDIR=$(mktemp -d "${TEST_TMPDIR:-/tmp}/sluice-test-XXXXXX")
export TEST_TMPDIR
trap 'rm -rf "$TEST_TMPDIR"' EXIT
chmod 755 "$TEST_TMPDIR"  # some tests look at their files as another user
"$@"
