#!/usr/bin/env bash
# rrule 2.8.1 and rrule-temporal 2.2.8 (npm) on daily rules with a TZID. 02:30 in New York on 8 March 2026 does not exist: rrule has it at 03:30, rrule-temporal leaves the day out.
# 02:15 of Lord Howe (half an hour is skipped): rrule has 01:45, before the gap. Samoa had no 30 December 2011: rrule gives
# one instant twice. An hourly rule of rrule-temporal loses the second 01:30 when summer time ends, so that COUNT ends an hour later.
# Seen on 2026-11-28 with Node.js 20 and its time zones.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund rrule@2.8.1 rrule-temporal@2.2.8 >/dev/null
cat >look.mjs <<'CODE'
import rrule from 'rrule';
import { RRuleTemporal } from 'rrule-temporal';
const zone = (d, timeZone) => new Date(d).toISOString().slice(5, 16) + 'Z=' + new Date(d).toLocaleTimeString('sv', { timeZone }).slice(0, 5);
for (const [start, tz, rule] of [['20260307T023000', 'America/New_York', 'FREQ=DAILY;COUNT=3'], ['20261003T021500', 'Australia/Lord_Howe', 'FREQ=DAILY;COUNT=3'],
  ['20111229T120000', 'Pacific/Apia', 'FREQ=DAILY;COUNT=3'], ['20261101T003000', 'America/New_York', 'FREQ=HOURLY;COUNT=4']]) {
  const text = `DTSTART;TZID=${tz}:${start}\nRRULE:${rule}`;
  console.log(tz, rule);
  console.log('  rrule         ', rrule.rrulestr(text).all().map(d => zone(d, tz)).join(' '));
  console.log('  rrule-temporal', new RRuleTemporal({ rruleString: text }).all().map(d => zone(d.epochMilliseconds, tz)).join(' '));
}
CODE
cat >seen <<'SEEN'
America/New_York FREQ=DAILY;COUNT=3
  rrule          03-07T07:30Z=02:30 03-08T07:30Z=03:30 03-09T06:30Z=02:30
  rrule-temporal 03-07T07:30Z=02:30 03-09T06:30Z=02:30 03-10T06:30Z=02:30
Australia/Lord_Howe FREQ=DAILY;COUNT=3
  rrule          10-02T15:45Z=02:15 10-03T15:15Z=01:45 10-04T15:15Z=02:15
  rrule-temporal 10-02T15:45Z=02:15 10-04T15:15Z=02:15 10-05T15:15Z=02:15
Pacific/Apia FREQ=DAILY;COUNT=3
  rrule          12-29T22:00Z=12:00 12-29T22:00Z=12:00 12-30T22:00Z=12:00
  rrule-temporal 12-29T22:00Z=12:00 12-30T22:00Z=12:00 12-31T22:00Z=12:00
America/New_York FREQ=HOURLY;COUNT=4
  rrule          11-01T04:30Z=00:30 11-01T05:30Z=01:30 11-01T06:30Z=01:30 11-01T07:30Z=02:30
  rrule-temporal 11-01T04:30Z=00:30 11-01T05:30Z=01:30 11-01T07:30Z=02:30 11-01T08:30Z=03:30
SEEN
diff seen <(node look.mjs) && echo "as seen"
