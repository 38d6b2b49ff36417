#!/usr/bin/env bash
# install.sh [PRESET]: installs a preset's build (release unless named) into $DESTDIR$PREFIX (/usr/local), built first where that
# is needed. $LIBDIR is where libraries lie below the prefix (lib).
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$weir_root"

loader_finds() { # loader_finds FOLDER PREFIX
    local ldconfig
    ldconfig=$(PATH=$PATH:/usr/sbin:/sbin command -v ldconfig) || { [ "$2" = /usr ] || [ "$2" = /usr/local ]; return; }
    "$ldconfig" -p 2>/dev/null | grep -F "=> $1/libweir.so." >/dev/null
}
pkg_config_finds() { [[ :$(pkg-config --variable pc_path pkg-config 2>/dev/null): == *:$1/pkgconfig:* ]]; }
variable() { printf '    export %s=%q${%s:+:$%s}\n' "$1" "$2" "$1" "$1" >&2; }

# tell_paths PREFIX LIBDIR: what others than this program need, where they do not look into this prefix.
tell_paths() {
    if ! pkg_config_finds "$2" || ! loader_finds "$2" "$1"; then
        say "programs that use the library are built and run with:"
        pkg_config_finds "$2" || variable PKG_CONFIG_PATH "$2/pkgconfig"
        loader_finds "$2" "$1" || variable "$([ "$(uname -s)" = Darwin ] && echo DYLD_LIBRARY_PATH || echo LD_LIBRARY_PATH)" "$2"
    fi
    case $1 in /usr | /usr/local) return ;; esac
    [ "$(uname -s)" = Linux ] || return 0
    say "systemd does not look into $1; for the service:"
    printf '    ln -s %q /usr/local/bin/\n    systemctl enable %q\n' "$1/bin/weir" "$1/lib/systemd/system/weir.service" >&2
}

preset=${1:-release}
build=build/$preset
prefix=${PREFIX:-/usr/local}
while [[ $prefix == ?*/ ]]; do prefix=${prefix%/}; done
case $prefix in /*) ;; *) die "PREFIX is \"$prefix\"; expected: an absolute path" ;; esac
take_build "$preset"
scripts/build.sh "$preset" weir_install
libdir=$(sed -n 's/^CMAKE_INSTALL_LIBDIR:[A-Z]*=//p' "$build/CMakeCache.txt")
if [ "${LIBDIR:-lib}" != "$libdir" ]; then
    cmake -DCMAKE_INSTALL_LIBDIR="${LIBDIR:-lib}" "$build" >"$build/configure.log" || die "see $build/configure.log"
fi
root=${DESTDIR:-}$prefix
folders=$(cd "$root" 2>/dev/null && find . -type d 2>/dev/null | sed -E 's,^\.(/|$),,; s,$,/,') || true # before; "/": the root
DESTDIR=${DESTDIR:-} cmake --install "$build" --prefix "$prefix" >"$build/install.log" || die "see $build/install.log"
# Folders as they are on the disk: a link to one that was there is no new folder, nor is what lies behind it.
top=$(cd -P "$root" && pwd)
was_made() {
    local real
    real=$(cd -P "$root/$1" && pwd)/
    [[ $real == "$top"/* ]] && real=${real#"$top"/} && ! grep -qxFe "${real:-/}" <<<"$folders"
}
# The list for uninstall.sh: files, then the folders that were made for them, with a "/" at the end and the deepest first. Files that
# only the former list has are removed now; its folders stay in the list.
list=$root/$installed_files
former=$(cat "$list" 2>/dev/null) || true
files=$(while read -r file || [ -n "$file" ]; do echo "${file#"$prefix"/}"; done <"$build/install_manifest.txt" && echo "$installed_files")
made=$(while read -r file; do
    while [[ $file == */* ]]; do file=${file%/*} && echo "$file/"; done
    echo /
done <<<"$files" | sort -u | while read -r folder; do ! was_made "$folder" || echo "$folder"; done)
kept=$(grep '/$' <<<"$former") || true
{ echo "$files" && printf '%s\n' "$made" "$kept" | sed '/^$/d' | LC_ALL=C sort -ru; } >"$list"
former=$(grep -vxFf "$list" <<<"$former") || true
[ -z "$former" ] || remove_files "$root" <<<"$former"
# Without ldconfig the loader does not find new libraries in its own folders.
if [ -z "${DESTDIR:-}" ] && [ "$(id -u)" -eq 0 ] && have ldconfig; then ldconfig; fi
say "installed into $root"
[ -n "${DESTDIR:-}" ] || tell_paths "$prefix" "$prefix/${LIBDIR:-lib}"
