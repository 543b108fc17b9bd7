#!/usr/bin/env bash
# cron 4.4.0 (npm) in Australia/Lord_Howe, whose clock changes by half an hour: on 5 April 2026 the next time of every quarter of an hour, asked for again
# and again, is 14:45, 15:00, 14:45, 15:00 UTC: it goes backwards. On 4 October 02:15 is due twice, half an hour apart,
# and "every hour" at 02:00, 02:30 and 03:00 of the wall clock.
# Seen on 2026-11-28 with Node.js 20 and its time zones.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund cron@4.4.0 luxon@3.7.2 >/dev/null
cat >look.mjs <<'CODE'
const z = d => new Date(d).toISOString().replace(':00.000Z', 'Z');

import { CronTime } from 'cron';
import { DateTime } from 'luxon';
const tz = 'Australia/Lord_Howe';
const next = (spec, from, n) => {
  let at = DateTime.fromISO(from, { zone: tz });
  const out = [];
  for (let i = 0; i < n; i++) out.push(z((at = new CronTime(spec, tz).getNextDateFrom(at, tz)).toJSDate()));
  return out.join(' ');
};
console.log('*/15 ', next('*/15 * * * *', '2026-04-04T14:20:00Z', 5));
console.log('02:15', next('15 2 * * *', '2026-10-03T00:00:00Z', 3));
console.log('hour ', next('0 * * * *', '2026-10-03T14:00:00Z', 4));
CODE
cat >seen <<'SEEN'
*/15  2026-04-04T14:30Z 2026-04-04T14:45Z 2026-04-04T15:00Z 2026-04-04T14:45Z 2026-04-04T15:00Z
02:15 2026-10-03T15:15Z 2026-10-03T15:45Z 2026-10-04T15:15Z
hour  2026-10-03T14:30Z 2026-10-03T15:00Z 2026-10-03T15:30Z 2026-10-03T16:00Z
SEEN
diff seen <(node look.mjs) && echo "as seen"
