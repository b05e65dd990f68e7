#!/usr/bin/env bash
# Launches the compiler for a precompiled header (CXX_COMPILER_LAUNCHER): precompile.sh COMPILER ARGUMENT...
#
# ccache must not serve precompiled headers: it takes the present one for an input of its own recompilation, so it can
# return the result of other sources. And gcc never writes the same bytes twice, so a source that uses the recompiled
# header would always miss. This writes the checksum of the header's text to OUTPUT.sum, which ccache takes for that of
# the precompiled header (CCACHE_PCH_EXTSUM). Paths become relative, as ccache makes them for the other sources, because
# __FILE__ is part of the text and two clones should have the same.
set -euo pipefail
sources=$(dirname "$(dirname "$(readlink -f "$0")")")
sources_from_here=$(realpath --relative-to=. "$sources")
command=()
preprocess=()
output=
previous=
for argument in "$@"; do
  argument=${argument//"$PWD"/.}
  argument=${argument//"$sources"/"$sources_from_here"}
  command+=("$argument")
  [ "$previous" = -o ] && output=$argument
  case $previous:$argument in
    -o:* | -MF:* | -MT:* | *:-o | *:-MF | *:-MT | *:-MD) ;;
    *) preprocess+=("$argument") ;;
  esac
  previous=$argument
done
[[ $output == *.gch ]] || exec "${command[@]}"
rm -f "$output" "$output.sum"  # the preprocessor would read an earlier output instead of the header
sum=$("${preprocess[@]}" -E -P -dD | sha256sum)
"${command[@]}"
echo "$sum" >"$output.sum"
