package progress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"
)

func TestProgressLine(t *testing.T) {
	part := func() float64 { return 0.25 }
	for _, c := range []struct {
		done, total int
		share       func() float64
		want        string
	}{
		{0, 0, nil, "moving: for 1m30s"},
		{0, 500, nil, "moving: for 1m30s"},
		{45, 0, nil, "moving: 45 jobs"},
		{900, 0, nil, "moving: 900 jobs, 10 a second"},
		{900, 3600, nil, "moving: 900 of 3600 jobs, 10 a second, 4m30s left"},
		{900, 800, nil, "moving: 900 of 900 jobs, 10 a second, 0s left"}, // others came meanwhile
		{900, 0, part, "moving: 900 jobs, 25 %, 10 a second, 4m30s left"},
	} {
		g := Progress{Task: Task{What: "moving", Unit: "jobs", Share: c.share}, done: c.done, total: c.total}
		if got := g.line(90 * time.Second); got != c.want {
			t.Errorf("%d of %d: %q, want %q", c.done, c.total, got, c.want)
		}
	}
}

// What is left is counted once, what is done before each line, and other output on stderr gets
// lines of its own.
func TestProgress(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		var out bytes.Buffer
		stderr := io.Writer(&out)
		counted := 0
		g := newProgress(&stderr, Task{
			What: "moving", Unit: "jobs",
			Look: func(context.Context) (int, error) { return 10 * (counted + 1), nil },
			Left: func(context.Context) (int, error) { counted++; return 90, nil },
		}, terminal)
		g.stop = func() { close(g.ended) }
		g.count(t.Context(), true)
		g.tell(10 * time.Second)
		fmt.Fprintln(stderr, "dbcron: said meanwhile")
		g.count(t.Context(), false)
		g.tell(10 * time.Second)
		g.End()
		if stderr != &out {
			t.Error("stderr is not what it was")
		}
		want := "dbcron: moving: 10 of 100 jobs, 1 a second, 1m30s left\ndbcron: said meanwhile\ndbcron: moving: 20 of 100 jobs, 2 a second, 40s left\n"
		if terminal {
			const gone = "\r\x1b[K"
			want = gone + "dbcron: moving: 10 of 100 jobs, 1 a second, 1m30s left" + gone + "dbcron: said meanwhile\n" +
				gone + "dbcron: moving: 20 of 100 jobs, 2 a second, 40s left" + gone
		}
		if out.String() != want || counted != 1 {
			t.Errorf("terminal %t, counted %d times: %q, want %q", terminal, counted, out.String(), want)
		}
	}
}

// A task that cannot count continues without.
func TestProgressWithoutCount(t *testing.T) {
	var out bytes.Buffer
	stderr := io.Writer(&out)
	no := func(context.Context) (int, error) { return 0, errors.New("no") }
	g := newProgress(&stderr, Task{What: "moving", Look: no, Left: no}, false)
	g.stop = func() { close(g.ended) }
	g.count(t.Context(), true)
	g.tell(time.Minute)
	g.End()
	if want := "dbcron: moving: for 1m0s\n"; out.String() != want {
		t.Errorf("%q", out.String())
	}
}
