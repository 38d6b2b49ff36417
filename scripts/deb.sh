#!/usr/bin/env bash
# deb.sh [PRESET]: a Debian package of a preset's build (release unless named), build/deb/weir_VERSION_ARCHITECTURE.deb. What it
# depends on is read from the program and the libraries. WEIR_DEB_LEVEL: how hard xz tries, 0 to 9 (3).
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$weir_root"

preset=${1:-release}
for tool in dpkg dpkg-deb; do have $tool || die "no $tool: Debian packages are made on Debian and its kin"; done
have dpkg-shlibdeps || die "no dpkg-shlibdeps: run as root: apt-get install dpkg-dev"
version=$(sed -n 's/^#define WEIR_VERSION *"\(.*\)"$/\1/p' include/weir/weir.h)
architecture=$(dpkg --print-architecture)
out=$weir_root/build/deb
root=$out/root
rm -rf "$root" "$out/debian"
mkdir -p "$root/DEBIAN" "$out/debian"

PREFIX=/usr LIBDIR=lib DESTDIR=$root scripts/install.sh "$preset"
strip --strip-unneeded "$root/usr/bin/weir" "$root/usr/libexec/weir/weir-bench" "$root"/usr/lib/libweir.so.*.*.* "$root"/usr/lib/libweir_hub.so.*.*.*
gzip -9n "$root"/usr/share/man/man1/*.1
mv "$root/usr/share/doc/weir/LICENSES.txt" "$root/usr/share/doc/weir/copyright" # which has what LICENSE has
rm "$root/usr/share/doc/weir/LICENSE" "$root/usr/$installed_files" # dpkg has a list of its own
# zsh in Debian looks here.
mkdir -p "$root/usr/share/zsh/vendor-completions"
mv "$root/usr/share/zsh/site-functions/_weir" "$root/usr/share/zsh/vendor-completions/"
rmdir "$root/usr/share/zsh/site-functions"

# It reads a source package's control file, which there is none of.
printf 'Source: weir\n\nPackage: weir\nArchitecture: any\n' >"$out/debian/control"
depends=$(cd "$out" && dpkg-shlibdeps -O root/usr/bin/weir root/usr/lib/libweir{,_hub}.so."$version" 2>"$out/shlibdeps.log" | sed -n 's/^shlibs:Depends=//p')
[ -n "$depends" ] || die "dpkg-shlibdeps found no dependencies; see $out/shlibdeps.log"
cat >"$root/DEBIAN/control" <<CONTROL
Package: weir
Version: $version
Architecture: $architecture
Maintainer: ${DEBFULLNAME:-weir} <${DEBEMAIL:-weir@localhost}>
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Depends: $depends
Recommends: ca-certificates
Suggests: pkg-config, libjansson-dev, libcurl4-openssl-dev, libflac-dev, libjpeg-dev, libmpg123-dev, libpng-dev, libwebp-dev
Section: science
Priority: optional
Description: streaming inference engine on llama.cpp
 Runs language models: many requests in one batch, text as it is generated, any
 of them cancelled at any moment. A program, a C library with its header, and
 man pages. It comes without a model: weir pull suggests some.
CONTROL
printf 'activate-noawait ldconfig\n' >"$root/DEBIAN/triggers"
(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
find "$root" -type d -exec chmod 755 {} +
package=$out/weir_${version}_$architecture.deb
dpkg-deb --root-owner-group -Zxz -z"${WEIR_DEB_LEVEL:-3}" --build "$root" "$package" >"$out/dpkg-deb.log" || die "see $out/dpkg-deb.log"
say "$package"
