#!/bin/sh
# The user, its home and /etc/dbcron/url stay: commands may have left files.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
