package browser

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/lock"
)

var (
	pictures = flag.String("pictures", "", "`folder` for pictures of all pages")
	only     = flag.String("only", "", "`names` of pages, with commas between them: there are pictures of no others")
)

// wait bounds what a browser must do on a slow machine.
const wait = 20 * time.Second

// A tab is a browser's tab. Anything it complains about fails the test.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string // of the dashboard

	mu         sync.Mutex
	complaints []string
}

// chromium starts a browser that ends with the test.
func chromium(t *testing.T) context.Context {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WSURLReadTimeout(wait))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Run(ctx); err != nil {
		dbtest.Missing(t, fmt.Errorf("there is no Chromium to be had; install Debian's package chromium: %w", err))
	}
	return ctx
}

// open starts a browser.
func open(t *testing.T, url string) *tab {
	t.Helper()
	ctx := chromium(t)
	b := &tab{t: t, ctx: ctx, url: url}
	chromedp.ListenTarget(ctx, func(event any) {
		text := ""
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			text = e.ExceptionDetails.Error()
		case *runtime.EventConsoleAPICalled:
			text = fmt.Sprintf("console.%s", e.Type)
		case *log.EventEntryAdded: // violations of the policy, and failed loads
			text = e.Entry.Text
		case *page.EventJavascriptDialogOpening:
			text = "a dialog: " + e.Message
		}
		if text != "" && !strings.Contains(text, "the server responded with a status of 4") {
			b.mu.Lock()
			b.complaints = append(b.complaints, text)
			b.mu.Unlock()
		}
	})
	b.run(log.Enable())
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, text := range b.complaints {
			t.Errorf("the browser complains: %s", text)
		}
	})
	return b
}

func (b *tab) run(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, wait)
	defer cancel()
	b.fine(chromedp.Run(ctx, actions...))
}

// fine fails the test for an error, with what the page says.
func (b *tab) fine(err error) {
	b.t.Helper()
	if err != nil {
		var text string
		_ = chromedp.Run(b.ctx, chromedp.Text("body", &text, chromedp.ByQuery))
		b.t.Fatalf("%v, on a page that says: %.2000s", err, text)
	}
}

func (b *tab) visit(path string) { b.t.Helper(); b.run(chromedp.Navigate(b.url + path)) }

// submit clicks a button that sends a form, and waits for the next page.
func (b *tab) submit(button string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, wait)
	defer cancel()
	if _, err := chromedp.RunResponse(ctx, chromedp.Click(button, chromedp.ByQuery)); err != nil {
		b.t.Fatalf("%s: %v", button, err)
	}
}

// has waits until the page shows a text.
func (b *tab) has(text string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, wait)
	defer cancel()
	for {
		var got bool
		err := chromedp.Run(ctx, chromedp.PollFunction(`(text) => document.body.innerText.includes(text)`, &got, chromedp.WithPollingArgs(text)))
		if err != nil && strings.Contains(err.Error(), "Cannot find context") && ctx.Err() == nil {
			continue // it looked at a page that was just replaced by the next one
		}
		b.fine(err)
		return
	}
}

func (b *tab) eval(expression string) (value any) {
	b.t.Helper()
	b.run(chromedp.Evaluate(expression, &value))
	return value
}

func job(queue string, id int64) string {
	return "job?" + url.Values{"queue": {queue}, "id": {fmt.Sprint(id)}}.Encode()
}

// pages returns the pages to look at, by the names of their pictures.
func (w *world) pages() map[string]string {
	return map[string]string{
		"overview": "", "queues": "queues", "queue": "queue?name=billing", "queue-paused": "queue?name=mail",
		"queue-behind": "queue?name=thumbnails", "queue-sent": "queue?name=webhooks",
		"jobs": "jobs?queue=thumbnails", "jobs-dead": "jobs?queue=billing&state=dead", "jobs-none": "jobs?queue=billing&state=delayed",
		"job": job("mail", w.ready), "job-dead": job("billing", w.dead), "job-delayed": job("mail", w.delayed),
		"bulk": "bulk?queue=billing&state=dead&do=retry", "bulk-many": "bulk?queue=thumbnails&state=ready&do=cancel",
		"bulk-done": "bulk?queue=billing&state=dead&do=retry&from=end&done=12345&gone=7&in_use=1",
		"clone":     strings.Replace(job("mail", w.ready), "job?", "clone?", 1), "errors": "errors",
		"errors-none": "errors?queue=none", "job-strange": "jobs?" + url.Values{"queue": {hostile}}.Encode(),
		"schedules": "schedules", "schedule": "schedule?name=" + longName, "schedule-late": "schedule?name=ping",
		"schedule-strange": "schedule?" + url.Values{"name": {hostile}}.Encode(),
		"runs":             "runs", "runs-failed": "runs?state=failed", "run": fmt.Sprint("run?id=", w.failed),
		"run-running": fmt.Sprint("run?id=", w.running),
		"locks":       "locks", "lock": "lock?name=migration", "daemons": "daemons", "routes": "routes",
		"topics": "topics", "groups": "groups", "group": fmt.Sprint("group?id=", w.group), "tokens": "tokens",
		"audit": "audit", "audit-none": "audit?actor=nobody", "error": "run?id=99999999", "sign-in": "sign-in",
	}
}

// all returns the pages of a world and those that only the navigation leads to.
func (b *tab) all(w *world) map[string]string {
	b.t.Helper()
	pages := w.pages()
	known := slices.Collect(maps.Values(pages))
	b.visit("")
	var links []string
	b.run(chromedp.Evaluate(`[...document.querySelectorAll('header nav a')].map((a) => a.getAttribute('href'))`, &links))
	for _, to := range links {
		if path := strings.TrimPrefix(to, "./"); !slices.Contains(known, path) {
			pages[path] = path
		}
	}
	if len(links) < 8 {
		b.t.Errorf("the navigation has only %v", links)
	}
	return pages
}

// The browser opens all pages and takes each action on real data, with and without JavaScript. It
// stays within the policy and logs no complaint in the console, and hostile names stay text.
func TestBrowser(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		w := life(t, db, 500)
		b := open(t, serve(t, db.DB))
		for name, path := range b.all(&w) {
			b.visit(path)
			if title := b.eval("document.title").(string); !strings.HasSuffix(title, "· dbcron") {
				t.Errorf("%s: the title is %q", name, title)
			}
			if wide := b.eval("document.documentElement.scrollWidth > document.documentElement.clientWidth"); wide != false {
				t.Errorf("%s is wider than the window", name)
			}
			if n := b.eval(`document.querySelectorAll("main img, main script, main [onerror]").length`); n != 0.0 {
				t.Errorf("%s: %v elements come from names", name, n)
			}
		}

		// All forms work without JavaScript.
		b.run(emulation.SetScriptExecutionDisabled(true))
		b.visit("queue?name=mail")
		b.submit(`button[value=resume]`)
		b.run(chromedp.WaitVisible(`.banner.ok`, chromedp.ByQuery), chromedp.WaitVisible(`button[value=pause]`, chromedp.ByQuery))
		b.visit(job("billing", w.dead))
		b.submit(`button[value=retry]`)
		b.run(chromedp.WaitVisible(`.banner.ok`, chromedp.ByQuery))
		b.run(emulation.SetScriptExecutionDisabled(false))

		b.visit("queue?name=mail")
		b.run(chromedp.SendKeys(`input[name=reason]`, "for a while", chromedp.ByQuery))
		b.submit(`button[value=pause]`)
		b.has("for a while")
		b.run(chromedp.Click(`#purge summary`, chromedp.ByQuery), chromedp.SetValue(`#purge select`, "ready", chromedp.ByQuery),
			chromedp.SendKeys(`input[name=typed]`, "nail", chromedp.ByQuery))
		b.submit(`button[value=purge]`)
		b.has("not the queue's name")
		b.run(chromedp.Click(`#purge summary`, chromedp.ByQuery), chromedp.SetValue(`#purge select`, "ready", chromedp.ByQuery),
			chromedp.SendKeys(`input[name=typed]`, "mail", chromedp.ByQuery))
		b.submit(`button[value=purge]`)
		b.has("Removed 5 jobs, all there were.")
		b.visit(job("mail", w.delayed))
		b.submit(`button[value=run]`)
		b.has("may begin now")
		b.submit(`button[value=cancel]`)
		b.has("It no longer exists.")
		b.visit("jobs?queue=billing&state=dead")
		b.run(chromedp.Click(`main a.id`, chromedp.ByQuery), chromedp.WaitVisible(`button[value=delete]`, chromedp.ByQuery))
		b.submit(`button[value=delete]`)
		b.has("The job is deleted.")
		w.jobs(b)
		w.routing(b)
		w.settings(b)
		b.visit("schedule?name=backup")
		b.submit(`button[value=pause]`)
		b.has("Paused.")
		b.submit(`button[value=resume]`)
		b.has("Resumed.")
		b.visit("schedule?name=by-hand")
		b.submit(`button[value=run]`)
		b.has("A daemon will begin this run soon.")
		b.submit(`button[value=cancel]`)
		b.has("The run is cancelled.")

		// The script shows changes and leaves fields alone that somebody fills in.
		b.visit("locks")
		locker, err := lock.New(db.DB, lock.Options{})
		must(t, err)
		lease, err := locker.TryAcquire(t.Context(), "a-new-lock")
		must(t, err)
		defer func() { must(t, lease.Release(context.WithoutCancel(t.Context()))) }()
		b.has("a-new-lock")

		// By keyboard: the first Tab reaches the link that skips the navigation.
		b.visit("")
		b.run(chromedp.KeyEvent("\t"))
		if got := b.eval(`document.activeElement.className`); got != "skip" {
			t.Errorf("the first Tab leads to %v", got)
		}
	})
}

// jobs clicks the actions on many jobs and on errors, and the one that copies a job.
func (w *world) jobs(b *tab) {
	b.t.Helper()
	b.visit("jobs?queue=billing&state=dead")
	b.run(chromedp.Click(`input[data-all]`, chromedp.ByQuery))
	if n := b.eval(`document.querySelectorAll('input[name=id]:checked').length`); n != 2.0 {
		b.t.Errorf("%v jobs are ticked, want 2", n)
	}
	b.run(chromedp.Click(`input[data-all]`, chromedp.ByQuery), chromedp.Click(`tbody input[name=id]`, chromedp.ByQuery))
	b.submit(`button[value=retry]`)
	b.has("1 dead job, which you have selected.")
	b.submit(`button[value=retry]`)
	b.has("1 job was retried.")

	b.visit("errors")
	b.has("no such user here")
	b.submit(`a[href*="do=delete"]`)
	b.has("1 dead job.")
	b.submit(`button[value=delete]`)
	b.has("1 job was deleted.")

	b.visit("jobs?queue=thumbnails&state=ready") // all that match, without a click per part
	b.submit(`.bulk a[href*="do=cancel"]`)
	b.has("500 ready jobs")
	b.submit(`button[value=cancel]`)
	b.has("500 jobs were cancelled.")

	b.visit("jobs?queue=webhooks&state=delayed")
	b.submit(`.bulk a[href*="do=run"]`)
	b.has("2 delayed jobs")
	b.submit(`button[value=run]`)
	b.has("2 jobs")
	b.visit("queue?name=webhooks")
	b.has("it pushes back: 3 failures in a row")

	b.visit(job(hostile, w.strange))
	b.submit(`a[href^="clone?"]`)
	b.run(chromedp.SetValue(`textarea`, `{"n":12345678901234567890}`, chromedp.ByQuery))
	b.submit(`button[value=clone]`)
	b.has("This is the new job.")
	b.has("12345678901234567890")
}

// routing clicks the actions on routes, topics and groups, and looks for them in the audit.
func (w *world) routing(b *tab) {
	b.t.Helper()
	b.visit("routes")
	b.run(chromedp.SendKeys(`input[name=kind]:not([type=hidden])`, "receipt", chromedp.ByQuery),
		chromedp.SendKeys(`.acts input[name=queue]`, "mail", chromedp.ByQuery))
	b.submit(`button[value=set]`)
	b.has("The route is set.")
	b.submit(`button[aria-label="Remove the route of receipt"]`)
	b.has("The route is removed.")
	b.visit("topics")
	b.run(chromedp.SendKeys(`.acts input[name=topic]`, "order-paid", chromedp.ByQuery),
		chromedp.SendKeys(`.acts input[name=queue]`, "mail", chromedp.ByQuery))
	b.submit(`button[value=subscribe]`)
	b.has("The queue gets copies from now on.")
	b.submit(`button[aria-label="End the subscription of mail to order-paid"]`)
	b.has("The subscription has ended.")
	b.visit(fmt.Sprint("group?id=", w.group))
	b.run(chromedp.Click(`#delete summary`, chromedp.ByQuery), chromedp.SendKeys(`input[name=typed]`, fmt.Sprint(w.group), chromedp.ByQuery))
	b.submit(`button[value=delete]`)
	b.has("The group has ended")
	b.visit("audit")
	b.submit(`a[href="audit?action=route.set"]`)
	b.has("to mail")
	b.has("this host")
}

// settings clicks settings of queues and schedules, a backfill, and the draining of a daemon.
func (w *world) settings(b *tab) {
	b.t.Helper()
	b.visit("queue?name=billing")
	b.run(chromedp.Click(`#limit summary`, chromedp.ByQuery), chromedp.SendKeys(`#limit input[name=kind]`, "invoice", chromedp.ByQuery),
		chromedp.SendKeys(`#limit input[name=rate]`, "5/s", chromedp.ByQuery))
	b.submit(`button[value=limit]`)
	b.has("The limit is set.")
	b.submit(`button[aria-label="Remove the limit of invoice"]`)
	b.has("The limit is removed.")
	b.run(chromedp.Click(`#resize summary`, chromedp.ByQuery), chromedp.SendKeys(`#resize input`, "9", chromedp.ByQuery))
	b.submit(`button[value=resize]`)
	b.has("New jobs go to new blocks")
	b.visit("schedule?name=backup")
	b.run(chromedp.Click(`#backfill summary`, chromedp.ByQuery),
		chromedp.SetValue(`#backfill input[name=from]`, "2026-01-02T03:30", chromedp.ByQuery),
		chromedp.SetValue(`#backfill input[name=to]`, "2026-01-03T03:30", chromedp.ByQuery))
	b.submit(`#backfill button`)
	b.has("2 slots would be run")
	b.submit(`button[value=backfill]`)
	b.has("2 slots will run")
	b.run(chromedp.Click(`#edit summary`, chromedp.ByQuery), chromedp.SetValue(`#edit input[name=spec]`, "99 * * * *", chromedp.ByQuery))
	b.submit(`button[value=edit]`)
	b.has("Not saved")
	b.run(chromedp.SetValue(`#edit input[name=spec]`, "45 3 * * *", chromedp.ByQuery))
	b.submit(`button[value=edit]`)
	b.has("Saved.")
	b.has("45 3 * * *")
	b.visit("daemons")
	b.submit(`button[value=drain]`)
	b.has("It takes no new work")
	b.submit(`button[value=undrain]`)
	b.has("It takes work again.")
}

// Three questions of an operator, each answered within three clicks from the overview.
func TestQuestions(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		life(t, db, 500)
		// they wait for an hour
		db.Do(t, `UPDATE {prefix}job SET id = id - :age WHERE kind = 'resize'`, sqlrun.Args{"age": int64(4096) * 3_600_000_000})
		b := open(t, serve(t, db.DB))

		// Which schedule failed last night, and why?
		b.visit("")
		b.has("A run of " + longName + " failed")
		b.submit(`.problems a[href^="run?"]`)
		b.has("exit code 3: connection refused: warehouse.example.com:5432")
		b.has("copied 10000 rows")

		// Which queue is behind, since when, and what would help?
		b.visit("")
		b.has("No worker serves queue thumbnails")
		b.submit(`.problems a[href="queue?name=thumbnails"]`)
		b.has("500")
		b.has("the oldest for 1h")
		b.has("there is no worker")

		// Who holds this lock, and is it alive?
		b.visit("")
		b.submit(`header a[href="locks"]`)
		b.has("migration")
		b.submit(`main a[href="lock?name=migration"]`)
		b.has("app-1.example.org:4711")
		b.has("holds it for")
	})
}

// With a token a browser signs in, returns to the page that it asked for, and signs out. The
// dashboard refuses a form sent by a page of another origin.
func TestSignIn(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		life(t, db, 0)
		secret, err := httpapi.NewTokens(db.DB).Create(t.Context(), "ada", []httpapi.Scope{httpapi.ScopeAdmin}, 0)
		must(t, err)
		b := open(t, serve(t, db.DB))
		b.visit("queue?name=billing")
		b.has("Sign in")
		b.run(chromedp.SendKeys(`input[name=token]`, secret, chromedp.ByQuery))
		b.submit(`main button`)
		b.has("billing")
		if got := b.eval("document.cookie"); got != "" {
			t.Errorf("scripts can read the cookie %q", got)
		}
		evil := serveEvil(t, b.url+"queue?name=billing")
		b.run(chromedp.Navigate(evil))
		b.submit("button")
		b.has("another origin")
		b.visit("queue?name=billing")
		b.run(chromedp.WaitVisible(`button[value=pause]`, chromedp.ByQuery))
		b.submit(`header button`)
		b.has("Sign in")
		b.visit("queues")
		b.has("Sign in")
		b.run(chromedp.SendKeys(`input[name=token]`, secret, chromedp.ByQuery))
		b.submit(`main button`)
		b.visit("tokens")
		b.run(chromedp.Click(`#revoke-ada summary`, chromedp.ByQuery))
		b.submit(`#revoke-ada button`)
		if tokens, err := httpapi.NewTokens(db.DB).List(t.Context()); err != nil || tokens[0].Revoked.IsZero() {
			t.Errorf("got %+v, %v", tokens, err)
		}
	})
}

// serveEvil serves a page of another origin with a form for the dashboard.
func serveEvil(t *testing.T, action string) string {
	t.Helper()
	return serveText(t, `<!doctype html><link rel="icon" href="data:,"><form method="post" action="`+action+
		`"><button name="do" value="pause">Win a prize</button></form>`)
}

// Pictures of all pages, in dark and light, on a desktop and on a phone.
func TestPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("no folder is given: -pictures")
	}
	must(t, os.MkdirAll(*pictures, 0o755))
	db := dbtest.Fresh(t, "sqlite")
	must(t, migrate(t, db))
	w := life(t, db, 10_500)
	address := serve(t, db.DB)
	for _, l := range looks {
		b := open(t, address)
		b.as(l)
		for name, path := range b.all(&w) {
			if wanted(name) {
				b.picture(path, name+"-"+l.name)
			}
		}
	}
}

// wanted reports whether to take a picture of a page.
func wanted(name string) bool { return *only == "" || slices.Contains(strings.Split(*only, ","), name) }

// picture writes a screenshot of a page.
func (b *tab) picture(path, name string) {
	b.t.Helper()
	var picture []byte
	b.visit(path)
	b.run(chromedp.FullScreenshot(&picture, 100))
	must(b.t, os.WriteFile(filepath.Join(*pictures, name+".png"), picture, 0o644))
}
