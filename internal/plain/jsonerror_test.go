package plain

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// The field is named, what was expected there, and what there is.
func TestJSONError(t *testing.T) {
	type inner struct {
		N int8 `json:"n"`
	}
	type outer struct {
		Text  *string           `json:"text"`
		Flag  bool              `json:"flag"`
		Rate  float64           `json:"rate"`
		Bytes []byte            `json:"bytes"`
		List  []inner           `json:"list"`
		Env   map[string]string `json:"env"`
		Exact json.Number       `json:"exact"`
		Odd   chan int          `json:"odd"`
	}
	for text, want := range map[string]string{
		`{"text": true}`:  "text: expected a text, got true or false",
		`{"flag": "yes"}`: "flag: expected true or false, got a text",
		`{"rate": []}`:    "rate: expected a number, got a list",
		`{"rate": 1e999}`: "rate: expected a number, got 1e999",
		`{"rate": 1` + strings.Repeat("0", 400) + `}`: "rate: expected a number, got a number",
		`{"bytes": 1}`:            "bytes: expected a text in base64, got a number",
		`{"bytes": "="}`:          "expected a text in base64",
		`{"list": {}}`:            "list: expected a list, got an object",
		`{"list": [{"n": 1000}]}`: "list.n: expected a whole number that is not too large, got 1000",
		`{"list": [{"n": 1.5}]}`:  "list.n: expected a whole number that is not too large, got 1.5",
		`{"env": {"A": 1}}`:       "env: expected a text, got a number",
		`{"odd": 1}`:              "odd: expected something else, got a number",
		`[]`:                      "expected an object, got a list",
		`{"what": 1}`:             `unknown field "what"`,
		`{"text"}`:                "invalid character '}' after object key",
	} {
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		err := JSONError(d.Decode(&outer{}))
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %q, want %q", text, err, want)
		}
	}
	own := errors.New("own")
	if JSONError(nil) != nil || !errors.Is(JSONError(own), own) {
		t.Error("other errors change")
	}
}
