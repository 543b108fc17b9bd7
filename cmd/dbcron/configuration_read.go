package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"

	koanfyaml "github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
	"go.yaml.in/yaml/v3"

	"github.com/dbcron/dbcron/internal/plain"
)

// keySeparator separates nested keys, of which there are none.
const keySeparator = "\x00"

// readFile reads the file that --config or DBCRON_CONFIG names, if one does.
func (s *configuration) readFile() error {
	s.file = koanf.New(keySeparator)
	from := "--config"
	if s.path = s.p.configPath; s.path == "" {
		from, s.path = variableOf("config"), s.p.getenv(variableOf("config"))
	}
	if s.path == "" {
		return nil
	}
	data, err := os.ReadFile(s.path)
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
	if s.file.Exists(keyURL) && s.file.Exists(keyURLFile) {
		s.problems = append(s.problems, usagef("%s: there is %s as well; leave one of them out", s.at(keyURLFile), keyURL))
	}
	s.warnOfReaders()
	return nil
}

// readLines finds the line of each key, and errors that koanf would not notice.
func (s *configuration) readLines(data []byte) error {
	s.lines = map[string]int{}
	d := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	if err := d.Decode(&document); errors.Is(err, io.EOF) {
		return nil // only comments
	} else if err != nil {
		return s.wrongYAML(err)
	}
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		return usagef("%s:%d: a second document begins here; leave out the ---", s.path, max(second.Line, 1))
	}
	top := document.Content[0]
	if top.Kind == yaml.ScalarNode && top.Tag == "!!null" {
		return nil
	}
	if top.Kind != yaml.MappingNode {
		return usagef("%s:%d: these are no settings; write lines such as listen: 127.0.0.1:8686", s.path, top.Line)
	}
	for i := 0; i+1 < len(top.Content); i += 2 {
		s.lines[top.Content[i].Value] = top.Content[i].Line
	}
	return nil
}

var yamlLine = regexp.MustCompile(`^(?:unmarshal errors: )?line (\d+): `)

// wrongYAML formats an error of the parser as one line that begins with its position.
func (s *configuration) wrongYAML(err error) error {
	text := strings.TrimPrefix(flat(err.Error()), "yaml: ")
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		return usagef("%s:%s: %s", s.path, m[1], text[len(m[0]):])
	}
	return usagef("%s: %s", s.path, text)
}

// warnOfReaders warns if others can read a password in the file.
func (s *configuration) warnOfReaders() {
	rawURL := s.file.String(keyURL)
	if rawURL == "" || runtime.GOOS == "windows" { // which has no such permission bits
		return
	}
	if u, err := url.Parse(rawURL); err == nil && u.User == nil && u.RawQuery == "" {
		return
	}
	if info, err := os.Stat(s.path); err == nil && info.Mode().Perm()&0o007 != 0 {
		s.warnings = append(s.warnings, fmt.Sprintf("%s: everybody on this host can read the %s in it: chmod 600 it, or 640 with a group that is the daemon's", s.path, keyURL))
	}
}

// readEnvironment reads the variables that are settings. An empty one is not set.
func (s *configuration) readEnvironment() error {
	s.environment = koanf.New(keySeparator)
	keys := map[string]string{}
	for key := range s.flags {
		keys[variableOf(key)] = key
	}
	err := s.environment.Load(env.Provider(keySeparator, env.Opt{
		Prefix:      variablePrefix,
		EnvironFunc: func() []string { return s.p.environ },
		TransformFunc: func(name, value string) (string, any) {
			if value == "" {
				return "", nil
			}
			return keys[name], variable(value)
		},
	}), nil)
	return err
}

// checkEnvironment validates all variables, including settings that the command does not use.
func (s *configuration) checkEnvironment() {
	for _, key := range s.known {
		if s.environment.Exists(key) && key != keyURL {
			s.try(variableOf(key), key, s.environment.Get(key))
		}
	}
}

// notOurs lists variables that dbcron gives to commands, or that others give to it: the daemon was started by
// such a command, by a test, or by Kubernetes, which names variables after its services.
var notOurs = []string{
	"DBCRON_CONFIG", "DBCRON_URL", "DBCRON_DATABASE_URL", "DBCRON_DATABASE_URL_FILE",
	"DBCRON_SCHEDULE", "DBCRON_RUN_ID", "DBCRON_DUE", "DBCRON_ATTEMPT", "DBCRON_FENCE", "DBCRON_CAUSE_*",
	"DBCRON_JOB_ID", "DBCRON_QUEUE", "DBCRON_KIND", "DBCRON_KEY", "DBCRON_GROUP", "DBCRON_CALLBACK_OF", "DBCRON_MAX_ATTEMPTS",
	"DBCRON_API", "DBCRON_TOKEN", "DBCRON_SECRET", // of clients
	variableSMTPPassword, variableHookSecret, "DBCRON_NOTIFY_ID", "DBCRON_NOTIFY_SUBJECT",
	"DBCRON_LOCK_*", "DBCRON_TEST_*", "DBCRON_SERVICE_*", "DBCRON_PORT", "DBCRON_PORT_*",
}

// warnOfVariables warns of variables that look like settings but are not.
func (s *configuration) warnOfVariables() {
	var known []string
	for _, key := range s.known {
		known = append(known, variableOf(key))
	}
	for _, pair := range s.p.environ {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, variablePrefix) || value == "" || slices.Contains(known, name) ||
			slices.ContainsFunc(notOurs, func(pattern string) bool {
				prefix, isPrefix := strings.CutSuffix(pattern, "*")
				return name == pattern || isPrefix && strings.HasPrefix(name, prefix)
			}) {
			continue
		}
		text := "the variable " + name + " is not known"
		if near := plain.Nearest(strings.TrimPrefix(name, variablePrefix), s.known); near != "" {
			text += "; did you mean " + variableOf(near) + "?"
		}
		s.warnings = append(s.warnings, text)
	}
}

// suggest returns a suggestion for a mistyped key.
func (s *configuration) suggest(key string) string {
	if key == "url" {
		return "write " + keyURL
	}
	if slices.Contains(notSettings, key) {
		return "it is for the command line only"
	}
	if near := plain.Nearest(key, s.known); near != "" {
		return "did you mean " + near + "?"
	}
	return "use one of " + strings.Join(s.known, ", ")
}
