#!/bin/bash
# run.sh PACKAGES JOB: boots the kernel of unpacked Debian or Ubuntu packages (linux-image, linux-modules) in qemu
# without KVM, and runs the script JOB there. The host's files are the root, read-only under a tmpfs; /mnt/disk is an
# ext4 file system of 6 GiB. Needs qemu-system-x86, busybox-static, kmod, cpio; for aarch64 set ARCH=aarch64 and
# ROOT to a directory with arm64 packages, in which JOB is, too.
set -e
packages=$(realpath "$1") job=$2 arch=${ARCH:-x86_64} root=${ROOT:-/}
version=$(ls "$packages/lib/modules")
work=$(mktemp -d) initrd=$work/initrd
trap 'rm -rf "$work"' EXIT
mkdir -p "$initrd"/{bin,dev,proc,sys,new,low,up} "$initrd/lib/modules/$version"
cp "$root/bin/busybox" "$initrd/bin/"
depmod -b "$packages" "$version"
# The modules of the devices and file systems, each behind those that it needs.
python3 - "$packages/lib/modules/$version" "$initrd" "/lib/modules/$version" <<'P'
import os, shutil, sys
modules, initrd, place = sys.argv[1:]
needs = {}
for line in open(f"{modules}/modules.dep"):
    name, _, others = line.partition(":")
    needs[name] = others.split()
by_name = {os.path.basename(path).split(".ko")[0].replace("-", "_"): path for path in needs}
wanted = "crc32c_generic crc32c_intel virtio_pci virtio_blk virtio_rng 9p 9pnet_virtio ext4 overlay loop xfs btrfs fuse"
found = []
for path in (by_name[name] for name in wanted.split() if name in by_name):
    found += [each for each in [*reversed(needs[path]), path] if each not in found]
for path in found:
    os.makedirs(os.path.dirname(f"{initrd}{place}/{path}"), exist_ok=True)
    shutil.copy(f"{modules}/{path}", f"{initrd}{place}/{path}")
open(f"{initrd}/modules", "w").writelines(f"{place}/{path}\n" for path in found)
P
cat > "$initrd/init" <<I
#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev
for module in \$(cat /modules); do insmod \$module; done
mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=262144,cache=loose host /low
mount -t tmpfs -o size=3g t /up; mkdir /up/u /up/w
mount -t overlay -o lowerdir=/low,upperdir=/up/u,workdir=/up/w o /new
mount -t proc p /new/proc; mount -t sysfs s /new/sys; mount -t devtmpfs d /new/dev
mkdir -p /new/dev/shm /new/dev/pts /new/mnt/disk /new/low
mount -t tmpfs t /new/dev/shm; mount -t devpts t /new/dev/pts
mount -t tmpfs -o size=3g t /new/tmp; mount -t tmpfs r /new/run; mount --bind /low /new/low
chroot /new /sbin/mke2fs -q -t ext4 /dev/vda && mount -t ext4 /dev/vda /new/mnt/disk
ip link set lo up
echo 'export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
bash /low$job; echo "job ended \$?"; sync; busybox poweroff -f' > /new/run/outer.sh
exec switch_root /new /bin/bash /run/outer.sh
I
chmod +x "$initrd/init"
(cd "$initrd"; find . | cpio -o -H newc | gzip -1) > "$work/initrd.gz"
truncate -s 6G "$work/disk"
case $arch in
x86_64) machine=(-cpu max) console="ttyS0 no_timer_check" ;;
aarch64) machine=(-machine virt -cpu max,pauth-impdef=on) console=ttyAMA0 ;;
esac
"qemu-system-$arch" -accel tcg,thread=multi "${machine[@]}" -smp 2 -m 8G -nographic -no-reboot \
    -kernel "$packages"/boot/vmlinuz-* -initrd "$work/initrd.gz" \
    -append "console=$console quiet panic=1 mitigations=off" \
    -virtfs "local,path=$root,mount_tag=host,security_model=none,readonly=on,multidevs=remap" \
    -drive "file=$work/disk,if=virtio,format=raw,cache=unsafe" -device virtio-rng-pci < /dev/null
