#!/usr/bin/env bash
# croniter 1.3.5 (Python), Debian 12, with pytz: a job of 02:30 in New York is due at 01:30 EST and 03:30 EDT on 8 March 2026, the day of the gap, and on the 9th
# at 01:30 and 02:30. Lord Howe, Chatham and Troll double both days in the same way. A day later it is right.
# Seen on 2026-11-28 with Python 3.11.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
apt-get -qq download python3-croniter=1.3.5-3 python3-dateutil=2.8.2-2 python3-tz python3-six python3-natsort 2>/dev/null
for package in *.deb; do dpkg -x "$package" root; done
cat >look.py <<'CODE'
import datetime as d, pytz
from croniter import croniter
for spec, start, tz in [('30 2 * * *', d.datetime(2026, 3, 7, 12), 'America/New_York'), ('15 2 * * *', d.datetime(2026, 10, 3), 'Australia/Lord_Howe'), ('15 3 * * *', d.datetime(2026, 9, 26), 'Pacific/Chatham')]:
    c = croniter(spec, pytz.utc.localize(start).astimezone(pytz.timezone(tz)))
    print(spec, tz, *(c.get_next(d.datetime).strftime('%m-%dT%H:%M%z') for _ in range(6)))
CODE
cat >seen <<'SEEN'
30 2 * * * America/New_York 03-08T02:30-0400 03-08T03:30-0400 03-09T01:30-0400 03-09T02:30-0400 03-10T02:30-0400 03-11T02:30-0400
15 2 * * * Australia/Lord_Howe 10-04T02:15+1100 10-04T02:45+1100 10-05T01:45+1100 10-05T02:15+1100 10-06T02:15+1100 10-07T02:15+1100
15 3 * * * Pacific/Chatham 09-27T03:15+1345 09-27T04:15+1345 09-28T02:15+1345 09-28T03:15+1345 09-29T03:15+1345 09-30T03:15+1345
SEEN
diff seen <(PYTHONPATH=root/usr/lib/python3/dist-packages /usr/bin/python3 look.py) && echo "as seen"
