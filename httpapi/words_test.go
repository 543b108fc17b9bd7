package httpapi

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// goWords are words that only a program in Go understands.
var goWords = regexp.MustCompile(`(?i)\bgo\b|json:|unmarshal|strconv|struct\b|float64|\bu?int(8|16|32|64)?\b|uint8|base64 data at|parsing time|"time\.|reflect|invalid syntax`)

// A bodyMaker makes bodies that are as the document has them.
type bodyMaker struct{ schemas huma.Registry }

// of returns a value that fits a schema, as JSON, with all members, of which the one at a path is another.
func (s bodyMaker) of(schema *huma.Schema, path []string, other string) string {
	for schema.Ref != "" {
		schema = s.schemas.SchemaFromRef(schema.Ref)
	}
	if len(path) == 0 && other != "" {
		return other
	}
	switch schema.Type {
	case huma.TypeObject:
		var members []string
		for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
			at := len(path) > 0 && path[0] == name
			switch {
			case at:
				members = append(members, fmt.Sprintf("%q: %s", name, s.of(schema.Properties[name], path[1:], other)))
			case slices.Contains(schema.Required, name):
				members = append(members, fmt.Sprintf("%q: %s", name, s.of(schema.Properties[name], nil, "")))
			}
		}
		if free, ok := schema.AdditionalProperties.(*huma.Schema); ok && len(path) > 0 && path[0] == "*" {
			members = append(members, `"A": `+s.of(free, path[1:], other))
		}
		return "{" + strings.Join(members, ", ") + "}"
	case huma.TypeArray:
		return "[" + s.of(schema.Items, path[min(1, len(path)):], other) + "]"
	case huma.TypeString:
		switch {
		case len(schema.Enum) > 0:
			return fmt.Sprintf("%q", schema.Enum[0])
		case schema.Format == "date-time":
			return `"2030-01-02T03:04:05Z"`
		case schema.ContentEncoding == "base64":
			return `"eHl6"`
		}
		return `"1"`
	case huma.TypeInteger, huma.TypeNumber:
		return "1"
	case huma.TypeBoolean:
		return "true"
	}
	return "{}"
}

// paths lists the paths to all values in a schema.
func (s bodyMaker) paths(schema *huma.Schema, depth int) (all [][]string) {
	for schema.Ref != "" {
		schema = s.schemas.SchemaFromRef(schema.Ref)
	}
	all = append(all, nil)
	if depth > 6 {
		return all
	}
	below := func(name string, of *huma.Schema) {
		for _, p := range s.paths(of, depth+1) {
			all = append(all, append([]string{name}, p...))
		}
	}
	for name, of := range schema.Properties {
		below(name, of)
	}
	if free, ok := schema.AdditionalProperties.(*huma.Schema); ok {
		below("*", free)
	}
	if schema.Items != nil {
		below("[]", schema.Items)
	}
	return all
}

// What is wrong with a request is said in the words of its format: the field, and what was expected there. That goes for every
// member of every body, and every parameter, and whatever stands there instead.
func TestErrorsSpeakOfFields(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		s := serve(t, db.DB, Options{})
		n := 0
		check := func(a *answer) {
			t.Helper()
			n++
			if a.status >= 500 && a.status != 503 || a.status >= 400 && goWords.MatchString(a.text) {
				t.Errorf("%s: %d %s", a.what, a.status, a.text)
			}
		}
		others := []string{
			`"x"`, `""`, `"2026-01-02T3:04:05Z"`, `"2026-01-02T03:04:05,5Z"`, `"eA=e"`, `"e_-x"`, `"eA"`, "0", "-1", "1.5", "1.0", "1e3", "1e999", "9223372036854775808",
			strings.Repeat("9", 200), "true", "null", "[]", "[1]", "{}", `{"a": 1}`,
		}
		for path, item := range s.api.docs.OpenAPI().Paths {
			for method, op := range methods(item) {
				if op.OperationID == "events" {
					continue
				}
				inPath := path
				for _, p := range op.Parameters {
					inPath = strings.ReplaceAll(inPath, "{"+p.Name+"}", "77")
				}
				for _, p := range op.Parameters {
					for _, value := range []string{"x", "1.5", "1e3", "-1", "99999999999999999999", "true", "", "[]"} {
						switch p.In {
						case "query":
							check(s.send(method, inPath+"?"+url.Values{p.Name: {value}}.Encode(), nil))
						case "path":
							if value != "" {
								check(s.send(method, strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(value)), nil))
							}
						case "header":
							check(s.send(method, inPath, nil, p.Name+": "+value))
						}
					}
				}
				if op.RequestBody == nil {
					continue
				}
				of := bodyMaker{s.api.docs.OpenAPI().Components.Schemas}
				schema := op.RequestBody.Content["application/json"].Schema
				for _, p := range of.paths(schema, 0) {
					for _, other := range others {
						check(s.send(method, inPath, of.of(schema, p, other)))
					}
				}
			}
		}
		if n < 5000 {
			t.Errorf("there were only %d", n)
		}
		t.Logf("%d requests", n)
	})
}
