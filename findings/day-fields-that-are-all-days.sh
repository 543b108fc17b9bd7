#!/usr/bin/env bash
# "0 0 1-31 * 1" names every day of the month and Monday. cron 4.4.0 and cron-schedule 6.0.0 (npm) take 1-31 for a star, so it runs on Mondays;
# croner 11.0.1 and cron-parser 5.10.6 run every day, as Debian's cron does. Of "*/2" all four make a list, so it is united with Monday;
# Debian's cron and dbcron see a star there and intersect.
# Seen on 2026-11-28 with Node.js 20.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund cron@4.4.0 luxon@3.7.2 cron-schedule@6.0.0 croner@11.0.1 cron-parser@5.10.6 >/dev/null
cat >look.mjs <<'CODE'
import { CronTime } from 'cron';
import { parseCronExpression } from 'cron-schedule';
import { Cron } from 'croner';
import parser from 'cron-parser';
import { DateTime } from 'luxon';
const from = new Date(2026, 10, 28);
const day = d => new Date(d).toLocaleDateString('en-GB', { weekday: 'short', day: 'numeric' });
const times = (n, f) => Array.from({ length: n }, f);
for (const s of ['0 0 1-31 * 1', '0 0 */2 * 1']) {
  let at = DateTime.fromJSDate(from);
  console.log(s, 'cron         ', times(4, () => day((at = new CronTime(s).getNextDateFrom(at)).toJSDate())).join(', '));
  console.log(s, 'cron-schedule', parseCronExpression(s).getNextDates(4, from).map(day).join(', '));
  console.log(s, 'croner       ', new Cron(s, { paused: true }).nextRuns(4, from).map(day).join(', '));
  const it = parser.CronExpressionParser.parse(s, { currentDate: from });
  console.log(s, 'cron-parser  ', times(4, () => day(it.next().toDate())).join(', '));
}
CODE
cat >seen <<'SEEN'
0 0 1-31 * 1 cron          Mon 30, Mon 7, Mon 14, Mon 21
0 0 1-31 * 1 cron-schedule Mon 30, Mon 7, Mon 14, Mon 21
0 0 1-31 * 1 croner        Sun 29, Mon 30, Tue 1, Wed 2
0 0 1-31 * 1 cron-parser   Sun 29, Mon 30, Tue 1, Wed 2
0 0 */2 * 1 cron          Sun 29, Mon 30, Tue 1, Thu 3
0 0 */2 * 1 cron-schedule Sun 29, Mon 30, Tue 1, Thu 3
0 0 */2 * 1 croner        Sun 29, Mon 30, Tue 1, Thu 3
0 0 */2 * 1 cron-parser   Sun 29, Mon 30, Tue 1, Thu 3
SEEN
diff seen <(node look.mjs) && echo "as seen"
