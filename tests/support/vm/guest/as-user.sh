#!/bin/sh
# Run a command as a user whose own systemd has a group delegated to it, below a limit of 3 GiB.
loginctl enable-linger tester
while ! [ -S /run/user/1000/bus ]; do sleep 0.2; done
exec setpriv --reuid=1000 --regid=1000 --init-groups env -C "$PWD" HOME=/home/tester XDG_RUNTIME_DIR=/run/user/1000 \
    DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus \
    systemd-run --user --quiet --wait --pipe --same-dir -E PATH -E LC_ALL -E HOME -p MemoryMax=3G -p Delegate=yes -- "$@"
