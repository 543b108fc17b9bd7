#!/usr/bin/env bash
# UNTIL=20260107 for a rule that begins at 09:00 UTC: rrule 2.8.1 and ical.js 2.2.1 (npm) end on the 6th, as they read midnight; rrule-temporal 2.2.8 has the 7th as well.
# UNTIL=20260107T090000 without a Z: the first two take it, the third refuses it. SKIP=FORWARD of RFC 7529 is
# refused by rrule, and ignored without a word by the other two.
# Seen on 2026-11-28 with Node.js 20.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund rrule@2.8.1 rrule-temporal@2.2.8 ical.js@2.2.1 >/dev/null
cat >look.mjs <<'CODE'
import rrule from 'rrule';
import { RRuleTemporal } from 'rrule-temporal';
import ICAL from 'ical.js';
const day = d => d.toISOString().slice(5, 10);
for (const rule of ['FREQ=DAILY;UNTIL=20260107', 'FREQ=DAILY;UNTIL=20260107T090000', 'RSCALE=GREGORIAN;FREQ=MONTHLY;SKIP=FORWARD;BYMONTHDAY=31;COUNT=3']) {
  const text = 'DTSTART:20260105T090000Z\nRRULE:' + rule;
  const tries = {
    rrule: () => rrule.rrulestr(text).all().map(day),
    'rrule-temporal': () => new RRuleTemporal({ rruleString: text }).all().map(d => day(new Date(d.epochMilliseconds))),
    'ical.js': () => { const it = ICAL.Recur.fromString(rule).iterator(ICAL.Time.fromString('2026-01-05T09:00:00Z')); const out = []; for (let t; (t = it.next());) out.push(t.toString().slice(5, 10)); return out; } };
  for (const [name, f] of Object.entries(tries)) {
    let says;
    try { says = f().join(' '); } catch (e) { says = 'refused: ' + e.message; }
    console.log(rule, name.padEnd(14), says);
  }
}
CODE
cat >seen <<'SEEN'
FREQ=DAILY;UNTIL=20260107 rrule          01-05 01-06
FREQ=DAILY;UNTIL=20260107 rrule-temporal 01-05 01-06 01-07
FREQ=DAILY;UNTIL=20260107 ical.js        01-05 01-06
FREQ=DAILY;UNTIL=20260107T090000 rrule          01-05 01-06 01-07
FREQ=DAILY;UNTIL=20260107T090000 rrule-temporal refused: UNTIL rule part MUST always be specified as a date with UTC time
FREQ=DAILY;UNTIL=20260107T090000 ical.js        01-05 01-06 01-07
RSCALE=GREGORIAN;FREQ=MONTHLY;SKIP=FORWARD;BYMONTHDAY=31;COUNT=3 rrule          refused: Unknown RRULE property 'RSCALE'
RSCALE=GREGORIAN;FREQ=MONTHLY;SKIP=FORWARD;BYMONTHDAY=31;COUNT=3 rrule-temporal 01-31 03-31 05-31
RSCALE=GREGORIAN;FREQ=MONTHLY;SKIP=FORWARD;BYMONTHDAY=31;COUNT=3 ical.js        01-31 03-31 05-31
SEEN
diff seen <(node look.mjs) && echo "as seen"
