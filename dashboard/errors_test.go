package dashboard

import (
	"fmt"
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/queuetest"
)

// What differs from one error of a cause to the next is left out, and the rest stays.
func TestCommonText(t *testing.T) {
	for want, texts := range map[string][]string{
		"":                                 {"", "  \n"},
		"dial tcp #: i/o timeout":          {"dial tcp 192.0.2.25:25: i/o timeout", "dial tcp 10.0.0.1:5432:  i/o timeout"},
		"# # <customer-#@example.org>: no": {"550 5.1.1 <customer-4207@example.org>: no", "551 5.1.2 <customer-1@example.org>: no\n"},
		`relation "…" does not exist (#)`:  {`relation "users" does not exist (42P01)`, `relation 'a "b"' does not exist (1)`},
		"order # failed at # after #": {
			"order 6b0c9d1e-4a54-11ef-9262-0242ac120002 failed at 2026-11-24T03:30:00.5Z after 1.5s",
			"order 0b0c9d1e-face-11ef-9262-abcdefabcdef failed at 2026-01-02T03:04:05+01:00 after 250ms",
		},
		"IMG_#: can't read page#":            {"IMG_0001: can't read page7", "IMG_77: can't read page12"},
		"pointer # of #":                     {"pointer 0xdeadbeef of 7f3a", "pointer 0x1 of ab12"},
		"größe # zu groß":                    {"größe 5 zu groß", "größe 1,234 zu groß"},
		`unterminated "quote of # lines`:     {`unterminated "quote of 3 lines`},
		"#: panic in a/b.go:#":               {"3: panic in a/b.go:17", "44: panic in a/b.go:1"},
		`it's the customer's own fault: "…"`: {`it's the customer's own fault: 'x'`, "it's the customer's own fault: `y y`"},
	} {
		for _, text := range texts {
			if got := commonText(text); got != want {
				t.Errorf("%q: got %q, want %q", text, got, want)
			}
		}
	}
}

// Of any text: the result holds no digits, and of one without quotes is its own common text; and
// numbers, identifiers and what stands in quotes have no part in it.
func TestCommonTextOfAny(t *testing.T) {
	digits := regexp.MustCompile(`[0-9]`)
	word := rapid.StringMatching(`[a-z]{1,8}`)
	value := rapid.OneOf(
		rapid.StringMatching(`[1-9][0-9]{0,9}`), rapid.StringMatching(`[0-9a-f]{7}[0-9]-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`),
		rapid.StringMatching(`[0-9]{1,3}(\.[0-9]{1,3}){3}:[0-9]{1,5}`),
		rapid.StringMatching(`20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?Z`),
		rapid.StringMatching(`[0-9]{1,4}(ms|s|µs)`), rapid.StringMatching(`0x[0-9a-f]{1,8}`),
	)
	quoted := rapid.StringMatching(`"[^"\n]{0,20}"|'[^'\n]{0,20}'`)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching("[a-f0-9x '\"`#:.,/+\\-_µ\n]{0,60}")).Draw(t, "text")
		once := commonText(text)
		if again := commonText(once); !strings.ContainsAny(text, "\"'`") && again != once {
			t.Fatalf("%q has %q, and that %q", text, once, again)
		}
		if digits.MatchString(once) || len(likeness(text)) != likenessBytes {
			t.Fatalf("%q has %q, %s", text, once, likeness(text))
		}
		var a, b []string
		for range rapid.IntRange(1, 8).Draw(t, "words") {
			w := word.Draw(t, "word")
			of := rapid.SampledFrom([]*rapid.Generator[string]{value, quoted, nil}).Draw(t, "what")
			if of == nil {
				a, b = append(a, w), append(b, w)
				continue
			}
			x, y := of.Draw(t, "one"), of.Draw(t, "other")
			if of == quoted && (strings.Trim(x, " \t") == "" || strings.ContainsAny(x[1:len(x)-1]+y[1:len(y)-1], "\"'`")) {
				continue
			}
			a, b = append(a, w, x), append(b, w, y)
		}
		if x, y := commonText(strings.Join(a, " ")), commonText(strings.Join(b, " ")); len(x) <= alikeBytes &&
			len(y) <= alikeBytes && len(strings.Join(a, " ")) <= alikeBytes && len(strings.Join(b, " ")) <= alikeBytes && x != y {
			t.Fatalf("%q has %q, and %q has %q", a, x, b, y)
		}
	})
}

// Groups do not depend on the order of jobs but for the sample, and count each once.
func TestGroupErrors(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	all := []admin.Failure{
		{Queue: "mail", Kind: "a", ID: 9, State: admin.StateDead, At: now, Error: "no user 7"},
		{Queue: "mail", Kind: "a", ID: 8, State: admin.StateDelayed, At: now.Add(time.Hour), Error: "no user 8"},
		{Queue: "mail", Kind: "b", ID: 7, State: admin.StateDead, At: now, Error: "no user 7"},
		{Queue: "mail", Kind: "a", ID: 6, State: admin.StateDead, At: now.Add(-time.Hour), Error: "no user 6"},
		{Queue: "other", Kind: "a", ID: 5, State: admin.StateDelayed, At: now, Error: "no user 7"},
	}
	text := func(groups []errorGroup) string {
		var out []string
		for _, g := range groups {
			out = append(out, fmt.Sprint(g.Queue, g.Kind, g.Dead, g.Failing, g.First.Sub(now), g.Last.Sub(now) == 0, g.Common))
		}
		return strings.Join(out, "\n")
	}
	groups := groupErrors(all)
	if len(groups) != 3 || groups[0].N() != 3 || groups[0].Dead != 2 || groups[0].Sample != "no user 7" ||
		groups[0].ID != 9 || !groups[0].First.Equal(now.Add(-time.Hour)) || !groups[0].Last.Equal(now) {
		t.Errorf("got %+v", groups)
	}
	want := text(groups)
	slices.Reverse(all)
	if got := text(groupErrors(all)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Dead letters and failing jobs are shown by their errors, and a group is retried or deleted
// after a page that counts it, without others.
func TestErrors(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := queuetest.Client(t, db.DB)
		s := serve(t, db.DB, "/x", Options{})
		s.get("errors").has("None. No job is dead")
		bury(t, c, "mail", "bounce", "no such user 1", "no such user 22", "mailbox <b>full</b>", "no such user 333")
		bury(t, c, "orders", "bounce", "no such user 1")
		_, err := c.Enqueue(t.Context(), queue.Job{Queue: "orders", Kind: "later", Delay: time.Hour})
		must(t, err)
		e, err := c.Enqueue(t.Context(), queue.Job{Queue: "orders", Kind: "retry", Delay: time.Hour})
		must(t, err)
		db.Do(t, `UPDATE {prefix}job_delayed SET attempt = 2, error = 'timeout after 3s' WHERE kind = 'retry'`, nil)
		s.board.failures.drop()

		a := s.get("errors").has("6 dead letters and failing jobs", "no such user 333", "mailbox &lt;b&gt;full",
			"3 dead", "1 dead", "timeout after 3s", "waits for a retry", "Retry…").lacks("later", "no such user 22")
		if n := strings.Count(a.text, `class="head"`); n != 4 {
			t.Errorf("there are %d groups, want 4", n)
		}
		s.get(link("errors", "queue", "orders")).has("no such user 1", "timeout").lacks("no such user 333")
		s.get(link("errors", "queue", "none")).has("has failed", "All queues")
		act := func(a *answer, queue, state, do string) string {
			t.Helper()
			m := regexp.MustCompile(`href="(bulk\?[^"]*)"`).FindAllStringSubmatch(a.text, -1)
			for _, one := range m {
				to := html.UnescapeString(one[1])
				if strings.Contains(to, "queue="+queue) && strings.Contains(to, "state="+state) && strings.Contains(to, "do="+do) {
					return to
				}
			}
			t.Fatalf("there is no link to %s what is %s in %s", do, state, queue)
			return ""
		}
		to := act(a, "mail", "dead", "retry") // of the largest group
		s.get(strings.Replace(to, "bulk", "jobs", 1)).has("with similar errors", "no such user 333", "no such user 22").lacks("mailbox")
		s.post(s.get(to).has("3 dead jobs").form(), "do", "retry").has("3 jobs", "were retried")
		if n, err := adminOf(c).Count(t.Context(), "mail", 100); err != nil || n.Dead != 1 || n.Delayed != 3 {
			t.Errorf("got %+v, %v", n, err)
		}
		a = s.get("errors").lacks("no such user 333").has("mailbox")
		s.post(s.get(act(a, "orders", "delayed", "cancel")).has("1 delayed job").form(), "do", "cancel").has("was cancelled")
		if _, err := adminOf(c).Job(t.Context(), "orders", e.ID); err == nil {
			t.Error("it is still there")
		}
		if n, err := adminOf(c).Count(t.Context(), "orders", 100); err != nil || n.Delayed != 1 || n.Dead != 1 {
			t.Errorf("got %+v, %v", n, err)
		}
	})
}
