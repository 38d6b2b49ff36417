#!/usr/bin/env bash
# deb.sh [PRESET]: Debian packages of a preset's build (release unless named), in build/deb: weir, libweir0.1, libweir-hub0.1 and
# libweir-dev. Their files are in packaging/debian, and debhelper does the work (ADR 0120).
# DEBFULLNAME and DEBEMAIL: the maintainer. WEIR_DEB_LEVEL: how hard xz tries, 0 to 9 (3).
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$weir_root"

preset=${1:-release}
have dpkg || die "no dpkg: Debian packages are made on Debian and its kin"
{ have dh_builddeb && have dpkg-shlibdeps; } || die "no debhelper: run as root: apt-get install debhelper"
version=$(sed -n 's/^#define WEIR_VERSION *"\(.*\)"$/\1/p' include/weir/weir.h)
date=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
packaged=$version+$(date -u -d "@$date" +%Y%m%d.%H%M%S) # a later commit's package is an upgrade
architecture=$(dpkg --print-architecture)
out=$weir_root/build/deb
source=$out/source
debian=$source/debian
tmp=$debian/tmp
rm -rf "$out"
mkdir -p "$debian"

PREFIX=/usr LIBDIR=lib/$(dpkg-architecture -q DEB_HOST_MULTIARCH) DESTDIR=$tmp scripts/install.sh "$preset"
soname=$(basename "$(find "$tmp/usr/lib" -name 'libweir.so.*' -type l)")
so=${soname#libweir.so.}

# ---- The files that debhelper reads ----

maintainer="${DEBFULLNAME:-weir} <${DEBEMAIL:-weir@example.org}>"
fill() { # fill FILE NAME PACKAGE: a file of packaging/debian, for a library and its package
    sed "s|@MAINTAINER@|$maintainer|; s|@SOVERSION@|$so|g; s|@VERSION@|$packaged|g; s|@NAME@|$2|g; s|@PACKAGE@|$3|g" "packaging/debian/$1"
}
fill control.in "" "" >"$debian/control"
cp packaging/debian/weir.install packaging/debian/libweir-dev.install "$debian/"
cp packaging/debian/libweir.install "$debian/libweir$so.install"
cp packaging/debian/libweir-hub.install "$debian/libweir-hub$so.install"
fill libweir.symbols.in weir "libweir$so" >"$debian/libweir$so.symbols"
fill libweir.symbols.in weir_hub "libweir-hub$so" >"$debian/libweir-hub$so.symbols"
cat >"$debian/changelog" <<CHANGELOG
weir ($packaged) unstable; urgency=medium

  * Version $version of weir; /usr/share/doc/weir/CHANGELOG.md has what is new.

 -- $maintainer  $(date -R -u -d "@$date")
CHANGELOG
# Debian has the Apache License once for all packages.
python3 - LICENSE "$tmp/usr/share/doc/weir/LICENSES.txt" >"$debian/copyright" <<'PYTHON'
import sys

license, notices = (open(name, encoding="utf-8").read() for name in sys.argv[1:])
license = license.strip("\n")
assert license in notices
notices = notices.replace(license, "On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.")
sys.stdout.write("Copyright: the authors of weir, and those whom the notices below name.\n\n" + notices)
PYTHON

# ---- What Debian has in other places ----

doc=$tmp/usr/share/doc/weir
rm "$doc/LICENSE" "$doc/LICENSES.txt" "$tmp/usr/$installed_files"
mkdir -p "$tmp/usr/share/zsh/vendor-completions"
mv "$tmp/usr/share/zsh/site-functions/_weir" "$tmp/usr/share/zsh/vendor-completions/"
rmdir "$tmp/usr/share/zsh/site-functions"
rm -r "$tmp/usr/lib/systemd" # dh_installsystemd knows where this release of Debian has units
cp packaging/weir.service packaging/weir.socket "$debian/"

# ---- The packages ----

# The guides link to each other, so dh_compress leaves them. The units are not enabled, and so not started: there is no model yet.
make_packages() {
    cd "$source"
    export SOURCE_DATE_EPOCH=$date
    dh_install
    dh_missing --fail-missing
    dh_installdocs
    dh_installchangelogs -XCHANGELOG.md
    dh_installsystemd --no-enable
    dh_compress -X.md -X.json -X.svg -X.c
    dh_fixperms
    dh_strip --no-automatic-dbgsym
    dh_makeshlibs -- -c4
    dh_shlibdeps
    dh_installdeb
    dh_gencontrol
    dh_md5sums
    dh_builddeb --destdir="$out" -- -Zxz -z"${WEIR_DEB_LEVEL:-3}"
}
(make_packages) >"$out/debhelper.log" 2>&1 || die "see $out/debhelper.log: $(tail -n 3 "$out/debhelper.log")"
for package in weir "libweir$so" "libweir-hub$so" libweir-dev; do
    say "$out/${package}_${packaged}_$architecture.deb"
done
