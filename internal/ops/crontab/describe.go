package crontab

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dbcron/dbcron/internal/pattern"
	"github.com/dbcron/dbcron/scheduler/cronspec"
)

// maxDescription is the number of characters of a description; the rest is cut off.
const maxDescription = 1000

// columns matches the line above the fields in the headers of many crontabs.
var columns = pattern.Lazy(`(?i)^m(in(ute)?)?\s+h(our)?\s+d(om|ay)?\b`)

// describe adds a comment to the description of the entry below it. What is no sentence begins anew: a rule, a line that was
// commented out, a header. Comments of other encodings are taken for Latin-1.
func (p *parser) describe(text string) {
	if !utf8.ValidString(text) {
		runes := make([]rune, 0, len(text))
		for _, b := range []byte(text) {
			runes = append(runes, rune(b))
		}
		text = string(runes)
	}
	words := strings.FieldsFunc(strings.TrimLeft(text, "#"), func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
	text = strings.Join(words, " ")
	if !strings.ContainsFunc(text, unicode.IsLetter) || columns().MatchString(text) || isSetting(text) || isEntry(text) {
		p.about = ""
		return
	}
	p.about = strings.TrimLeft(p.about+" "+text, " ")
	if utf8.RuneCountInString(p.about) > maxDescription {
		p.about = string([]rune(p.about)[:maxDescription-1]) + "…"
	}
}

// Describes reports whether a comment with this text alone gives an entry this description.
func Describes(text string) bool {
	p := newParser()
	p.readLine("# " + text)
	return p.about == text
}

// isEntry reports whether a text begins with a spec.
func isEntry(text string) bool {
	words := strings.Fields(text)
	if words[0][0] == '@' {
		return true
	}
	_, err := cronspec.Parse(strings.Join(words[:min(len(words), 5)], " "))
	return err == nil
}
