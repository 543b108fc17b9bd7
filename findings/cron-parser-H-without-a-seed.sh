#!/usr/bin/env bash
# cron-parser 5.10.6 (npm) takes Jenkins' H. Without hashSeed each parse draws another time: a process that starts anew moves its jobs, and
# two processes of one job never agree. With a seed the time stays, and stringify() gives it as numbers, so the H is lost.
# Seen on 2026-11-28 with Node.js 20.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund cron-parser@5.10.6 >/dev/null
cat >look.mjs <<'CODE'
import parser from 'cron-parser';
const draw = options => parser.CronExpressionParser.parse('H H * * *', options).stringify();
const without = new Set(Array.from({ length: 20 }, () => draw({})));
const seeded = new Set(Array.from({ length: 20 }, () => draw({ hashSeed: 'report' })));
console.log('20 parses without a seed: more than one time:', without.size > 1);
console.log('20 parses with a seed:', seeded.size, [...seeded][0]);
CODE
cat >seen <<'SEEN'
20 parses without a seed: more than one time: true
20 parses with a seed: 1 21 10 * * *
SEEN
diff seen <(node look.mjs) && echo "as seen"
