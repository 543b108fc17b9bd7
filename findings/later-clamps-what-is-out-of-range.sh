#!/usr/bin/env bash
# @breejs/later 4.2.0 (npm, the parser of Bree) refuses no number of a cron expression: it takes the nearest one that exists.
# Minute 60 is 59, hour 24 is 23, weekday 8 is Saturday, month 0 is December, and day 0 is the last day of the month.
# A name that it does not know (thurs, sept, Sunday written out) is every day or every month.
# Seen on 2026-11-28 with Node.js 20.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund @breejs/later@4.2.0 >/dev/null
cat >look.mjs <<'CODE'
const z = d => new Date(d).toISOString().replace(':00.000Z', 'Z');

import later from '@breejs/later';
later.date.UTC();
const from = new Date('2026-11-28T00:00:00Z');
for (const spec of ['60 * * * *', '0 24 * * *', '0 0 * * 8', '0 0 * 0 *', '0 0 0 * *', '0 0 * * thurs', '0 0 * sept *'])
  console.log(spec, '->', later.schedule(later.parse.cron(spec)).next(3, from).map(z).join(' '));
CODE
cat >seen <<'SEEN'
60 * * * * -> 2026-11-28T00:59Z 2026-11-28T01:59Z 2026-11-28T02:59Z
0 24 * * * -> 2026-11-28T23:00Z 2026-11-29T23:00Z 2026-11-30T23:00Z
0 0 * * 8 -> 2026-11-28T00:00Z 2026-12-05T00:00Z 2026-12-12T00:00Z
0 0 * 0 * -> 2026-12-01T00:00Z 2026-12-02T00:00Z 2026-12-03T00:00Z
0 0 0 * * -> 2026-11-30T00:00Z 2026-12-31T00:00Z 2027-01-31T00:00Z
0 0 * * thurs -> 2026-11-28T00:00Z 2026-11-29T00:00Z 2026-11-30T00:00Z
0 0 * sept * -> 2026-11-28T00:00Z 2026-11-29T00:00Z 2026-11-30T00:00Z
SEEN
diff seen <(node look.mjs) && echo "as seen"
