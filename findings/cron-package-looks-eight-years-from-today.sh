#!/usr/bin/env bash
# cron 4.4.0 (npm): getNextDateFrom(date) looks until eight years after today, not after the date. Asked for the next midnight after a day
# nine years ahead, it says that there is none "in the next 8 years".
# Seen on 2026-11-28 with Node.js 20.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund cron@4.4.0 luxon@3.7.2 >/dev/null
cat >look.mjs <<'CODE'
import { CronTime } from 'cron';
import { DateTime } from 'luxon';
for (const years of [7, 9]) {
  const from = DateTime.utc().startOf('day').plus({ years, hours: 1 });
  try { console.log(years, 'years:', new CronTime('0 0 * * *', 'UTC').getNextDateFrom(from, 'UTC').diff(from).as('hours'), 'hours later'); } catch (e) { console.log(years, 'years:', e.message.split('\n')[0]); }
}
CODE
cat >seen <<'SEEN'
7 years: 23 hours later
9 years: Something went wrong. No execution date was found in the next 8 years.
SEEN
diff seen <(node look.mjs) && echo "as seen"
