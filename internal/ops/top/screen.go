package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
)

// A place is a view and its subject.
type place struct{ view, name string }

// A line is a line of a view.
type line struct {
	text string
	kind kind
	into place // where enter leads; zero: nowhere
	also bool  // it also appears in another view
}

type kind int

const (
	plainLine kind = iota
	headLine
	goodLine
	oddLine // noteworthy
	badLine
)

// A screen is a view at one time.
type screen struct {
	at    place
	title string
	lines []line
	when  time.Time // by the database's clock
	took  time.Duration
	err   error
}

func (s *screen) add(kind kind, into place, format string, args ...any) {
	s.lines = append(s.lines, line{text: fmt.Sprintf(format, args...), kind: kind, into: into})
}

// table adds aligned rows, of which the first is the heading.
func (s *screen) table(rows [][]string, lines []line) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], text.StringWidthWithoutEscSequences(cell))
		}
	}
	for i, row := range rows {
		var b strings.Builder
		for j, cell := range row {
			b.WriteString(cell)
			if j < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[j]-text.StringWidthWithoutEscSequences(cell)+2))
			}
		}
		l := line{text: strings.TrimRight(b.String(), " "), kind: headLine}
		if i > 0 {
			l.kind, l.into = lines[i-1].kind, lines[i-1].into
		}
		s.lines = append(s.lines, l)
	}
}
