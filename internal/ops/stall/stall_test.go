package stall

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
)

// Time is counted in ticks: a command with progress goes on forever, and one without is over.
func TestStall(t *testing.T) {
	const tick = 600 * time.Millisecond
	file := filepath.Join(t.TempDir(), "progress")
	now := instant.Now()
	for name, progress := range map[string]func(s *Stall, i int) (snapshots int){
		"output":      func(_ *Stall, i int) int { return i / 3 },
		"relayed":     func(s *Stall, _ int) int { s.relayed.Add(1); return 0 },
		"held up":     func(s *Stall, _ int) int { s.held.Store(1); return 0 },
		"touched":     func(_ *Stall, i int) int { must(t, os.WriteFile(file, make([]byte, i), 0o600)); return 0 },
		"touched now": func(_ *Stall, i int) int { must(t, os.Chtimes(file, time.Time{}, time.Unix(int64(i), 0))); return 0 },
		"nothing":     nil,
		"slept":       nil,
	} {
		must(t, os.WriteFile(file, nil, 0o600))
		s, err := New(5*time.Second, file)
		must(t, err)
		s.watch.Begin(now, s.mark(0))
		over := 0
		for i := 1; i <= 100 && over == 0; i++ {
			snapshots := 0
			if progress != nil {
				snapshots = progress(s, i)
			}
			at := now.Add(time.Duration(i) * tick)
			if name == "slept" { // this process did not run
				at = now.Add(time.Duration(i) * time.Hour)
			}
			if s.Over(at, tick, snapshots) {
				over = i
			}
		}
		if want := map[string]int{"nothing": 9, "slept": 5}[name]; over != want {
			t.Errorf("%s: over after %d ticks, want %d", name, over, want)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
