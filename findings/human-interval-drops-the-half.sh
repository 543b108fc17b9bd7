#!/usr/bin/env bash
# human-interval 2.0.1 (npm; Agenda reads its intervals with it): "one and a half hours" is one hour, "half an hour" and "every hour" are 0 ms, and
# "an hour and 5 minutes" is 5 minutes. Four others on short spellings: "-5m" is five minutes ahead in timestring 7.0.0 and enhanced-ms 5.0.0; ".5m" is five minutes in
# enhanced-ms; "5 min" is 5 ms in itty-time 2.0.2; "1:30" is 1.03 ms in parse-duration 2.1.9.
# Seen on 2026-11-28 with Node.js 20.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund human-interval@2.0.1 parse-duration@2.1.9 timestring@7.0.0 itty-time@2.0.2 enhanced-ms@5.0.0 >/dev/null
cat >look.mjs <<'CODE'
import humanInterval from 'human-interval';
import parse from 'parse-duration';
import timestring from 'timestring';
import * as itty from 'itty-time';
import * as enhanced from 'enhanced-ms';
const ms = enhanced.default ?? enhanced.ms ?? enhanced.createMs();
const says = f => { try { return f(); } catch { return 'refused'; } };
for (const s of ['one and a half hours', 'half an hour', 'an hour and 5 minutes', 'every hour']) console.log(s.padEnd(22), 'human-interval', humanInterval(s));
for (const s of ['-5m', '.5m', '5 min', '1:30'])
  console.log(s.padEnd(6), 'parse-duration', parse(s), 'timestring', says(() => timestring(s, 'ms')), 'itty-time', itty.ms(s), 'enhanced-ms', says(() => ms(s)));
CODE
cat >seen <<'SEEN'
one and a half hours   human-interval 3600000
half an hour           human-interval 0
an hour and 5 minutes  human-interval 300000
every hour             human-interval 0
-5m    parse-duration -300000 timestring 300000 itty-time NaN enhanced-ms 300000
.5m    parse-duration 30000 timestring 30000 itty-time NaN enhanced-ms 300000
5 min  parse-duration 300000 timestring 300000 itty-time 5 enhanced-ms 300000
1:30   parse-duration 1.03 timestring refused itty-time NaN enhanced-ms null
SEEN
diff seen <(node look.mjs) && echo "as seen"
