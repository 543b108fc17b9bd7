#!/usr/bin/env bash
# cron-parser 5.10.6 (npm) counts clock changes in whole hours. In Australia/Lord_Howe, where the clock changes by half an hour,
# 02:15 is left out on 4 October 2026, though the same library moves 02:30 in New York to 03:30 on such a day. On 5 April 2026, when 01:30
# to 02:00 comes twice, every quarter of an hour pauses for 45 minutes.
# Seen on 2026-11-28 with Node.js 20 and its time zones.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund cron-parser@5.10.6 >/dev/null
cat >look.mjs <<'CODE'
const z = d => new Date(d).toISOString().replace(':00.000Z', 'Z');

import parser from 'cron-parser';
const next = (spec, from, tz, n) => {
  const it = parser.CronExpressionParser.parse(spec, { currentDate: new Date(from), tz });
  return Array.from({ length: n }, () => z(it.next().toDate())).join(' ');
};
console.log('02:15', next('15 2 * * *', '2026-10-02T12:00:00Z', 'Australia/Lord_Howe', 2));
console.log('*/15 ', next('*/15 * * * *', '2026-04-04T14:10:00Z', 'Australia/Lord_Howe', 6));
CODE
cat >seen <<'SEEN'
02:15 2026-10-02T15:45Z 2026-10-04T15:15Z
*/15  2026-04-04T14:15Z 2026-04-04T14:30Z 2026-04-04T14:45Z 2026-04-04T15:30Z 2026-04-04T15:45Z 2026-04-04T16:00Z
SEEN
diff seen <(node look.mjs) && echo "as seen"
