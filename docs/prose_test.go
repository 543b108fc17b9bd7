package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A sentence of a page has so many words at most.
const longest = 30

// Words that a page does not use, and what it says instead. Code is not looked at.
var dropped = []struct{ word, write string }{
	{`whoever|whosever|who does not|those who`, "you, the worker, the daemon, any client"},
	{`(?:is|are|was|were) told|is said|are said`, "who reports, prints, logs or returns it, and where"},
	{`of which|of whom`, "a sentence of its own"},
	{`put aside|set aside|sets aside|puts aside`, "parked"},
	{`suspects?|accus\w+|convict\w+|appeals?|trials?|guilty?`, "quarantine, and runs alone"},
	{`buried|given up|gives up on`, "dead (a job), stopped (a schedule)"},
	{`at the SQL prompt|by hand, in SQL`, "in SQL"},
	{`at night|by night`, "troubleshooting"},
	{`gates?`, "vtgate"},
	{`instants?`, "time, timestamp"},
	{`lengths? of time`, "duration"},
	{`mend\w*|puts? right`, "fix"},
	{`so (?:many|often)`, "the number, or: this many"},
	{`sentinels?|lanes?|horizon`, "what the reader sees of it"},
	{`strangers?`, "another transaction, another client"},
	{`shares? of (?:a |the )?tenants?|tenant's share`, "weight"},
}

// Pages that are still to be rewritten. The list only gets shorter.
var unwritten = []string{}

var (
	fencedBlock = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```[^\n]*$")
	comment     = regexp.MustCompile(`(?s)<!--.*?-->`)
	picture     = regexp.MustCompile(`!\[[^\]]*\]\([^)]*\)`)
	linked      = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	inCode      = regexp.MustCompile("``[^`]+``|`[^`]+`")
	tag         = regexp.MustCompile(`<[^>]+>`)
	item        = regexp.MustCompile(`^\s*(?:[-*]|\d+\.)\s+`)
	ends        = regexp.MustCompile(`[.!?]["')*\]]*(?:\s+|$)`)
)

// sentences are those of a page's prose, without code, tables and headings.
func sentences(page string) (all []string) {
	for _, cut := range []*regexp.Regexp{fencedBlock, comment, picture} {
		page = cut.ReplaceAllString(page, "\n\n")
	}
	page = tag.ReplaceAllString(linked.ReplaceAllString(inCode.ReplaceAllString(page, "code"), "$1"), "")
	var paragraph strings.Builder
	end := func() {
		for text := paragraph.String(); text != ""; {
			at := ends.FindStringIndex(text)
			if at == nil {
				at = []int{len(text), len(text)}
			}
			if s := strings.TrimSpace(text[:at[1]]); s != "" {
				all = append(all, s)
			}
			text = text[at[1]:]
		}
		paragraph.Reset()
	}
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "#"):
			end()
		case item.MatchString(line):
			end()
			paragraph.WriteString(item.ReplaceAllString(line, "") + " ")
		default:
			paragraph.WriteString(strings.TrimPrefix(line, "> ") + " ")
		}
	}
	end()
	return all
}

// Sentences are short, and use the reader's words.
func TestProse(t *testing.T) {
	words := make([]*regexp.Regexp, len(dropped))
	for i, d := range dropped {
		words[i] = regexp.MustCompile(`(?i)\b(?:` + d.word + `)\b`)
	}
	for name, page := range texts(t) {
		if name == "../CONTRIBUTING.md" {
			continue
		}
		var found []string
		for _, s := range sentences(page) {
			if n := len(strings.Fields(s)); n > longest {
				found = append(found, "a sentence of more than 30 words: "+s)
			}
			for i, word := range words {
				if w := word.FindString(s); w != "" {
					found = append(found, "\""+w+"\" (write: "+dropped[i].write+"): "+s)
				}
			}
		}
		later := slices.Contains(unwritten, name)
		if later && len(found) == 0 {
			t.Errorf("%s can leave the list of unwritten pages", name)
		}
		if later {
			continue
		}
		for _, f := range found {
			t.Errorf("%s: %s", name, f)
		}
	}
}
