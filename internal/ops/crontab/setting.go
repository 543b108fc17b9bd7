package crontab

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dbcron/dbcron/scheduler/cronspec"
)

const (
	// reserved begins the names of the variables that every command is given.
	reserved = "DBCRON_"

	// zoneName is the setting for the zone of specs; it is not a variable.
	zoneName = "CRON_TZ"
)

// isSetting reports whether a line is NAME=VALUE rather than an entry: it begins with a quote, which no
// spec does, or with one word and an equals sign.
func isSetting(text string) bool {
	if text[0] == '"' || text[0] == '\'' {
		return true
	}
	end := strings.IndexAny(text, blanks+"=")
	return end >= 0 && strings.HasPrefix(strings.TrimLeft(text[end:], blanks), "=")
}

func (p *parser) readSetting(text string) {
	name, value, err := splitSetting(text)
	switch {
	case err != nil:
		p.fail(err)
	case name == "":
		p.fail(errors.New("the name before = is empty; write NAME=VALUE"))
	case strings.Contains(name, "="):
		p.fail(fmt.Errorf("the name %q holds an equals sign; choose another", name))
	case strings.HasPrefix(name, reserved):
		p.fail(fmt.Errorf("the name %q is reserved, as all that begin with %s; choose another", name, reserved))
	case name == "LOGNAME":
		p.fail(errors.New("LOGNAME is the user that runs the commands, and cron ignores such a line; remove it"))
	case (name == zoneName || name == "TZ") && strings.ContainsAny(value, blanks):
		// Other crons treat the rest of such a line as an entry.
		p.fail(fmt.Errorf("the zone %q holds blanks; write %s=ZONE on a line of its own, above the entry", value, zoneName))
	case name == zoneName:
		if _, err := cronspec.New("@daily", value, ""); err != nil {
			p.fail(err)
			value = "" // the entries below are not at fault
		}
		p.zone = value
	default:
		p.checkSetting(name, value, text)
		p.set(name, value)
	}
}

func (p *parser) set(name, value string) {
	env := slices.DeleteFunc(slices.Clone(p.env), func(other string) bool {
		return strings.HasPrefix(other, name+"=")
	})
	if len(env) == maxSettings {
		p.fail(fmt.Errorf("more than %d settings; set them in a script", maxSettings))
		return
	}
	p.env = slices.Clip(append(env, name+"="+value))
}

// splitSetting strips quotes from name and value, and blanks around both unless quoted. Nothing in a
// value is expanded, neither $ nor \.
func splitSetting(text string) (name, value string, err error) {
	if text[0] == '"' || text[0] == '\'' {
		if name, text, err = cutQuoted(text); err != nil {
			return "", "", err
		}
	} else {
		end := strings.IndexAny(text, blanks+"=")
		name, text = text[:end], text[end:]
	}
	value, ok := strings.CutPrefix(strings.TrimLeft(text, blanks), "=")
	if !ok {
		return "", "", fmt.Errorf("no = follows the name %q; write NAME=VALUE, or begin with a spec", name)
	}
	value = strings.Trim(value, blanks)
	if value == "" || value[0] != '"' && value[0] != '\'' {
		return name, value, nil
	}
	value, rest, err := cutQuoted(value)
	if err == nil && rest != "" {
		err = fmt.Errorf("%q follows the closing quote; put the quotes around the whole value", rest)
	}
	return name, value, err
}

func cutQuoted(text string) (inside, rest string, err error) {
	inside, rest, ok := strings.Cut(text[1:], text[:1])
	if !ok {
		return "", "", fmt.Errorf("the quote %s is not closed; add one, or quote the quote with the other kind", text[:1])
	}
	return inside, rest, nil
}

// joinSetting is the inverse of splitSetting. It writes quotes only where they
// are needed, and around an empty value, which cron refuses without them.
func joinSetting(name, value string) (string, error) {
	if strings.Contains(name+value, "\n") {
		return "", fmt.Errorf("the setting %q holds a newline; set it in a script", name)
	}
	quotedName, ok := name, true
	if name == "" || strings.ContainsAny(name, blanks+"=") || strings.ContainsAny(name[:1], `"'#`) {
		quotedName, ok = quote(name)
	}
	if !ok {
		return "", fmt.Errorf("the name %q needs quotes and holds both kinds; choose another", name)
	}
	if value == "" || strings.Trim(value, blanks) != value || strings.ContainsAny(value[:1], `"'`) {
		value, ok = quote(value)
	}
	if !ok {
		return "", fmt.Errorf("the value of %q needs quotes and holds both kinds; set it in a script", name)
	}
	return quotedName + "=" + value, nil
}

// quote quotes text with a quote that it does not contain.
func quote(text string) (quoted string, ok bool) {
	for _, mark := range []string{`"`, `'`} {
		if !strings.Contains(text, mark) {
			return mark + text + mark, true
		}
	}
	return "", false
}
