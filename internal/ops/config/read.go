package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"

	koanfyaml "github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
	"go.yaml.in/yaml/v3"

	"github.com/dbcron/dbcron/internal/pattern"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/smallfile"
)

// keySeparator separates nested keys, of which there are none.
const keySeparator = "\x00"

// readFile reads the file that --config or DBCRON_CONFIG names, if one does.
func (s *Settings) readFile() error {
	s.file = koanf.New(keySeparator)
	from := "--config"
	if s.Path == "" {
		from = variableOf("config")
		for _, pair := range s.environ {
			if value, ok := strings.CutPrefix(pair, from+"="); ok {
				s.Path = value
				break
			}
		}
	}
	if s.Path == "" {
		return nil
	}
	data, err := smallfile.Read(s.Path, 1<<20)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if err := s.readLines(data); err != nil {
		return err
	}
	if err := s.file.Load(rawbytes.Provider(data), koanfyaml.Parser()); err != nil {
		return s.wrongYAML(err)
	}
	values := s.file.Raw()
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int { return s.lines[a] - s.lines[b] })
	for _, key := range keys {
		s.try(s.at(key), key, values[key])
	}
	if s.file.Exists(KeyURL) && s.file.Exists(KeyURLFile) {
		s.Problems = append(s.Problems, invalidf("%s: there is %s as well; leave one of them out", s.at(KeyURLFile), KeyURL))
	}
	s.warnOfReaders()
	return nil
}

// readLines finds the line of each key, and errors that koanf would not notice.
func (s *Settings) readLines(data []byte) error {
	s.lines = map[string]int{}
	d := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	if err := d.Decode(&document); errors.Is(err, io.EOF) {
		return nil // only comments
	} else if err != nil {
		return s.wrongYAML(err)
	}
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		return invalidf("%s:%d: a second document begins here; leave out the ---", s.Path, max(second.Line, 1))
	}
	top := document.Content[0]
	if top.Kind == yaml.ScalarNode && top.Tag == "!!null" {
		return nil
	}
	if top.Kind != yaml.MappingNode {
		return invalidf("%s:%d: these are no settings; write lines such as listen: 127.0.0.1:8686", s.Path, top.Line)
	}
	for i := 0; i+1 < len(top.Content); i += 2 {
		s.lines[top.Content[i].Value] = top.Content[i].Line
	}
	return nil
}

var yamlLine = pattern.Lazy(`^(?:unmarshal errors: )?line (\d+): `)

// wrongYAML formats an error of the parser as one line that begins with its position.
func (s *Settings) wrongYAML(err error) error {
	text := strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), "yaml: ")
	if m := yamlLine().FindStringSubmatch(text); m != nil {
		return invalidf("%s:%s: %s", s.Path, m[1], text[len(m[0]):])
	}
	return invalidf("%s: %s", s.Path, text)
}

// warnOfReaders warns if others can read a password in the file.
func (s *Settings) warnOfReaders() {
	rawURL := s.file.String(KeyURL)
	if rawURL == "" || runtime.GOOS == "windows" { // which has no such permission bits
		return
	}
	if u, err := url.Parse(rawURL); err == nil && u.User == nil && u.RawQuery == "" {
		return
	}
	if info, err := os.Stat(s.Path); err == nil && info.Mode().Perm()&0o007 != 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf("%s: everybody on this host can read the %s in it: chmod 600 it, or 640 with a group that is the daemon's", s.Path, KeyURL))
	}
}

// readEnvironment reads the variables that are settings. An empty one is not set.
func (s *Settings) readEnvironment() error {
	s.environment = koanf.New(keySeparator)
	keys := map[string]string{}
	for key := range s.flags {
		keys[variableOf(key)] = key
	}
	err := s.environment.Load(env.Provider(keySeparator, env.Opt{
		Prefix:      variablePrefix,
		EnvironFunc: func() []string { return s.environ },
		TransformFunc: func(name, value string) (string, any) {
			if value == "" {
				return "", nil
			}
			return keys[name], variable(value)
		},
	}), nil)
	return err
}

// CheckEnvironment validates all variables, including settings that the command does not use.
func (s *Settings) CheckEnvironment() {
	for _, key := range s.known {
		if s.environment.Exists(key) && key != KeyURL {
			s.try(variableOf(key), key, s.environment.Get(key))
		}
	}
}

// Variables that hold secrets and are no settings.
const (
	VariableSMTPPassword = "DBCRON_SMTP_PASSWORD"
	VariableNotifySecret = "DBCRON_NOTIFY_SECRET"
)

// notOurs lists variables that dbcron gives to commands, or that others give to it: the daemon was started by
// such a command, by a test, or by Kubernetes, which names variables after its services.
var notOurs = []string{
	"DBCRON_CONFIG", "DBCRON_URL", "DBCRON_DATABASE_URL", "DBCRON_DATABASE_URL_FILE",
	"DBCRON_SCHEDULE", "DBCRON_RUN_ID", "DBCRON_DUE", "DBCRON_ATTEMPT", "DBCRON_FENCE", "DBCRON_CAUSE_*",
	"DBCRON_JOB_ID", "DBCRON_QUEUE", "DBCRON_KIND", "DBCRON_KEY", "DBCRON_TENANT", "DBCRON_GROUP", "DBCRON_CALLBACK_OF", "DBCRON_MAX_ATTEMPTS",
	"DBCRON_API", "DBCRON_TOKEN", "DBCRON_SECRET", // of clients
	VariableSMTPPassword, VariableNotifySecret, "DBCRON_NOTIFY_ID", "DBCRON_NOTIFY_SUBJECT",
	"DBCRON_LOCK_*", "DBCRON_TEST_*", "DBCRON_SERVICE_*", "DBCRON_PORT", "DBCRON_PORT_*",
}

// Means reports whether a variable means something else than a setting.
func Means(variable string) bool {
	return slices.ContainsFunc(notOurs, func(pattern string) bool {
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		return variable == pattern || isPrefix && strings.HasPrefix(variable, prefix)
	})
}

// WarnOfVariables warns of variables that look like settings but are not.
func (s *Settings) WarnOfVariables() {
	var known []string
	for _, key := range s.known {
		known = append(known, variableOf(key))
	}
	for _, pair := range s.environ {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, variablePrefix) || value == "" || slices.Contains(known, name) || Means(name) {
			continue
		}
		text := "the variable " + name + " is not known"
		if near := plain.Nearest(strings.TrimPrefix(name, variablePrefix), s.known); near != "" {
			text += "; did you mean " + variableOf(near) + "?"
		}
		s.Warnings = append(s.Warnings, text)
	}
}

// suggest returns a suggestion for a mistyped key.
func (s *Settings) suggest(key string) string {
	if key == "url" {
		return "write " + KeyURL
	}
	if slices.Contains(notSettings, key) {
		return "it is for the command line only"
	}
	if near := plain.Nearest(key, s.known); near != "" {
		return "did you mean " + near + "?"
	}
	return "use one of " + strings.Join(s.known, ", ")
}
