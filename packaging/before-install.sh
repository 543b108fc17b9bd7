#!/bin/sh
# The daemon and its commands run as a separate user.
set -e
if ! getent passwd dbcron >/dev/null; then
	useradd --system --user-group --create-home --home-dir /var/lib/dbcron --shell /usr/sbin/nologin dbcron
fi
