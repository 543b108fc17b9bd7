package manifest

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// A value is a node with its line. For an alias it is the node that the alias stands for.
type value struct {
	node *yaml.Node
	line int
}

// An entry is a key and its value. The line is the key's.
type entry struct {
	key   string
	line  int
	value value
}

// is reports whether a value is a word with a special meaning in its place.
func (v value) is(word string) bool { return v.node.Tag == "!!str" && v.node.Value == word }

func (r *reader) value(node *yaml.Node) value {
	v := value{node, node.Line}
	if node.Kind == yaml.AliasNode {
		v.node = node.Alias
	}
	r.weigh(v)
	return v
}

// weigh adds to the size of what was read. The constant is the cost of an empty value.
func (r *reader) weigh(v value) { r.weight += 16 + len(v.node.Value) }

func (r *reader) tooHeavy() bool { return r.weight > maxWeight }

// maxMerges is the maximum nesting of merged mappings.
const maxMerges = 100

// mapping returns the entries of a mapping, its own first, followed by those that << merges
// into it.
func (r *reader) mapping(what string, v value) (all []entry, ok bool) {
	switch {
	case !r.is(what, v, yaml.MappingNode, "a mapping", "KEY: VALUE"):
		return nil, false
	case r.merging[v.node]:
		r.fail(v.line, "<<: a mapping is merged into itself; remove one of both")
		return nil, false
	case len(r.merging) > maxMerges:
		r.fail(v.line, "<<: mappings are merged more than %d deep; merge fewer", maxMerges)
		return nil, false
	}
	lines := map[string]int{}
	var sources []value
	for pair := range slices.Chunk(v.node.Content, 2) {
		if r.tooHeavy() {
			return nil, false
		}
		key, val := r.value(pair[0]), r.value(pair[1])
		merge := key.node.Tag == "!!merge" && key.node.Style == 0
		name := "<<"
		if !merge {
			if name, ok = r.text("a key of "+what, key); !ok {
				continue
			}
		}
		if first := lines[name]; first > 0 {
			r.fail(key.line, "the key %q is on line %d already; remove one", clip(name, 60), first)
			continue
		}
		lines[name] = key.line
		if merge {
			sources = r.sources(val)
		} else {
			all = append(all, entry{name, key.line, val})
		}
	}
	r.merging[v.node] = true
	defer delete(r.merging, v.node)
	for _, source := range sources {
		more, _ := r.mapping("<<", source)
		for _, e := range more {
			if lines[e.key] == 0 {
				lines[e.key] = e.line
				all = append(all, e)
			}
		}
	}
	return all, true
}

// sources returns the mappings that << names: one, or a list.
func (r *reader) sources(v value) []value {
	if v.node.Kind != yaml.SequenceNode {
		return []value{v}
	}
	items, _ := r.list("<<", v, "[*A, *B]")
	return items
}

func (r *reader) list(what string, v value, example string) (all []value, ok bool) {
	if !r.is(what, v, yaml.SequenceNode, "a list", example) {
		return nil, false
	}
	for _, node := range v.node.Content {
		if r.tooHeavy() {
			return nil, false
		}
		all = append(all, r.value(node))
	}
	return all, true
}

// is checks that a value has the wanted kind, a list or a mapping.
func (r *reader) is(what string, v value, kind yaml.Kind, wanted, example string) bool {
	switch {
	case v.node.Kind != kind:
		r.fail(v.line, "%s is %s, not %s; write %s", what, describe(v.node), wanted, example)
	case r.tagged(v.node):
		r.fail(v.line, "%s: tags such as %s are not used; remove it", what, quoted(v.node.Tag))
	default:
		return true
	}
	return false
}

// describe describes a node for messages.
func describe(node *yaml.Node) string {
	switch {
	case node.Kind == yaml.MappingNode:
		return "a mapping"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	case node.Tag == "!!null" && node.Value == "":
		return "empty"
	case node.Tag == "!!null":
		return node.Value
	case node.Tag == "!!int" || node.Tag == "!!float":
		return "the number " + clip(node.Value, 60)
	case node.Tag == "!!timestamp":
		return "the date " + clip(node.Value, 60)
	case truth(node):
		return "the truth value " + node.Value
	}
	return "the text " + quoted(node.Value)
}

func quoted(text string) string {
	text = clip(text, 80)
	if strings.Contains(text, `"`) && !strings.Contains(text, "'") && utf8.ValidString(text) && !strings.ContainsFunc(text, unseen) {
		return "'" + text + "'"
	}
	return strconv.Quote(text)
}

// truth reports whether any version of YAML reads the unquoted text as true or false: a tool
// other than this library may.
func truth(node *yaml.Node) bool {
	if node.Style != 0 {
		return false
	}
	switch node.Value {
	case "true", "True", "TRUE", "false", "False", "FALSE",
		"y", "Y", "yes", "Yes", "YES", "on", "On", "ON",
		"n", "N", "no", "No", "NO", "off", "Off", "OFF":
		return true
	}
	return false
}

// tagged reports whether a tag precedes a value. The library drops the tag "!", so "shell: !
// test -f x" would lose its first word.
func (r *reader) tagged(node *yaml.Node) bool {
	if node.Style != 0 || node.Kind != yaml.ScalarNode {
		return node.Style&yaml.TaggedStyle != 0
	}
	text := r.from(node.Line, node.Column)
	if node.Anchor != "" {
		text = text[min(len(text), len(node.Anchor)+1):]
	}
	for len(text) > 0 && (text[0] == ' ' || text[0] == '\t') {
		text = text[1:]
	}
	return len(text) > 0 && text[0] == '!'
}

// from returns the rest of a line. It caches lines as runes, since a line may contain the whole
// file and would be decoded again for each of its values.
func (r *reader) from(line, column int) []rune {
	if line < 1 || line > len(r.lines) {
		return nil
	}
	text, ok := r.runes[line]
	if !ok {
		text = []rune(string(r.lines[line-1]))
		r.runes[line] = text
	}
	return text[min(max(column-1, 0), len(text)):]
}

// scalar checks that a value is neither a list nor a mapping, and has no tag.
func (r *reader) scalar(what string, v value, wanted string) bool {
	switch {
	case v.node.Kind != yaml.ScalarNode:
		r.fail(v.line, "%s is %s, not %s; if it is meant, put it in quotes", what, describe(v.node), wanted)
	case r.tagged(v.node):
		r.fail(v.line, "%s: a text that begins with ! must be in quotes, and tags such as !!str are not used; write %s: \"...\"", what, what)
	default:
		return true
	}
	return false
}

func (r *reader) text(what string, v value) (string, bool) {
	switch {
	case !r.scalar(what, v, "a text"):
		return "", false
	case v.node.Tag == "!!null":
		r.fail(v.line, `%s is %s; write "" for the empty text`, what, describe(v.node))
		return "", false
	case v.node.Tag != "!!str" || truth(v.node):
		r.fail(v.line, "%s is %s, not a text; write %s", what, describe(v.node), quoted(v.node.Value))
		return "", false
	}
	return v.node.Value, true
}
