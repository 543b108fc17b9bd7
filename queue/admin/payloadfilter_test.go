package admin

import (
	"encoding/json"
	"errors"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestWhere(t *testing.T) {
	payload := []byte(`{"user": {"id": 42, "ids": [1, 2.50, "x"], "first name": "Ann", "ünï": null, "no-1": true},
		"big": 9007199254740993, "huge": 1e400, "tiny": -0.0, "empty": {}, "twice": 1, "twice": 2, "": {"": 7}}`)
	for text, want := range map[string]bool{
		`$`:                               true,
		`$.user`:                          true,
		` $.user.id `:                     true,
		`$.user.none`:                     false,
		`$.user.id.more`:                  false,
		`$.user[0]`:                       false,
		`$.user.ids[2]`:                   true,
		`$.user.ids[3]`:                   false,
		`$.user.ids.x`:                    false,
		`$["user"]["first name"]="Ann"`:   true,
		`$."user"."first name" = "Ann"`:   true,
		`$."user"."first\u0020name"`:      true,
		`$.user.ünï = null`:               true,
		`$.user.ünï != null`:              false,
		`$.user.no-1 = true`:              true,
		`$.user.no-1 = "true"`:            false,
		`$.user.no-1 != "true"`:           true,
		`$."".""=7`:                       true,
		`$.user.id = 42`:                  true,
		`$.user.id=42.0`:                  true,
		`$.user.id = 4.2e1`:               true,
		`$.user.id = "42"`:                false,
		`$.user.id != "42"`:               true,
		`$.user.id < 43`:                  true,
		`$.user.id <= 42`:                 true,
		`$.user.id >= 42`:                 true,
		`$.user.id > 42`:                  false,
		`$.user.id > -1e99999999999999`:   true,
		`$.user.id < 1e99999999999999999`: true,
		`$.user.id < "5"`:                 false,
		`$.user.id > "1"`:                 false,
		`$.none != 1`:                     false,
		`$.user.ids = [1, 2.5, "x"]`:      true,
		`$.user.ids = [1, 2.5]`:           false,
		`$.user.ids[1] = 25e-1`:           true,
		`$.big = 9007199254740993`:        true,
		`$.big = 9007199254740992`:        false,
		`$.big > 9007199254740992`:        true,
		`$.huge > 1e399`:                  true,
		`$.huge = 10e399`:                 true,
		`$.tiny = 0`:                      true,
		`$.tiny >= 0e7`:                   true,
		`$.empty = {}`:                    true,
		`$.empty = []`:                    false,
		`$.twice = 2`:                     true,
		`$.user."first name" > "Anm"`:     true,
		`$.user."first name" < "ann"`:     true,
	} {
		w, err := parseWhere(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.holds(&Job{Payload: payload}); got != want {
			t.Errorf("%s: %v", text, got)
		}
		for _, without := range []Job{{}, {Payload: payload, Binary: true}, {Payload: []byte("{")}} {
			if w.holds(&without) {
				t.Errorf("%s holds for %+v", text, without)
			}
		}
	}
}

func TestWhereErrors(t *testing.T) {
	for text, want := range map[string]string{
		``:                        `at character 1: a path begins with $`,
		`user = 1`:                `at character 1: a path begins with $`,
		`$user`:                   `at character 2: after the path comes`,
		`$.`:                      `at character 3: after . comes a name`,
		`$.é.`:                    `at character 5: after . comes a name`,
		`$."é`:                    `at character 3: the string does not end`,
		`$."\x"`:                  `at character 3: the string is not JSON`,
		`$[`:                      `at character 3: after [ comes a position`,
		`$[-1]`:                   `at character 3: after [ comes a position`,
		`$[99999999999999999999]`: `at character 3: after [ comes a position`,
		`$[1`:                     `at character 4: ] is missing`,
		`$["a"`:                   `at character 6: ] is missing`,
		`$.a 1`:                   `at character 5: after the path comes`,
		`$.a ~ 1`:                 `at character 5: after the path comes`,
		`$.a =`:                   `at character 6: compare with JSON`,
		`$.a == 1`:                `at character 6: compare with JSON`,
		`$.a = Ann`:               `at character 7: compare with JSON`,
		`$.a = 'Ann'`:             `at character 7: compare with JSON`,
		`$.a = 1 2`:               `at character 7: compare with JSON`,
		`$.a < null`:              `at character 7: only numbers and texts`,
		`$.a >= [1]`:              `at character 8: only numbers and texts`,
		"$.a = \"\xff":            `it is not UTF-8`,
	} {
		if _, err := parseWhere(text); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

// Each value of a document is found by its path, and equals itself only.
func TestWhereFindsEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, err := json.Marshal(document(t, 3))
		if err != nil {
			t.Fatal(err)
		}
		root, ok := decode(text)
		if !ok {
			t.Fatalf("%s is not JSON", text)
		}
		job := &Job{Payload: text}
		walk(root, "$", func(path string, value any) {
			literal, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			for condition, want := range map[string]bool{
				path: true, path + " = " + string(literal): true, path + "!=" + string(literal): false,
				path + `."none of these"`: false, path + `[1000]`: false, path + ` = "none of these"`: false,
			} {
				w, err := parseWhere(condition)
				if err != nil {
					t.Fatal(err)
				}
				if w.holds(job) != want {
					t.Errorf("%s in %s: want %v", condition, text, want)
				}
			}
		})
	})
}

// document draws JSON.
func document(t *rapid.T, depth int) any {
	kind := rapid.IntRange(0, 5)
	if depth == 0 {
		kind = rapid.IntRange(0, 3)
	}
	switch kind.Draw(t, "kind") {
	case 0:
		return rapid.String().Draw(t, "text")
	case 1:
		return json.Number(drawNumber(t))
	case 2:
		return rapid.Bool().Draw(t, "bool")
	case 3:
		return nil
	case 4:
		list := make([]any, rapid.IntRange(0, 3).Draw(t, "n"))
		for i := range list {
			list[i] = document(t, depth-1)
		}
		return list
	}
	object := map[string]any{}
	for range rapid.IntRange(0, 3).Draw(t, "n") {
		object[rapid.String().Draw(t, "name")] = document(t, depth-1)
	}
	return object
}

func drawNumber(t *rapid.T) string {
	return rapid.StringMatching(`-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,3})?([eE][-+]?[0-9])?`).Draw(t, "number")
}

// walk goes over a value and all that is in it.
func walk(value any, path string, f func(path string, value any)) {
	f(path, value)
	switch value := value.(type) {
	case []any:
		for i := range value {
			walk(value[i], path+"["+strconv.Itoa(i)+"]", f)
		}
	case map[string]any:
		for name := range value {
			quoted, _ := json.Marshal(name)
			walk(value[name], path+"."+string(quoted), f)
		}
	}
}

func TestNumbersCompareExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawNumber(t), drawNumber(t)
		x, _ := new(big.Rat).SetString(a)
		y, _ := new(big.Rat).SetString(b)
		if got, want := compareNumbers(a, b), x.Cmp(y); got != want {
			t.Errorf("%s and %s: got %d, want %d", a, b, got, want)
		}
	})
}

func FuzzWhere(f *testing.F) {
	f.Add(`$.a.b[0] >= 1`, `{"a": {"b": [1e3]}}`)
	f.Add(`$."x"["y"] = {"a": null}`, `{"x": {"y": {"a": null}}}`)
	f.Fuzz(func(_ *testing.T, text, payload string) {
		if w, err := parseWhere(text); err == nil {
			w.holds(&Job{Payload: []byte(payload)})
		}
	})
}
