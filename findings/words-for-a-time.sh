#!/usr/bin/env bash
# Three npm libraries on words for a time, asked on Saturday, 28 November 2026, at 10:00 UTC. "in 1.5 hours" is in 15 h 5 min in date.js 0.3.3 (Agenda reads its times with it) and in five hours in
# sherlockjs 1.4.2; "in half an hour" is in 14 h 5 min in date.js. "friday" is yesterday in chrono-node 2.10.3. "tomorrow at 9" is 21:00 in sherlockjs. "feb 30" is now in date.js,
# 2 March in sherlockjs, and refused by chrono-node.
# Seen on 2026-11-28 with Node.js 20.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund chrono-node@2.10.3 date.js@0.3.3 sherlockjs@1.4.2 >/dev/null
cat >look.mjs <<'CODE'
process.env.TZ = 'UTC';
const chrono = await import('chrono-node');
const date = (await import('date.js')).default;
const sherlock = (await import('sherlockjs')).default;
const now = new Date('2026-11-28T10:00:00Z');
sherlock._setNow(now);
const z = d => (d ? d.toISOString().slice(0, 16) + 'Z' : 'none');
for (const s of ['in 1.5 hours', 'in half an hour', 'friday', 'tomorrow at 9', 'feb 30'])
  console.log(s.padEnd(16), 'chrono-node', z(chrono.parseDate(s, now)), 'date.js', z(date(s, now)), 'sherlockjs', z(sherlock.parse(s).startDate));
CODE
cat >seen <<'SEEN'
in 1.5 hours     chrono-node 2026-11-28T11:30Z date.js 2026-11-29T01:05Z sherlockjs 2026-11-28T15:00Z
in half an hour  chrono-node 2026-11-28T10:30Z date.js 2026-11-29T00:05Z sherlockjs 2026-11-28T11:00Z
friday           chrono-node 2026-11-27T12:00Z date.js 2026-12-04T10:00Z sherlockjs 2026-12-04T00:00Z
tomorrow at 9    chrono-node 2026-11-29T09:00Z date.js 2026-11-29T09:00Z sherlockjs 2026-11-29T21:00Z
feb 30           chrono-node none date.js 2026-11-28T10:00Z sherlockjs 2027-03-02T00:00Z
SEEN
diff seen <(node look.mjs) && echo "as seen"
