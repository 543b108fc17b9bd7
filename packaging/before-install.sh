#!/bin/sh
# The daemon, and the commands that it runs, have a user of their own.
set -e
if ! getent passwd dbcron >/dev/null; then
	useradd --system --user-group --create-home --home-dir /var/lib/dbcron --shell /usr/sbin/nologin dbcron
fi
