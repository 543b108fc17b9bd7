package faults

import (
	"strconv"
	"strings"
	"testing"
)

// figures notes how much a test has done on an engine, and how often what has happened to it, for
// docs/reliability.md: `go test -json` passes attributes on, and faults/report reads them. A test that fails
// has found a violation.
func figures(t *testing.T, all map[string]int) {
	t.Helper()
	for what, n := range all {
		if n > 0 {
			t.Attr(strings.ReplaceAll(what, " ", "_"), strconv.Itoa(n))
		}
	}
}
