package peers

import (
	"fmt"
	"html"
	"os"
	"slices"
	"strings"
	"testing"
)

// A report gathers the figures of all rounds.
type report struct {
	lines   []string // what the figures measure
	systems []system
	figures map[string]map[string][]float64 // by system and line
}

func newReport(lines ...string) *report {
	return &report{lines: lines, figures: map[string]map[string][]float64{}}
}

func (r *report) note(s system, line string, figure float64) {
	of := r.figures[s.String()]
	if of == nil {
		of = map[string][]float64{}
		r.figures[s.String()] = of
		r.systems = append(r.systems, s)
	}
	of[line] = append(of[line], figure)
}

// median returns the median, the minimum and the maximum of the figures.
func (r *report) median(s system, line string) (median, least, most float64, ok bool) {
	all := slices.Sorted(slices.Values(r.figures[s.String()][line]))
	if len(all) == 0 {
		return 0, 0, 0, false
	}
	return all[len(all)/2], all[0], all[len(all)-1], true
}

// print logs a Markdown table of medians, with the minimum and the maximum in brackets. It marks
// systems that are not durable.
func (r *report) print(t *testing.T) {
	t.Helper()
	var b strings.Builder
	b.WriteString("\n| | durable | " + strings.Join(r.lines, " | ") + " |\n|---|---|" + strings.Repeat("---|", len(r.lines)) + "\n")
	for _, s := range r.systems {
		durable := "no"
		if s.durable() {
			durable = "yes"
		}
		fmt.Fprintf(&b, "| %v | %s |", s, durable)
		for _, line := range r.lines {
			median, least, most, ok := r.median(s, line)
			switch {
			case !ok:
				b.WriteString(" – |")
			case strings.HasPrefix(line, "Latency"):
				fmt.Fprintf(&b, " %.1f ms (%.1f–%.1f) |", median, least, most)
			default:
				fmt.Fprintf(&b, " %s (%s–%s) |", thousands(median), thousands(least), thousands(most))
			}
		}
		b.WriteString("\n")
	}
	t.Log(b.String())
}

// thousands formats a number with its digits in groups: 12 345.
func thousands(x float64) string {
	text := fmt.Sprintf("%.0f", x)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + " " + text[i:]
	}
	return text
}

// draw writes a chart of some lines, with a bar for each system: in the text's colour if the system
// is durable, grey if not.
func (r *report) draw(t *testing.T, file string, lines ...string) {
	t.Helper()
	const width, label, bar, row, head = 760, 270, 380, 24, 34
	var b strings.Builder
	height := 10
	for range lines {
		height += head + row*len(r.systems) + 10
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`, width, height)
	b.WriteString("\n<style>text{fill:#1f2328}.dbcron{fill:#0969da}.durable{fill:#57606a}.other{fill:#d0d7de}" +
		"@media(prefers-color-scheme:dark){text{fill:#e6edf3}.dbcron{fill:#4493f8}.durable{fill:#9198a1}.other{fill:#3d444d}}</style>\n")
	y := 10
	for _, line := range lines {
		fmt.Fprintf(&b, `<text x="0" y="%d" font-weight="bold">%s, jobs a second</text>`+"\n", y+18, html.EscapeString(line))
		y += head
		most := 0.0
		for _, s := range r.systems {
			median, _, _, _ := r.median(s, line)
			most = max(most, median)
		}
		for _, s := range r.systems {
			median, _, _, ok := r.median(s, line)
			if !ok {
				continue
			}
			class := "other"
			switch {
			case strings.HasPrefix(s.String(), "dbcron"):
				class = "dbcron"
			case s.durable():
				class = "durable"
			}
			length := max(1, int(median/most*bar))
			fmt.Fprintf(&b, `<text x="0" y="%d">%s</text><rect class="%s" x="%d" y="%d" width="%d" height="16"/><text x="%d" y="%d">%s</text>`+"\n",
				y+13, html.EscapeString(s.String()), class, label, y, length, label+length+6, y+13, thousands(median))
			y += row
		}
		y += 10
	}
	b.WriteString("</svg>\n")
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil { //nolint:gosec // a picture for the docs
		t.Fatal(err)
	}
}
