#!/usr/bin/env bash
# make deb: the package's files, and that it works unpacked; WEIR_TEST_DEB=1: in a clean Debian, which takes minutes and a mirror.
# The Homebrew formula: as far as Ruby alone can tell. systemd's units: as far as it can tell when it does not run.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$WEIR_SOURCE_DIR"
. scripts/lib.sh

formula=packaging/weir.rb
if have ruby; then ruby -c $formula >/dev/null; else echo "note: no ruby"; fi
field() { sed -n "s/^  $1 \"\([^\"]*\)\".*/\1/p" $formula; }
for name in desc homepage license head; do [ -n "$(field $name)" ] || die "the formula has no $name"; done
description=$(field desc) # what `brew audit` asks of it
[ ${#description} -le 80 ] && [[ $description =~ ^[A-Z] ]] && [[ ! $description =~ ^(A|An|The|[Ww]eir)\  ]] && [[ ! $description =~ \.$ ]] || die "the formula's desc: $description"
[ "$(field license)" = "$(sed -n 's/.*SPDX-License-Identifier: //p' CMakeLists.txt | head -n 1)" ] || die "the formula has another license"
for module in $(sed -n 's/^pkg_check_modules([A-Z]* .*IMPORTED_TARGET \([a-z]*\).*/\1/p' CMakeLists.txt); do
    case $module in libcurl) module=curl ;; ncursesw) module=ncurses ;; openssl) module=openssl@3 ;; esac
    grep -qE "^  (depends_on|uses_from_macos) \"$module\"" $formula || die "the formula does not depend on $module"
done
for name in $(grep -oE 'scripts/[a-z]+\.sh' $formula); do [ -x "$name" ] || die "the formula runs $name, which is not there"; done
if have systemd-analyze; then
    # The manual page is there once it is installed.
    bad=$(systemd-analyze verify packaging/weir.service packaging/weir.socket 2>&1 | grep weir | grep -v 'man weir(1)' || true)
    [ -z "$bad" ] || die "$bad"
    # In tenths: the unit's exposure, of 10.
    if systemd-analyze security --help | grep -q -- --offline; then
        systemd-analyze security --no-pager --offline=true --threshold=20 packaging/weir.service >"${TMPDIR:-/tmp}/weir-exposure.$$" 2>&1 ||
            die "the unit leaves too much open: $(grep -v '✓' "${TMPDIR:-/tmp}/weir-exposure.$$")"
        rm -f "${TMPDIR:-/tmp}/weir-exposure.$$"
    fi
else
    echo "note: no systemd"
fi
[ -f "$WEIR_BUILD_DIR/install/weir.pc" ] && have dpkg-deb && have dpkg-shlibdeps || exit 77

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
preset=$(basename "$WEIR_BUILD_DIR")
# Builds of one folder wait for each other.
if have flock; then
    exec 8>"build/$preset.lock"
    flock 8
    scripts/build.sh "$preset" weir_install 8>&- 2>"$work/waiting" &
    build=$!
    until grep -q 'waiting for it' "$work/waiting" || ! kill -0 $build 2>/dev/null; do sleep 0.1; done
    grep -q 'waiting for it' "$work/waiting" || die "a build did not wait for another: $(cat "$work/waiting")"
    exec 8>&-
    wait $build || die "the build that waited failed: $(cat "$work/waiting")"
fi

WEIR_DEB_LEVEL=0 scripts/deb.sh "$preset"
package=$(ls -t build/deb/*.deb | head -n 1)
expect() { grep -qE "$2" "$1" || die "$1 lacks $2: $(cat "$1")"; }
dpkg-deb -f "$package" >"$work/control"
expect "$work/control" '^Depends: .*libc6 \(>= '
expect "$work/control" '^Depends: .*libjansson4'
# What the program was built with: module of pkg-config|package; names are followed by a version in some releases.
for pair in 'libcurl|libcurl4' 'openssl|libssl3' 'libedit|libedit2' 'ncursesw|libncursesw6' \
    'libpng|libpng16' 'libjpeg|libjpeg' 'libwebp|libwebp' 'flac|libflac' 'libmpg123|libmpg123'; do
    ! pkg-config --exists "${pair%|*}" || expect "$work/control" "^Depends: .*${pair#*|}"
done
# The image installs the same, by name.
image=$(sed -n 's/^FROM debian:\([a-z]*\)-slim.*/\1/p' Dockerfile | head -n 1)
if [ "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" = "$image" ]; then
    for name in $(sed -n 's/^Depends: //p' "$work/control" | sed 's/([^)]*)//g; s/,/ /g; s/:any//g'); do
        case $name in libc6 | libgcc-s1) continue ;; esac # in every image
        tr ' ' '\n' <Dockerfile | grep -qxF "$name" || die "the Dockerfile does not install $name"
    done
fi
dpkg-deb -c "$package" >"$work/files"
for file in ./usr/bin/weir ./usr/libexec/weir/weir-bench ./usr/lib/libweir.so ./usr/lib/libweir.a ./usr/include/weir/weir.h ./usr/lib/pkgconfig/weir.pc \
    ./usr/lib/libweir_hub.so ./usr/lib/libweir_hub.a ./usr/include/weir/hub.h ./usr/lib/pkgconfig/weir_hub.pc \
    ./usr/share/man/man1/weir-run.1.gz ./usr/share/bash-completion/completions/weir ./usr/share/zsh/vendor-completions/_weir \
    ./usr/share/doc/weir/copyright; do
    expect "$work/files" " $file( |\$)"
done
! grep -vE '^[-dl]\S+ root/root ' "$work/files" || die "files that are not root's"
dpkg-deb -x "$package" "$work/unpacked"
"$work/unpacked/usr/bin/weir" version
"$work/unpacked/usr/bin/weir" version --licenses | cmp - "$work/unpacked/usr/share/doc/weir/copyright" || die "the package's copyright file is another"
holders=('Apache License')
grep -qx 'WEIR_LLAMA:BOOL=OFF' "$WEIR_BUILD_DIR/CMakeCache.txt" || holders+=('The ggml authors' 'Niels Lohmann')
for holder in "${holders[@]}"; do expect "$work/unpacked/usr/share/doc/weir/copyright" "$holder"; done
grep -q '^COPY --from=build .*/LICENSES.txt ' Dockerfile || die "the image has no notices of what is inside the program"
[ -n "$("$work/unpacked/usr/bin/weir" run -m fake: -p x -n 8 --ignore-eos -q)" ] || die "the program says nothing"
if [ "${WEIR_TEST_DEB:-}" = 1 ]; then scripts/deb_check.sh "$package"; fi
echo "1 passed, 0 failed"
