#!/usr/bin/env bash
# ISO 8601 durations in six npm libraries. "-PT5M" is five minutes ahead in iso8601-duration 2.1.4 and dayjs 1.11.23, though dayjs reads "P-1D" as a day back; "-P1DT-1H", which is an hour less
# than a day back, is a day ahead in the one and 23 hours ahead in the other. "P1,5D", as the standard prefers to write it, is 0 in dayjs. "PT1H30" and "P1D1H" lose their end in
# iso8601-duration and tinyduration 3.4.1, and are 0 in moment 2.31.0. Half a day is refused by Temporal (temporal-polyfill 1.0.8) and iso8601-duration. "P1M" has 30 days in luxon 3.7.2 and moment,
# 30.4 in dayjs, and 31 from 1 January.
# Seen on 2026-11-29 with Node.js 20.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund luxon@3.7.2 iso8601-duration@2.1.4 tinyduration@3.4.1 dayjs@1.11.23 moment@2.31.0 temporal-polyfill@1.0.8 >/dev/null
cat >look.mjs <<'CODE'
import dayjs from 'dayjs';
import duration from 'dayjs/plugin/duration.js';
import * as iso from 'iso8601-duration';
import { Duration } from 'luxon';
import moment from 'moment';
import { Temporal } from 'temporal-polyfill';
import * as tiny from 'tinyduration';
dayjs.extend(duration);
const from = '1970-01-01';
const of = {
  luxon: s => Duration.fromISO(s).as('seconds'),
  iso8601: s => iso.toSeconds(iso.parse(s), new Date(from)),
  tiny: s => JSON.stringify(tiny.parse(s)),
  dayjs: s => dayjs.duration(s).asSeconds(),
  moment: s => moment.duration(s).asSeconds(),
  temporal: s => Temporal.Duration.from(s).total({ unit: 'seconds', relativeTo: Temporal.PlainDate.from(from) }),
};
for (const s of ['-PT5M', 'P-1D', '-P1DT-1H', 'P1,5D', 'PT1H30', 'P1D1H', 'P1.5D', 'P1M']) {
  const said = Object.entries(of).map(([name, read]) => {
    try {
      return `${name} ${read(s)}`;
    } catch {
      return `${name} refuses`;
    }
  });
  console.log(s.padEnd(8), said.join(', '));
}
CODE
cat >seen <<'SEEN'
-PT5M    luxon -300, iso8601 300, tiny {"minutes":5,"negative":true}, dayjs 300, moment -300, temporal -300
P-1D     luxon -86400, iso8601 refuses, tiny {"days":-1}, dayjs -86400, moment -86400, temporal refuses
-P1DT-1H luxon -82800, iso8601 86400, tiny {"days":1,"hours":-1,"negative":true}, dayjs 82800, moment -82800, temporal refuses
P1,5D    luxon NaN, iso8601 refuses, tiny {"days":1.5}, dayjs 0, moment 129600, temporal refuses
PT1H30   luxon NaN, iso8601 3600, tiny {"hours":1}, dayjs NaN, moment 0, temporal refuses
P1D1H    luxon NaN, iso8601 86400, tiny {"days":1}, dayjs NaN, moment 0, temporal refuses
P1.5D    luxon 129600, iso8601 refuses, tiny {"days":1.5}, dayjs 129600, moment 129600, temporal refuses
P1M      luxon 2592000, iso8601 2678400, tiny {"months":1}, dayjs 2628000, moment 2592000, temporal 2678400
SEEN
diff seen <(node look.mjs) && echo "as seen"
