#!/bin/busybox sh
# The first program: modules, disks, and on to the real root. Its own modules go with it.
/bin/busybox mkdir -p /proc /sys /dev /root
/bin/busybox mount -t proc none /proc
/bin/busybox mount -t sysfs none /sys
/bin/busybox mount -t devtmpfs none /dev
while read -r module; do /bin/busybox insmod "$module"; done </modules-at-boot
/bin/busybox mount -t ext4 /dev/vda /root || exec /bin/busybox sh
/bin/busybox mkdir -p /root/job /root/deps /root/lib/modules
/bin/busybox mount -t ext4 /dev/vdb /root/job
/bin/busybox mount -t ext4 -o ro /dev/vdc /root/deps
/bin/busybox cp -a /lib/modules/. /root/lib/modules/
while read -r device folder; do
    /bin/busybox mkdir -p "/root$folder"
    /bin/busybox mount -t ext4 "$device" "/root$folder"
done </root/job/guest/more-disks
/bin/busybox mount --move /proc /root/proc
/bin/busybox mount --move /sys /root/sys
/bin/busybox mount --move /dev /root/dev
exec /bin/busybox switch_root /root "$(/bin/busybox cat /root/job/guest/first)"
