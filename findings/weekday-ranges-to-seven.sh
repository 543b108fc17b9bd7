#!/usr/bin/env bash
# Sunday is 0 and 7, and what a step makes of it differs. cronosjs 1.7.1 (npm): 0-7/2 is Sunday alone, since 7 becomes 0 before the range is made; 7/2 is
# Sunday, Tuesday, Thursday and Saturday. cron-parser 5.10.6: 0-7/2 is every second day, and 7/2 is Sunday alone.
# Seen on 2026-11-28 with Node.js 20.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund cronosjs@1.7.1 cron-parser@5.10.6 >/dev/null
cat >look.mjs <<'CODE'
const z = d => new Date(d).toISOString().replace(':00.000Z', 'Z');

import { CronosExpression } from 'cronosjs';
import parser from 'cron-parser';
const from = new Date('2026-11-28T00:00:00Z');
for (const spec of ['0 0 * * 0-7/2', '0 0 * * 7/2']) {
  const it = parser.CronExpressionParser.parse(spec, { currentDate: from, tz: 'UTC' });
  console.log(spec, 'cronosjs   ', CronosExpression.parse(spec, { timezone: 'UTC' }).nextNDates(from, 4).map(z).join(' '));
  console.log(spec, 'cron-parser', Array.from({ length: 4 }, () => z(it.next().toDate())).join(' '));
}
CODE
cat >seen <<'SEEN'
0 0 * * 0-7/2 cronosjs    2026-11-29T00:00Z 2026-12-06T00:00Z 2026-12-13T00:00Z 2026-12-20T00:00Z
0 0 * * 0-7/2 cron-parser 2026-11-29T00:00Z 2026-12-01T00:00Z 2026-12-03T00:00Z 2026-12-05T00:00Z
0 0 * * 7/2 cronosjs    2026-11-29T00:00Z 2026-12-01T00:00Z 2026-12-03T00:00Z 2026-12-05T00:00Z
0 0 * * 7/2 cron-parser 2026-11-29T00:00Z 2026-12-06T00:00Z 2026-12-13T00:00Z 2026-12-20T00:00Z
SEEN
diff seen <(node look.mjs) && echo "as seen"
