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

// notSettings are the flags that say what a command is to do this time.
var notSettings = []string{"help", "config", "check", "once"}

// A configuration is what a file and the environment say about settings. Each of serve's
// flags is one, so that there is no second list of them.
type configuration struct {
	p     *program
	known []string               // as files call them, sorted
	flags map[string]*pflag.Flag // that try values: those of no command that runs

	file, environment *koanf.Koanf
	path              string
	lines             map[string]int // of the file, by key
	problems          []error
	warnings          []string
}

// A configured database is one that the file names.
type configuredDatabase struct {
	url, file string // one of them
	at        string // where it says so
}

// keyOf is how a file calls the setting of a flag.
func keyOf(f *pflag.Flag) string {
	if f.Name == "url" {
		return keyURL // as in the environment, where it has been called so all along
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

// newConfiguration reads the file and the environment, and looks for all that is wrong there.
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

// configure gives the flags of a command that were not given the values that the
// environment or the file has for them: all of serve's, and the database's of any other.
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
	// What is wrong in the file may be the database's name, mistyped: so it is an error
	// of all commands.
	if err := errors.Join(s.problems...); err != nil {
		return err
	}
	return s.apply(settable(flags))
}

// configuresItself marks commands that look at the settings on their own, or need none.
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

// database is the one that the file names.
func (s *configuration) database() (d configuredDatabase) {
	for key, to := range map[string]*string{keyURL: &d.url, keyURLFile: &d.file} {
		if text, ok := s.file.Get(key).(string); ok {
			*to, d.at = text, s.at(key)
		}
	}
	return d
}

// get returns the value of a setting that the command line has not, and where it is from;
// nil if it is from nowhere.
func (s *configuration) get(key string) (value any, from string) {
	if s.environment.Exists(key) {
		return s.environment.Get(key), variableOf(key)
	}
	if s.file.Exists(key) {
		return s.file.Get(key), s.at(key)
	}
	return nil, ""
}

// at is the place of a key in the file.
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

// try sees whether a key is known and its value good.
func (s *configuration) try(from, key string, value any) {
	f := s.flags[key]
	switch {
	case f == nil && key != keyURLFile:
		s.problems = append(s.problems, usagef("%s: unknown key %q; %s", from, key, s.suggest(key)))
		return
	case key == keyURL || key == keyURLFile: // whose value may have a password
		if _, ok := value.(string); !ok || value == "" {
			s.problems = append(s.problems, usagef("%s: %s: it is a text, in quotes if need be", from, key))
		}
		return
	}
	if err := set(f, value); err != nil {
		s.problems = append(s.problems, usagef("%s: %s: %v", from, key, err))
	}
}

// set sets a flag to a value of YAML's types, or of the environment's.
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

// A variable is a value from the environment, where all is text.
type variable string

// textsOf is the value of a setting that there may be several of.
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

// textOf is a value as a flag takes it. YAML guesses types; what it makes a number of is
// no text.
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

// kindText says what values of a type of flag are.
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

// withoutSecrets is a value as people may see it.
func withoutSecrets(key, value string) string {
	switch {
	case key == keyURL:
		return dialect.Redact(value)
	case value != "" && (strings.HasSuffix(key, "_secret") || strings.HasSuffix(key, "_password") || strings.HasSuffix(key, "_token")):
		return "(hidden)"
	}
	return value
}
