package dashboard

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/scheduler/cronspec"
)

// editedBytes is the maximum size of a text that can be edited in the form, as a browser
// encodes it: two such texts fit into formBytes.
const editedBytes = 24 << 10

// errChanged means that somebody has changed the schedule since the form was shown.
var errChanged = errors.New("not saved: it was changed meanwhile. The current values are shown beside fields that differ; save again to overwrite them")

// fieldProblems are invalid fields of the form. They are an ErrInvalid.
type fieldProblems []scheduler.Problem

// Error lists the problems.
func (all fieldProblems) Error() string {
	texts := make([]string, len(all))
	for i, p := range all {
		texts[i] = p.Field + ": " + p.Text
	}
	return "not saved: " + strings.Join(texts, "; ")
}

// Is reports that they are an ErrInvalid.
func (fieldProblems) Is(err error) bool { return err == scheduler.ErrInvalid }

// An editField is a setting in the form.
type editField struct {
	Name, Label, Hint string
	Is                string   // the current setting as text
	Typed             string   // the field's content
	Problem           string   // why Typed is invalid
	Options           []string // the possible values; nil: any text
	Long              bool     // it may have several lines
	More              bool     // it is seldom changed
	set               func(s *scheduler.Schedule, text string) error
}

// Lines returns the number of lines to show of a long text.
func (f *editField) Lines() int { return min(14, 2+strings.Count(f.Typed, "\n")) }

// A scheduleForm is the form that edits a schedule.
type scheduleForm struct {
	Fields []editField
	Was    string   // identifies the settings from which the form was made
	Kept   []string // settings that cannot be edited here, and why
	Open   bool
	More   bool // the fields that are seldom changed have problems
}

// often are the settings that are shown first.
var often = []string{"time_zone", "timeout", "job_timeout", "max_attempts", "job_max_attempts", "overlap", "missed", "notify"}

// editForm returns the form with a schedule's current settings. It shows no secrets: hidden
// parts of a command stay unless a new command is entered.
func (d *Dashboard) editForm(r *request, s *scheduler.Schedule) *scheduleForm {
	f := &scheduleForm{Fields: []editField{
		textField("spec", "Spec", "five fields as in a crontab, @daily, @every 90s, @manual", s.Spec,
			func(s *scheduler.Schedule) *string { return &s.Spec }),
	}}
	commands := d.api.AllowsCommands() && r.who.Login == audit.Token
	settings := scheduler.Settings()
	for i := range settings {
		set := &settings[i]
		if set.Has(s.Work()) && set.Name != "first_run" && (s.Kind == "job" || commands || !set.Runs) {
			f.Fields = append(f.Fields, settingField(set, s))
		}
	}
	f.addWork(s, r.hide, commands)
	sum := sha256.New()
	fmt.Fprintf(sum, "%d %q", s.ID, s.Kind)
	for i := range f.Fields {
		one := &f.Fields[i]
		one.Typed = one.Is
		fmt.Fprintf(sum, " %s=%q", one.Name, one.Is)
	}
	f.Was = fmt.Sprintf("%x", sum.Sum(nil)[:12])
	return f
}

// addWork adds the command. Editing it requires what the API requires:
// whoever changes them runs something with a daemon's rights.
func (f *scheduleForm) addWork(s *scheduler.Schedule, hide, commands bool) {
	if s.Kind != "job" && !commands {
		f.Kept = append(f.Kept,
			"Changing its command, where it runs and its tag requires signing in with a token, and dbcron serve --allow-commands.")
		return
	}
	work := []editField{textField("command", "Command", "", httpapi.ShownCommand(s), func(s *scheduler.Schedule) *string { return &s.Command })}
	if s.Kind == "job" {
		work[0].Label = "Job kind"
		work = append(work, textField("stdin", "Payload", "empty: the schedule, the slot and the run's id", s.Stdin,
			func(s *scheduler.Schedule) *string { return &s.Stdin }))
	}
	for _, one := range work {
		one.Long = one.Label != "Job kind"
		switch {
		case hide:
			f.Kept = append(f.Kept, one.Label+": hidden here, so it stays the same.")
		case !editable(one.Is):
			f.Kept = append(f.Kept, one.Label+": too long for this form, or not text, so it stays the same.")
		default:
			f.Fields = append(f.Fields, one)
		}
	}
}

// editable reports whether a form can show a text and send it back unchanged.
func editable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsRune(text, 0) &&
		len(url.QueryEscape(strings.ReplaceAll(text, "\n", "\r\n"))) <= editedBytes
}

// textField returns the field of a text that is stored as entered.
func textField(name, label, hint, is string, of func(s *scheduler.Schedule) *string) editField {
	return editField{Name: name, Label: label, Hint: hint, Is: is, set: func(s *scheduler.Schedule, typed string) error {
		*of(s) = typed
		return nil
	}}
}

// settingField returns the field of a setting.
func settingField(set *scheduler.Setting, s *scheduler.Schedule) editField {
	f := editField{Name: set.Name, Label: set.Label(), Hint: set.Help, Is: set.Text(s), set: set.Set, More: !slices.Contains(often, set.Name)}
	switch set.Kind {
	case setting.Word, setting.Priority:
		f.Options = set.Words
	case setting.Flag:
		f.Options = []string{"true", "false"}
	default:
		if is := set.Default(); is != "" {
			f.Hint += " Empty: " + is + "."
		}
	}
	return f
}

// typed returns what was entered in the field. Browsers end the lines of long texts with CR LF.
func (f *editField) typed(form url.Values) string {
	if !form.Has(f.Name) {
		return f.Is
	}
	text := form.Get(f.Name)
	if !f.Long {
		return strings.TrimSpace(text)
	}
	lines := strings.NewReplacer("\r\n", "\n", "\r", "\n")
	if text = lines.Replace(text); text == lines.Replace(f.Is) {
		return f.Is // with its original line ends
	}
	return text
}

// apply sets the fields of a schedule that were changed in the form, and returns the names of
// these settings.
func (f *scheduleForm) apply(s *scheduler.Schedule, form url.Values) (changed []string, err error) {
	var wrong fieldProblems
	for i := range f.Fields {
		one := &f.Fields[i]
		typed := one.typed(form)
		if typed == one.Is {
			continue
		}
		changed = append(changed, one.Name)
		switch err := one.set(s, typed); {
		case !utf8.ValidString(typed) || strings.ContainsRune(typed, 0):
			wrong = append(wrong, scheduler.Problem{Field: one.Name, Text: "is not UTF-8 text without NUL"})
		case err != nil:
			wrong = append(wrong, scheduler.Problem{Field: one.Name, Text: err.Error()})
		}
	}
	for _, p := range s.Problems() {
		if p.Field == "spec" {
			if _, err := cronspec.New("@daily", s.Zone, ""); err != nil {
				p.Field = "time_zone"
			}
		}
		wrong = append(wrong, p)
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	return changed, nil
}

// failed makes the form show what was entered, and its problems.
func (f *scheduleForm) failed(form url.Values, err error) {
	var wrong fieldProblems
	meanwhile := errors.Is(err, errChanged)
	errors.As(err, &wrong)
	f.Open = true
	if !meanwhile { // a change by somebody else is reported, not overwritten
		f.Was = form.Get("was")
	}
	for i := range f.Fields {
		one := &f.Fields[i]
		one.Typed = one.typed(form)
		if one.Options != nil && !slices.Contains(one.Options, one.Typed) {
			one.Typed = one.Is
		}
		if meanwhile && one.Typed != one.Is {
			one.Problem = fmt.Sprintf("is now %q", plain.Cut(one.Is, 300))
		}
		for _, p := range wrong {
			if p.Field == one.Name {
				one.Problem = plain.Cut(p.Text, 500)
			}
		}
		f.More = f.More || one.More && one.Problem != ""
	}
}

// editSchedule saves the form. The row is locked from the comparison with the settings from
// which the form was made until the change, so that no concurrent change is lost unnoticed.
func (d *Dashboard) editSchedule(ctx context.Context, r *request) (outcome, error) {
	name, err := r.nameIn("name")
	if err != nil {
		return outcome{}, err
	}
	var changed []string
	_, _, err = scheduler.Set(ctx, d.db, name, func(s *scheduler.Schedule, isNew bool) error {
		if isNew {
			return fmt.Errorf("%w: %s", scheduler.ErrNotFound, name)
		}
		f := d.editForm(r, s)
		if f.Was != r.PostForm.Get("was") {
			return errChanged
		}
		changed, err = f.apply(s, r.PostForm)
		return err
	})
	if err != nil {
		return outcome{}, err
	}
	if len(changed) == 0 {
		return outcome{note: "unchanged", action: "schedule.set", counted: true, detail: "nothing was changed"}, nil
	}
	return outcome{note: "edited", action: "schedule.set", detail: strings.Join(changed, ", ")}, nil
}
