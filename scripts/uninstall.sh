#!/usr/bin/env bash
# uninstall.sh: removes the files that install.sh put into $DESTDIR$PREFIX (/usr/local), by the list that it left there, and the folders
# that it made, if they are empty. Settings, models and caches stay; so do files that were added to weir's folders.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"

prefix=${PREFIX:-/usr/local}
while [[ $prefix == ?*/ ]]; do prefix=${prefix%/}; done
root=${DESTDIR:-}$prefix
list=$root/$installed_files
[ -f "$list" ] || die "$list is missing: nothing was installed into $root by make install"
files=$(cat "$list") # which is one of them
remove_files "$root" <<<"$files"
if [ -z "${DESTDIR:-}" ] && [ "$(id -u)" -eq 0 ] && have ldconfig; then ldconfig; fi
say "removed from $root"
