package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dbcron/dbcron/internal/ops/config"
)

// Every flag of serve can be set in a file and in the environment, whatever its type.
func TestEachFlagIsASetting(t *testing.T) {
	flags := func() map[string]*pflag.Flag {
		serve, root := &cobra.Command{}, &cobra.Command{}
		(&serveFlags{}).register(serve)
		(&databaseFlags{}).register(root)
		return config.Flags(serve.Flags(), root.PersistentFlags())
	}
	var file strings.Builder
	var environ []string
	for key, f := range flags() {
		value := "text"
		switch f.Value.Type() {
		case "bool":
			value = "true"
		case "duration":
			value = "90s"
		case "int", "int64":
			value = "7"
		}
		variable := "DBCRON_" + strings.ToUpper(key)
		fmt.Fprintf(&file, "%s: %s\n", key, value)
		environ = append(environ, variable+"="+value)
		if key != config.KeyURL && config.Means(variable) {
			t.Errorf("%s means something else as well", variable)
		}
	}
	path := filepath.Join(t.TempDir(), "settings.yaml")
	must(t, os.WriteFile(path, []byte(file.String()), 0o600))
	for from, read := range map[string]func() (*config.Settings, error){
		"the file":        func() (*config.Settings, error) { return config.Read(path, nil, flags()) },
		"the environment": func() (*config.Settings, error) { return config.Read("", environ, flags()) },
	} {
		s, err := read()
		must(t, err)
		s.CheckEnvironment()
		s.WarnOfVariables()
		set := flags()
		if err := errors.Join(append(s.Problems, s.Apply(set, map[string]string{}))...); err != nil || len(s.Warnings) > 0 {
			t.Errorf("%s: %v, %q", from, err, s.Warnings)
		}
		for key, f := range set {
			if key != config.KeyURL && !f.Changed { // which is no flag's
				t.Errorf("%s: %s is not known to be set", from, key)
			}
		}
	}
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
