package dbtest

import (
	"context"
	"database/sql/driver"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/dbcron/dbcron/internal/sqlconn"
)

// A Meter counts the statements and round trips of the connections of [DB.Metered]. Those of a transaction or a pipeline count all
// or none. What happens at intervals should not: how often depends on how long a test takes.
type Meter struct {
	what *regexp.Regexp // matches statements that count, and with which those of their transaction do

	mu         sync.Mutex
	statements int
	trips      int
	by         map[string]int
	stall      func(op string)
}

// Stall has f called before each round trip, as a Fault's is; nil: nothing. f may block.
func (m *Meter) Stall(f func(op string)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stall = f
}

// Metered connects to the same database, with the same clock, through a driver that counts statements that what matches, and others
// in their transactions.
func (db *DB) Metered(t *testing.T, what string) (*DB, *Meter) {
	t.Helper()
	m := &Meter{what: regexp.MustCompile(what), by: map[string]int{}}
	return db.through(t, func(driver.Conn) sqlconn.Around {
		var inside []string // what the connection's transaction has sent; nil: it is in none
		return func(_ context.Context, op string, call func() error) error {
			m.mu.Lock()
			stall := m.stall
			m.mu.Unlock()
			if stall != nil {
				stall(op)
			}
			switch {
			case op == "begin":
				inside = []string{op}
			case inside == nil:
				m.add(op)
			default:
				if inside = append(inside, op); op == "commit" || op == "rollback" {
					m.add(inside...)
					inside = nil
				}
			}
			return call()
		}
	}), m
}

// add counts the round trips of a transaction, or one outside of any.
func (m *Meter) add(ops ...string) {
	var texts []string
	counts := false
	for _, op := range ops {
		for text := range strings.SplitSeq(op, ";\n") { // a pipeline's
			if text = strings.Join(strings.Fields(text), " "); text == "begin" || text == "commit" || text == "rollback" {
				continue
			}
			texts = append(texts, text)
			counts = counts || m.what.MatchString(text) && !strings.HasPrefix(text, "SELECT set_config(")
		}
	}
	if !counts {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.statements += len(texts)
	m.trips += len(ops)
	for _, text := range texts {
		m.by[text[:min(len(text), 100)]]++
	}
}

// Reset starts counting anew, and returns what was counted.
func (m *Meter) Reset() (statements, trips int, by []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, text := range slices.SortedFunc(maps.Keys(m.by), func(a, b string) int { return m.by[b] - m.by[a] }) {
		by = append(by, fmt.Sprintf("%6d %s", m.by[text], text))
	}
	statements, trips = m.statements, m.trips
	m.statements, m.trips, m.by = 0, 0, map[string]int{}
	return statements, trips, by
}

// Costs is a table on a page that says, for each engine, how many statements and round trips an item takes. Tests compare
// it with what they count.
type Costs struct {
	page, name string
	update     bool

	mu    sync.Mutex
	rows  []string                     // what, in order
	cells map[string]map[string]string // by what and engine
}

// costEngines are the columns, by the names of subtests.
var costEngines = []string{"postgres", "mariadb", "mysql", "sqlite"}

// NewCosts reads the table of a name from a page, between <!-- costs NAME --> and <!-- end -->. With update it writes the table when
// the test ends, and leaves the columns of engines alone that were not measured.
func NewCosts(t *testing.T, page, name string, update bool) *Costs {
	t.Helper()
	c := &Costs{page: page, name: name, update: update, cells: map[string]map[string]string{}}
	_, table, _ := c.read(t)
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 1+len(costEngines) || strings.HasPrefix(cells[0], "---") {
			continue
		}
		what := strings.TrimSpace(cells[0])
		c.cells[what] = map[string]string{}
		for i, engine := range costEngines {
			c.cells[what][engine] = strings.TrimSpace(cells[1+i])
		}
	}
	if update {
		t.Cleanup(func() { c.write(t) })
	}
	return c
}

// read divides the page into what precedes the table, the table, and what follows.
func (c *Costs) read(t *testing.T) (before, table, after string) {
	t.Helper()
	text, err := os.ReadFile(c.page)
	Must(t, err)
	before, rest, found := strings.Cut(string(text), "<!-- costs "+c.name+" -->\n")
	table, after, ends := strings.Cut(rest, "<!-- end -->")
	if !found || !ends {
		t.Fatalf("%s has no table between <!-- costs %s --> and <!-- end -->", c.page, c.name)
	}
	return before, table, after
}

func (c *Costs) write(t *testing.T) {
	t.Helper()
	before, _, after := c.read(t)
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | PostgreSQL | MariaDB | MySQL | SQLite |\n|---|---|---|---|---|\n", c.name)
	for _, what := range c.rows {
		fmt.Fprintf(&b, "| %s |", what)
		for _, engine := range costEngines {
			fmt.Fprintf(&b, " %s |", c.cells[what][engine])
		}
		b.WriteString("\n")
	}
	Must(t, os.WriteFile(c.page, []byte(before+"<!-- costs "+c.name+" -->\n"+b.String()+"<!-- end -->"+after), 0o644))
}

// Row declares a row of the table, in its place.
func (c *Costs) Row(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rows = append(c.rows, what)
	if c.cells[what] == nil {
		c.cells[what] = map[string]string{}
	}
}

// Lacks says that an engine does something in no other way than another row says.
func (c *Costs) Lacks(what, engine string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cells[what][engine] = "–"
}

// Spend runs do, which does something for n items, and compares what was sent meanwhile with the table. Half as much again, and a
// fifth of a statement for each item, are what batches may differ by from one time to the next, on a busy machine too: one that is not
// made takes a statement for each item.
func (c *Costs) Spend(t *testing.T, what string, n int, m *Meter, engine string, do func()) {
	t.Helper()
	m.Reset()
	do()
	statements, trips, by := m.Reset()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.update {
		c.cells[what][engine] = perItem(statements, n) + " / " + perItem(trips, n)
		return
	}
	was, also, ok := strings.Cut(c.cells[what][engine], " / ")
	if !ok {
		t.Errorf("%s: %s has no costs for %s; write them with -update", what, c.page, engine)
		return
	}
	for _, one := range []struct {
		of    string
		is    int
		shown string
	}{{"statements", statements, was}, {"round trips", trips, also}} {
		want, err := strconv.ParseFloat(one.shown, 64)
		Must(t, err)
		if most := (1.5*want + 0.2) * float64(n); float64(one.is) > most {
			t.Errorf("%s: %d %s for %d, where %s says %s each:\n%s", what, one.is, one.of, n, c.page, one.shown, strings.Join(by, "\n"))
		}
	}
}

func perItem(of, n int) string { return strconv.FormatFloat(float64(of)/float64(n), 'g', 2, 64) }
