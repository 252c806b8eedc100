#!/bin/bash
# Makes of the root that build_image.sh leaves a place to build a package in: build_builder.sh IMAGE-DIRECTORY
set -euo pipefail
if [ "$1" != --apart ]; then exec unshare --mount "$0" --apart "$@"; fi
out=$2
root=$out/root
cp "$(readlink -f /etc/resolv.conf)" "$root/etc/resolv.conf"
mount -t proc proc "$root/proc"
chroot "$root" env DEBIAN_FRONTEND=noninteractive sh -c 'apt-get -q update && apt-get -q -y -o APT::Install-Recommends=false \
    -o Dpkg::Options::=--force-unsafe-io install debhelper dpkg-dev' >"$out/builder.log" 2>&1 || { tail -20 "$out/builder.log" >&2; exit 1; }
umount "$root/proc"
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*
mv "$root" "$out/builder"
