package setting

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Stored returns the settings that are columns. Statements have these. An instant is NULL in the table if there is
// none, and 0 µs in an answer.
func Stored[T any](all []Setting[T]) []Setting[T] {
	return slices.DeleteFunc(slices.Clone(all), func(s Setting[T]) bool { return s.column == "" })
}

// Columns lists the columns, for INSERT.
func Columns[T any](all []Setting[T]) string {
	return each(all, func(s *Setting[T]) string { return s.column })
}

// Values lists the arguments that have the names of the columns, for INSERT.
func Values[T any](all []Setting[T]) string { return each(all, (*Setting[T]).parameter) }

// Assignments sets the columns, for UPDATE.
func Assignments[T any](all []Setting[T]) string {
	return each(all, func(s *Setting[T]) string { return s.column + " = " + s.parameter() })
}

// Expressions reads the columns, for SELECT. The prefix, such as q., precedes each of them. [Load] takes them.
func Expressions[T any](all []Setting[T], prefix string) string {
	return each(all, func(s *Setting[T]) string {
		if s.Kind == Instant {
			return "COALESCE({us " + prefix + s.column + "}, 0)"
		}
		return prefix + s.column
	})
}

func (s *Setting[T]) parameter() string {
	if s.Kind == Instant {
		return "{time :" + s.column + "}"
	}
	return ":" + s.column
}

// each joins a text for each setting, some to a line.
func each[T any](all []Setting[T], text func(*Setting[T]) string) string {
	var b strings.Builder
	line := 0
	for i := range all {
		one := text(&all[i])
		switch {
		case i == 0:
		case line+len(one) > 120:
			b.WriteString(",\n\t\t\t")
			line = 0
		default:
			b.WriteString(", ")
		}
		b.WriteString(one)
		line += len(one) + 2
	}
	return b.String()
}

// Args adds the values of the columns to the arguments of a statement.
func Args[T any](all []Setting[T], of *T, args map[string]any) {
	for i := range all {
		args[all[i].column] = all[i].arg(of)
	}
}

// Load sets all values from the texts of the columns. A text that means nothing sets no value, and bad
// says which is the last one of these.
func Load[T any](all []Setting[T], to *T, texts []string) (bad error) {
	for i := range all {
		if err := all[i].load(to, texts[i]); err != nil {
			bad = fmt.Errorf("%s: %w", all[i].column, err)
		}
	}
	return bad
}

// Read sets all values from the texts of the columns of a row that a person may have written, notes each column whose
// text or value means nothing, and gives that the default.
func Read[T any](all []Setting[T], to *T, texts []string, row *sqlrun.Reading) {
	for i := range all {
		s, problem := &all[i], ""
		switch err := s.load(to, texts[i]); {
		case slices.Contains(row.Of, s.column): // it is noted
			problem = "unread"
		case err != nil:
			problem = err.Error()
		case s.Kind == Flag && texts[i] != "yes" && texts[i] != "no":
			problem = fmt.Sprintf("%q is neither yes nor no", texts[i])
		default:
			problem = s.Problem(to)
		}
		if problem == "" {
			continue
		}
		if !slices.Contains(row.Of, s.column) {
			row.Note(s.column, problem)
		}
		_ = s.Set(to, s.Usual) // a test checks that defaults are valid
	}
}

// Two returns two values of a setting that differ, as people write them.
func (s *Setting[T]) Two() (one, other string) {
	switch s.Kind {
	case Duration:
		return "1s", "2s"
	case Flag:
		return "true", "false"
	case Word, Priority:
		return s.Words[0], s.Words[1]
	case Count, Size:
		return "1", "2"
	}
	return "", none
}

// Places returns where the columns of a row go, and the texts for [Load].
func Places[T any](all []Setting[T]) (places []any, texts []string) {
	texts = make([]string, len(all))
	places = make([]any, len(all))
	for i := range texts {
		places[i] = &texts[i]
	}
	return places, texts
}

// PlacesOf is Places for [Read].
func PlacesOf[T any](all []Setting[T], row *sqlrun.Reading) (places []any, texts []string) {
	places, texts = Places(all)
	for i := range places {
		places[i] = row.Into(all[i].column, &texts[i])
	}
	return places, texts
}
