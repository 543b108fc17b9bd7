package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The variables of examples/compose are settings, with values that are good.
func TestComposeIsConfigured(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "examples", "compose", "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct{ Environment map[string]string }
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	p := &program{out: &bytes.Buffer{}, err: &errs}
	for name, value := range file.Services["dbcron"].Environment {
		p.environ = append(p.environ, name+"="+value)
	}
	if len(p.environ) < 3 {
		t.Fatalf("the daemon has %q", p.environ)
	}
	code := run(t.Context(), p, []string{"config", "check"})
	if said := errs.String(); code != 0 || said != "" {
		t.Errorf("exit code %d, and %s", code, said)
	}
}
