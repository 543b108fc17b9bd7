#!/bin/sh
# Only a removal stops the daemon: dpkg passes "remove", rpm "0". An upgrade restarts it: see after-install.sh.
set -e
case "$1" in remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now dbcron.service
	fi
	;;
esac
