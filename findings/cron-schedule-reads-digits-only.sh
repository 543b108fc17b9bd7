#!/usr/bin/env bash
# cron-schedule 6.0.0 (npm) reads the digits at the beginning of an item and drops what follows them.
# So "the last Friday" (5L) and "the fifth Friday" (5#5) run every Friday, "the weekday nearest the 15th" (15W)
# runs on the 15th, and 5/15 runs once an hour. None of them is refused. Other parsers refuse these, or mean them.
# Seen on 2026-11-28 with Node.js 20.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund cron-schedule@6.0.0 >/dev/null
cat >look.mjs <<'CODE'
import { parseCronExpression } from 'cron-schedule';
const from = new Date(2026, 10, 28);
for (const spec of ['0 0 * * 5L', '0 0 * * 5#5', '0 0 15W * *', '5/15 * * * *', '1e1 0 * * *']) {
  const days = parseCronExpression(spec).getNextDates(3, from);
  console.log(spec, '->', days.map(d => d.toLocaleString('sv')).join(', '));
}
CODE
cat >seen <<'SEEN'
0 0 * * 5L -> 2026-12-04 00:00:00, 2026-12-11 00:00:00, 2026-12-18 00:00:00
0 0 * * 5#5 -> 2026-12-04 00:00:00, 2026-12-11 00:00:00, 2026-12-18 00:00:00
0 0 15W * * -> 2026-12-15 00:00:00, 2027-01-15 00:00:00, 2027-02-15 00:00:00
5/15 * * * * -> 2026-11-28 00:05:00, 2026-11-28 01:05:00, 2026-11-28 02:05:00
1e1 0 * * * -> 2026-11-28 00:01:00, 2026-11-29 00:01:00, 2026-11-30 00:01:00
SEEN
diff seen <(node look.mjs) && echo "as seen"
