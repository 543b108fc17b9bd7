// Package config reads the settings of the daemon from a file and the environment. A setting is a flag: there is no
// second list of settings.
package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"github.com/dbcron/dbcron/dialect"
)

// KeyURL and KeyURLFile are the keys that name the database.
const (
	variablePrefix = "DBCRON_"
	KeyURL         = "database_url"
	KeyURLFile     = "database_url_file"
)

// notSettings lists the flags that are about one invocation.
var notSettings = []string{"help", "config", "check", "once", "allow-http"}

// Settings are those of a file and the environment.
type Settings struct {
	Path     string  // of the file; "": none
	Problems []error // all that is wrong: invalid values and unknown keys
	Warnings []string

	known []string               // keys, sorted
	flags map[string]*pflag.Flag // for validating values: not those of a running command

	file, environment *koanf.Koanf
	environ           []string
	lines             map[string]int // in the file, by key
}

// A Database is the database named in the file.
type Database struct {
	URL, File string // one of them is set
	At        string // where in the file
}

// ErrInvalid is the error of settings that cannot be used. It has no text of its own.
var ErrInvalid = errors.New("invalid settings")

type invalid struct{ error }

func (invalid) Is(target error) bool { return target == ErrInvalid }
func (e invalid) Unwrap() error      { return e.error }

func invalidf(format string, args ...any) error { return invalid{fmt.Errorf(format, args...)} }

// keyOf returns the key of a flag's setting in files.
func keyOf(f *pflag.Flag) string {
	if f.Name == "url" {
		return KeyURL // as in the environment, for compatibility
	}
	return strings.ReplaceAll(f.Name, "-", "_")
}

func variableOf(key string) string { return variablePrefix + strings.ToUpper(key) }

// Flags returns the flags of serve that are settings, by key.
func Flags(sets ...*pflag.FlagSet) map[string]*pflag.Flag {
	all := map[string]*pflag.Flag{}
	for _, set := range sets {
		set.VisitAll(func(f *pflag.Flag) {
			if !slices.Contains(notSettings, f.Name) {
				all[keyOf(f)] = f
			}
		})
	}
	return all
}

// Read reads the file at a path, or else the one that DBCRON_CONFIG names, if one does, and the environment. flags are
// those that can be set, of a command that is not running. It collects everything wrong in them.
func Read(path string, environ []string, flags map[string]*pflag.Flag) (*Settings, error) {
	s := &Settings{Path: path, environ: environ, flags: flags}
	for key := range s.flags {
		s.known = append(s.known, key)
	}
	s.known = append(s.known, KeyURLFile)
	slices.Sort(s.known)
	if err := s.readFile(); err != nil {
		return nil, err
	}
	return s, s.readEnvironment()
}

// Apply sets the flags that the command line did not, and notes in sources where their values are from, by the flag's name.
func (s *Settings) Apply(flags map[string]*pflag.Flag, sources map[string]string) error {
	var errs []error
	for _, key := range s.known {
		f := flags[key]
		if f == nil || f.Changed || key == KeyURL {
			continue
		}
		value, from := s.get(key)
		if value == nil {
			continue
		}
		if err := set(f, value); err != nil {
			errs = append(errs, invalidf("%s: %s: %v", from, key, err))
		}
		sources[f.Name] = from
	}
	return errors.Join(errs...)
}

// Database returns the database named in the file.
func (s *Settings) Database() (d Database) {
	for key, to := range map[string]*string{KeyURL: &d.URL, KeyURLFile: &d.File} {
		if text, ok := s.file.Get(key).(string); ok {
			*to, d.At = text, s.at(key)
		}
	}
	return d
}

// get returns the value of a setting from the environment or file, and where it is from; nil if it is not
// set.
func (s *Settings) get(key string) (value any, from string) {
	if s.environment.Exists(key) {
		return s.environment.Get(key), variableOf(key)
	}
	if s.file.Exists(key) {
		return s.file.Get(key), s.at(key)
	}
	return nil, ""
}

// at returns the position of a key in the file.
func (s *Settings) at(key string) string {
	if line := s.lines[key]; line > 0 {
		return fmt.Sprintf("%s:%d", s.Path, line)
	}
	return s.Path
}

// try checks that a key is known and its value valid.
func (s *Settings) try(from, key string, value any) {
	f := s.flags[key]
	switch {
	case f == nil && key != KeyURLFile:
		s.Problems = append(s.Problems, invalidf("%s: unknown key %q; %s", from, key, s.suggest(key)))
		return
	case key == KeyURL || key == KeyURLFile: // the value may contain a password
		if _, ok := value.(string); !ok || value == "" {
			s.Problems = append(s.Problems, invalidf("%s: %s: it is a text, in quotes if need be", from, key))
		}
		return
	}
	if err := set(f, value); err != nil {
		s.Problems = append(s.Problems, invalidf("%s: %s: %v", from, key, err))
	}
}

// set sets a flag to a value from YAML or the environment.
func set(f *pflag.Flag, value any) error {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		texts, err := textsOf(value)
		if err == nil {
			err = list.Replace(texts)
		}
		f.Changed = f.Changed || err == nil
		return err
	}
	text, err := textOf(f.Value.Type(), value)
	if err != nil {
		return err
	}
	if err := f.Value.Set(text); err != nil {
		return WrongValue(f.Value.Type(), text, err)
	}
	f.Changed = true
	return nil
}

// A variable is a value from the environment, where everything is text.
type variable string

// textsOf returns the values of a setting that may have several.
func textsOf(value any) (texts []string, err error) {
	switch value := value.(type) {
	case variable:
		for text := range strings.SplitSeq(string(value), ",") {
			texts = append(texts, strings.TrimSpace(text))
		}
		return texts, nil
	case string:
		return []string{value}, nil
	case []any:
		for _, one := range value {
			text, err := textOf("string", one)
			if err != nil {
				return nil, err
			}
			texts = append(texts, text)
		}
		return texts, nil
	}
	return nil, errors.New("it is a list of texts, such as [one, two]")
}

// textOf converts a value for a flag. YAML guesses types; a value that it takes for a number is not a text.
func textOf(kind string, value any) (string, error) {
	switch value := value.(type) {
	case variable:
		return string(value), nil
	case string:
		if kind != "bool" && !wholeNumber(kind) && kind != "float64" {
			return value, nil
		}
	case bool:
		if kind == "bool" {
			return fmt.Sprint(value), nil
		}
	case int, int64, uint64:
		if wholeNumber(kind) || kind == "float64" {
			return fmt.Sprint(value), nil
		}
	case float64:
		if kind == "float64" {
			return fmt.Sprint(value), nil
		}
	case nil:
		return "", errors.New("it has no value; leave the key out for the default")
	}
	return "", fmt.Errorf("it is %s", kindText(kind))
}

func wholeNumber(kind string) bool {
	return strings.HasPrefix(kind, "int") || strings.HasPrefix(kind, "uint") || kind == "count"
}

// kindText describes the values of a type of flag.
func kindText(kind string) string {
	switch {
	case kind == "bool":
		return "true or false, without quotes"
	case wholeNumber(kind):
		return "a whole number, without quotes"
	case kind == "float64":
		return "a number, without quotes"
	case kind == "duration":
		return "a duration, such as 30s or 5m"
	}
	return "a text: put it in quotes"
}

// WrongValue returns an error about a value that a flag of a type refuses, in words about the value: those of package strconv name
// functions of Go.
func WrongValue(kind, text string, err error) error {
	switch {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%q is out of range", text)
	case kind == "bool" || kind == "float64" || wholeNumber(kind):
		return fmt.Errorf("%q is not %s", text, strings.TrimSuffix(kindText(kind), ", without quotes"))
	case strings.HasPrefix(err.Error(), strconv.Quote(text)):
		return err
	}
	return fmt.Errorf("%q: %w", text, err)
}

// WithoutSecrets returns a value in a form that people may see.
func WithoutSecrets(key, value string) string {
	switch {
	case key == KeyURL:
		return dialect.Redact(value)
	case value != "" && (strings.HasSuffix(key, "_secret") || strings.HasSuffix(key, "_password") || strings.HasSuffix(key, "_token")):
		return "(hidden)"
	}
	return value
}
