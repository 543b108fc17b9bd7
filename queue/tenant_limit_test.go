package queue

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// limitTenant sets a limit of a tenant of the default queue, or of each.
func limitTenant(t *testing.T, c *Client, tenant string, change func(l *admin.Limit)) {
	t.Helper()
	_, err := adminOf(c).EditTenantLimit(t.Context(), defaultQueue, tenant, change)
	must(t, err)
}

// tenantRows lists the rows of tenants' permits.
func tenantRows(t *testing.T, db *dbtest.DB) []string {
	t.Helper()
	return db.List(t, `SELECT tenant, slot FROM {prefix}queue_permit WHERE tenant <> '' ORDER BY tenant, slot`, nil)
}

// Of each tenant never more jobs run at a time than its limit allows, over all workers; those without a tenant
// are not limited. What is not used any more leaves no rows.
func TestTenantLimit(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		for _, fair := range []bool{false, true} {
			c := client(t, db, Options{Blocks: 6})
			edit(t, c, func(q *admin.Queue) { q.Fair = fair })
			limitTenant(t, c, admin.EachTenant, func(l *admin.Limit) { l.Running = 2 })
			limitTenant(t, c, "big", func(l *admin.Limit) { l.Running = 4 })
			limitTo(t, c, "y", 5)
			names := []string{"", "a", "b", "big", admin.EachTenant}
			crowds, y := map[string]*crowd{}, &crowd{}
			for _, name := range names {
				crowds[name] = &crowd{}
			}
			var stops []func()
			for range 2 {
				w := worker(t, other(t, db), WorkerOptions{Concurrency: 12, Batch: 10})
				pass := func(ctx context.Context, d *Delivery) error { return crowds[d.Tenant].pass(ctx, d) }
				handle(t, w, "x", pass)
				handle(t, w, "y", func(ctx context.Context, d *Delivery) error {
					y.Enter()
					defer y.Leave()
					return pass(ctx, d)
				})
				stops = append(stops, start(t, w))
			}
			var jobs []Job
			for i := range 60 {
				for _, name := range names {
					jobs = append(jobs, Job{Kind: []string{"x", "y"}[i%2], Tenant: name, Key: []string{"", "", fmt.Sprint(name, i%4)}[i%3]})
				}
			}
			enqueueMany(t, c, jobs)
			empty(t, db)
			for name, most := range map[string]int{"": 24, "a": 2, "b": 2, "big": 4, admin.EachTenant: 2} {
				if _, got, all := crowds[name].Counts(); got > most || all != 60 {
					t.Errorf("tenant %q: %d at a time, %d in all", name, got, all)
				}
			}
			if _, got, _ := y.Counts(); got > 5 {
				t.Errorf("of the kind: %d at a time", got)
			}
			eventually(t, "nothing is left of the tenants' permits", func() bool { return len(tenantRows(t, db)) == 0 })
			for _, stop := range stops {
				stop()
			}
		}
	})
}

// The jobs of a tenant that has reached its limit keep nobody back, however many they are; they go on when the limit is lifted.
func TestTenantLimitKeepsNobodyBack(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 2})
		edit(t, c, func(*admin.Queue) {})
		limitTenant(t, c, "slow", func(l *admin.Limit) { l.Running = 1 })
		w := worker(t, other(t, db), WorkerOptions{Concurrency: 4, Batch: 2})
		var slow, quick crowd
		hold := make(chan struct{})
		handle(t, w, "x", func(ctx context.Context, d *Delivery) error {
			if d.Tenant != "slow" {
				return quick.pass(ctx, d)
			}
			slow.Enter()
			defer slow.Leave()
			select {
			case <-hold:
			case <-ctx.Done():
			}
			return nil
		})
		enqueueMany(t, c, slices.Repeat([]Job{{Kind: "x", Tenant: "slow"}}, 300))
		enqueueMany(t, c, slices.Repeat([]Job{{Kind: "x", Tenant: "other"}, {Kind: "x"}}, 20))
		defer start(t, w)()
		eventually(t, "the others are done", func() bool { _, _, n := quick.Counts(); return n == 40 })
		eventually(t, "one of the slow runs", func() bool { n, _, _ := slow.Counts(); return n == 1 })
		if _, most, _ := slow.Counts(); most != 1 {
			t.Errorf("%d of the slow at a time", most)
		}
		close(hold)
		must(t, adminOf(c).DeleteTenantLimit(t.Context(), defaultQueue, "slow"))
		empty(t, db)
		if _, _, all := slow.Counts(); all != 300 {
			t.Errorf("%d of the slow were done", all)
		}
	})
}

// Of each tenant begin so many jobs in a time, over all workers, and not more; the row that says so goes when it says nothing any more.
func TestTenantRate(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, func(*admin.Queue) {})
		limitTenant(t, c, admin.EachTenant, func(l *admin.Limit) { l.Rate, l.Per, l.Burst = 20, time.Second, 5 })
		limitTenant(t, c, "b", func(l *admin.Limit) { l.Rate, l.Per, l.Burst, l.Running = 40, time.Second, 5, 1 })
		crowds := map[string]*crowd{"": {}, "a": {}, "b": {}, "c": {}}
		began := instant.Now()
		var mu sync.Mutex
		last := map[string]instant.Instant{}
		for range 2 {
			w := worker(t, other(t, db), WorkerOptions{})
			handle(t, w, "x", func(ctx context.Context, d *Delivery) error {
				mu.Lock()
				last[d.Tenant] = instant.Now()
				mu.Unlock()
				return crowds[d.Tenant].pass(ctx, d)
			})
			defer start(t, w)()
		}
		enqueueMany(t, c, slices.Repeat([]Job{{Kind: "x", Tenant: "a"}, {Kind: "x", Tenant: "b"}, {Kind: "x"}}, 30))
		enqueueMany(t, c, slices.Repeat([]Job{{Kind: "x", Tenant: "c"}}, 5))
		empty(t, db)
		mu.Lock()
		defer mu.Unlock()
		for name, least := range map[string]time.Duration{"a": 1150 * time.Millisecond, "b": 550 * time.Millisecond} { // less what comes a little late
			if took := last[name].Sub(began); took < least {
				t.Errorf("the jobs of %s took %v", name, took)
			}
		}
		if _, most, _ := crowds["b"].Counts(); most > 1 {
			t.Errorf("of b %d at a time", most)
		}
		db.Do(t, `UPDATE {prefix}queue_tenant SET insert_time = {now + :then}`, sqlrun.Args{"then": -time.Hour.Microseconds()})
		eventually(t, "no tenant's row is left", func() bool {
			_, err := db.Exec(t.Context(), store.SweepTenants, sqlrun.Args{"since": -time.Minute.Microseconds()})
			must(t, err)
			return len(db.List(t, `SELECT tenant FROM {prefix}queue_tenant`, nil)) == 0
		})
	})
}

// Jobs that wait for the limit of their tenant go on after a while in which no job of their block could begin, and the worker has given
// back what it had.
func TestTenantLimitsAfterAWhile(t *testing.T) {
	for name, interrupt := range map[string]func(t *testing.T, c *Client, w *Worker) (resume func()){
		"a pause": func(t *testing.T, c *Client, w *Worker) func() {
			must(t, adminOf(c).Pause(t.Context(), defaultQueue, ""))
			knowsPause(t, w)
			return func() { must(t, adminOf(c).Resume(t.Context(), defaultQueue)) }
		},
		"a block that was to go, and stays": func(t *testing.T, _ *Client, w *Worker) func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			b := w.queues[0].blocks[0]
			w.leave(b)
			b.Active++ // so it is never idle
			return func() {
				eventually(t, "it stays", func() bool {
					w.mu.Lock()
					defer w.mu.Unlock()
					return !b.Leaving
				})
				w.mu.Lock()
				defer w.mu.Unlock()
				b.Active--
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			locks(t, func(t *testing.T, db *dbtest.DB) {
				c := client(t, db, Options{Blocks: 1})
				edit(t, c, func(*admin.Queue) {})
				limitTenant(t, c, admin.EachTenant, func(l *admin.Limit) { l.Running = 1 })
				w := worker(t, other(t, db), WorkerOptions{})
				w.miscounted = func(int, int) {} // one case does that
				begun, goes := make(chan struct{}, 3), make(chan struct{})
				handle(t, w, "x", func(context.Context, *Delivery) error {
					begun <- struct{}{}
					<-goes
					return nil
				})
				defer start(t, w)()
				enqueueMany(t, c, slices.Repeat([]Job{{Kind: "x", Tenant: "a"}}, 3))
				received(t, "one runs", begun)
				resume := interrupt(t, c, w)
				close(goes)
				eventually(t, "no permit is leased", func() bool { return len(db.List(t, `SELECT slot FROM {prefix}queue_permit`, nil)) == 0 })
				resume()
				empty(t, db)
			})
		})
	}
}

// What a worker that has died had of a tenant is free when its lease has ended, and not before.
func TestTenantPermitsOfTheDead(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, func(*admin.Queue) {})
		limitTenant(t, c, admin.EachTenant, func(l *admin.Limit) { l.Running = 1 })
		lost, cut := severed(t, db)
		w1 := worker(t, lost, WorkerOptions{Grace: -1})
		began, ended := make(chan struct{}), make(chan instant.Instant, 1)
		handle(t, w1, "x", func(ctx context.Context, _ *Delivery) error {
			close(began)
			<-ctx.Done()
			ended <- instant.Now()
			return ctx.Err()
		})
		enqueue(t, c, Job{Kind: "x", Tenant: "a"})
		stop := start(t, w1)
		received(t, "the job has begun", began)
		w2 := worker(t, other(t, db), WorkerOptions{})
		again := make(chan instant.Instant, 2)
		handle(t, w2, "x", func(context.Context, *Delivery) error { again <- instant.Now(); return nil })
		defer start(t, w2)()
		enqueueMany(t, c, []Job{{Kind: "x", Tenant: "a"}, {Kind: "x", Tenant: "a"}})
		cut()
		lapse(t, db, w1, 500*time.Millisecond)
		first := received(t, "the first worker has noticed", ended)
		for range 3 {
			if second := received(t, "another goes on", again); second < first {
				t.Errorf("it began %v before the first had ended", first.Sub(second))
			}
		}
		stop()
		empty(t, db)
		eventually(t, "nothing is left of the permits", func() bool { return len(tenantRows(t, db)) == 0 })
	})
}

// Whatever statement fails, before or after the server did it: the limit of each tenant holds, and all jobs are done.
func TestTenantLimitFaults(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, func(*admin.Queue) {})
		limitTenant(t, c, admin.EachTenant, func(l *admin.Limit) { l.Running, l.Rate, l.Burst = 1, 10_000, 100 })
		crowds := map[string]*crowd{}
		for i := range 10 {
			crowds[fmt.Sprint(i)] = &crowd{}
		}
		for i := range 2 {
			var calls atomic.Int64
			broken := db.Broken(t, &dbtest.Fault{Random: func() (before, after bool) {
				n := calls.Add(1)
				return n%23 == int64(i), n%17 == int64(i)
			}})
			broken.Pool().SetMaxOpenConns(5)
			w := worker(t, client(t, broken, Options{}), WorkerOptions{})
			handle(t, w, "x", func(ctx context.Context, d *Delivery) error { return crowds[d.Tenant].pass(ctx, d) })
			defer start(t, w)()
		}
		for i := range 60 {
			enqueue(t, c, Job{Kind: "x", Tenant: fmt.Sprint(i % 10)})
		}
		empty(t, db)
		for name, crowd := range crowds {
			if _, most, _ := crowd.Counts(); most > 1 {
				t.Errorf("of %s %d at a time", name, most)
			}
		}
		eventually(t, "nothing is left of the permits", func() bool { return len(tenantRows(t, db)) == 0 })
	})
}

// Who may take permits of tenants, and give them back, and which rows go: statement by statement.
func TestTenantPermits(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		for _, node := range []string{"n1", "n2", "lost"} {
			_, err := db.Exec(t.Context(), store.JoinNode, sqlrun.Args{
				"node": node, "lease": time.Hour.Microseconds(), "under": "", "version": "", "drained": 0, "by": "",
			})
			must(t, err)
		}
		db.Do(t, `UPDATE {prefix}node SET state = 'lost' WHERE name = 'lost'`, nil)
		c := client(t, db, Options{})
		edit(t, c, func(*admin.Queue) {})
		limitTenant(t, c, admin.EachTenant, func(l *admin.Limit) { l.Running = 2 })
		limitTenant(t, c, "b", func(l *admin.Limit) { l.Running = 1 })
		limitTo(t, c, "", 2)
		_, err := db.Exec(t.Context(), store.CreatePermits, sqlrun.Args{"rows": []sqlrun.Args{{"queue": 1, "kind": "", "slot": 0}}})
		must(t, err)
		db.Do(t, `UPDATE {prefix}queue_permit SET state = 'LEASED', lock_by = 'n2' WHERE queue_id = 1 AND tenant = '' AND kind = ''`, nil)
		exec := func(stmt *sqlrun.Stmt, args sqlrun.Args) {
			t.Helper()
			_, err := db.Exec(t.Context(), stmt, args)
			must(t, err)
		}
		has := func(want string) {
			t.Helper()
			got := fmt.Sprint(db.List(t, `SELECT queue_id, tenant, slot, lock_by, fence FROM {prefix}queue_permit WHERE tenant <> '' ORDER BY queue_id, tenant, slot`, nil))
			if got != want {
				t.Errorf("permits: %s, not %s", got, want)
			}
		}
		ask := func(stmt *sqlrun.Stmt, args sqlrun.Args, want string, columns int) {
			t.Helper()
			rows, err := sqlrun.Select(t.Context(), &db.Session, stmt, args, func(rows *sql.Rows) (line string, err error) {
				all := make([]any, columns)
				for i := range all {
					all[i] = new(any)
				}
				err = rows.Scan(all...)
				for i := range all {
					line += fmt.Sprintf("%s ", text(*all[i].(*any)))
				}
				return line[:len(line)-1], err
			})
			must(t, err)
			slices.Sort(rows)
			if got := fmt.Sprint(rows); got != want {
				t.Errorf("%s: %s, not %s", stmt.Name, got, want)
			}
		}
		row := func(queue int, name string, slot int, node string, fence int) sqlrun.Args {
			return sqlrun.Args{"queue": queue, "name": name, "slot": slot, "node": node, "fence": fence}
		}
		both := []sqlrun.Args{{"name": "a"}, {"name": "b"}}
		exec(store.TakeTenantPermits, sqlrun.Args{"rows": []sqlrun.Args{row(1, "a", 0, "n1", 7), row(1, "a", 1, "n1", 7), row(2, "a", 1, "n1", 7)}})
		exec(store.TakeTenantPermits, sqlrun.Args{"rows": []sqlrun.Args{row(1, "a", 1, "n2", 8), row(1, "b", 0, "n2", 8)}})
		exec(store.TakeTenantPermits, sqlrun.Args{"rows": []sqlrun.Args{row(1, "b", 1, "lost", 7), row(1, "a", 3, "n2", 7)}})
		has("[1 a 0 n1 7 1 a 1 n1 7 1 a 3 n2 7 1 b 0 n2 8 1 b 1 lost 7 2 a 1 n1 7]")
		taken := func(node string, fence int, names []sqlrun.Args, want string) {
			t.Helper()
			ask(store.TakenTenantPermits, sqlrun.Args{"queue": 1, "node": node, "fence": fence, "tenants": names}, want, 2)
		}
		taken("n1", 7, both, "[a 0 a 1]")
		taken("n2", 8, both, "[b 0]")
		taken("n2", 7, both[1:], "[]")
		ask(store.TenantPermits, sqlrun.Args{"queue": 1, "tenants": both[1:]}, "[b 0 LEASED n2 8 1 1 b 1 LEASED lost 7 0 1]", 7)
		ask(store.Permits, sqlrun.Args{"queue": 1, "kind": ""}, "[0 LEASED n2 0 1 1]", 6)
		ask(store.OwnTenantPermits, sqlrun.Args{"queue": 1, "node": "n1"}, "[a 0 7 a 1 7]", 3)
		infos, err := adminOf(c).LimitsOf(t.Context(), defaultQueue)
		must(t, err)
		if len(infos) != 3 || infos[0].Permits != 1 || infos[1].Permits != 4 || infos[2].Permits != 1 || infos[1].Waiting {
			t.Errorf("limits: %+v", infos)
		}
		exec(store.ReturnTenantPermits, sqlrun.Args{"queue": 1, "rows": []sqlrun.Args{
			{"name": "a", "nth": 0, "held": 8, "who": "n1"}, {"name": "a", "nth": 3, "held": 7, "who": "n1"}, {"name": "a", "nth": 1, "held": 7, "who": "n1"},
		}})
		has("[1 a 0 n1 7 1 a 3 n2 7 1 b 0 n2 8 1 b 1 lost 7 2 a 1 n1 7]")

		exec(store.MakeTenants, sqlrun.Args{"rows": []sqlrun.Args{{"queue": 1, "name": "a"}, {"queue": 1, "name": "b"}, {"queue": 2, "name": "a"}}})
		exec(store.MakeTenants, sqlrun.Args{"rows": []sqlrun.Args{{"queue": 1, "name": "a"}}})
		for _, node := range []string{"n1", "n2"} {
			exec(store.WaitForTenants, sqlrun.Args{
				"queue": 1, "tenants": both[:1], "node": node, "lasts": (50 * time.Second).Microseconds(), "soon": (10 * time.Second).Microseconds(),
			})
		}
		ask(store.WaitingTenants, sqlrun.Args{"queue": 1, "tenants": both}, "[a n1 b ]", 2)
		db.Do(t, `UPDATE {prefix}queue_tenant SET waiting_until = {now + 3600000000} WHERE tenant = 'a'`, nil) // the clock had been wrong
		ask(store.WaitingTenants, sqlrun.Args{"queue": 1, "tenants": both}, "[a  b ]", 2)
		exec(store.WaitForTenants, sqlrun.Args{"queue": 1, "tenants": both[:1], "node": "n1", "lasts": (50 * time.Second).Microseconds(), "soon": (10 * time.Second).Microseconds()})
		ask(store.WaitingTenants, sqlrun.Args{"queue": 1, "tenants": both}, "[a n1 b ]", 2)
		limitTenant(t, c, "a", func(l *admin.Limit) { l.Running = 1 })
		if infos, err = adminOf(c).LimitsOf(t.Context(), defaultQueue); err != nil || !infos[1].Waiting || !infos[2].Waiting || infos[3].Waiting || infos[0].Waiting {
			t.Errorf("limits: %+v, %v", infos, err)
		}
		must(t, db.Tx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) error {
			drawn := store.Epoch.UnixMicro()
			_, err := tx.Exec(ctx, store.SetDrawnTenants, sqlrun.Args{"rows": []sqlrun.Args{
				{"queue": 1, "name": "b", "drawn": drawn, "ahead": 0, "filled": drawn + (100 * 365 * 24 * time.Hour).Microseconds()},
			}})
			return err
		}))
		sweep := func(since time.Duration, want string) {
			t.Helper()
			exec(store.SweepTenants, sqlrun.Args{"since": since.Microseconds()})
			if got := fmt.Sprint(db.List(t, `SELECT queue_id, tenant FROM {prefix}queue_tenant ORDER BY queue_id, tenant`, nil)); got != want {
				t.Errorf("after a sweep: %s, not %s", got, want)
			}
		}
		sweep(-time.Hour, "[1 a 1 b 2 a]")
		sweep(time.Hour, "[1 a 1 b]")
		db.Do(t, `UPDATE {prefix}queue_tenant SET waiting_until = {time :past}, full_at = {time :past}`, sqlrun.Args{"past": store.Epoch.UnixMicro()})
		ask(store.WaitingTenants, sqlrun.Args{"queue": 1, "tenants": both}, "[a  b ]", 2)
		sweep(time.Hour, "[]")

		exec(store.SweepPermits, nil)
		has("[1 a 0 n1 7 1 a 3 n2 7 1 b 0 n2 8 2 a 1 n1 7]")
	})
}

// text is a column as text.
func text(v any) string {
	if b, is := v.([]byte); is {
		return string(b)
	}
	return fmt.Sprint(v)
}

// Very many tenants, each with its own limit, take few round trips: permits are taken and given back for many at once.
func TestManyTenantsTakeFewRoundTrips(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		edit(t, c, func(*admin.Queue) {})
		limitTenant(t, c, admin.EachTenant, func(l *admin.Limit) { l.Running, l.Rate = 1, 1000 })
		const tenants = 2000
		jobs := make([]Job, tenants)
		for i := range jobs {
			jobs[i] = Job{Kind: "x", Tenant: fmt.Sprint("t", i)}
		}
		enqueueMany(t, c, jobs)
		var mu sync.Mutex
		calls, by := 0, map[string]int{}
		counted := db.Broken(t, &dbtest.Fault{Random: func() (before, after bool) { return false, false }, Stall: func(op string) {
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(op, "queue_permit") || strings.Contains(op, "queue_tenant") { // the number of the others depends on the time
				calls++
				by[strings.Join(strings.Fields(op), " ")]++
			}
		}})
		w := worker(t, client(t, counted, Options{}), WorkerOptions{Concurrency: 10})
		handle(t, w, "x", func(context.Context, *Delivery) error { return nil })
		defer start(t, w)()
		empty(t, db)
		eventually(t, "nothing is left of the permits", func() bool { return len(tenantRows(t, db)) == 0 })
		mu.Lock()
		defer mu.Unlock()
		if calls > tenants/2 { // one after the other they would need six each
			t.Errorf("%d tenants took %d statements", tenants, calls)
		}
		for op, n := range by {
			t.Logf("%d %.150s", n, op)
		}
		eventually(t, "the worker has forgotten them", func() bool { return limitsOf(w).Tenants() == 0 })
	})
}

// Jobs of tenants that were put back, since too many waited for their rates, come to their turns when none is left in memory.
func TestTenantRateOfABacklog(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		edit(t, c, func(*admin.Queue) {})
		limitTo(t, c, "", 3)
		limitTenant(t, c, admin.EachTenant, func(l *admin.Limit) { l.Rate, l.Per, l.Burst = 50, time.Second, 5 })
		w := worker(t, other(t, db), WorkerOptions{Batch: 1})
		handle(t, w, "x", func(context.Context, *Delivery) error { return nil })
		var jobs []Job
		for i := range 150 {
			jobs = append(jobs, Job{Kind: "x", Tenant: fmt.Sprint(i % 3)})
		}
		enqueueMany(t, c, jobs)
		defer start(t, w)()
		empty(t, db)
	})
}
