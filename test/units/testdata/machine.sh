#!/bin/sh
# machine.sh ROOT SIDE CGROUP COMMANDLINE: runs a systemd that is process 1 of its
# own namespaces and has ROOT for its root: a folder with empty mount points,
# with SIDE.usr laid over the host's /usr and SIDE.run in /run. Where SIDE.physical
# is there it is the disk that an ostree deployment at ROOT was booted from. The
# script ends with that systemd. COMMANDLINE is what systemd takes for the
# kernel's.
# Started by: unshare --mount --pid --fork --kill-child --uts --ipc
set -eu
root=$1 side=$2 cgroup=$3 cmdline=$4

if [ "${5-}" != inside ]; then
	# A control group of its own, so that nothing of it is left in the host's.
	mount --make-rprivate /
	mount -t tmpfs none "$root/tmp"
	mkdir "$root/tmp/cgroup"
	mount -t cgroup2 none "$root/tmp/cgroup"
	mkdir -p "$root/tmp/cgroup/$cgroup"
	echo 0 >"$root/tmp/cgroup/$cgroup/cgroup.procs"
	umount "$root/tmp/cgroup"
	umount "$root/tmp"
	exec unshare --cgroup sh "$0" "$root" "$side" "$cgroup" "$cmdline" inside
fi

mount --bind "$root" "$root"
mount --make-rprivate "$root"
mount -t tmpfs none "$root/tmp"
mkdir "$root/tmp/upper" "$root/tmp/work"
cp -a "$side.usr/." "$root/tmp/upper/"
mount -t overlay -o "lowerdir=/usr,upperdir=$root/tmp/upper,workdir=$root/tmp/work" none "$root/usr"
mount -t proc none "$root/proc"
mount -t sysfs none "$root/sys"
mount -t cgroup2 none "$root/sys/fs/cgroup"
mount -t tmpfs none "$root/dev"
for n in null zero full random urandom tty; do
	cp -a "/dev/$n" "$root/dev/"
done
mkdir -m 1777 "$root/dev/shm"
mkdir "$root/dev/pts"
mount -t devpts -o newinstance,ptmxmode=666 none "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
: >"$root/dev/console"
mount --bind "$CONSOLE" "$root/dev/console"
mount -t tmpfs -o mode=755 none "$root/run"
cp -a "$side.run/." "$root/run/"
if [ -d "$side.physical" ]; then
	# As ostree-prepare-root leaves it: the disk is there, read-only.
	mount --bind "$side.physical" "$root/sysroot"
	mount -o remount,bind,ro "$root/sysroot"
	mount --bind "$side.physical/boot" "$root/boot"
	mount --bind "$side.physical/ostree/deploy/rhcos/var" "$root/var"
fi
exec env -i container=test PATH=/usr/sbin:/usr/bin SYSTEMD_UNIT_PATH=/etc/systemd/system \
	"SYSTEMD_PROC_CMDLINE=$cmdline" \
	chroot "$root" /usr/lib/systemd/systemd --system --unit=multi-user.target --show-status=no --log-target=console --log-level=notice
