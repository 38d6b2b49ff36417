#!/usr/bin/env bash
# deb_check.sh PACKAGE.deb ...: installs them with apt in a clean Debian of its own (debootstrap), uses program and library there,
# and purges them. Needs root, debootstrap, and a mirror: $WEIR_DEBIAN_MIRROR, else the first that this machine's apt uses.
# 77: something of that is missing.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"

packages=("$@")
[ "$(id -u)" -eq 0 ] || { say "not root"; exit 77; }
have debootstrap || { say "no debootstrap"; exit 77; }
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}")
mirror=${WEIR_DEBIAN_MIRROR:-$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -v security | head -n 1)}
work=$(mktemp -d "${TMPDIR:-/tmp}/weir-deb-XXXXXX")
root=$work/root
cleanup() {
    umount "$root/proc" 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT

watch "a clean Debian ($suite)" "$work/debootstrap.log" debootstrap --variant=minbase --include=ca-certificates "$suite" "$root" "$mirror" || {
    [ -d "$root/var/lib/dpkg" ] || exit 77 # no mirror
    exit 1
}
mount -t proc proc "$root/proc" 2>/dev/null || true # threads are counted there; without it works as well
[ ! -e /etc/apt/apt.conf ] || cp /etc/apt/apt.conf "$root/etc/apt/"
cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
cp /etc/resolv.conf "$root/etc/" 2>/dev/null || true
mkdir "$root/packages"
cp "${packages[@]}" "$root/packages/"
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }

watch "installing the packages there" "$work/apt.log" inside sh -c 'apt-get -q update && apt-get -q install -y --no-install-recommends /packages/*.deb'
inside weir version
[ -n "$(inside weir run -m fake: -p 'Is it there?' -n 8 --ignore-eos -q)" ] || die "weir run says nothing"
inside sh -c 'ldconfig -p | grep -q libweir.so' || die "the loader does not find the library"
[ -f "$root/usr/share/man/man1/weir.1.gz" ] || [ -f "$root/etc/dpkg/dpkg.cfg.d/docker" ] || die "no man page"
if [ -n "${WEIR_TEST_MODEL:-}" ] && [ -f "${WEIR_TEST_MODEL:-}" ]; then
    cp "$WEIR_TEST_MODEL" "$root/model.gguf"
    inside weir run -m /model.gguf -p "Name a river." -n 8 --temp 0 -q
fi
inside sh -c 'dpkg -P weir libweir-dev $(dpkg-query -W -f "\${Package} " "libweir*") && ! command -v weir && ! ldconfig -p | grep libweir' >"$work/remove.log" 2>&1 ||
    die "they cannot be removed; $(cat "$work/remove.log")"
say "installed, used and purged in a clean Debian"
