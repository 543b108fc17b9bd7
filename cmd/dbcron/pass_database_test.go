package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/internal/ops/config"
)

// What commands of schedules get of the daemon's database, by where the daemon has it from: never a password, and nothing that means
// something else in another folder.
func TestPassedDatabase(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, text string) string {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	secret := file("url", "postgres://u:secret@h/app\n")
	local := file("local", "sqlite:data/a.db\n")
	for name, c := range map[string]struct {
		environ []string
		flags   databaseFlags
		want    []string // without the prefix; nil: it is refused
	}{
		"by default":          {nil, databaseFlags{}, []string{"DBCRON_DATABASE_URL=sqlite://" + filepath.Join(here, "dbcron.db")}},
		"a relative file":     {[]string{"DBCRON_DATABASE_URL=sqlite:a%20b/x.db"}, databaseFlags{}, []string{"DBCRON_DATABASE_URL=sqlite://" + filepath.Join(here, "a%20b/x.db")}},
		"a file":              {[]string{"DBCRON_DATABASE_URL=sqlite:/var/x.db"}, databaseFlags{}, []string{"DBCRON_DATABASE_URL=sqlite:///var/x.db"}},
		"a file by a file":    {[]string{"DBCRON_DATABASE_URL_FILE=" + local}, databaseFlags{}, []string{"DBCRON_DATABASE_URL=sqlite://" + filepath.Join(here, "data/a.db")}},
		"no password":         {[]string{"DATABASE_URL=postgres://u@h:5432/app"}, databaseFlags{}, []string{"DBCRON_DATABASE_URL=postgres://u@h:5432/app"}},
		"a schema":            {[]string{"DATABASE_URL=postgres://h/app"}, databaseFlags{schema: "s"}, []string{"DBCRON_SCHEMA=s", "DBCRON_DATABASE_URL=postgres://h/app"}},
		"a URL file":          {[]string{"DBCRON_DATABASE_URL_FILE=" + secret}, databaseFlags{}, []string{"DBCRON_DATABASE_URL_FILE=" + filepath.Join(here, "url")}},
		"a URL file's name":   {nil, databaseFlags{fromFile: config.Database{File: secret, At: "dbcron.yaml"}}, []string{"DBCRON_DATABASE_URL_FILE=" + filepath.Join(here, "url")}},
		"a password":          {[]string{"DBCRON_DATABASE_URL=mysql://u:secret@h/app"}, databaseFlags{}, nil},
		"one in parameters":   {[]string{"DATABASE_URL=postgres://h/app?password=secret"}, databaseFlags{}, nil},
		"one in the settings": {nil, databaseFlags{fromFile: config.Database{URL: "postgres://u:secret@h/app", At: "dbcron.yaml"}}, nil},
		"one on the line":     {nil, databaseFlags{url: "postgres://u:secret@h/app"}, nil},
	} {
		p := &program{environ: c.environ, databaseFlags: c.flags}
		p.prefix = "x_"
		got, err := p.passedDatabase()
		if (err != nil) != (c.want == nil) || err == nil && !slices.Equal(got, append([]string{"DBCRON_PREFIX=x_"}, c.want...)) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
		if text := strings.Join(got, " "); strings.Contains(text, "secret") || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: it shows the password: %s, %v", name, text, err)
		}
	}
}
