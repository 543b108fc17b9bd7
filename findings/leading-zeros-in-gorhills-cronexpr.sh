#!/usr/bin/env bash
# github.com/gorhill/cronexpr (2018, still imported) and hashicorp's copy v1.1.3 read "00 00 01 01 *" otherwise: 1 January in the copy; in the
# original 1 December, also when one asks from that day on.
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

	original "github.com/gorhill/cronexpr"
	"github.com/hashicorp/cronexpr"
)

func main() {
	for _, spec := range []string{"0 0 1 1 *", "00 00 01 01 *"} {
		for _, from := range []time.Time{time.Date(2026, 3, 20, 0, 0, 0, 0, time.UTC), time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)} {
			fmt.Println(spec, "after", from.Format(time.DateOnly), "gorhill", original.MustParse(spec).Next(from).Format(time.DateOnly), "hashicorp", cronexpr.MustParse(spec).Next(from).Format(time.DateOnly))
		}
	}
}
CODE
go get -modcacherw github.com/gorhill/cronexpr@v0.0.0-20180427100037-88b0669f7d75 github.com/hashicorp/cronexpr@v1.1.3 >/dev/null 2>&1
cat >seen <<'SEEN'
0 0 1 1 * after 2026-03-20 gorhill 2027-01-01 hashicorp 2027-01-01
0 0 1 1 * after 2026-11-28 gorhill 2027-01-01 hashicorp 2027-01-01
00 00 01 01 * after 2026-03-20 gorhill 2026-12-01 hashicorp 2027-01-01
00 00 01 01 * after 2026-11-28 gorhill 2026-12-01 hashicorp 2027-01-01
SEEN
diff seen <(go run .) && echo "as seen"
