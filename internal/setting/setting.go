// Package setting says once what people set of a schedule or of a queue. The packages scheduler and
// queue/admin have a table each. From it come the columns of statements, checks of values, flags,
// keys of files, changes of the API, rows of the dashboard and tables of the docs.
package setting

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// A Kind is what the values of a setting look like.
type Kind int

// The kinds.
const (
	Text     Kind = iota
	Word          // one of Setting.Words
	Duration      // a length of time, or one of Words
	Count         // a number from 1 on, or one of Words
	Size          // a number of bytes
	Flag          // true or false
	Priority      // of a job, one of Words
	Instant       // a time
	Texts         // names with texts
)

// A Setting is one thing that can be set of a T.
type Setting[T any] struct {
	Name  string   // of the column, of the key in files and of the JSON field
	Kind  Kind     // what its values look like
	Shape string   // the same for people: duration|none
	Words []string // all values of a Word; what may stand in the place of a Duration or a Count
	Usual string   // the default; "" if it has none that could be written
	Help  string   // what it does, in one sentence
	Unset string   // what holds without a value, in words, if Usual is ""
	Only  string   // the work that alone has it, such as commands; "": all
	Not   string   // the work that does not have it
	Runs  bool     // it says where something runs, or as whom

	column  string // "" if it is not a column
	resets  bool   // no value means the default at once
	text    func(*T) string
	zero    func(*T) bool
	set     func(*T, string, *time.Location) error
	arg     func(*T) any
	load    func(*T, string) error
	problem func(t *T, may bool) string
	value   func(*T) any
	zone    func(*T) *time.Location
}

// Of returns a setting whose value is in a field.
func Of[T, V any](name string, form Form[V], field func(*T) *V, usual, help string) Setting[T] {
	return Setting[T]{
		Name: name, Kind: form.kind, Shape: form.shape, Words: form.words, Usual: usual, Help: help, column: name,
		text: func(t *T) string { return form.text(*field(t)) },
		zero: func(t *T) bool { return form.zero(*field(t)) },
		set: func(t *T, text string, zone *time.Location) error {
			v, err := form.parse(text, zone)
			if err == nil {
				*field(t) = v
			}
			return err
		},
		arg: func(t *T) any { return form.arg(*field(t)) },
		load: func(t *T, text string) error {
			v, err := form.load(text)
			if err == nil {
				*field(t) = v
			}
			return err
		},
		problem: func(t *T, may bool) string { return form.problem(*field(t), may) },
		value:   func(t *T) any { return *field(t) },
	}
}

// Column names the column, if it has another name.
func (s Setting[T]) Column(name string) Setting[T] { s.column = name; return s }

// Elsewhere says that the value is not in a column of the noun's table.
func (s Setting[T]) Elsewhere() Setting[T] { s.column = ""; return s }

// For limits the setting to some work, such as commands.
func (s Setting[T]) For(work string) Setting[T] { s.Only = work; return s }

// NotFor excludes some work.
func (s Setting[T]) NotFor(work string) Setting[T] { s.Not = work; return s }

// Where notes that the setting says where something runs, or as whom.
func (s Setting[T]) Where() Setting[T] { s.Runs = true; return s }

// Else says what holds without a value.
func (s Setting[T]) Else(words string) Setting[T] { s.Unset = words; return s }

// In says in which time zone instants are read that have none.
func (s Setting[T]) In(zone func(*T) *time.Location) Setting[T] { s.zone = zone; return s }

// Flag is the name of the flag.
func (s *Setting[T]) Flag() string { return strings.ReplaceAll(s.Name, "_", "-") }

// Label is the name for people.
func (s *Setting[T]) Label() string { return capital(strings.ReplaceAll(s.Name, "_", " ")) }

// Default is the default in words: a value, or what holds without one. It may be empty.
func (s *Setting[T]) Default() string {
	if s.Usual != "" {
		return s.Usual
	}
	return s.Unset
}

// Usage is the help of the flag.
func (s *Setting[T]) Usage() string {
	first, n := utf8.DecodeRuneInString(s.Help)
	usage := string(unicode.ToLower(first)) + strings.TrimSuffix(s.Help[n:], ".")
	if is := s.Default(); is != "" {
		usage += " (default: " + is + ")"
	}
	return usage
}

// Text is the value as people write it. It is empty if there is none.
func (s *Setting[T]) Text(of *T) string { return s.text(of) }

// Zero reports whether the setting was left alone.
func (s *Setting[T]) Zero(of *T) bool { return s.zero(of) }

// Ordinary reports whether the value is the default.
func (s *Setting[T]) Ordinary(of *T) bool {
	text := s.text(of)
	return text == "" || text == s.Usual
}

// Fill sets the default if there is no value.
func (s *Setting[T]) Fill(of *T) {
	if s.Usual != "" && s.zero(of) && s.text(of) == "" {
		_ = s.Set(of, s.Usual) // a test checks that defaults are valid
	}
}

// Set sets the value from a text. The empty text takes it back.
func (s *Setting[T]) Set(of *T, text string) error {
	if text == "" && s.resets {
		text = s.Usual
	}
	var zone *time.Location
	if s.zone != nil {
		if zone = s.zone(of); zone == nil {
			return nil // it is told of the zone
		}
	}
	return s.set(of, text, zone)
}

// Problem says what is wrong with the value; "" means nothing.
func (s *Setting[T]) Problem(of *T) string { return s.problem(of, s.Usual == "") }

// Has reports whether a kind of work, such as commands, has the setting.
func (s *Setting[T]) Has(work string) bool {
	return (s.Only == "" || s.Only == work) && (s.Not == "" || s.Not != work)
}

// Definite returns settings of a noun that always has a value for each: taking it back sets the default.
func Definite[T any](all ...Setting[T]) []Setting[T] {
	for i := range all {
		all[i].resets = true
	}
	return all
}

// Through returns the settings of a U, which is a T by another name.
func Through[U, T any](all []Setting[T], as func(*U) *T) []Setting[U] {
	out := make([]Setting[U], len(all))
	for i, s := range all {
		out[i] = Setting[U]{
			Name: s.Name, Kind: s.Kind, Shape: s.Shape, Words: s.Words, Usual: s.Usual, Help: s.Help, Unset: s.Unset,
			column: s.column, resets: s.resets,
			text:    func(u *U) string { return s.text(as(u)) },
			zero:    func(u *U) bool { return s.zero(as(u)) },
			set:     func(u *U, text string, zone *time.Location) error { return s.set(as(u), text, zone) },
			problem: func(u *U, may bool) string { return s.problem(as(u), may) },
			value:   func(u *U) any { return s.value(as(u)) },
		}
	}
	return out
}

// Named returns the setting with a name, or nil.
func Named[T any](all []Setting[T], name string) *Setting[T] {
	if i := slices.IndexFunc(all, func(s Setting[T]) bool { return s.Name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

func capital(text string) string {
	first, n := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[n:]
}
