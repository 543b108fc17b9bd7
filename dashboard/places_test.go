package dashboard

import (
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// Pages lead to the dashboards of other databases, and say which one this is.
func TestPlaces(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, "/dbcron", Options{})
		s.get("queues").has("<title>Queues · dbcron</title>").lacks("Databases")
		s.board.opt.Database = "app"
		s.get("queues").has("<title>Queues · app · dbcron</title>").lacks("Databases")
		s.board.opt.Places = []Place{{"north", s.url}, {"south & east", "https://south.example.org/dbcron/"}}
		for _, path := range []string{"", "queues", "daemons"} {
			s.get(path).has(" · north · dbcron</title>", `<a href="`+s.url+`" aria-current="true">north</a>`,
				`<a href="https://south.example.org/dbcron/">south &amp; east</a>`)
		}
		s.board.opt.Places[0].URL = "https://behind.example.org/"
		s.get("queues").has("<title>Queues · app · dbcron</title>", ">north</a>", ">south &amp; east</a>").lacks(`aria-current="true"`)
	})
}

func TestParsePlace(t *testing.T) {
	for text, want := range map[string]Place{
		"north=https://cron.example.org/n?a=b": {"north", "https://cron.example.org/n?a=b"},
		"a b = http://10.0.0.1:8686":           {"a b", "http://10.0.0.1:8686"},
	} {
		if got, err := ParsePlace(text); err != nil || got != want {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "north", "north=", "=https://a", "n=a:8686", "n=javascript:alert(1)", "n=https://", "n=https://u:p@a", "n=/x"} {
		if got, err := ParsePlace(text); err == nil {
			t.Errorf("%q: got %+v", text, got)
		}
	}
}
