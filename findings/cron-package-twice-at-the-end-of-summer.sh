#!/usr/bin/env bash
# cron 4.4.0 (npm): a job of the hour at which summer time ends is due twice on that day, first when the wall clock shows an hour less. In New York 02:00 is due at
# 06:00 UTC (01:00 EST) and at 07:00; so is 03:00 in Berlin, and 03:00 in Casablanca when Ramadan begins. croner 11.0.1 has each once.
# Seen on 2026-11-28 with Node.js 20 and its time zones.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund cron@4.4.0 luxon@3.7.2 croner@11.0.1 >/dev/null
cat >look.mjs <<'CODE'
const z = d => new Date(d).toISOString().replace(':00.000Z', 'Z');

import { CronTime } from 'cron';
import { Cron } from 'croner';
import { DateTime } from 'luxon';
for (const [spec, from, tz] of [['0 2 * * *', '2026-10-31T12:00:00Z', 'America/New_York'], ['0 3 * * *', '2026-10-24T12:00:00Z', 'Europe/Berlin'], ['0 3 * * *', '2026-02-14T12:00:00Z', 'Africa/Casablanca']]) {
  let at = DateTime.fromISO(from, { zone: tz });
  const out = [];
  for (let i = 0; i < 3; i++) out.push(z((at = new CronTime(spec, tz).getNextDateFrom(at, tz)).toJSDate()));
  console.log(tz, 'cron  ', out.join(' '));
  console.log(tz, 'croner', new Cron(spec, { timezone: tz, paused: true }).nextRuns(3, new Date(from)).map(z).join(' '));
}
CODE
cat >seen <<'SEEN'
America/New_York cron   2026-11-01T06:00Z 2026-11-01T07:00Z 2026-11-02T07:00Z
America/New_York croner 2026-11-01T07:00Z 2026-11-02T07:00Z 2026-11-03T07:00Z
Europe/Berlin cron   2026-10-25T01:00Z 2026-10-25T02:00Z 2026-10-26T02:00Z
Europe/Berlin croner 2026-10-25T02:00Z 2026-10-26T02:00Z 2026-10-27T02:00Z
Africa/Casablanca cron   2026-02-15T02:00Z 2026-02-15T03:00Z 2026-02-16T03:00Z
Africa/Casablanca croner 2026-02-15T03:00Z 2026-02-16T03:00Z 2026-02-17T03:00Z
SEEN
diff seen <(node look.mjs) && echo "as seen"
