package plain

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// JSONError returns an error of a decoder in words about JSON: those of encoding/json name types of Go, which whoever wrote
// the JSON does not know. It returns other errors as they are, and so errors of syntax.
func JSONError(err error) error {
	var wrong *json.UnmarshalTypeError
	var corrupt base64.CorruptInputError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong):
		text := expected(wrong.Type) + ", got " + got(wrong.Value)
		if wrong.Field != "" {
			text = wrong.Field + ": " + text
		}
		return errors.New(text)
	case errors.As(err, &corrupt):
		return errors.New("expected a text in base64")
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok { // it has no type of its own
		return fmt.Errorf("unknown field %s", name)
	}
	return err
}

// expected says what a type of Go takes.
func expected(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	is := map[reflect.Kind]string{
		reflect.Bool: "true or false", reflect.String: "a text", reflect.Map: "an object", reflect.Struct: "an object", reflect.Slice: "a list",
		reflect.Float32: "a number", reflect.Float64: "a number",
	}[t.Kind()]
	switch {
	case t == reflect.TypeFor[[]byte]():
		is = "a text in base64"
	case t == reflect.TypeFor[json.Number]():
		is = "a number"
	case is == "" && t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		is = "a whole number that is not too large"
	case is == "":
		is = "something else"
	}
	return "expected " + is
}

// got names a value, which the decoder calls string, number 1e99, bool, object or array.
func got(value string) string {
	word, text, _ := strings.Cut(value, " ")
	name, ok := map[string]string{
		"string": "a text", "number": "a number", "bool": "true or false", "object": "an object", "array": "a list",
	}[word]
	switch {
	case !ok:
		return value
	case text != "" && len(text) <= 40:
		return text
	}
	return name
}
