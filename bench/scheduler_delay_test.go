package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/scheduler"
)

// TestSchedulerDelay prints how late functions are called, at some rates, with some daemons: when
// the slots are spread evenly, and when all slots of a second come at its beginning, as those of
// cron specs do. Each schedule fires once, since slots of @every fall on whole seconds. Target on
// PostgreSQL: a p99 of 50 ms at 1000/s.
func TestSchedulerDelay(t *testing.T) {
	beds(t, schedules.last(), func(t *testing.T, b *bed) {
		for _, when := range []string{"before", "after"} {
			if when == "after" {
				b.churn(t, *churn)
			}
			for _, together := range []bool{false, true} {
				for _, rate := range rates {
					for _, n := range fleets {
						how := map[bool]string{false: "evenly", true: "together"}[together]
						t.Run(fmt.Sprintf("%s/%s/%d/%d", when, how, rate, n), func(t *testing.T) {
							line := delay(t, b, n, rate, together)
							t.Logf("%-8s %s %d claims, %4d fires/s %s, %d daemons: %s", b.Dialect.Name, when, *churn, rate, how, n, line)
						})
					}
				}
			}
		}
	})
}

func delay(t *testing.T, b *bed, n, rate int, together bool) string {
	t.Helper()
	newest := b.clear(t)
	fires := max(1, int(float64(rate)*span.Seconds()))
	f := launch(t, b, n, scheduler.Options{Kinds: []string{scheduler.Functions}})
	// After the daemons have settled, at a whole second.
	from := (b.clock(t)/1e6 + 3) * 1e6
	if together {
		for at := 0; at < fires; at += rate {
			b.insert(t, fmt.Sprintf("d%d-", at), "func", "noop", min(rate, fires-at), from+int64(at/rate)*1e6, 0)
		}
	} else {
		b.insert(t, "d", "func", "noop", fires, from, int64(1e6/rate))
	}
	if b.clock(t) > from {
		t.Fatal("the schedules were not written in time")
	}
	f.until(t, int64(fires), time.Duration(from-b.clock(t))*time.Microsecond+*span+30*time.Second)
	f.stop()
	return b.delays(t, newest, f, fires)
}

// clear removes the schedules of the last measurement and returns the newest run.
func (b *bed) clear(t *testing.T) (newest int64) {
	t.Helper()
	b.Do(t, `DELETE FROM {prefix}schedule WHERE name < 's'`, nil)
	return b.newest(t)
}

// delays reports how late functions were called, and fails if some were called twice or never.
func (b *bed) delays(t *testing.T, newest int64, f *fleet, fires int) string {
	t.Helper()
	r, calls := b.tally(t, newest, f), f.calls()
	if r.runs != int64(fires) {
		t.Errorf("%d of %d schedules fired", r.runs, fires)
	}
	if len(calls) == 0 {
		return "nothing fired"
	}
	at := func(part float64) time.Duration {
		return calls[int(part*float64(len(calls)-1))].delay.Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("p50 %v, p99 %v, most %v; %d fired, %s", at(0.5), at(0.99), at(1), r.runs, f.shares())
}

// TestSchedulerHerd prints how long it takes until everything due at the same moment has started:
// functions, and commands, each of which costs a process and its guardian.
func TestSchedulerHerd(t *testing.T) {
	beds(t, schedules.last(), func(t *testing.T, b *bed) {
		for _, when := range []string{"before", "after"} {
			if when == "after" {
				b.churn(t, *churn)
			}
			for _, n := range fleets {
				t.Run(fmt.Sprintf("%s/functions/%d", when, n), func(t *testing.T) {
					t.Logf("%-8s %s %d claims, %d functions at once, %d daemons: %s", b.Dialect.Name, when, *churn, *herd, n, functionHerd(t, b, n))
				})
			}
		}
		for _, n := range fleets {
			t.Run(fmt.Sprintf("commands/%d", n), func(t *testing.T) {
				t.Logf("%-8s %d commands at once, %d daemons: %s", b.Dialect.Name, *commands, n, commandHerd(t, b, n))
			})
		}
	})
}

// gather makes a herd that is due once the daemons have settled, and returns when by the database's
// clock.
func (b *bed) gather(t *testing.T, kind, command string, n int) (at int64) {
	t.Helper()
	at = (b.clock(t)/1e6 + 3 + int64(n)/5_000) * 1e6
	b.insert(t, "h", kind, command, n, at, 0)
	if b.clock(t) > at-1e6 {
		t.Fatal("the schedules were not written in time")
	}
	return at
}

func functionHerd(t *testing.T, b *bed, n int) string {
	t.Helper()
	newest := b.clear(t)
	f := launch(t, b, n, scheduler.Options{Kinds: []string{scheduler.Functions}})
	b.gather(t, "func", "noop", *herd)
	f.until(t, int64(*herd), 5*time.Minute)
	f.stop()
	line := b.delays(t, newest, f, *herd)
	calls := f.calls()
	return fmt.Sprintf("the last started after %v (%s)", calls[len(calls)-1].delay.Round(time.Millisecond), line)
}

// commandHerd reads the table: only that knows when a command's run started.
func commandHerd(t *testing.T, b *bed, n int) string {
	t.Helper()
	newest := b.clear(t)
	f := launch(t, b, n, scheduler.Options{})
	at := b.gather(t, "shell", "true", *commands)
	count := func(state string) (runs int64) {
		b.Scan(t, `SELECT COUNT(*) FROM {prefix}run WHERE id > :after AND state = :state`, sqlrun.Args{"after": newest, "state": state}, &runs)
		return runs
	}
	for over := time.Now().Add(5 * time.Minute); count("ok") < int64(*commands) && time.Now().Before(over); {
		pause(t, 100*time.Millisecond)
	}
	f.stop()
	var good, started, ended, least, most int64
	b.Scan(t, `SELECT COUNT(DISTINCT schedule), COALESCE({us MAX(started_at)}, 0), COALESCE({us MAX(finished_at)}, 0) FROM {prefix}run WHERE id > :after AND state = 'ok' AND attempt = 1`,
		sqlrun.Args{"after": newest}, &good, &started, &ended)
	if runs := count("ok"); good != int64(*commands) || runs != good {
		t.Errorf("%d commands ran %d times, want %d once", good, runs, *commands)
	}
	b.Scan(t, `SELECT CASE WHEN COUNT(*) < {int :daemons} THEN 0 ELSE MIN(n) END, COALESCE(MAX(n), 0)
		FROM (SELECT COUNT(*) AS n FROM {prefix}run WHERE id > :after GROUP BY exec_by) AS by_daemon`,
		sqlrun.Args{"after": newest, "daemons": n}, &least, &most)
	since := func(us int64) time.Duration { return (time.Duration(us-at) * time.Microsecond).Round(time.Millisecond) }
	return fmt.Sprintf("the last was claimed after %v and had ended after %v; %d–%d each", since(started), since(ended), least, most)
}
