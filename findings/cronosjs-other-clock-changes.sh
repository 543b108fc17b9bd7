#!/usr/bin/env bash
# cronosjs 1.7.1 (npm) knows the clock change of an hour. Where it is another, a job of the time that is skipped comes late by what is left of an hour:
# 02:15 of Lord Howe (half an hour is skipped) at 02:45, 03:15 of Chatham (02:45 to 03:45) at 04:00, 02:00 of Troll (01:00 to 03:00) at 04:00.
# In New York it is due when the gap ends. And "every hour" has one run in the two hours in which New York's clock shows 1.
# Seen on 2026-11-28 with Node.js 20 and its time zones.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund cronosjs@1.7.1 >/dev/null
cat >look.mjs <<'CODE'
import { CronosExpression } from 'cronosjs';
for (const [spec, from, tz, n] of [['30 2 * * *', '2026-03-07T12:00:00Z', 'America/New_York', 1], ['15 2 * * *', '2026-10-03T00:00:00Z', 'Australia/Lord_Howe', 1],
  ['15 3 * * *', '2026-09-26T00:00:00Z', 'Pacific/Chatham', 1], ['0 2 * * *', '2026-03-28T12:00:00Z', 'Antarctica/Troll', 1], ['0 * * * *', '2026-11-01T04:30:00Z', 'America/New_York', 3]])
  console.log(spec, tz, CronosExpression.parse(spec, { timezone: tz }).nextNDates(new Date(from), n)
    .map(d => d.toISOString().slice(11, 16) + 'Z=' + d.toLocaleTimeString('sv', { timeZone: tz })).join(' '));
CODE
cat >seen <<'SEEN'
30 2 * * * America/New_York 07:00Z=03:00:00
15 2 * * * Australia/Lord_Howe 15:45Z=02:45:00
15 3 * * * Pacific/Chatham 14:15Z=04:00:00
0 2 * * * Antarctica/Troll 02:00Z=04:00:00
0 * * * * America/New_York 05:00Z=01:00:00 07:00Z=02:00:00 08:00Z=03:00:00
SEEN
diff seen <(node look.mjs) && echo "as seen"
