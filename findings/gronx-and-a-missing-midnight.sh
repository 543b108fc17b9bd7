#!/usr/bin/env bash
# github.com/adhocore/gronx v1.20.4 (Go): where midnight of a due day is skipped by the clock (Santiago on 6 September 2026, a Sunday), NextTickAfter fails for "midnight on
# Sundays", though the next one is a week later; for "midnight each day" it goes on to the 7th. Cairo's Friday of the change is left out without an error.
# In the repeated half hour of Lord Howe it goes from 14:15 to 15:00 UTC on */15, past three of the five times.
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

	"github.com/adhocore/gronx"
	_ "time/tzdata"
)

func main() {
	for _, c := range [][3]string{{"0 0 * * 0", "2026-09-04T12:00:00Z", "America/Santiago"}, {"0 0 * * *", "2026-09-05T12:00:00Z", "America/Santiago"},
		{"0 0 * * 5", "2026-04-22T12:00:00Z", "Africa/Cairo"}, {"*/15 * * * *", "2026-04-04T14:10:00Z", "Australia/Lord_Howe"}} {
		loc, _ := time.LoadLocation(c[2])
		t, _ := time.Parse(time.RFC3339, c[1])
		for range 2 {
			next, err := gronx.NextTickAfter(c[0], t.In(loc), false)
			if err != nil {
				fmt.Println(c[0], c[2], "error:", err)
				break
			}
			fmt.Println(c[0], c[2], next.UTC().Format(time.RFC3339))
			t = next
		}
	}
}
CODE
go get -modcacherw github.com/adhocore/gronx@v1.20.4 >/dev/null 2>&1
cat >seen <<'SEEN'
0 0 * * 0 America/Santiago error: tried so hard
0 0 * * * America/Santiago 2026-09-07T03:00:00Z
0 0 * * * America/Santiago 2026-09-08T03:00:00Z
0 0 * * 5 Africa/Cairo 2026-04-30T21:00:00Z
0 0 * * 5 Africa/Cairo 2026-05-07T21:00:00Z
*/15 * * * * Australia/Lord_Howe 2026-04-04T14:15:00Z
*/15 * * * * Australia/Lord_Howe 2026-04-04T15:00:00Z
SEEN
diff seen <(go run .) && echo "as seen"
