package checkup

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/ops/notify"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/sqlschema"
)

func TestMain(m *testing.M) { dbtest.Main(m, http.DefaultClient.CloseIdleConnections) }

var must = dbtest.Must

// nonsense are values of which no column can mean more than a few. Each engine refuses those that are not of a column's type.
var nonsense = []string{
	"NULL", "''", "'1 hour'", "'other'", "'-5s'", "'99999999d'", "' x'", "-1", "0", "2147483647", "99999999999",
	"'infinity'", "'-infinity'", "'9999-12-31 23:59:59'", "'1001-01-01 00:00:00'",
}

// A written is a row of a table that a person may write, of which one column gets a value that may mean nothing.
type written struct {
	table, column, value string
	n                    int // its number
}

func (w *written) String() string { return fmt.Sprintf("%s.%s = %s", w.table, w.column, w.value) }

// name is the one of the row.
func (w *written) name() string { return fmt.Sprintf("bad%d", w.n) }

// tablesOfPeople are the tables that a person may write, with the INSERT of a sound row, which is named :name, and with which the
// row is found again. docs/queue.md and others show such statements.
var tablesOfPeople = []struct{ table, insert, where string }{
	{"queue", `INSERT INTO {prefix}queue (name) VALUES (:name)`, `name = :name`},
	{"queue_limit", `INSERT INTO {prefix}queue_limit (queue_id, kind, max_running, rate)
		SELECT queue_id, :name, 5, 5 FROM {prefix}queue WHERE name = 'good'`, `kind = :name`},
	{"queue_share", `INSERT INTO {prefix}queue_share (queue_id, tenant, weight)
		SELECT queue_id, :name, 3 FROM {prefix}queue WHERE name = 'good'`, `tenant = :name`},
	{"route", `INSERT INTO {prefix}route (kind, queue) VALUES (:name, 'good')`, `kind = :name`},
	{"topic_queue", `INSERT INTO {prefix}topic_queue (topic, queue) VALUES ('news', :name)`, `queue = :name`},
	{
		"endpoint", `INSERT INTO {prefix}endpoint (queue_id, url, secret)
			SELECT queue_id, 'http://127.0.0.1:9/', :secret FROM {prefix}queue WHERE name = :name`,
		`queue_id = (SELECT queue_id FROM {prefix}queue AS q WHERE q.name = :name)`,
	},
	{"lock", `INSERT INTO {prefix}lock (name) VALUES (:name)`, `name = :name`},
	{"node", `INSERT INTO {prefix}node (name, state, expire_at) VALUES (:name, 'gone', {now})`, `name = :name`},
	{"token", `INSERT INTO {prefix}token (name, hash, scopes) VALUES (:name, :name, 'read')`, `name = :name`},
	{
		"notice", `INSERT INTO {prefix}notice (subject, name, problem, detail, target, run_id, times, begun_at, last_at, tell_at)
			VALUES ('schedule', :name, 'failed', '', 'mailto:a@example.org', 1, 1, {now}, {now}, {now})`,
		`name = :name`,
	},
}

// columnsOf are those of a table.
func columnsOf(t *testing.T, db *dbtest.DB, table string) []string {
	t.Helper()
	var columns []string
	_, err := sqlrun.Select(t.Context(), &db.Session, sqlrun.Unlisted(`SELECT t.* FROM (SELECT 1 AS one) AS o
		LEFT JOIN {prefix}`+table+` AS t ON 1 = 0`), nil,
		func(rows *sql.Rows) (none struct{}, err error) {
			columns, err = rows.Columns()
			return none, err
		})
	must(t, err)
	return columns
}

// write writes each nonsense into each column of each table, in a row of its own, and returns those that the engine took.
func write(t *testing.T, db *dbtest.DB) (all []written) {
	t.Helper()
	secret := push.NewSecret()
	n, refused := 0, 0
	for _, p := range tablesOfPeople {
		for _, column := range columnsOf(t, db, p.table) {
			for _, value := range nonsense {
				if p.table == "queue" && column == "queue_id" && len(value) > 9 {
					continue // after which INSERTs of this test fail, but none of ours: see TestGreatestNumberOfAQueue of queue
				}
				n++
				w := written{p.table, column, value, n}
				args := sqlrun.Args{"name": w.name(), "secret": secret}
				if p.table == "endpoint" {
					db.Do(t, tablesOfPeople[0].insert, args)
				}
				db.Do(t, p.insert, args)
				_, err := db.Exec(t.Context(), sqlrun.Unlisted(`UPDATE {prefix}`+p.table+` SET `+column+` = `+value+` WHERE `+p.where), args)
				if err != nil {
					refused++
					db.Do(t, `DELETE FROM {prefix}`+p.table+` WHERE `+p.where, args)
					if p.table == "endpoint" {
						db.Do(t, `DELETE FROM {prefix}queue WHERE name = :name`, args)
					}
					continue
				}
				all = append(all, w)
			}
		}
	}
	t.Logf("%d rows were written, and %d refused", len(all), refused)
	return all
}

// One row that means nothing harms no other, whatever is wrong with it and in whichever table that a person may write: workers and
// daemons that run go on, others start, lists have the row and its neighbours, and doctor names it with what repairs it.
//
// The class is a row whose error is the list's. The lists read such rows with [sqlrun.Reading], which carries both. Rows of schedules
// were looked at, too: they have the state failed, see TestBadRows of scheduler.
func TestOneRowHarmsNoOther(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		must(t, sqlschema.Migrate(t.Context(), db.DB))
		quiet := slog.New(slog.DiscardHandler)
		c, err := queue.New(db.DB, queue.Options{Blocks: 1, Logger: quiet})
		must(t, err)
		a, err := admin.New(db.DB, admin.Options{Blocks: 1})
		must(t, err)
		for _, name := range []string{"good", "sent"} {
			_, err = a.Edit(t.Context(), name, func(q *admin.Queue) { q.Fair = true })
			must(t, err)
		}
		_, err = a.EditLimit(t.Context(), "good", "limited", func(l *admin.Limit) { l.Running, l.Rate, l.Per = 2, 1000, time.Second })
		must(t, err)
		must(t, a.SetShare(t.Context(), "good", "acme", 3))
		must(t, a.SetRoute(t.Context(), "routed", "good"))
		must(t, c.Subscribe(t.Context(), "news", "good"))
		var mu sync.Mutex
		done := map[string]int{}
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			done[what]++
		}
		did := func(what string, n int) {
			t.Helper()
			dbtest.Eventually(t, fmt.Sprintf("%s is done for the %d. time", what, n), func() bool {
				mu.Lock()
				defer mu.Unlock()
				return done[what] >= n
			})
		}
		endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, 1000))
			note("sent")
		}))
		t.Cleanup(endpoint.Close)
		_, _, err = push.NewEndpoints(db.DB).Edit(t.Context(), "sent", func(e *push.Endpoint) { e.URL = endpoint.URL })
		must(t, err)
		hosts, err := push.ParseHosts([]string{"127.0.0.1"})
		must(t, err)
		secret, err := httpapi.NewTokens(db.DB).Create(t.Context(), "good", []httpapi.Scope{httpapi.ScopeRead}, 0)
		must(t, err)
		must(t, scheduler.Add(t.Context(), db.DB, scheduler.Schedule{Name: "good", Spec: "@manual", Kind: "func", Command: "f"}))

		run := func(of func(context.Context) error) (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- of(ctx) }()
			stop = sync.OnceFunc(func() {
				cancel()
				if err := <-ended; err != nil {
					t.Errorf("it ended with %v", err)
				}
			})
			t.Cleanup(stop)
			return stop
		}
		// start starts a process that does everything.
		start := func(queues []string) (stop func()) {
			w, err := c.Worker(queue.WorkerOptions{Queues: queues, Lease: time.Hour, Grace: time.Second})
			must(t, err)
			must(t, w.HandleOthers(func(_ context.Context, d *queue.Delivery) error { note(d.Queue + " " + d.Kind); return nil }))
			d, err := push.New(db.DB, push.Options{Hosts: hosts, Logger: quiet, Lease: time.Hour, Grace: time.Second})
			must(t, err)
			working, sending := run(w.Run), run(d.Run)
			return func() { working(); sending() }
		}
		round := 0
		// works has everything that is sound work once more.
		works := func() {
			t.Helper()
			round++
			_, err := c.EnqueueMany(t.Context(), []queue.Job{
				{Queue: "good", Kind: "plain"}, {Queue: "good", Kind: "limited", Tenant: "acme"}, {Kind: "routed"}, {Queue: "sent", Kind: "x"},
			})
			must(t, err)
			p, err := c.Publish(t.Context(), "news", queue.Job{Kind: "published"})
			must(t, err)
			if !slices.Contains(p.Queues, "good") {
				t.Errorf("published to %v", p.Queues)
			}
			for _, what := range []string{"good plain", "good limited", "good routed", "good published", "sent"} {
				did(what, round)
			}
			s, err := scheduler.New(db.DB, scheduler.Options{Logger: quiet})
			must(t, err)
			must(t, s.Handle("f", func(context.Context, *scheduler.Running) error { note("function"); return nil }))
			_, err = scheduler.Start(t.Context(), db.DB, "good")
			must(t, err)
			must(t, s.RunOnce(t.Context()))
			did("function", round)
			locker, err := lock.New(db.DB, lock.Options{Logger: quiet, TTL: time.Minute})
			must(t, err)
			l, err := locker.TryAcquire(t.Context(), "good")
			must(t, err)
			must(t, l.Release(t.Context()))
			b, err := httpapi.NewTokens(db.DB).Verify(t.Context(), secret)
			if must(t, err); b == nil {
				t.Error("the token is not known")
			}
			n, err := notify.New(db.DB, notify.Options{Targets: []string{"mailto:ops@example.org"}, Logger: quiet})
			must(t, err)
			must(t, n.Once(t.Context()))
		}

		stop := start([]string{"good"})
		works()
		all := write(t, db)
		queues := append(db.List(t, `SELECT name FROM {prefix}queue WHERE name LIKE 'bad%'`, nil), "good")
		works() // of those who run
		stop()
		stop = start(queues) // of others who start, or again
		works()

		found, wrong := map[string]string{}, map[string]int{}
		tell := func(table, key, problem string) {
			if problem != "" {
				found[table+" "+key] = problem
				wrong[table]++
			}
		}
		listed, err := a.Queues(t.Context(), "", 10_000)
		must(t, err)
		for i := range listed {
			tell("queue", listed[i].Name, listed[i].Wrong)
		}
		limits, err := a.Limits(t.Context(), admin.Limit{}, 10_000)
		must(t, err)
		for i := range limits {
			tell("queue_limit", limits[i].Kind, limits[i].Wrong)
		}
		shares, err := a.Shares(t.Context(), "good", "", 10_000)
		must(t, err)
		for i := range shares {
			tell("queue_share", shares[i].Tenant, shares[i].Wrong)
		}
		routes, err := a.Routes(t.Context(), "", 10_000)
		must(t, err)
		for i := range routes {
			tell("route", routes[i].Kind, routes[i].Wrong)
		}
		subscriptions, err := a.Subscriptions(t.Context(), admin.Subscription{}, 10_000)
		must(t, err)
		for i := range subscriptions {
			tell("topic_queue", subscriptions[i].Queue, subscriptions[i].Wrong)
		}
		endpoints, err := push.NewEndpoints(db.DB).List(t.Context(), "", 10_000)
		must(t, err)
		for i := range endpoints {
			if err := endpoints[i].Check(); err != nil {
				tell("endpoint", endpoints[i].Queue, err.Error())
			}
		}
		locker, err := lock.New(db.DB, lock.Options{Logger: quiet})
		must(t, err)
		locks, err := locker.List(t.Context(), "", -1, 10_000)
		must(t, err)
		for i := range locks {
			tell("lock", locks[i].Name, locks[i].Wrong)
		}
		nodes, err := scheduler.Nodes(t.Context(), db.DB, "", 10_000)
		must(t, err)
		for i := range nodes {
			tell("node", nodes[i].Name, nodes[i].Wrong)
		}
		tokens, err := httpapi.NewTokens(db.DB).List(t.Context())
		must(t, err)
		for i := range tokens {
			tell("token", tokens[i].Name, tokens[i].Wrong)
		}
		t.Logf("wrong are %v", wrong)

		// Of a queue, either something is wrong, and its jobs wait, or they are done.
		for _, w := range all {
			if w.table == "queue" && slices.Contains(queues, w.name()) {
				_, err := c.Enqueue(t.Context(), queue.Job{Queue: w.name(), Kind: "x"})
				if err != nil {
					t.Errorf("%s: nobody can enqueue: %v", &w, err)
				}
			}
		}
		works()
		var waits []string
		defer func() {
			if len(waits) > 0 {
				t.Log(waits)
			}
		}()
		dbtest.Eventually(t, "the jobs of queues with sound rows are done, and no others", func() bool {
			mu.Lock()
			defer mu.Unlock()
			waits = nil
			for _, w := range all {
				if w.table != "queue" || !slices.Contains(queues, w.name()) {
					continue
				}
				switch is, problem := done[w.name()+" x"] > 0, found["queue "+w.name()]; {
				case is && problem != "":
					t.Errorf("%s: its job was done, but %s", &w, problem)
				case !is && problem == "":
					waits = append(waits, w.String())
				}
			}
			return len(waits) == 0
		})

		problems, err := health.OfRows(t.Context(), db.DB, a)
		must(t, err)
		named := map[string]bool{}
		for i := range problems {
			p := &problems[i]
			if p.Do == "" {
				t.Errorf("%s: nothing is said to do", p.What())
			}
			for table := range wrong {
				if strings.Contains(p.What(), "row of "+db.Prefix()+table+" ") && strings.Contains(p.What(), "bad") {
					named[table] = true
				}
			}
		}
		for i := range problems {
			named["notice"] = named["notice"] || strings.Contains(problems[i].What(), "row of "+db.Prefix()+"notice ")
		}
		wrong["notice"]++ // each engine takes another subject, which no list shows
		for table := range wrong {
			if !named[table] && table != "endpoint" && table != "token" { // of which other checks tell
				t.Errorf("no finding names a row of %s", table)
			}
		}
		for _, check := range Work(t.Context(), db.DB) {
			if strings.Contains(check.Advice, "bug") {
				t.Errorf("doctor: %s: %s", check.Name, check.Detail)
			}
		}
		stop()
	})
}
