package examples

import (
	"bytes"
	"os"
	"regexp"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestKEDA parses the example strictly, and looks up in the documentation the metrics that it asks for.
func TestKEDA(t *testing.T) {
	data, err := os.ReadFile("kubernetes/keda.yaml")
	if err != nil {
		t.Fatal(err)
	}
	documented, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var o struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   meta
		Spec       struct {
			Target struct{ Name string } `yaml:"scaleTargetRef"`
			Least  int                   `yaml:"minReplicaCount"`
			Most   int                   `yaml:"maxReplicaCount"`
			Cool   int                   `yaml:"cooldownPeriod"`

			Triggers []struct {
				Type     string
				Metadata struct {
					Server           string `yaml:"serverAddress"`
					Query, Threshold string
				}
			}
		}
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&o); err != nil {
		t.Fatal(err)
	}
	if o.APIVersion != "keda.sh/v1alpha1" || o.Kind != "ScaledObject" || len(o.Spec.Triggers) != 2 {
		t.Errorf("it is a %s of %s with %d triggers", o.Kind, o.APIVersion, len(o.Spec.Triggers))
	}
	metric := regexp.MustCompile(`dbcron_\w+`)
	for _, trigger := range o.Spec.Triggers {
		name := metric.FindString(trigger.Metadata.Query)
		if name == "" || !bytes.Contains(documented, []byte("`"+name+"{queue")) {
			t.Errorf("%s asks for no metric that the daemon has", trigger.Metadata.Query)
		}
	}
}
