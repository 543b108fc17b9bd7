#!/usr/bin/env bash
# ical.js 2.2.1 (npm, of Thunderbird) and rrule 2.8.1 on the same RRULE. ical.js turns YEARLY from 29 February into 1 March of common years, which RFC 5545 says to skip;
# reads BYWEEKNO=53 and BYDAY=20MO ("the 20th Monday of the year") as every Monday; ignores BYSETPOS with BYHOUR; begins
# "the last weekday of each month" with 1 January, its DTSTART; and takes COUNT=0 for no limit, where rrule has no date at all.
# Seen on 2026-11-28 with Node.js 20.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund ical.js@2.2.1 rrule@2.8.1 >/dev/null
cat >look.mjs <<'CODE'
import ICAL from 'ical.js';
import rrule from 'rrule';
const rules = [['20240229T090000', 'FREQ=YEARLY;COUNT=3'], ['20260101T090000', 'FREQ=YEARLY;BYWEEKNO=53;BYDAY=MO;COUNT=3'], ['20260101T090000', 'FREQ=YEARLY;BYDAY=20MO;COUNT=3'],
  ['20260101T090000', 'FREQ=DAILY;BYHOUR=9,17;BYSETPOS=1;COUNT=3'], ['20260101T090000', 'FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;COUNT=3'], ['20260105T090000', 'FREQ=DAILY;COUNT=0']];
for (const [start, rule] of rules) {
  const iso = start.replace(/(....)(..)(..)T(..)(..)(..)/, '$1-$2-$3T$4:$5:$6');
  const it = ICAL.Recur.fromString(rule).iterator(ICAL.Time.fromString(iso));
  const seen = [];
  for (let t; seen.length < 3 && (t = it.next());) seen.push(t.toString().slice(0, 13));
  console.log(rule, '\n  ical.js', seen.join(' '), '\n  rrule  ', rrule.rrulestr(`DTSTART:${start}Z\nRRULE:${rule}`).all((_, i) => i < 3).map(d => d.toISOString().slice(0, 13)).join(' '));
}
CODE
cat >seen <<'SEEN'
FREQ=YEARLY;COUNT=3 
  ical.js 2024-02-29T09 2025-03-01T09 2026-03-01T09 
  rrule   2024-02-29T09 2028-02-29T09 2032-02-29T09
FREQ=YEARLY;BYWEEKNO=53;BYDAY=MO;COUNT=3 
  ical.js 2026-01-05T09 2026-01-12T09 2026-01-19T09 
  rrule   2026-12-28T09 2032-12-27T09 2037-12-28T09
FREQ=YEARLY;BYDAY=20MO;COUNT=3 
  ical.js 2026-01-05T09 2026-01-12T09 2026-01-19T09 
  rrule   2026-05-18T09 2027-05-17T09 2028-05-15T09
FREQ=DAILY;BYHOUR=9,17;BYSETPOS=1;COUNT=3 
  ical.js 2026-01-01T09 2026-01-01T17 2026-01-02T09 
  rrule   2026-01-01T09 2026-01-02T09 2026-01-03T09
FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;COUNT=3 
  ical.js 2026-01-01T09 2026-01-30T09 2026-02-27T09 
  rrule   2026-01-30T09 2026-02-27T09 2026-03-31T09
FREQ=DAILY;COUNT=0 
  ical.js 2026-01-05T09 2026-01-06T09 2026-01-07T09 
  rrule   
SEEN
diff seen <(node look.mjs) && echo "as seen"
