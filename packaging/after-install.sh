#!/bin/sh
# A new daemon needs /etc/dbcron/url before it can start. A running one is restarted.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart dbcron.service
fi
if [ ! -e /etc/dbcron/url ]; then
	cat <<-'END'
		dbcron needs the URL of its database. Then start it:
		    install -o dbcron -m 600 /dev/null /etc/dbcron/url
		    echo postgres://user:password@host:5432/app >/etc/dbcron/url
		    systemctl enable --now dbcron
	END
fi
