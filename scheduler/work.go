package scheduler

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// kinds lists the kinds of work: see Schedule.Kind.
var kinds = []string{"shell", "argv", "http", "sql", "func", "job"}

// maxText limits a command, its input and each variable, in bytes.
const maxText = 1 << 20

// workProblems lists what is wrong with a schedule's work.
func (s *Schedule) workProblems() (all problems) {
	all.word("kind", s.Kind, kinds...)
	for _, only := range []struct {
		field string
		set   bool
		has   bool
		what  string
	}{
		{"env", len(s.Env) > 0, s.Work() == commands, commands},
		{"headers", len(s.Headers) > 0, s.Kind == "http", "requests"},
		{"stdin", s.Stdin != "", s.Kind != "sql", "commands, requests, functions and jobs"},
	} {
		if only.set && !only.has {
			all.add(only.field, "is for %s, not for the kind %s", only.what, s.Kind)
		}
	}
	if err := s.commandProblem(); err != nil {
		all.add("command", "%v", err)
	}
	all = append(all, s.jobProblems()...)
	if s.Dir != "" && !filepath.IsAbs(s.Dir) {
		all.add("dir", "%q does not begin with /", s.Dir)
	}
	if s.User != "" && (len(s.User) > 64 || strings.ContainsAny(s.User, " :\t\n\x00")) {
		all.add("user", "%q is not a user's name", s.User)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			all.add("env", "variable %q: a name has neither = nor NUL, and is not empty", name)
		}
		if strings.HasPrefix(name, "DBCRON_") {
			all.add("env", "variable %q: names that begin with DBCRON_ are reserved", name)
		}
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		if key := http.CanonicalHeaderKey(name); seen[key] {
			all.add("headers", "%q is there twice; names are the same in capital and small letters", name)
		} else {
			seen[key] = true
		}
		if !token(name) || strings.ContainsFunc(s.Headers[name], func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			all.add("headers", "%q is not a header", name)
		}
	}
	for _, text := range []struct{ field, value string }{
		{"command", s.Command}, {"stdin", s.Stdin}, {"env", joined(s.Env)}, {"headers", joined(s.Headers)}, {"dir", s.Dir},
	} {
		switch {
		case len(text.value) > maxText:
			all.add(text.field, "is longer than 1 MiB")
		case !utf8.ValidString(text.value) || strings.ContainsRune(text.value, 0):
			all.add(text.field, "is not UTF-8 text without NUL")
		}
	}
	return all
}

// joined concatenates a map's text for inspection.
func joined(m map[string]string) string {
	var b strings.Builder
	for name, value := range m {
		b.WriteString(name)
		b.WriteString(value)
	}
	return b.String()
}

// commandProblem returns what is wrong with a schedule's command.
func (s *Schedule) commandProblem() error {
	if strings.TrimSpace(s.Command) == "" {
		return errors.New("there is no command")
	}
	switch s.Kind {
	case "argv":
		_, err := parseArgv(s.Command)
		return err
	case "http":
		_, _, err := parseRequest(s.Command)
		return err
	case "func":
		if err := sqlrun.CheckName(s.Command); err != nil {
			return fmt.Errorf("is not a function's name: %w", err)
		}
	case "job":
		if err := sqlrun.CheckName(s.Command); err != nil {
			return fmt.Errorf("is not a kind of job: %w", err)
		}
	}
	return nil
}

func parseArgv(text string) (words []string, err error) {
	if err := json.Unmarshal([]byte(text), &words); err != nil {
		return nil, errors.New(`is not a JSON array of strings such as ["/bin/ls", "-l"]`)
	}
	if len(words) == 0 || words[0] == "" {
		return nil, errors.New("names no program")
	}
	for _, w := range words {
		if strings.ContainsRune(w, 0) {
			return nil, errors.New("an argument holds a NUL")
		}
	}
	return words, nil
}

func parseRequest(text string) (method, target string, err error) {
	method, target, ok := strings.Cut(text, " ")
	if !ok || !token(method) || strings.ToUpper(method) != method {
		return "", "", errors.New(`is not METHOD URL, such as "POST https://example.org/report"`)
	}
	u, err := url.Parse(target)
	switch {
	case err != nil || u.Host == "":
		return "", "", fmt.Errorf("%q is not a URL such as https://example.org/report", target)
	case u.Scheme != "http" && u.Scheme != "https":
		return "", "", fmt.Errorf("%q: the scheme must be http or https", target)
	case u.User != nil:
		return "", "", errors.New("a password in the URL would be shown in lists; use the header Authorization")
	}
	return method, target, nil
}

// token reports whether text can be a method or a header's name.
func token(text string) bool {
	_, err := http.NewRequest(text, "http://localhost", http.NoBody) //nolint:noctx // it is not sent
	return text != "" && err == nil
}
