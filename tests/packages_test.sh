#!/usr/bin/env bash
# make deb: the packages' files, that they work unpacked, and what their scripts do; WEIR_TEST_DEB=1: in a clean Debian, which takes
# minutes and a mirror.
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
for module in $(sed -n 's/^weir_package([A-Z]* .*IMPORTED_TARGET \([a-z]*\).*/\1/p' CMakeLists.txt); do
    case $module in libcurl) module=curl ;; ncursesw) module=ncurses ;; openssl) module=openssl@3 ;; esac
    grep -qE "^  (depends_on|uses_from_macos) \"$module\"" $formula || die "the formula does not depend on $module"
done
for name in $(grep -oE 'scripts/[a-z]+\.sh' $formula); do [ -x "$name" ] || die "the formula runs $name, which is not there"; done
# The recipes for Arch Linux and Nix: as far as bash, makepkg and Nix can tell. All three name the pin of llama.cpp and its tag.
tree=$(sed -n 's/^pin_tree=\(............\).*/\1/p' scripts/llama.sh) tag=$(sed -n 's/.* upstream_tag=\([^ ]*\).*/\1/p' scripts/llama.sh)
version=$(sed -n 's/^#define WEIR_VERSION *"\(.*\)"$/\1/p' include/weir/weir.h)
for recipe in $formula packaging/PKGBUILD packaging/flake.nix; do
    grep -q "src-$tree" $recipe && grep -qF "$tag" $recipe || die "$recipe has another llama.cpp than scripts/llama.sh ($tag, $tree)"
done
grep -qx "pkgver=$version" packaging/PKGBUILD && grep -q "version = \"$version\"" packaging/flake.nix || die "a recipe has another version than $version"
recipe() { (set +u && . packaging/PKGBUILD && printf '%s\n' "${depends[@]}" && [ "$(type -t prepare build package | xargs)" = "function function function" ]); }
depends=$(recipe) || die "packaging/PKGBUILD lacks a step"
for module in $(sed -n 's/^weir_package([A-Z]* .*IMPORTED_TARGET \(.*\))/\1/p' CMakeLists.txt | sed -E 's/[>=]+[0-9.]+//g'); do
    case $module in libcurl) module=curl ;; ncursesw) module=ncurses ;; libjpeg) module=libjpeg-turbo ;; libmpg123) module=mpg123 ;; esac
    grep -qxF "$module" <<<"$depends" || die "packaging/PKGBUILD does not depend on $module"
    grep -qE "^ +(${module%-turbo})$" packaging/flake.nix || die "packaging/flake.nix does not depend on $module"
done
if have nix-instantiate; then nix-instantiate --parse packaging/flake.nix >/dev/null; else echo "note: no Nix"; fi
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
# The image builds llama.cpp of the few files that are copied first, so that a change of weir's sources leaves it.
first=$(sed '/^COPY \. \./,$d' Dockerfile)
grep -q 'scripts/llama\.sh --media' <<<"$first" || die "the image builds llama.cpp after it has copied all sources"
if [ -n "${WEIR_LLAMA_BUILD:-}" ]; then
    image=$(mktemp -d)
    trap 'rm -rf "$image"' EXIT
    while read -ra words; do
        mkdir -p "$image/${words[-1]}"
        # shellcheck disable=SC2068 # patterns
        cp ${words[@]:1:${#words[@]}-2} "$image/${words[-1]}"
    done < <(grep '^COPY ' <<<"$first")
    "$image/scripts/llama.sh" --media | cmp - <(scripts/llama.sh --media) || die "the image builds another llama.cpp"
    rm -rf "$image"
fi
[ -f "$WEIR_BUILD_DIR/install/weir.pc" ] && have dh_builddeb && have dpkg-shlibdeps || exit 77

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
so=$(readelf -d "$WEIR_BUILD_DIR/libweir.so" | sed -n 's/.*SONAME.*\[libweir\.so\.\(.*\)\]/\1/p')
libraries=$(dpkg-architecture -q DEB_HOST_MULTIARCH)
packages=()
for name in weir "libweir$so" "libweir-hub$so" libweir-dev; do
    package=$(echo "build/deb/${name}"_*.deb)
    [ -f "$package" ] || die "no package $name"
    packages+=("$package")
    dpkg-deb -f "$package" >"$work/$name.control"
    dpkg-deb -c "$package" >"$work/$name.files"
    ! grep -vE '^[-dl]\S+ root/root ' "$work/$name.files" || die "$name: files that are not root's"
    dpkg-deb -x "$package" "$work/unpacked"
done
[ "$(find build/deb -maxdepth 1 -name '*.deb' | wc -l)" = 4 ] || die "not four packages: $(ls build/deb)"
package=${packages[0]}
expect() { grep -qE "$2" "$1" || die "$1 lacks $2: $(cat "$1")"; }
lacks() { ! grep -qE "$2" "$1" || die "$1 has $2: $(cat "$1")"; }

# ---- Their version: a later commit's is an upgrade, and the next release one of both ----

version=$(dpkg-deb -f "$package" Version)
plain=$(sed -n 's/^#define WEIR_VERSION *"\(.*\)"$/\1/p' include/weir/weir.h)
if date=$(echo "${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null)}" | grep .); then
    [ "$version" = "$plain+$(date -u -d "@$date" +%Y%m%d.%H%M%S)" ] || die "the version $version has not the commit's date"
fi
dpkg --compare-versions "$version" gt "$plain" && dpkg --compare-versions "$version" lt "$plain+$(date -u -d '+1 day' +%Y%m%d.%H%M%S)" &&
    dpkg --compare-versions "$version" lt "$plain.1" || die "the version $version does not rise with the commits"

# ---- How they were compiled: at any address, with addresses that are fixed before the program runs ----

for file in "$work/unpacked/usr/bin/weir" "$work/unpacked/usr/lib/$libraries/libweir.so.$so"; do
    readelf -hd "$file" >"$work/elf"
    expect "$work/elf" 'Type: +DYN'
    expect "$work/elf" 'BIND_NOW|Flags: NOW'
    grep -qx 'CMAKE_BUILD_TYPE:[A-Z]*=Release' "$WEIR_BUILD_DIR/CMakeCache.txt" || continue # only that one is compiled for packages
    nm -D --undefined-only "$file" >"$work/symbols"
    expect "$work/symbols" '__stack_chk_fail'
    expect "$work/symbols" '_chk(@|$)'
done

# ---- What they need ----

expect "$work/weir.control" '^Depends: .*libc6 \(>= '
expect "$work/weir.control" '^Depends: .*libjansson4'
lacks "$work/weir.control" '^Depends: .*libweir'
expect "$work/libweir-hub$so.control" "^Depends: .*libweir$so \(>= "
lacks "$work/libweir$so.control" '^Depends: .*libcurl'
expect "$work/libweir-dev.control" "^Depends: libweir$so \(= .*libweir-hub$so \(= "
for name in "libweir$so" "libweir-hub$so" libweir-dev; do expect "$work/$name.control" '^Multi-Arch: same'; done
# What the program was built with: module of pkg-config|package; names are followed by a version in some releases.
for pair in 'libcurl|libcurl4' 'openssl|libssl3' 'libedit|libedit2' 'ncursesw|libncursesw6' \
    'libpng|libpng16' 'libjpeg|libjpeg' 'libwebp|libwebp' 'flac|libflac' 'libmpg123|libmpg123'; do
    ! pkg-config --exists "${pair%|*}" || expect "$work/weir.control" "^Depends: .*${pair#*|}"
done
# The image installs the same, by name.
image=$(sed -n 's/^FROM debian:\([a-z]*\)-slim.*/\1/p' Dockerfile | head -n 1)
if [ "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" = "$image" ]; then
    for name in $(sed -n 's/^Depends: //p' "$work/weir.control" | sed 's/([^)]*)//g; s/,/ /g; s/:any//g'); do
        case $name in libc6 | libgcc-s1) continue ;; esac # in every image
        tr ' ' '\n' <Dockerfile | grep -qxF "$name" || die "the Dockerfile does not install $name"
    done
fi

# ---- What is in them ----

has() { # has PACKAGE FILE...
    local name=$1 file
    shift
    for file in "$@"; do expect "$work/$name.files" " \./$file( |\$)"; done
}
has weir usr/bin/weir usr/libexec/weir/weir-bench usr/share/man/man1/weir-run.1.gz usr/share/bash-completion/completions/weir \
    usr/share/zsh/vendor-completions/_weir usr/share/doc/weir/copyright usr/share/doc/weir/CHANGELOG.md usr/share/doc/weir/docs/guides/server.md \
    '(usr/)?lib/systemd/system/weir.service' '(usr/)?lib/systemd/system/weir.socket'
has "libweir$so" "usr/lib/$libraries/libweir.so.$so"
has "libweir-hub$so" "usr/lib/$libraries/libweir_hub.so.$so"
has libweir-dev usr/include/weir/weir.h usr/include/weir/more.h usr/include/weir/hub.h "usr/lib/$libraries/libweir.so" "usr/lib/$libraries/libweir.a" "usr/lib/$libraries/libweir_hub.so" \
    "usr/lib/$libraries/libweir_hub.a" "usr/lib/$libraries/pkgconfig/weir.pc" "usr/lib/$libraries/pkgconfig/weir_static.pc" "usr/lib/$libraries/cmake/weir/weirConfig.cmake"
lacks "$work/weir.files" 'usr/(include/|lib/.*libweir)'
"$work/unpacked/usr/bin/weir" version
[ -n "$("$work/unpacked/usr/bin/weir" run -m fake: -p x -n 8 --ignore-eos -q)" ] || die "the program says nothing"
for module in weir weir_static; do
    # shellcheck disable=SC2046 # words
    cc -std=c11 examples/hello.c -o "$work/hello" $(PKG_CONFIG_PATH=$work/unpacked/usr/lib/$libraries/pkgconfig pkg-config --cflags --libs $module)
    LD_LIBRARY_PATH=$work/unpacked/usr/lib/$libraries "$work/hello" fake: >/dev/null
done
notices=$work/unpacked/usr/share/doc/weir/copyright
expect "$notices" /usr/share/common-licenses/Apache-2.0
"$work/unpacked/usr/bin/weir" version --licenses >"$work/licenses"
LC_ALL=C comm -23 <(LC_ALL=C sort -u "$work/licenses") <(LC_ALL=C sort -u "$notices") | grep . | grep -vxFf LICENSE && die "the package's copyright file lacks notices"
grep -qx 'WEIR_LLAMA:BOOL=OFF' "$WEIR_BUILD_DIR/CMakeCache.txt" || for holder in 'The ggml authors' 'Niels Lohmann'; do expect "$notices" "$holder"; done
grep -q '^COPY --from=build .*/LICENSES.txt ' Dockerfile || die "the image has no notices of what is inside the program"
if have lintian; then
    lintian --fail-on error,warning --pedantic "${packages[@]}" 2>&1 || die "lintian has errors or warnings"
else
    echo "note: no lintian"
fi

# ---- Installed, enabled, upgraded and purged in a root of their own ----

dpkg-deb -R "$package" "$work/next"
expect "$work/next/DEBIAN/postinst" '_dh_action=restart'
expect "$work/next/DEBIAN/prerm" 'deb-systemd-invoke stop .*weir.service'
# The scripts talk to a systemd that runs, whatever the root.
if [ "$(id -u)" -eq 0 ] && [ ! -d /run/systemd/system ] && have systemctl && have deb-systemd-helper; then
    sed -i 's/^Version: .*/&+next/' "$work/next/DEBIAN/control"
    dpkg-deb -b "$work/next" "$work/next.deb" >/dev/null
    enabled() { systemctl --root="$work/system" is-enabled "$1" 2>&1 || true; }
    for upgraded in no yes; do
        rm -rf "$work/system"
        mkdir -p "$work/system/etc" "$work"/system/var/lib/dpkg/{info,updates,triggers}
        touch "$work"/system/var/lib/dpkg/{status,available}
        in_root() { dpkg --root="$work/system" --force-script-chrootless --force-depends --log=/dev/null "$@" >>"$work/dpkg.log" 2>&1 || die "dpkg $*: $(tail "$work/dpkg.log")"; }
        in_root -i "${packages[@]}"
        [ "$(enabled weir.service)$(enabled weir.socket)" = disableddisabled ] || die "a unit is enabled at once"
        systemctl --root="$work/system" enable weir.service 2>>"$work/dpkg.log"
        if [ $upgraded = yes ]; then
            in_root -i "$work/next.deb"
            [ "$(enabled weir.service)$(enabled weir.socket)" = enableddisabled ] || die "an upgrade changes what is enabled"
        fi
        in_root -P weir
        in_root -P libweir-dev "libweir-hub$so" "libweir$so"
        left=$(find "$work/system" \( -type f -o -type l \) -not -path "$work/system/var/lib/dpkg/*")
        [ -z "$left" ] || die "purge leaves: $left"
    done
else
    echo "note: not installed: this needs root, systemctl, deb-systemd-helper, and no systemd that runs"
fi
if [ "${WEIR_TEST_DEB:-}" = 1 ]; then scripts/deb_check.sh "${packages[@]}"; fi
echo "1 passed, 0 failed"
