#!/usr/bin/env bash
# cron-parser 5.10.6 (npm): prev() does not walk back over what next() has given. In America/New_York the run of 02:30 that next() moves to 03:30 on
# 8 March 2026 is missing on the way back; on 1 November next() has one 01:30, and prev() has two. Whoever looks for a missed slot with prev()
# finds one that never was due, or misses one that was.
# Seen on 2026-11-28 with Node.js 20 and its time zones.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund cron-parser@5.10.6 >/dev/null
cat >look.mjs <<'CODE'
const z = d => new Date(d).toISOString().replace(':00.000Z', 'Z');

import parser from 'cron-parser';
const walk = (spec, from, step) => {
  const it = parser.CronExpressionParser.parse(spec, { currentDate: new Date(from), tz: 'America/New_York' });
  return Array.from({ length: 4 }, () => z(it[step]().toDate()));
};
console.log('02:30 next', walk('30 2 * * *', '2026-03-07T00:00:00Z', 'next').join(' '));
console.log('02:30 prev', walk('30 2 * * *', '2026-03-11T00:00:00Z', 'prev').reverse().join(' '));
console.log('01:30 next', walk('30 1 * * *', '2026-10-31T00:00:00Z', 'next').join(' '));
console.log('01:30 prev', walk('30 1 * * *', '2026-11-03T00:00:00Z', 'prev').reverse().join(' '));
CODE
cat >seen <<'SEEN'
02:30 next 2026-03-07T07:30Z 2026-03-08T07:30Z 2026-03-09T06:30Z 2026-03-10T06:30Z
02:30 prev 2026-03-06T07:30Z 2026-03-07T07:30Z 2026-03-09T06:30Z 2026-03-10T06:30Z
01:30 next 2026-10-31T05:30Z 2026-11-01T05:30Z 2026-11-02T06:30Z 2026-11-03T06:30Z
01:30 prev 2026-10-31T05:30Z 2026-11-01T05:30Z 2026-11-01T06:30Z 2026-11-02T06:30Z
SEEN
diff seen <(node look.mjs) && echo "as seen"
