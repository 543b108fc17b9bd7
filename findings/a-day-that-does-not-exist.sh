#!/usr/bin/env bash
# Samoa had no 30 December 2011: it went from the 29th to the 31st. A job of noon on 30 December is due on the 31st in cron 4.4.0 and cronosjs 1.7.1 (npm),
# and not in that year in croner 11.0.1 and cron-parser 5.10.6. The same pairs disagree about "Fridays": that day would have been one.
# Seen on 2026-11-28 with Node.js 20 and its time zones.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund cron@4.4.0 luxon@3.7.2 croner@11.0.1 cron-parser@5.10.6 cronosjs@1.7.1 >/dev/null
cat >look.mjs <<'CODE'
const z = d => new Date(d).toISOString().replace(':00.000Z', 'Z');

import { CronTime } from 'cron';
import { Cron } from 'croner';
import parser from 'cron-parser';
import { CronosExpression } from 'cronosjs';
import { DateTime } from 'luxon';
const tz = 'Pacific/Apia';
const of = {
  cron: (spec, from) => new CronTime(spec, tz).getNextDateFrom(DateTime.fromJSDate(from, { zone: tz }), tz).toJSDate(),
  cronosjs: (spec, from) => CronosExpression.parse(spec, { timezone: tz }).nextDate(from),
  croner: (spec, from) => new Cron(spec, { timezone: tz, paused: true }).nextRun(from),
  'cron-parser': (spec, from) => parser.CronExpressionParser.parse(spec, { currentDate: from, tz }).next().toDate(),
};
for (const spec of ['0 12 30 12 *', '0 12 * * 5'])
  for (const [name, next] of Object.entries(of)) console.log(spec, name.padEnd(12), z(next(spec, new Date('2011-12-26T00:00:00Z'))));
CODE
cat >seen <<'SEEN'
0 12 30 12 * cron         2011-12-30T22:00Z
0 12 30 12 * cronosjs     2011-12-30T22:00Z
0 12 30 12 * croner       2012-12-29T22:00Z
0 12 30 12 * cron-parser  2012-12-29T22:00Z
0 12 * * 5 cron         2011-12-30T22:00Z
0 12 * * 5 cronosjs     2011-12-30T22:00Z
0 12 * * 5 croner       2012-01-05T22:00Z
0 12 * * 5 cron-parser  2012-01-05T22:00Z
SEEN
diff seen <(node look.mjs) && echo "as seen"
