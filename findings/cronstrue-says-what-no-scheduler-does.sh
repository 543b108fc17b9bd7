#!/usr/bin/env bash
# cronstrue 3.39.0 (npm), which many pages show beside a cron expression, reads the step and not the field: */90 is "every 90 minutes" and */40 "every 40 minutes"; cron-parser
# runs the first once an hour, and both run the second after 40 and then 20 minutes. "0 0 1 * 5" is said as "on day 1 of the month, and on Friday"; croner and cron-parser
# run on either. 31 April is described, and never comes.
# Seen on 2026-11-28 with Node.js 20.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund cronstrue@3.39.0 croner@11.0.1 cron-parser@5.10.6 >/dev/null
cat >look.mjs <<'CODE'
import cronstrue from 'cronstrue';
import { Cron } from 'croner';
import parser from 'cron-parser';
const from = new Date('2026-11-28T00:00:00Z');
const z = d => d.toISOString().slice(5, 16);
const tries = {
  cronstrue: s => cronstrue.toString(s),
  croner: s => new Cron(s, { timezone: 'UTC', paused: true }).nextRuns(3, from).map(z).join(' ') || 'never',
  'cron-parser': s => { const it = parser.CronExpressionParser.parse(s, { currentDate: from, tz: 'UTC' }); return [1, 2, 3].map(() => z(it.next().toDate())).join(' '); } };
for (const spec of ['*/90 * * * *', '*/40 * * * *', '0 0 1 * 5', '0 0 31 4 *'])
  for (const [name, f] of Object.entries(tries)) {
    let says;
    try { says = f(spec); } catch (e) { says = 'refused: ' + e.message; }
    console.log(spec.padEnd(13), name.padEnd(12), says);
  }
CODE
cat >seen <<'SEEN'
*/90 * * * *  cronstrue    Every 90 minutes
*/90 * * * *  croner       refused: CronPattern: Syntax error, steps cannot be greater than maximum value of part (60)
*/90 * * * *  cron-parser  11-28T01:00 11-28T02:00 11-28T03:00
*/40 * * * *  cronstrue    Every 40 minutes
*/40 * * * *  croner       11-28T00:40 11-28T01:00 11-28T01:40
*/40 * * * *  cron-parser  11-28T00:40 11-28T01:00 11-28T01:40
0 0 1 * 5     cronstrue    At 12:00 AM, on day 1 of the month, and on Friday
0 0 1 * 5     croner       12-01T00:00 12-04T00:00 12-11T00:00
0 0 1 * 5     cron-parser  12-01T00:00 12-04T00:00 12-11T00:00
0 0 31 4 *    cronstrue    At 12:00 AM, on day 31 of the month, only in April
0 0 31 4 *    croner       never
0 0 31 4 *    cron-parser  refused: Invalid explicit day of month definition
SEEN
diff seen <(node look.mjs) && echo "as seen"
