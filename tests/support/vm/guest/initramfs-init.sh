#!/bin/busybox sh
# The first program: modules, disks, and on to the real root. Its own modules go with it.
/bin/busybox mkdir -p /proc /sys /dev /target
/bin/busybox mount -t proc none /proc
/bin/busybox mount -t sysfs none /sys
/bin/busybox mount -t devtmpfs none /dev
while read -r module; do /bin/busybox insmod "$module"; done </modules-at-boot
/bin/busybox mount -t ext4 /dev/vda /target || exec /bin/busybox sh
/bin/busybox mkdir -p /target/job /target/deps /target/lib/modules
/bin/busybox mount -t ext4 /dev/vdb /target/job
/bin/busybox mount -t ext4 -o ro /dev/vdc /target/deps
/bin/busybox cp -a /lib/modules/. /target/lib/modules/
while read -r device folder; do
    /bin/busybox mkdir -p "/target$folder"
    /bin/busybox mount -t ext4 "$device" "/target$folder"
done </target/job/guest/more-disks
/bin/busybox mount --move /proc /target/proc
/bin/busybox mount --move /sys /target/sys
/bin/busybox mount --move /dev /target/dev
exec /bin/busybox switch_root /target "$(/bin/busybox cat /target/job/guest/first)"
