package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/wire"
)

// A daemon that runs out of time is asked again until all jobs are moved. A dry run ends with what was counted.
func TestMoveGoesOn(t *testing.T) {
	for _, c := range []struct {
		dryRun bool
		parts  []wire.Moved
		says   string
	}{
		{false, []wire.Moved{{Jobs: 5}, {Jobs: 3, All: true}}, "dbcron: 8 jobs moved from a to b\n"},
		{true, []wire.Moved{{Jobs: 5}}, "dbcron: at least 5 jobs to be moved from a to b\n"},
		{true, []wire.Moved{{Jobs: 5, All: true}}, "dbcron: 5 jobs to be moved from a to b\n"},
	} {
		var out, errs bytes.Buffer
		p := &program{in: strings.NewReader(""), out: &out, err: &errs}
		calls := 0
		p.call = func(context.Context, *httpapi.Operation, any) (any, error) {
			calls++
			return &c.parts[(calls-1)%len(c.parts)], nil
		}
		if err := p.moveJobs(t.Context(), "a", wire.Move{Kinds: []string{"x"}, To: "b", DryRun: c.dryRun}); err != nil {
			t.Fatal(err)
		}
		if calls != len(c.parts) || !strings.HasSuffix(errs.String(), c.says) {
			t.Errorf("%d calls say %q, not %q", calls, errs.String(), c.says)
		}
	}
}
