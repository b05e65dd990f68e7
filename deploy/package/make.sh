#!/usr/bin/env bash
# make.sh BUILD_DIR FOLDER [VERSION]: puts Debian packages of what is built in BUILD_DIR into FOLDER. VERSION: another one than
# that of the build, for tests of upgrades. cmake/package.cmake says what is in them; `./dev package` builds it first.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,3p' "$0"; exit 2; }
build=$(cd "$1" && pwd)
mkdir -p "$2"
folder=$(cd "$2" && pwd)
version=${3:-$(sed -n 's/^CMAKE_PROJECT_VERSION:[A-Z]*=//p' "$build/CMakeCache.txt")}
here=$(cd "$(dirname "$0")" && pwd)
source=$here/../..
umask 022
# The dates in the files are those of the commit.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$source" log -1 --format=%ct 2>/dev/null || date +%s)}

share=$build/package/share
rm -rf "$share"
mkdir -p "$share"/{doc/sluice,bash-completion/completions,zsh/vendor-completions}
python3 -B "$here/man_pages.py" "$build/bin" "$share/man" "$version" "$(date -u -d "@$SOURCE_DATE_EPOCH" +%F)"
"$build/bin/sluice" completion bash >"$share/bash-completion/completions/sluice"
"$build/bin/sluice" completion zsh >"$share/zsh/vendor-completions/_sluice"
cp "$here/copyright" "$share/doc/sluice/copyright"
gzip -9n >"$share/doc/sluice/changelog.gz" <<END
sluice ($version) stable; urgency=medium

  * See NEWS.gz.

 -- The Sluice authors <sluice@localhost>  $(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")
END
gzip -9n <"$source/CHANGELOG.md" >"$share/doc/sluice/NEWS.gz"
log=$build/package/cpack.log
cpack --config "$build/CPackConfig.cmake" -B "$build/package/work" -D CPACK_PACKAGE_VERSION="$version" >"$log" 2>&1 || { tail -20 "$log"; exit 1; }
mv "$build"/package/work/*.deb "$folder/"
rm -rf "$build/package/work"
