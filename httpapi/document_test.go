package httpapi

import (
	"encoding/json"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// methods goes through the operations of a path.
func methods(item *huma.PathItem) iter.Seq2[string, *huma.Operation] {
	return func(yield func(string, *huma.Operation) bool) {
		for _, one := range []struct {
			method string
			op     *huma.Operation
		}{
			{"GET", item.Get},
			{"PUT", item.Put},
			{"POST", item.Post},
			{"DELETE", item.Delete},
			{"PATCH", item.Patch},
			{"HEAD", item.Head},
			{"OPTIONS", item.Options},
		} {
			if one.op != nil && !yield(one.method, one.op) {
				return
			}
		}
	}
}

// The document is complete: its references exist, each operation has a name of its own, a scope
// and an answer, and its path has the parameters that it describes.
func TestDocument(t *testing.T) {
	text, err := Document("1.2.3")
	must(t, err)
	var d struct {
		OpenAPI string
		Info    struct{ Title, Version string }
		Paths   map[string]map[string]struct {
			OperationID, Summary string
			Security             []map[string][]string
			Parameters           []struct {
				Name, In string
				Required bool
				Schema   map[string]any
			}
			Responses map[string]any
		}
		Components struct {
			Schemas         map[string]any
			SecuritySchemes map[string]any
		}
	}
	must(t, json.Unmarshal(text, &d))
	if d.OpenAPI != "3.1.0" || d.Info.Version != "1.2.3" || d.Components.SecuritySchemes["token"] == nil {
		t.Errorf("it begins with %+v", d.Info)
	}
	for _, ref := range regexp.MustCompile(`"\$ref": "([^"]*)"`).FindAllStringSubmatch(string(text), -1) {
		if name, ok := strings.CutPrefix(ref[1], "#/components/schemas/"); !ok || d.Components.Schemas[name] == nil {
			t.Errorf("there is no %s", ref[1])
		}
	}
	seen := map[string]bool{}
	for path, item := range d.Paths {
		for method, op := range item {
			if op.OperationID == "" || seen[op.OperationID] || op.Summary == "" {
				t.Errorf("%s %s is called %q", method, path, op.OperationID)
			}
			seen[op.OperationID] = true
			if len(op.Security) != 1 || len(op.Security[0]["token"]) != 1 || !slices.Contains(Scopes, Scope(op.Security[0]["token"][0])) {
				t.Errorf("%s has no scope: %v", op.OperationID, op.Security)
			}
			var described, named []string
			for _, p := range op.Parameters {
				if p.Schema == nil || p.In == "path" != p.Required {
					t.Errorf("%s: parameter %+v", op.OperationID, p)
				}
				if p.In == "path" {
					described = append(described, p.Name)
				}
			}
			for _, name := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
				named = append(named, name[1])
			}
			if !slices.Equal(described, named) {
				t.Errorf("%s: the path has %v, and %v are described", op.OperationID, named, described)
			}
			for _, status := range []string{"401", "403", "500", "503"} {
				if op.Responses[status] == nil {
					t.Errorf("%s has no %s", op.OperationID, status)
				}
			}
			if !slices.ContainsFunc(slices.Collect(maps.Keys(op.Responses)), func(status string) bool { return status[0] == '2' }) {
				t.Errorf("%s has no good answer", op.OperationID)
			}
		}
	}
}

// What the API has at its path is the same document.
func TestServedDocument(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{Version: "1.2.3"})
		text, err := Document("1.2.3")
		must(t, err)
		a := s.get("/api/v1/openapi.json")
		var served, printed any
		must(t, json.Unmarshal([]byte(a.text), &served))
		must(t, json.Unmarshal(text, &printed))
		one, err := json.Marshal(served)
		must(t, err)
		other, err := json.Marshal(printed)
		must(t, err)
		if string(one) != string(other) || a.header.Get("Content-Type") != "application/openapi+json" {
			t.Errorf("it differs, and is %s", a.header.Get("Content-Type"))
		}
		if a := s.get("/api/v1/openapi.yaml"); a.status != 200 || !strings.Contains(a.text, "openapi: 3.1.0") {
			t.Errorf("in YAML: %d %.100s", a.status, a.text)
		}
	})
}
