package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Every flag of serve can be set in a file and in the environment, whatever its type.
func TestEachFlagIsASetting(t *testing.T) {
	p := &program{err: &bytes.Buffer{}, set: map[string]string{}}
	c, err := p.newConfiguration()
	if err != nil {
		t.Fatal(err)
	}
	for key, f := range c.flags {
		value := any("text")
		switch f.Value.Type() {
		case "bool":
			value = true
		case "duration":
			value = "90s"
		case "int", "int64":
			value = 7
		}
		if err := set(f, value); err != nil {
			t.Errorf("%s, of type %s: %v", key, f.Value.Type(), err)
		}
		if !f.Changed {
			t.Errorf("%s is not known to be set", key)
		}
		if name := variableOf(key); key != keyURL && slices.ContainsFunc(notOurs, func(other string) bool {
			prefix, isPrefix := strings.CutSuffix(other, "*")
			return other == name || isPrefix && strings.HasPrefix(name, prefix)
		}) {
			t.Errorf("%s means something else as well", name)
		}
	}
	serve := &cobra.Command{}
	(&serveFlags{}).register(serve)
	serve.Flags().VisitAll(func(f *pflag.Flag) {
		if c.flags[keyOf(f)] == nil && !slices.Contains(notSettings, f.Name) {
			t.Errorf("--%s is no setting", f.Name)
		}
	})
}

// A broken file stops no command that needs none.
func TestCommandsWithoutSettings(t *testing.T) {
	for _, line := range []string{"version", "openapi", "schedule", "serve --help"} {
		var out bytes.Buffer
		p := &program{out: &out, err: &out, environ: []string{"DBCRON_CONFIG=nowhere.yaml"}}
		if code := run(t.Context(), p, strings.Fields(line)); code != 0 {
			t.Errorf("%s: exit code %d: %s", line, code, &out)
		}
	}
}
