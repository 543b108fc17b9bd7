#!/usr/bin/env bash
# cron-parser 5.10.6 (npm) refuses a list whose members overlap: "SUN,7" and "*,5" are "duplicate values". It also refuses mon-sun, as Sunday is 0 there,
# while 1-7 is taken. croner 11.0.1 takes all four. npm's cron 4.4.0 takes the first two and 1-7, and refuses mon-sun.
# Seen on 2026-11-28 with Node.js 20.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund cron-parser@5.10.6 croner@11.0.1 cron@4.4.0 >/dev/null
cat >look.mjs <<'CODE'
import parser from 'cron-parser';
import { Cron } from 'croner';
import { CronTime } from 'cron';
const tries = {
  'cron-parser': s => parser.CronExpressionParser.parse(s), croner: s => new Cron(s, { paused: true }), cron: s => new CronTime(s) };
for (const spec of ['0 0 * * SUN,7', '*,5 0 * * *', '0 0 * * mon-sun', '0 0 * * 1-7'])
  for (const [name, parse] of Object.entries(tries)) {
    let says = 'taken';
    try { parse(spec); } catch (e) { says = e.message; }
    console.log(spec.padEnd(16), name.padEnd(12), says);
  }
CODE
cat >seen <<'SEEN'
0 0 * * SUN,7    cron-parser  CronDayOfWeek Validation error, duplicate values found: 0
0 0 * * SUN,7    croner       taken
0 0 * * SUN,7    cron         taken
*,5 0 * * *      cron-parser  CronMinute Validation error, duplicate values found: 5
*,5 0 * * *      croner       taken
*,5 0 * * *      cron         taken
0 0 * * mon-sun  cron-parser  Invalid range: 1-0, min(1) > max(0)
0 0 * * mon-sun  croner       taken
0 0 * * mon-sun  cron         Field (dayOfWeek) has an invalid range
0 0 * * 1-7      cron-parser  taken
0 0 * * 1-7      croner       taken
0 0 * * 1-7      cron         taken
SEEN
diff seen <(node look.mjs) && echo "as seen"
