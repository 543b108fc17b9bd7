#!/usr/bin/env bash
# Three npm validators and what croner 11.0.1 takes. cron-validator 1.4.0 and cron-validate 1.5.3 refuse "?", L and W, and take 31 April and 5/15.
# cron-validate takes day 0 of the month, and refuses "SUN,7". node-cron 4.6.0 takes 22-2 and refuses 5/15 and 31 April.
# No two agree on all eight, so none of them can stand before another tool's scheduler.
# Seen on 2026-11-28 with Node.js 20.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund cron-validator@1.4.0 cron-validate@1.5.3 node-cron@4.6.0 croner@11.0.1 >/dev/null
cat >look.mjs <<'CODE'
import * as cv from 'cron-validator';
import cvd from 'cron-validate';
import * as nodeCron from 'node-cron';
import { Cron } from 'croner';
const validate = cvd.default ?? cvd;
const croner = s => { try { return new Cron(s, { paused: true }) && true; } catch { return false; } };
for (const s of ['0 0 31 4 *', '0 0 0 * *', '0 0 * * SUN,7', '0 0 ? * 1', '0 0 * * 5L', '0 0 15W * *', '0 22-2 * * *', '5/15 * * * *'])
  console.log(s.padEnd(14), 'cron-validator', cv.isValidCron(s, { alias: true, allowSevenAsSunday: true }), 'cron-validate', validate(s).isValid(), 'node-cron', nodeCron.validate(s), 'croner', croner(s));
CODE
cat >seen <<'SEEN'
0 0 31 4 *     cron-validator true cron-validate true node-cron false croner true
0 0 0 * *      cron-validator false cron-validate true node-cron false croner false
0 0 * * SUN,7  cron-validator true cron-validate false node-cron true croner true
0 0 ? * 1      cron-validator false cron-validate false node-cron true croner true
0 0 * * 5L     cron-validator false cron-validate false node-cron true croner true
0 0 15W * *    cron-validator false cron-validate false node-cron true croner true
0 22-2 * * *   cron-validator false cron-validate false node-cron true croner false
5/15 * * * *   cron-validator true cron-validate true node-cron false croner false
SEEN
diff seen <(node look.mjs) && echo "as seen"
