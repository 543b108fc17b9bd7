package dashboard

import (
	"html"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

var (
	postForms = regexp.MustCompile(`(?s)<form method="post" action="([^"]*)"[^>]*>(.*?)</form>`)
	fields    = regexp.MustCompile(`<(input|button|select|textarea)\b([^>]*)>([^<]*)`)
	attribute = regexp.MustCompile(`([a-z-]+)(?:="([^"]*)")?`)
	options   = regexp.MustCompile(`<option value="([^"]*)"( selected)?`)
)

// A form is one that a page has, as a browser without JavaScript would send it.
type form struct {
	page, action string
	values       url.Values
	buttons      []string // what do may be
}

// forms returns the forms of a page that have actions.
func (a *answer) forms() (all []form) {
	a.t.Helper()
	found := postForms.FindAllStringSubmatch(a.text, -1)
	if all := strings.Count(a.text, "<form") - strings.Count(a.text, `<form method="get"`); len(found) != all {
		a.t.Errorf("%s: found %d forms that act, of %d", a.what, len(found), all)
	}
	for _, m := range found {
		f := form{page: a.what, action: html.UnescapeString(m[1]), values: url.Values{}}
		for _, e := range fields.FindAllStringSubmatch(m[2], -1) {
			at := map[string]string{}
			for _, pair := range attribute.FindAllStringSubmatch(e[2], -1) {
				at[pair[1]] = html.UnescapeString(pair[2])
			}
			switch _, checked := at["checked"]; {
			case at["name"] == "":
			case e[1] == "button":
				f.buttons = append(f.buttons, at["value"])
			case e[1] == "textarea":
				f.values.Set(at["name"], html.UnescapeString(strings.TrimPrefix(e[3], "\n")))
			case e[1] == "select":
				_, text, _ := strings.Cut(m[2], e[0][:len("<select")+len(e[2])])
				text, _, _ = strings.Cut(text, "</select>")
				for i, o := range options.FindAllStringSubmatch(text, -1) {
					if i == 0 || o[2] != "" {
						f.values.Set(at["name"], html.UnescapeString(o[1]))
					}
				}
			case at["type"] != "checkbox" && at["type"] != "radio" || checked:
				f.values.Set(at["name"], at["value"])
			}
		}
		all = append(all, f)
	}
	return all
}

// Every form of every page works unchanged, without JavaScript: it succeeds, or the page says
// why not. Every action has a form, these tests visit each page, and a page of another origin
// can do none of it.
func TestForms(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		w := newWorld(t, db)
		s := serve(t, db.DB, "/x", Options{})
		offered, visited, sent := map[string]bool{}, map[string]bool{}, 0
		pages := append(w.pages(), link("bulk", "queue", "mail", "state", "delayed", "do", "run"),
			link("bulk", "queue", "mail", "state", "dead", "do", "delete"), link("job", "queue", "mail", "id", w.delayed))
		for range 2 { // a paused queue can be resumed
			var all []form
			for _, path := range pages {
				page, _, _ := strings.Cut(path, "?")
				visited["/"+page] = true
				if a := s.do("GET", path, nil); a.status == 200 {
					all = append(all, a.forms()...)
				}
			}
			for _, f := range all {
				page, _, _ := strings.Cut(strings.TrimPrefix(f.action, "./"), "?")
				if page == "sign-out" {
					continue
				}
				for _, do := range f.buttons {
					offered["/"+page+" "+do] = true
					f.values.Set("do", do)
					s.do("POST", f.action, f.values, "Sec-Fetch-Site: cross-site").is(403).has("another origin")
					a := s.do("POST", f.action, f.values, "Sec-Fetch-Site: same-origin")
					sent++
					switch a.status {
					case 303:
						s.get(a.header.Get("Location"))
						to := a.header.Get("Location")
						if strings.HasPrefix(to, "run?") || do == "acknowledge" && !slices.Contains(pages, to) {
							pages = append(pages, to)
						}
					case 404, 409, 422: // another form has done it, or a field is to be filled in
						a.has("banner bad", "</html>")
					default:
						t.Errorf("%s: the form for %s with %v: %d %s", f.page, f.action, f.values, a.status, a.banner())
					}
				}
			}
		}
		for path, to := range s.board.routes {
			if !visited[path] {
				t.Errorf("no test looks at %s: add it to the pages of the world", path)
			}
			for do := range to.acts {
				if !offered[path+" "+do] && path != "/tokens" { // which has none before the first token: TestTokens
					t.Errorf("no form of a page does %s of %s", do, path)
				}
			}
		}
		for _, one := range slices.Sorted(maps.Keys(offered)) {
			path, do, _ := strings.Cut(one, " ")
			if to, ok := s.board.routes[path]; !ok || to.acts[do] == nil {
				t.Errorf("a form does %s of %s, which there is not", do, path)
			}
		}
		if sent < 20 {
			t.Errorf("only %d forms were sent", sent)
		}
	})
}
