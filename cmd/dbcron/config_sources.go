package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/knadh/koanf/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dbcron/dbcron/dialect"
)

const (
	variablePrefix = "DBCRON_"
	keyURL         = "database_url"
	keyURLFile     = "database_url_file"
)

// notSettings lists the flags that are about one invocation.
var notSettings = []string{"help", "config", "check", "once", "allow-http"}

// A configuration holds the settings of a file and the environment. Each of serve's flags is one, so there is
// no second list of settings.
type configuration struct {
	p     *program
	known []string               // keys, sorted
	flags map[string]*pflag.Flag // for validating values: not those of a running command

	file, environment *koanf.Koanf
	path              string
	lines             map[string]int // in the file, by key
	problems          []error
	warnings          []string
}

// A configuredDatabase is the database named in the file.
type configuredDatabase struct {
	url, file string // one of them is set
	at        string // where in the file
}

// keyOf returns the key of a flag's setting in files.
func keyOf(f *pflag.Flag) string {
	if f.Name == "url" {
		return keyURL // as in the environment, for compatibility
	}
	return strings.ReplaceAll(f.Name, "-", "_")
}

func variableOf(key string) string { return variablePrefix + strings.ToUpper(key) }

// settable returns the flags of serve that are settings, by key.
func settable(sets ...*pflag.FlagSet) map[string]*pflag.Flag {
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

// newConfiguration reads the file and the environment, and collects everything wrong in them.
func (p *program) newConfiguration() (*configuration, error) {
	var f serveFlags
	var d databaseFlags
	serve, root := &cobra.Command{}, &cobra.Command{}
	f.register(serve)
	d.register(root)
	s := &configuration{p: p, flags: settable(serve.Flags(), root.PersistentFlags())}
	for key := range s.flags {
		s.known = append(s.known, key)
	}
	s.known = append(s.known, keyURLFile)
	slices.Sort(s.known)
	if err := s.readFile(); err != nil {
		return nil, err
	}
	return s, s.readEnvironment()
}

// configure sets flags that were not given on the command line from the environment or the file: all of
// serve's, and the database flags of other commands.
func (p *program) configure(c *cobra.Command, _ []string) error {
	if c.HasSubCommands() || c.Annotations[configuresItself] != "" {
		return nil
	}
	s, err := p.newConfiguration()
	if err != nil {
		return err
	}
	flags := c.InheritedFlags()
	if c.Name() == "serve" {
		flags = c.Flags()
		s.warnOfVariables()
	}
	s.tell()
	// The error may concern a mistyped name of the database, so all commands fail.
	if err := errors.Join(s.problems...); err != nil {
		return err
	}
	return s.apply(settable(flags))
}

// configuresItself marks commands that handle settings themselves or need none.
const configuresItself = "configures itself"

// apply sets the flags that the command line did not.
func (s *configuration) apply(flags map[string]*pflag.Flag) error {
	s.p.fromFile = s.database()
	var errs []error
	for _, key := range s.known {
		f := flags[key]
		if f == nil || f.Changed || key == keyURL {
			continue
		}
		value, from := s.get(key)
		if value == nil {
			continue
		}
		if err := set(f, value); err != nil {
			errs = append(errs, usagef("%s: %s: %v", from, key, err))
		}
		s.p.set[f.Name] = from
	}
	return errors.Join(errs...)
}

// database returns the database named in the file.
func (s *configuration) database() (d configuredDatabase) {
	for key, to := range map[string]*string{keyURL: &d.url, keyURLFile: &d.file} {
		if text, ok := s.file.Get(key).(string); ok {
			*to, d.at = text, s.at(key)
		}
	}
	return d
}

// get returns the value of a setting from the environment or file, and where it is from; nil if it is not
// set.
func (s *configuration) get(key string) (value any, from string) {
	if s.environment.Exists(key) {
		return s.environment.Get(key), variableOf(key)
	}
	if s.file.Exists(key) {
		return s.file.Get(key), s.at(key)
	}
	return nil, ""
}

// at returns the position of a key in the file.
func (s *configuration) at(key string) string {
	if line := s.lines[key]; line > 0 {
		return fmt.Sprintf("%s:%d", s.path, line)
	}
	return s.path
}

// tell prints the warnings.
func (s *configuration) tell() {
	for _, w := range s.warnings {
		fmt.Fprintln(s.p.err, "dbcron: warning: "+harmless(w))
	}
}

// try checks that a key is known and its value valid.
func (s *configuration) try(from, key string, value any) {
	f := s.flags[key]
	switch {
	case f == nil && key != keyURLFile:
		s.problems = append(s.problems, usagef("%s: unknown key %q; %s", from, key, s.suggest(key)))
		return
	case key == keyURL || key == keyURLFile: // the value may contain a password
		if _, ok := value.(string); !ok || value == "" {
			s.problems = append(s.problems, usagef("%s: %s: it is a text, in quotes if need be", from, key))
		}
		return
	}
	if err := set(f, value); err != nil {
		s.problems = append(s.problems, usagef("%s: %s: %v", from, key, err))
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
		return wrongValue(f.Value.Type(), text, err)
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

func wrongValue(kind, text string, err error) error {
	if kind == "bool" || kind == "duration" || wholeNumber(kind) {
		return fmt.Errorf("%q: it is %s", text, strings.TrimSuffix(kindText(kind), ", without quotes"))
	}
	return fmt.Errorf("%q: %w", text, err)
}

// withoutSecrets returns a value in a form that people may see.
func withoutSecrets(key, value string) string {
	switch {
	case key == keyURL:
		return dialect.Redact(value)
	case value != "" && (strings.HasSuffix(key, "_secret") || strings.HasSuffix(key, "_password") || strings.HasSuffix(key, "_token")):
		return "(hidden)"
	}
	return value
}
