package dashboard

import (
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

//go:embed assets templates
var files embed.FS

// templates returns the pages by file name, each with the frame. To parse them takes longer than most
// commands do, which show no page.
var templates = sync.OnceValue(func() map[string]*template.Template {
	frame := template.Must(template.New("").Funcs(functions).ParseFS(files, "templates/frame.html", "templates/parts.html"))
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		panic(err)
	}
	all := map[string]*template.Template{}
	for _, name := range names {
		all[path.Base(name)] = template.Must(template.Must(frame.Clone()).ParseFS(files, name))
	}
	return all
})

// asset sends an embedded file, if the path names one.
func (d *Dashboard) asset(w http.ResponseWriter, r *http.Request) bool {
	kind, ok := map[string]string{
		"/style.css": "text/css; charset=utf-8", "/script.js": "text/javascript; charset=utf-8", "/icon.svg": "image/svg+xml",
	}[r.URL.Path]
	if !ok {
		return false
	}
	text, err := files.ReadFile("assets" + r.URL.Path)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(text) // the client is gone
	return true
}

var functions = template.FuncMap{
	"link": link, "ago": ago, "stamp": stamp, "count": plain.Count, "number": func(n any) string {
		if n, ok := n.(int64); ok {
			return plain.Number(n)
		}
		return plain.Number(n.(int))
	}, "span": plain.Span, "cut": plain.Cut, "sentence": sentence, "bytes": byteText, "plural": plain.Plural,
	"said": said, "inWords": specWords,
	"clean": plain.Clean, "sections": func() []section { return sections }, "took": func(r scheduler.Run) time.Duration { return took(&r) },
	"shown": func(s scheduler.Schedule) string { return httpapi.ShownCommand(&s) }, "text": func(b []byte) string { return string(b) },
	"bulks": bulkNames, "bulk": func(s admin.State, name string) bulkAct { return bulkActs[s][name] },
	"priority": wire.PriorityName, "states": func() []string { return []string{"active", "paused", "ended", "failed"} },
	"at": func(s admin.State) string {
		return map[admin.State]string{
			admin.StateDelayed: "Due", admin.StateRunning: "Runs since", admin.StateDead: "Died",
			admin.StateDone: "Ended",
		}[s]
	},
	"if_": func(is any, then string) string {
		if yes, _ := template.IsTrue(is); yes {
			return then
		}
		return ""
	},
	"dict": func(pairs ...any) map[string]any {
		m := map[string]any{}
		for i := 0; i+1 < len(pairs); i += 2 {
			m[pairs[i].(string)] = pairs[i+1]
		}
		return m
	},
}

// A section is an entry of the navigation.
type section struct{ Key, Name, Link string }

var sections = []section{
	{"overview", "Overview", "./"},
	{"queues", "Queues", "queues"},
	{"jobs", "Jobs", "jobs"},
	{"errors", "Errors", "errors"},
	{"schedules", "Schedules", "schedules"},
	{"runs", "Runs", "runs"},
	{"locks", "Locks", "locks"},
	{"daemons", "Daemons", "daemons"},
	{"audit", "Audit", "audit"},
}

// link returns a relative address with names and values of its query. It omits empty texts and
// zeros.
func link(to string, pairs ...any) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if is, _ := template.IsTrue(pairs[i+1]); is {
			q.Set(fmt.Sprint(pairs[i]), fmt.Sprint(pairs[i+1]))
		}
	}
	if len(q) == 0 {
		return to
	}
	return to + "?" + q.Encode()
}

const stampLayout = "2006-01-02 15:04:05"

// stamp formats an instant in UTC.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(stampLayout)
}

// ago returns an element that says how long ago an instant was, or how soon it will be.
func ago(now, t time.Time) template.HTML {
	if t.IsZero() {
		return `<span class="none">–</span>`
	}
	text := ""
	switch d := now.Sub(t); {
	case d >= 30*24*time.Hour || d <= -30*24*time.Hour:
		text = t.UTC().Format("2006-01-02")
	case d >= time.Second:
		text = plain.Span(d) + " ago"
	case d > -time.Second:
		text = "now"
	default:
		text = "in " + plain.Span(-d)
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s UTC">%s</time>`, t.UTC().Format(time.RFC3339Nano), stamp(t), text)) //nolint:gosec // digits and words of ours
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func byteText(n int) string {
	switch {
	case n < 1<<10:
		return plain.Plural(n, "byte", "bytes")
	case n < 1<<20:
		return strconv.FormatFloat(float64(n)/(1<<10), 'f', 1, 64) + " KiB"
	}
	return strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64) + " MiB"
}

// sentence turns an error's text into a sentence for people.
func sentence(text string) string {
	for _, prefix := range []string{"queue: ", "lock: ", "httpapi: ", "dashboard: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	text = plain.Cut(text, 500)
	first, n := utf8.DecodeRuneInString(text)
	if text == "" {
		return ""
	}
	text = string(unicode.ToUpper(first)) + text[n:]
	if !strings.HasSuffix(text, ".") && !strings.HasSuffix(text, "…") {
		text += "."
	}
	return text
}

// notes are the messages about actions. The query only has a key and a number, so that a link
// cannot make a page say anything else.
var notes = map[string]func(n int) string{
	"paused":    func(int) string { return "Paused." },
	"resumed":   func(int) string { return "Resumed." },
	"purged":    func(n int) string { return "Removed " + plain.Plural(n, "job", "jobs") + "." },
	"purgedAll": func(n int) string { return "Removed " + plain.Plural(n, "job", "jobs") + ", all there were." },
	"nothing":   func(int) string { return "There was nothing to remove." },
	"retried":   func(int) string { return "The job will be retried." },
	"goes":      func(int) string { return "The job may begin now." },
	"ended": func(int) string {
		return "The job is cancelled. If it is running, its worker notices within two seconds."
	},
	"cloned":    func(int) string { return "This is the new job." },
	"deleted":   func(int) string { return "The job is deleted." },
	"started":   func(int) string { return "A daemon will begin this run soon." },
	"limited":   func(int) string { return "The limit is set. Workers apply it within three seconds." },
	"unlimited": func(int) string { return "The limit is removed." },
	"resized": func(int) string {
		return "New jobs go to new blocks in a few seconds; the old blocks are removed when they are empty."
	},
	"notifies":      func(int) string { return "The notification setting is saved." },
	"backfilled":    func(n int) string { return plain.Plural(n, "slot", "slots") + " will run, oldest first." },
	"edited":        func(int) string { return "Saved. Daemons apply it within seconds." },
	"unchanged":     func(int) string { return "Nothing was changed." },
	"nothingMissed": func(int) string { return "Every slot of that period has a successful run." },
	"acknowledged":  func(int) string { return "Acknowledged: it counts no more until it changes." },
	"reopened":      func(int) string { return "It counts again." },
	"drained":       func(int) string { return "It takes no new work and finishes what it has begun." },
	"undrained":     func(int) string { return "It takes work again." },
	"routed":        func(int) string { return "The route is set. Producers apply it within two seconds." },
	"unrouted":      func(int) string { return "The route is removed." },
	"subscribed":    func(int) string { return "The queue gets copies from now on." },
	"unsubscribed":  func(int) string { return "The subscription has ended. Copies that were enqueued are still done." },
	"ungrouped":     func(int) string { return "The group has ended. A worker removes it within a minute or two." },
	"revoked":       func(int) string { return "The token is revoked. All daemons refuse it within two seconds." },
	"cancelled":     func(int) string { return "The run is cancelled. If it is running, its daemon ends it within seconds." },
}

func noteOf(q url.Values) string {
	note, ok := notes[q.Get("ok")]
	if !ok {
		return ""
	}
	n, err := strconv.Atoi(q.Get("n"))
	if err != nil || n < 0 {
		n = 0
	}
	return note(n)
}

// nameIn reads a required name from the query.
func (r *request) nameIn(field string) (string, error) {
	name := r.query.Get(field)
	if name == "" {
		return "", fmt.Errorf("%w: the address lacks %s", errBadRequest, field)
	}
	return name, checkName(field, name)
}

// optionalName reads an optional name from the query.
func (r *request) optionalName(field string) (string, error) {
	name := r.query.Get(field)
	if name == "" {
		return "", nil
	}
	return name, checkName(field, name)
}

func checkName(field, name string) error {
	if err := sqlrun.CheckName(name); err != nil {
		return fmt.Errorf("%w: %s: %w", errBadRequest, field, err)
	}
	if strings.ContainsRune(name, utf8.RuneError) {
		return fmt.Errorf("%w: %s: the name has a character that cannot be read", errBadRequest, field)
	}
	return nil
}

// idIn reads a number from the query; 0 if it is missing and optional.
func (r *request) idIn(field string, needed bool) (int64, error) {
	text := r.query.Get(field)
	if text == "" && !needed {
		return 0, nil
	}
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 || text[0] == '+' {
		return 0, fmt.Errorf("%w: %s is not a number", errBadRequest, field)
	}
	return id, nil
}
