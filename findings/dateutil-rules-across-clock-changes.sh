#!/usr/bin/env bash
# python-dateutil 2.8.2, Debian 12: a rule with a zone is counted on the wall clock and then placed. HOURLY through New York's gap yields one instant twice, and through the repeated hour leaves out
# 06:30 UTC; DAILY at 02:30 is 01:30 EST on the day of the gap, before it. Samoa's day that did not exist, 30 December 2011, makes two runs of the 31st.
# Seen on 2026-11-28 with Python 3.11 and its time zones.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
apt-get -qq download python3-dateutil=2.8.2-2 python3-six 2>/dev/null
for package in *.deb; do dpkg -x "$package" root; done
cat >look.py <<'CODE'
import datetime as d
from dateutil import rrule, tz
for name, freq, start, count in [('America/New_York', rrule.HOURLY, d.datetime(2026, 3, 8, 0, 30), 4), ('America/New_York', rrule.HOURLY, d.datetime(2026, 11, 1, 0, 30), 4),
                                 ('America/New_York', rrule.DAILY, d.datetime(2026, 3, 7, 2, 30), 3), ('Pacific/Apia', rrule.DAILY, d.datetime(2011, 12, 29, 12), 3)]:
    rule = rrule.rrule(freq, dtstart=start.replace(tzinfo=tz.gettz(name)), count=count)
    print(name, ['YEARLY', 'MONTHLY', 'WEEKLY', 'DAILY', 'HOURLY'][freq], *(t.astimezone(tz.UTC).strftime('%m-%dT%H:%MZ') for t in rule))
CODE
cat >seen <<'SEEN'
America/New_York HOURLY 03-08T05:30Z 03-08T06:30Z 03-08T06:30Z 03-08T07:30Z
America/New_York HOURLY 11-01T04:30Z 11-01T05:30Z 11-01T07:30Z 11-01T08:30Z
America/New_York DAILY 03-07T07:30Z 03-08T06:30Z 03-09T06:30Z
Pacific/Apia DAILY 12-29T22:00Z 12-30T22:00Z 12-30T22:00Z
SEEN
diff seen <(PYTHONPATH=root/usr/lib/python3/dist-packages /usr/bin/python3 look.py) && echo "as seen"
