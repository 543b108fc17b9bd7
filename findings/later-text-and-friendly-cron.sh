#!/usr/bin/env bash
# English for a schedule, in two npm libraries. later 4.2.0 (Bree): "every 90 minutes" is once an hour, "every 31 days" the 1st of each month, "every 13 months" each January, and "every 2 weeks on monday"
# counts weeks of the year, so that two Mondays in a row can be due at its end (weeks 53 and 1). friendly-cron 0.0.2 makes "*/90" of the first; "last day of the month" and "twice a day" are midnight each day; "every 1st of month" has
# day 0, which no cron takes.
# Seen on 2026-11-28 with Node.js 20.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund @breejs/later@4.2.0 friendly-cron@0.0.2 >/dev/null
cat >look.mjs <<'CODE'
import later from '@breejs/later';
import friendly from 'friendly-cron';
for (const s of ['every 90 minutes', 'every 31 days', 'every 13 months', 'last day of the month', 'twice a day', 'every 1st of month']) {
  const p = later.parse.text(s);
  console.log(s.padEnd(22), 'later', p.error >= 0 ? 'refused' : JSON.stringify(p.schedules), 'friendly-cron', (friendly.default ?? friendly)(s));
}
later.date.UTC();
console.log('every 2 weeks on monday:', later.schedule(later.parse.text('every 2 weeks on monday')).next(3, new Date('2026-12-20T00:00:00Z')).map(d => d.toISOString().slice(0, 10)).join(' '));
CODE
cat >seen <<'SEEN'
every 90 minutes       later [{"m":[0]}] friendly-cron 0 */90 * * * *
every 31 days          later [{"D":[1]}] friendly-cron 0 0 0 */31 * *
every 13 months        later [{"M":[1]}] friendly-cron 0 0 0 0 */13 *
last day of the month  later refused friendly-cron 0 0 0 * * *
twice a day            later refused friendly-cron 0 0 0 * * *
every 1st of month     later refused friendly-cron 0 0 0 0 * *
every 2 weeks on monday: 2026-12-28 2027-01-04 2027-01-18
SEEN
diff seen <(node look.mjs) && echo "as seen"
