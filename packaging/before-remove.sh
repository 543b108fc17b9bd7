#!/bin/sh
# An upgrade goes on with the daemon: see after-install.sh. dpkg says "remove", rpm "0".
set -e
case "$1" in remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now dbcron.service
	fi
	;;
esac
