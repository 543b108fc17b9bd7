#!/usr/bin/env bash
# cron-converter 2.1.0 (npm) turns an expression into arrays and back. Day of month and weekday intersect: "0 0 1 * 5" is a 1st that is a Friday, where croner 11.0.1 runs on either. 5/15 is 5 alone, once an hour.
# 31 April is taken, and has no next time; croner finds none either, without an error.
# Seen on 2026-11-28 with Node.js 20.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund cron-converter@2.1.0 croner@11.0.1 >/dev/null
cat >look.mjs <<'CODE'
import { stringToArray, arrayToString, getSchedule } from 'cron-converter';
import { Cron } from 'croner';
const from = new Date('2026-11-28T00:00:00Z');
for (const spec of ['0 0 1 * 5', '5/15 * * * *', '0 0 31 4 *']) {
  const array = stringToArray(spec);
  let says;
  try { const s = getSchedule(array, from, 'UTC'); says = [1, 2, 3].map(() => s.next().toISO().slice(0, 16)).join(' '); } catch (e) { says = e.message; }
  let other;
  try { other = new Cron(spec, { timezone: 'UTC', paused: true }).nextRuns(3, from).map(d => d.toISOString().slice(0, 16)).join(' ') || 'none'; } catch (e) { other = 'refused'; }
  console.log(spec, '-> back', arrayToString(array), '| cron-converter', says, '| croner', other);
}
CODE
cat >seen <<'SEEN'
0 0 1 * 5 -> back 0 0 1 * 5 | cron-converter 2027-01-01T00:00 2027-10-01T00:00 2028-09-01T00:00 | croner 2026-12-01T00:00 2026-12-04T00:00 2026-12-11T00:00
5/15 * * * * -> back 5 * * * * | cron-converter 2026-11-28T00:05 2026-11-28T01:05 2026-11-28T02:05 | croner refused
0 0 31 4 * -> back 0 0 31 4 * | cron-converter Unable to find execution time for schedule | croner none
SEEN
diff seen <(node look.mjs) && echo "as seen"
