#!/usr/bin/env bash
# make.sh BUILD_DIR FOLDER: puts what is built in BUILD_DIR, with what it needs, into FOLDER and FOLDER.tar.gz.
# cmake/bundle.cmake says what; `./dev bundle` builds it first.
set -euo pipefail
[ $# -eq 2 ] || { sed -n '2,3p' "$0"; exit 2; }
build=$1
mkdir -p "$(dirname "$2")"
folder=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
rm -rf "$folder" "$folder.tar.gz"
cmake --install "$build" --component bundle --strip --prefix "$folder" >"$folder.log" || { tail -20 "$folder.log"; exit 1; }
rm "$folder.log"
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:[A-Z]*=//p' "$build/CMakeCache.txt")
"$(dirname "$0")/../sbom.py" "$build" "$folder/sluice-$version.spdx.json" "$folder"
# run.sh takes the C++ runtime from here or from the host.
mkdir "$folder/lib/gcc"
mv "$folder"/lib/libstdc++.so* "$folder"/lib/libgcc_s.so* "$folder/lib/gcc/"
tar -C "$(dirname "$folder")" --owner=0 --group=0 -cf - "$(basename "$folder")" | gzip -9 >"$folder.tar.gz"
