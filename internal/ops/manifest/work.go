package manifest

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/dbcron/dbcron/scheduler"
)

// readWork reads the key that says what to run.
func (it *item) readWork(given []entry) {
	var first entry
	for _, e := range given {
		switch {
		case !slices.Contains(workKeys, e.key):
		case first.line > 0:
			it.fail(e.line, "%s: the schedule runs %s already, on line %d; keep one of them", e.key, first.key, first.line)
		default:
			first = e
		}
	}
	if first.line == 0 {
		it.fail(it.line, "the schedule has nothing to run; add one of the keys %s", strings.Join(workKeys, ", "))
		it.bad["command"] = true
		return
	}
	it.Kind = first.key
	it.at["command"] = first
	ok := false
	switch it.Kind {
	case "argv":
		ok = it.readArgv(first)
	case "http":
		ok = it.readHTTP(first)
	case "job":
		ok = it.readJob(first)
	default:
		it.Command, ok = it.readText(first)
	}
	it.bad["command"] = !ok
}

func (it *item) readArgv(e entry) bool {
	items, ok := it.list(e.key, e.value, "[/bin/ls, -l]")
	if !ok {
		return false
	}
	words := make([]string, len(items))
	for i, item := range items {
		word, isText := it.text("a word of "+e.key, item)
		words[i], ok = word, ok && isText
	}
	it.Command = scheduler.Argv(words...)
	return ok
}

func (it *item) readHTTP(e entry) bool {
	given, ok := it.mapping(e.key, e.value)
	if !ok {
		return false
	}
	method, target := "GET", ""
	found := false
	for _, e := range given {
		right := true
		switch e.key {
		case "method":
			method, right = it.readMethod(e)
		case "url":
			found = true
			it.at["command"] = e // if the method is valid, the URL is not
			target, right = it.readText(e)
		case "headers":
			it.at["headers"] = e
			it.Headers, right = it.readTexts(e)
		case "body":
			it.at["stdin"] = e
			it.Stdin, right = it.readText(e)
		default:
			it.tellUnknown(e, " in http"+suggest(e.key, httpKeys, nil))
		}
		ok = ok && right
	}
	if !found {
		it.fail(e.line, "http has no url; add url: https://example.org/...")
	}
	it.Command = method + " " + target
	return ok && found
}

// methodChars are the characters of RFC 9110, without lower-case letters.
const methodChars = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~"

func (it *item) readMethod(e entry) (string, bool) {
	method, ok := it.readText(e)
	if ok && (method == "" || strings.Trim(method, methodChars) != "") {
		it.fail(e.line, "method: %s is no method; write GET, POST or another in capital letters", quoted(method))
		ok = false
	}
	return method, ok
}

// readInput reads stdin or input. For a request it is body: see readHTTP.
func (it *item) readInput() {
	for _, name := range inputKeys {
		e, given := it.given[name]
		if !given {
			continue
		}
		right := "stdin"
		switch it.Kind {
		case "func":
			right = "input"
		case "http":
			right = "body within http"
		case "job":
			right = "payload within job"
		case "sql":
			it.fail(e.line, "%s: a statement has no input; remove it", name)
			continue
		case "":
			continue // told already
		}
		if name != right {
			it.fail(e.line, "%s is not for %s; write %s", name, it.Kind, right)
			continue
		}
		it.at["stdin"] = e
		it.Stdin, _ = it.readText(e)
	}
}

func (it *item) readText(e entry) (string, bool) { return it.text(e.key, e.value) }

// readTexts reads a mapping of texts.
func (it *item) readTexts(e entry) (map[string]string, bool) {
	given, ok := it.mapping(e.key, e.value)
	if !ok || len(given) == 0 {
		return nil, ok
	}
	texts := make(map[string]string, len(given))
	for _, one := range given {
		text, isText := it.text(e.key+" "+clip(one.key, 60), one.value)
		texts[one.key], ok = text, ok && isText
	}
	return texts, ok
}

// writeWork returns the entries that say what is run.
func writeWork(s *schedule) (all []pair) {
	input := "stdin"
	switch s.Kind {
	case "", "shell":
		all = append(all, pair{"shell", writeLines(s.Command)})
	case "argv":
		words := wordsOf(s.Command)
		for i, word := range words {
			words[i] = writeInFlow(word)
		}
		all = append(all, pair{"argv", "[" + strings.Join(words, ", ") + "]"})
	case "http":
		method, target, _ := strings.Cut(s.Command, " ")
		return append(all, pair{"http", writeMapping([]pair{
			{"method", writeText(method)},
			{"url", writeText(target)},
			{"headers", writeTexts(s.Headers)},
			{"body", writeLines(s.Stdin)},
		})})
	case "job":
		return append(all, pair{"job", writeJob(s)})
	default:
		if s.Kind == "func" {
			input = "input"
		}
		all = append(all, pair{s.Kind, writeLines(s.Command)})
	}
	return append(all, pair{input, writeLines(s.Stdin)})
}

func writeTexts(texts map[string]string) string {
	var all []pair
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		// The empty text is a value here, where for a key it is none.
		all = append(all, pair{writeText(name), cmp.Or(writeText(texts[name]), `""`)})
	}
	return writeMapping(all)
}
