#!/usr/bin/env bash
# make deb: what is in the package, and that it works unpacked; WEIR_TEST_DEB=1: in a clean Debian, which takes minutes and a mirror.
# The Homebrew formula: as far as Ruby alone can tell. systemd's units: as far as it can tell when it does not run.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$WEIR_SOURCE_DIR"
. scripts/lib.sh

if have ruby; then ruby -c packaging/weir.rb >/dev/null; else echo "note: no ruby"; fi
for name in $(grep -oE 'scripts/[a-z]+\.sh' packaging/weir.rb); do [ -x "$name" ] || die "the formula runs $name, which is not there"; done
if have systemd-analyze; then
    # The manual page is there once it is installed.
    bad=$(systemd-analyze verify packaging/weir.service packaging/weir.socket 2>&1 | grep weir | grep -v 'man weir(1)' || true)
    [ -z "$bad" ] || die "$bad"
else
    echo "note: no systemd"
fi
[ -f "$WEIR_BUILD_DIR/install/weir.pc" ] && have dpkg-deb && have dpkg-shlibdeps || exit 77

scripts/deb.sh "$(basename "$WEIR_BUILD_DIR")"
package=$(ls -t build/deb/*.deb | head -n 1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
expect() { grep -qE "$2" "$1" || die "$1 lacks $2: $(cat "$1")"; }
dpkg-deb -f "$package" >"$work/control"
expect "$work/control" '^Depends: .*libc6 \(>= '
expect "$work/control" '^Depends: .*libjansson4'
dpkg-deb -c "$package" >"$work/files"
for file in ./usr/bin/weir ./usr/lib/libweir.so ./usr/lib/libweir.a ./usr/include/weir/weir.h ./usr/lib/pkgconfig/weir.pc \
    ./usr/share/man/man1/weir-run.1.gz ./usr/share/bash-completion/completions/weir ./usr/share/zsh/vendor-completions/_weir \
    ./usr/share/doc/weir/copyright; do
    expect "$work/files" " $file( |\$)"
done
! grep -vE '^[-dl]\S+ root/root ' "$work/files" || die "files that are not root's"
dpkg-deb -x "$package" "$work/unpacked"
"$work/unpacked/usr/bin/weir" version
[ -n "$("$work/unpacked/usr/bin/weir" run -m fake: -p x -n 8 --ignore-eos -q)" ] || die "the program says nothing"
if [ "${WEIR_TEST_DEB:-}" = 1 ]; then scripts/deb_check.sh "$package"; fi
echo "1 passed, 0 failed"
