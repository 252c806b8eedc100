#!/bin/bash
# Builds a guest for the system tests from nothing: kernel, a tiny initrd and a root file system with systemd and Python.
#   build_image.sh DIRECTORY RELEASE KERNEL     RELEASE: trixie, bookworm; KERNEL: newest, or 6.1 (bookworm's own, without cachestat)
# Needs root, mmdebstrap, mkfs.ext4, cpio, xz, and a mirror of Debian: the one that apt uses here, or MIRROR=URL.
set -euo pipefail
# What is mounted below goes with this script, however it ends.
if [ "${1:-}" != --apart ]; then exec unshare --mount "$0" --apart "$@"; fi
shift
here=$(cd "$(dirname "$0")" && pwd)
out=$1
release=$2
kernel=$3

# shellcheck disable=SC2016
mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Component: main' 2>/dev/null | grep -E '/debian/?$' | head -1)}
mirror=${mirror:-http://deb.debian.org/debian}
kernel_suite=$release
if [ "$release" = bookworm ] && [ "$kernel" = newest ]; then kernel_suite=bookworm-backports; fi
sources=("deb $mirror $release main")
[ "$kernel_suite" = "$release" ] || sources+=("deb $mirror $kernel_suite main")

rm -rf "$out"
mkdir -p "$out"
root=$out/root
packages=systemd,systemd-sysv,dbus,udev,kmod,procps,util-linux,mount,e2fsprogs,python3,python3-venv,busybox-static,make,sudo,apt

# The kernel is unpacked and not installed: no initramfs-tools, whose run takes longer than all the rest.
# shellcheck disable=SC2016
mmdebstrap --mode=root --variant=minbase --format=directory --include="$packages" \
    --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
    --customize-hook='image=$(chroot "$1" apt-cache depends linux-image-cloud-amd64/'"$kernel_suite"' |
        sed -n "s/.*Depends: \(linux-image-[0-9].*\)/\1/p" | tail -1)
    chroot "$1" sh -c "mkdir /kernel && cd /kernel && apt-get -q download $image"
    dpkg-deb -x "$1"/kernel/linux-image-*.deb "$1/kernel"' \
    "$release" "$root" "${sources[@]}" >"$out/mmdebstrap.log" 2>&1 || { tail -20 "$out/mmdebstrap.log" >&2; exit 1; }

unpacked=$root/kernel
for modules in "$unpacked"/lib/modules/*-amd64 "$unpacked"/usr/lib/modules/*-amd64; do
    [ ! -d "$modules" ] || break
done
version=${modules##*/}
cp "$unpacked/boot/vmlinuz-$version" "$out/vmlinuz"

# Modules that are used and what they need; `early` is what it takes to mount the root.
early="virtio_pci virtio_blk ext4"
wanted="$early virtio_console virtio_rng loop zram autofs4 lz4 zstd lzo lzo-rle crc32c_generic"
mkdir -p "$root/lib/modules"
cp -a "$modules" "$root/lib/modules/$version"
chroot "$root" depmod "$version"
needed() {
    for module in "$@"; do
        chroot "$root" modprobe -S "$version" --show-depends "$module" 2>/dev/null | awk '$1 == "insmod" { print $2 }' || true
    done | awk '!seen[$0]++'
}
# shellcheck disable=SC2086
{ needed $early >"$out/early"; needed $wanted | sed 's#^/usr/lib#/lib#' | sort >"$out/kept"; }
(cd "$root" && find "lib/modules/$version/kernel" -name '*.ko*' | sed 's#^#/#' | sort | comm -23 - "$out/kept") |
    while read -r file; do rm -f "$root$file"; done
find "$root/lib/modules/$version" -type d -empty -delete
chroot "$root" depmod "$version"

initrd=$(mktemp -d)
trap 'rm -rf "$initrd"' EXIT
mkdir -p "$initrd"/{bin,dev,new,modules}
cp "$root/usr/bin/busybox" "$initrd/bin/busybox" 2>/dev/null || cp "$root/bin/busybox" "$initrd/bin/busybox"
number=100
while read -r file; do
    name=$(basename "$file")
    case $file in
        *.xz) xz -dc "$root$file" >"$initrd/modules/$number-${name%.xz}" ;;
        *) cp "$root$file" "$initrd/modules/$number-$name" ;;
    esac
    number=$((number + 1))
done <"$out/early"
cat >"$initrd/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs none /dev
for module in /modules/*.ko; do [ ! -f "$module" ] || /bin/busybox insmod "$module"; done
while [ ! -b /dev/vda ]; do /bin/busybox usleep 20000; done
/bin/busybox mount -t ext4 -o rw,noatime /dev/vda /new
/bin/busybox umount /dev
exec /bin/busybox switch_root /new /sbin/init
INIT
chmod +x "$initrd/init"
(cd "$initrd" && find . | cpio -o -H newc --quiet | gzip -9) >"$out/initrd.gz"
rm -rf "$unpacked"

# The guest: no network, no logins, nothing at boot that a test does not need.
cp -R "$here/guest/." "$root/"
chown -R root:root "$root/etc/systemd" "$root/etc/udev" "$root/usr/local" "$root/etc/sudoers.d"
chmod 0755 "$root/usr/local/sbin/agent"
chmod 0440 "$root/etc/sudoers.d/newcomer"
chroot "$root" useradd --create-home --shell /bin/bash newcomer
echo guest >"$root/etc/hostname"
printf '127.0.0.1 localhost guest\n' >"$root/etc/hosts"
: >"$root/etc/fstab"
echo 0123456789abcdef0123456789abcdef >"$root/etc/machine-id"
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -sf /lib/systemd/system/multi-user.target "$root/etc/systemd/system/default.target"
ln -sf ../agent.service "$root/etc/systemd/system/multi-user.target.wants/agent.service"
for unit in systemd-firstboot.service systemd-networkd.service systemd-resolved.service e2scrub_reap.service getty@tty1.service \
    serial-getty@ttyS0.service serial-getty@hvc0.service systemd-timesyncd.service systemd-hwdb-update.service \
    systemd-pcrphase.service systemd-pcrphase-sysinit.service systemd-journal-catalog-update.service systemd-update-done.service \
    ldconfig.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer \
    systemd-tmpfiles-clean.timer systemd-binfmt.service proc-sys-fs-binfmt_misc.automount proc-sys-fs-binfmt_misc.mount; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/zoneinfo "$root"/var/log/*.log
chroot "$root" python3 -m compileall -q /usr/lib/python3 >/dev/null 2>&1 || true
mkfs.ext4 -q -F -E lazy_itable_init=1 -m 0 -L root -d "$root" "$out/root.ext4" 3G

# What is left is the same release for building a package in it (build_builder.sh).
rm -rf "$root"/lib/modules "$root"/usr/lib/modules
echo "$version" >"$out/version"
