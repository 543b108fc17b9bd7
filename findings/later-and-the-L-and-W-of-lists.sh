#!/usr/bin/env bash
# @breejs/later 4.2.0 (npm, the parser of Bree) refuses none of these: "the 15th and the last day" (15,L) is the last day only; "the last weekday" (LW) is every day;
# 0#1 is the first Sunday and 7#1 the first Saturday; 31W has 30 April, the nearest weekday of a short month, and not 29 January, that of a long one.
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
for (const spec of ['0 0 15,L * *', '0 0 LW * *', '0 0 * * 0#1', '0 0 * * 7#1', '0 0 31W * *'])
  console.log(spec, '->', later.schedule(later.parse.cron(spec)).next(3, from).map(z).join(' '));
CODE
cat >seen <<'SEEN'
0 0 15,L * * -> 2026-11-30T00:00Z 2026-12-31T00:00Z 2027-01-31T00:00Z
0 0 LW * * -> 2026-11-28T00:00Z 2026-11-29T00:00Z 2026-11-30T00:00Z
0 0 * * 0#1 -> 2026-12-06T00:00Z 2027-01-03T00:00Z 2027-02-07T00:00Z
0 0 * * 7#1 -> 2026-12-05T00:00Z 2027-01-02T00:00Z 2027-02-06T00:00Z
0 0 31W * * -> 2026-12-31T00:00Z 2027-03-31T00:00Z 2027-04-30T00:00Z
SEEN
diff seen <(node look.mjs) && echo "as seen"
