#!/bin/sh
# The job: its output, errors and exit code go to serial ports of their own, what it leaves in /out to a disk.
export HOME=/root LC_ALL=C.UTF-8 PATH=/job/guest/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
read -r out errors code <<PORTS
$(cat /job/guest/ports)
PORTS
for port in "$out" "$errors" "$code"; do stty -F "$port" raw -echo -opost 115200; done
mkdir -p /out
cd /job/tree || exit
# By pipes, not the ports themselves: these are terminals, and programs would take us for a person.
mkfifo /run/job-out /run/job-errors
cat /run/job-out >"$out" &
cat /run/job-errors >"$errors" &
(sh -e /job/guest/prepare.sh && sh /job/guest/command.sh) >/run/job-out 2>/run/job-errors </dev/null
status=$?
wait
if [ -s /job/guest/artifacts ]; then tar -C /out -cf "$(cat /job/guest/artifacts)" .; fi
sync
echo "$status" >"$code"
