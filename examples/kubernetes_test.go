package examples

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The fields of Kubernetes' types that the example uses, and nothing else: a mistyped key is an error.
type (
	object struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   meta
		StringData map[string]string `yaml:"stringData"`
		Spec       struct {
			Replicas int
			Selector struct {
				MatchLabels map[string]string `yaml:"matchLabels"`
			}
			Template struct {
				Metadata meta
				Spec     struct {
					RestartPolicy string `yaml:"restartPolicy"`
					Termination   int    `yaml:"terminationGracePeriodSeconds"`
					Containers    []container
				}
			}
			Limit int `yaml:"backoffLimit"`
		}
	}
	meta struct {
		Name   string
		Labels map[string]string
	}
	container struct {
		Name, Image string
		Args        []string
		Env         []struct {
			Name      string
			ValueFrom struct {
				Secret struct{ Name, Key string } `yaml:"secretKeyRef"`
				Field  struct {
					Path string `yaml:"fieldPath"`
				} `yaml:"fieldRef"`
			} `yaml:"valueFrom"`
		}
		Ports []struct {
			Name string
			Port int `yaml:"containerPort"`
		}
		Live      probe `yaml:"livenessProbe"`
		Ready     probe `yaml:"readinessProbe"`
		Lifecycle struct {
			PreStop struct{ Exec struct{ Command []string } } `yaml:"preStop"`
		}
	}
	probe struct {
		Get    struct{ Path, Port string } `yaml:"httpGet"`
		Period int                         `yaml:"periodSeconds"`
	}
)

func TestKubernetes(t *testing.T) {
	data, err := os.ReadFile("kubernetes/dbcron.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	var kinds []string
	for {
		var o object
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, o.APIVersion+" "+o.Kind)
		if o.Kind == "Deployment" && o.Spec.Selector.MatchLabels["app"] != o.Spec.Template.Metadata.Labels["app"] {
			t.Error("the Deployment does not select its pods")
		}
	}
	if want := []string{"v1 Secret", "batch/v1 Job", "apps/v1 Deployment"}; !slices.Equal(kinds, want) {
		t.Errorf("it has %q, want %q", kinds, want)
	}
}
