package dashboard

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/scheduler"
)

// editForm returns the contents of the form that edits a schedule.
func (a *answer) editForm() url.Values {
	a.t.Helper()
	for _, f := range a.forms() {
		if slices.Contains(f.buttons, "edit") {
			f.values.Set("do", "edit")
			return f.values
		}
	}
	a.t.Fatalf("%s: there is no form to edit", a.what)
	return nil
}

// edit sends the form with other values.
func (s *site) edit(path string, form url.Values, pairs ...string) *answer {
	s.t.Helper()
	form = maps.Clone(form)
	for i := 0; i < len(pairs); i += 2 {
		form[pairs[i]] = []string{pairs[i+1]}
	}
	return s.do("POST", path, form, "Sec-Fetch-Site: same-origin")
}

// A schedule that no file owns is edited on its page: errors appear beside their fields,
// changes by somebody else are not overwritten unnoticed, and settings that the form lacks
// stay.
func TestEditSchedule(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		newWorld(t, db)
		s, ctx := serve(t, db.DB, "/x", Options{}), t.Context()
		get := func(name string) scheduler.Schedule {
			t.Helper()
			one, err := scheduler.Get(ctx, db.DB, name)
			must(t, err)
			return one
		}
		digest := link("schedule", "name", "digest")
		form := s.get(digest).has("Job kind", `{"to":"<b>ada"}`).editForm()
		s.edit(digest, form, "spec", "61 * * * *", "time_zone", "Europe/Nowhere", "job_max_attempts", "many", "notify", "nobody").is(422).
			has(`<details id="edit" open>`, `value="61 * * * *"`, `value="Europe/Nowhere"`, `value="many"`, `value="nobody"`,
				`id="wrong-time_zone"`, `id="wrong-job_max_attempts"`, "is not a number from 1", `id="wrong-notify"`)
		s.edit(digest, form, "job_timeout", "-5m").is(422).has("is negative")
		s.edit(digest, form, "command", "").is(422).has(`id="wrong-command"`)
		s.edit(digest, form, "overlap", "sometimes").is(422)
		s.edit(digest, form, "stdin", "a\x00b").is(422)
		if is := get("digest"); is.Spec != "@daily" || is.Job.MaxAttempts != 0 || is.Stdin != `{"to":"<b>ada"}` {
			t.Errorf("it was changed by what is wrong: %+v", is)
		}
		a := s.edit(digest, form, "spec", "30 4 * * *", "time_zone", "Europe/Berlin", "job_timeout", "90m", "job_max_attempts", "3", "overlap", "queue",
			"missed", "all", "notify", "none", "tag", "reports", "command", "daily", "stdin", "{\r\n}").is(303)
		s.get(a.header.Get("Location")).has("Saved.", "30 4 * * *")
		is := get("digest")
		if is.Spec != "30 4 * * *" || is.Zone != "Europe/Berlin" || is.Job.Timeout != 90*time.Minute || is.Job.MaxAttempts != 3 || is.Overlap != "queue" ||
			is.Missed != "all" || is.Notify != "none" || is.Tag != "reports" || is.Command != "daily" || is.Stdin != "{\n}" || is.State != "active" {
			t.Errorf("got %+v", is)
		}

		// The first form is of before.
		now := s.edit(digest, form, "spec", "@hourly").is(409).has("it was changed meanwhile", "is now \"30 4 * * *\"", `value="@hourly"`).editForm()
		if is := get("digest"); is.Spec != "30 4 * * *" {
			t.Errorf("a change made meanwhile was overwritten: %s", is.Spec)
		}
		// A visitor who sees an error has not been told of a change made meanwhile.
		wrong := s.edit(digest, now, "spec", "nonsense").is(422).editForm()
		is.Spec = "0 5 * * *"
		must(t, scheduler.Edit(ctx, db.DB, is))
		now = s.edit(digest, wrong, "spec", "@hourly").is(409).editForm()
		s.edit(digest, now).is(303)
		if is := get("digest"); is.Spec != "@hourly" {
			t.Errorf("what was typed again is not saved: %s", is.Spec)
		}
		s.edit(digest, s.get(digest).editForm()).is(303)
		s.edit(link("schedule", "name", "none"), form).is(404)

		_, err := scheduler.Import(ctx, db.DB, "/etc/dbcron.yaml", []scheduler.Schedule{{Name: "owned", Key: "owned", Spec: "@daily", Command: "true"}},
			scheduler.ImportOptions{})
		must(t, err)
		s.get(link("schedule", "name", "owned")).has("It comes from <code>/etc/dbcron.yaml</code>: change it there.").lacks(`value="edit"`)
		s.edit(link("schedule", "name", "owned"), form).is(409)
		if got, want := done(t, db, "schedule.set"), []string{
			"digest nothing was changed",
			"digest spec, time_zone, job_max_attempts, job_timeout, tag, missed, overlap, notify, command, stdin", // back to the first form
			"digest spec, time_zone, job_max_attempts, job_timeout, tag, missed, overlap, notify, command, stdin",
		}; !slices.Equal(got, want) {
			t.Errorf("the audit has %q, want %q", got, want)
		}
	})
}

// Times and policies of a schedule that runs a command can be changed by every admin; the command
// and the daemons that run it only with a token, where that is allowed, as over the API. What is
// hidden in a command stays.
func TestEditCommands(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		newWorld(t, db)
		backup, strange := link("schedule", "name", "backup"), link("schedule", "name", hostile)
		get := func(name string) scheduler.Schedule {
			t.Helper()
			one, err := scheduler.Get(t.Context(), db.DB, name)
			must(t, err)
			return one
		}
		open := serveBeside(t, db.DB, "/x", httpapi.Options{AllowCommands: true}, Options{})
		form := open.get(backup).has("--allow-commands").lacks(`name="command"`).editForm()
		open.edit(backup, form, "spec", "@daily", "timeout", "2h", "max_attempts", "4", "command", "id", "tag", "db").is(303)
		if is := get("backup"); is.Spec != "@daily" || is.Timeout != 2*time.Hour || is.MaxAttempts != 4 || is.Command != "pg_dump app" || is.Tag != "default" {
			t.Errorf("got %+v", is)
		}

		tokens := httpapi.NewTokens(db.DB)
		admin, err := tokens.Create(t.Context(), "ada", []httpapi.Scope{httpapi.ScopeAdmin}, 0)
		must(t, err)
		operate, err := tokens.Create(t.Context(), "bob", []httpapi.Scope{httpapi.ScopeOperate}, 0)
		must(t, err)
		for _, allowed := range []bool{false, true} {
			s := serveBeside(t, db.DB, "/x", httpapi.Options{AllowCommands: allowed}, Options{})
			s.try("sign-in", "token", operate).is(303)
			s.get(backup).lacks(`value="edit"`)
			s.edit(backup, form, "spec", "@hourly").is(403).has("scope admin")
			s.try("sign-in", "token", admin).is(303)
			a := s.get(backup)
			if !allowed {
				a.lacks(`name="command"`)
				s.edit(backup, a.editForm(), "command", "id").is(303)
				if is := get("backup"); is.Command != "pg_dump app" {
					t.Errorf("the command is %q", is.Command)
				}
				continue
			}
			s.edit(backup, a.editForm(), "command", "set -e\r\npg_dump shop").is(303)
			if is := get("backup"); is.Command != "set -e\npg_dump shop" {
				t.Errorf("the command is %q", is.Command)
			}
			a = s.get(strange).lacks("geheim")
			s.edit(strange, a.editForm(), "spec", "@weekly").is(303)
			if is := get(hostile); is.Spec != "@weekly" || !strings.Contains(is.Command, "geheim") {
				t.Errorf("got %s, %s", is.Spec, is.Command)
			}
			hiding := serveBeside(t, db.DB, "/x", httpapi.Options{AllowCommands: true}, Options{HideArguments: true})
			hiding.try("sign-in", "token", admin).is(303)
			hiding.get(backup).has("hidden here").lacks(`name="command"`, "pg_dump")
		}
	})
}
