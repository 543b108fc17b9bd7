#!/usr/bin/env bash
# github.com/netresearch/go-cron v0.9.1, a maintained successor of robfig/cron, intersects day of month and weekday by default: a spec that ran on either day under
# robfig/cron v3.0.1 runs on a 1st that is a Monday, and of "29 February, or a Monday in February" nothing is found. It takes 22-2 and
# FRI-MON, which robfig refuses, and refuses steps that robfig takes (*/90, 1-5/10).
# Seen on 2026-11-28 with Go 1.26.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >go.mod <<'MOD'
module look
go 1.26
MOD
cat >main.go <<'CODE'
package main

import (
	"fmt"
	"time"

	successor "github.com/netresearch/go-cron"
	"github.com/robfig/cron/v3"
)

func main() {
	from := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	show := func(name, spec string, next func(time.Time) time.Time, err error) {
		if err != nil {
			fmt.Printf("%-13s %-11s refused\n", spec, name)
			return
		}
		t := next(from)
		if t.IsZero() {
			fmt.Printf("%-13s %-11s none\n", spec, name)
			return
		}
		fmt.Printf("%-13s %-11s %s\n", spec, name, t.Format("2006-01-02 15:04 Mon"))
	}
	for _, spec := range []string{"0 0 1 * 1", "0 0 29 2 1", "0 22-2 * * *", "0 0 * * FRI-MON", "*/90 * * * *", "1-5/10 * * * *"} {
		a, err := cron.ParseStandard(spec)
		show("robfig", spec, func(t time.Time) time.Time { return a.Next(t) }, err)
		b, err := successor.ParseStandard(spec)
		show("netresearch", spec, func(t time.Time) time.Time { return b.Next(t) }, err)
	}
}
CODE
go get -modcacherw github.com/netresearch/go-cron@v0.9.1 github.com/robfig/cron/v3@v3.0.1 >/dev/null 2>&1
cat >seen <<'SEEN'
0 0 1 * 1     robfig      2026-11-30 00:00 Mon
0 0 1 * 1     netresearch 2027-02-01 00:00 Mon
0 0 29 2 1    robfig      2027-02-01 00:00 Mon
0 0 29 2 1    netresearch none
0 22-2 * * *  robfig      refused
0 22-2 * * *  netresearch 2026-11-28 01:00 Sat
0 0 * * FRI-MON robfig      refused
0 0 * * FRI-MON netresearch 2026-11-29 00:00 Sun
*/90 * * * *  robfig      2026-11-28 01:00 Sat
*/90 * * * *  netresearch refused
1-5/10 * * * * robfig      2026-11-28 00:01 Sat
1-5/10 * * * * netresearch refused
SEEN
diff seen <(go run .) && echo "as seen"
