#!/usr/bin/env bash
# aws-cron-parser 1.1.12 (npm, for EventBridge's expressions): "1,L" is the day before the last of each month, and never the 1st. 29 February is 1 March in common years, and 31 April is
# 1 May. "5/20,50" loses the 50. "LW" and "31W" are parsed; LW, and 31W in February, then fail with "should not happen".
# Seen on 2026-11-28 with Node.js 20.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund aws-cron-parser@1.1.12 >/dev/null
cat >look.mjs <<'CODE'
import * as module from 'aws-cron-parser';
const aws = module.default ?? module;
for (const spec of ['0 12 1,L * ? *', '0 12 29 2 ? *', '0 12 31 4 ? *', '5/20,50 0 ? * * *', '0 12 LW * ? *', '0 12 31W * ? *']) {
  const seen = [];
  let at = new Date('2026-11-28T00:00:00Z');
  try {
    const parsed = aws.parse(spec);
    for (let i = 0; i < 4; i++) { at = aws.next(parsed, at); seen.push(at.toISOString().slice(0, 16)); at = new Date(+at + 1000); }
  } catch (e) { seen.push(e.message); }
  console.log(spec.padEnd(18), seen.join(' '));
}
CODE
cat >seen <<'SEEN'
0 12 1,L * ? *     2026-11-29T12:00 2026-12-30T12:00 2027-01-30T12:00 2027-02-27T12:00
0 12 29 2 ? *      2027-03-01T12:00 2028-02-29T12:00 2029-03-01T12:00 2030-03-01T12:00
0 12 31 4 ? *      2027-05-01T12:00 2028-05-01T12:00 2029-05-01T12:00 2030-05-01T12:00
5/20,50 0 ? * * *  2026-11-28T00:05 2026-11-28T00:25 2026-11-28T00:45 2026-11-29T00:05
0 12 LW * ? *      getDaysOfMonthForW - should not happen
0 12 31W * ? *     2026-11-30T12:00 2026-12-31T12:00 2027-01-29T12:00 getDaysOfMonthForW - should not happen
SEEN
diff seen <(node look.mjs) && echo "as seen"
