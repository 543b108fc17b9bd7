#!/usr/bin/env bash
# "31W", the weekday nearest the 31st: github.com/reugn/go-quartz v0.15.2 has it in every month (30 November, 26 February); github.com/hashicorp/cronexpr v1.1.3 only in months
# with 31 days. "5L" is the last Thursday in go-quartz (Sunday is 1, as in Quartz) and the last Friday in cronexpr. "0 0 30 2 ?" is 2 March (1 March in leap years) in
# go-quartz, and never in cronexpr.
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

	"github.com/hashicorp/cronexpr"
	"github.com/reugn/go-quartz/quartz"
)

func main() {
	from := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	for _, spec := range []string{"0 0 31W * ?", "0 0 ? * 5L", "0 0 30 2 ?"} {
		trigger, err := quartz.NewCronTriggerWithLoc("0 "+spec, time.UTC)
		if err != nil {
			panic(err)
		}
		at := from.UnixNano()
		fmt.Print(spec, " go-quartz")
		for range 4 {
			at, _ = trigger.NextFireTime(at)
			fmt.Print(" ", time.Unix(0, at).UTC().Format(time.DateOnly))
		}
		fmt.Print("\n", spec, " cronexpr ")
		for _, t := range cronexpr.MustParse(spec).NextN(from, 4) {
			fmt.Print(" ", t.Format(time.DateOnly))
		}
		fmt.Println()
	}
}
CODE
go get -modcacherw github.com/reugn/go-quartz@v0.15.2 github.com/hashicorp/cronexpr@v1.1.3 >/dev/null 2>&1
cat >seen <<'SEEN'
0 0 31W * ? go-quartz 2026-11-30 2026-12-31 2027-01-29 2027-02-26
0 0 31W * ? cronexpr  2026-12-31 2027-01-29 2027-03-31 2027-05-31
0 0 ? * 5L go-quartz 2026-12-31 2027-01-28 2027-02-25 2027-03-25
0 0 ? * 5L cronexpr  2026-12-25 2027-01-29 2027-02-26 2027-03-26
0 0 30 2 ? go-quartz 2027-03-02 2028-03-01 2029-03-02 2030-03-02
0 0 30 2 ? cronexpr 
SEEN
diff seen <(go run .) && echo "as seen"
