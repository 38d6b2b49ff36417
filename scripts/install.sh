#!/usr/bin/env bash
# install.sh [PRESET]: installs a preset's build (release unless named) into $DESTDIR$PREFIX (/usr/local), built first where that
# is needed. $LIBDIR is where libraries lie below the prefix (lib).
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$weir_root"

preset=${1:-release}
build=build/$preset
prefix=${PREFIX:-/usr/local}
case $prefix in /*) ;; *) die "PREFIX is \"$prefix\"; expected: an absolute path" ;; esac
take_build "$preset"
scripts/build.sh "$preset" weir_install
libdir=$(sed -n 's/^CMAKE_INSTALL_LIBDIR:[A-Z]*=//p' "$build/CMakeCache.txt")
if [ "${LIBDIR:-lib}" != "$libdir" ]; then
    cmake -DCMAKE_INSTALL_LIBDIR="${LIBDIR:-lib}" "$build" >"$build/configure.log" || die "see $build/configure.log"
fi
DESTDIR=${DESTDIR:-} cmake --install "$build" --prefix "$prefix" >"$build/install.log" || die "see $build/install.log"
# The list for uninstall.sh. Files that only the former list has are removed now.
list=${DESTDIR:-}$prefix/$installed_files
former=$(cat "$list" 2>/dev/null) || true
{ while read -r file || [ -n "$file" ]; do echo "${file#"$prefix"/}"; done <"$build/install_manifest.txt" && echo "$installed_files"; } >"$list"
former=$(grep -vxFf "$list" <<<"$former") || true
[ -z "$former" ] || remove_files "${DESTDIR:-}$prefix" <<<"$former"
# Without ldconfig the loader does not find new libraries in its own folders.
if [ -z "${DESTDIR:-}" ] && [ "$(id -u)" -eq 0 ] && have ldconfig; then ldconfig; fi
say "installed into ${DESTDIR:-}$prefix"
