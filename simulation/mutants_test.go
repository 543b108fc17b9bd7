package simulation

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	flagMutants = flag.Bool("mutants", false, "take mends out of the product, one after the other, and look for violations")
	flagMutant  = flag.String("mutant", "", "only mutants whose name contains this")
	flagOverlay = flag.String("overlay", "", "the file of go run ./simulation/overlay, for what runs again to do the same")
)

// A mutant is a fault that is put into a copy of the product. A simulation must find it.
type mutant struct {
	name     string
	workload string
	file     string // of the module
	from, to string // text that the file has once, and what replaces it
	kind     string // of the violation
	within   int    // so many seeds
}

var mutants = []mutant{
	{
		"a worker relies on its lease for an hour", "queue", "queue/worker_lease.go",
		"return asked.Add(usable(l.opt.Lease))", "return asked.Add(time.Hour)", "late", 60,
	},
	{
		"late workers are not expelled", "queue", "queue/internal/store/nodes.go",
		"`name = :node AND state = 'live' AND expire_at <= {now}`)", "`name = :node AND state = 'live' AND expire_at <= {now} AND 1 = 0`)", "stuck", 60,
	},
	{
		"a job does not wait for the one before it of its key", "queue", "queue/internal/board/keyqueue.go",
		"	if len(q.turns) == 0 && q.mayFollow() {", "	if q.mayFollow() { q.turns = nil", "order", 20,
	},
	{
		"a retry does not hold its key", "queue", "queue/worker_retry.go",
		`m.holds = m.what != buried && ordered && q.KeyRetry == "hold"`, "m.holds = false", "order", 40,
	},
	{
		"CompleteTx leaves earlier jobs of its key", "queue", "queue/worker_complete.go",
		"return o.line() == d.line() && !o.inTx }", "return false }", "order", 200,
	},
	{
		"a batch drops a job that was checked out when its block went", "queue", "queue/worker_batch.go",
		"case d.b.gone && d.from != tableRunning:", "case d.b.gone:", "stuck", 100,
	},
	{
		"blocks of a generation that has not begun are taken", "queue", "queue/worker_generation.go",
		"return r.Generation > max(begun, oldest) })", "return r.Generation > max(begun, 1000) })", "order", 40,
	},
	{
		"the fence of a lock does not rise", "lock", "dialect/sqlite/sqlite.go",
		`return column + " = " + column + " + 1" }`, `return column + " = " + column }`, "fence", 5,
	},
	{
		"a lock is taken from a holder whose lease lasts", "lock", "lock/statements.go",
		"WHERE name = :name AND slot = 0\n\t\t\tAND ` + isFree + inTurn(d) + `\n\t\t{returning fence}",
		"WHERE name = :name AND slot = 0\n\t\t\tAND 1 = 1\n\t\t{returning fence}", "two holders", 5,
	},
	{
		"an expired lock is not taken over", "lock", "lock/statements.go",
		"WHERE name = :name AND slot = 0\n\t\t\tAND ` + isFree + inTurn(d) + `\n\t\t{returning fence}",
		"WHERE name = :name AND slot = 0\n\t\t\tAND state = 'FREE'\n\t\t{returning fence}", "stuck", 20,
	},
	{
		"a holder relies on twice its lease", "lock", "lock/keeper.go",
		"le.sent.At.Add(le.opt.TTL - le.opt.Margin)", "le.sent.At.Add(2 * le.opt.TTL)", "two holders", 40,
	},
	{
		"a guard lets a late holder pass", "lock", "lock/lease.go",
		"	if held == 0 {\n		return le.lose()", "	if held < 0 {\n		return le.lose()", "register", 200,
	},
	{
		"runs of dead daemons are not taken over", "schedule", "scheduler/takeover.go",
		"if err != nil || len(found) == 0 {\n			return err\n		}\n		alone = found",
		"if err != nil || len(found) >= 0 {\n			return err\n		}\n		alone = found", "stuck", 20,
	},
}

// TestMutants puts each fault into a copy of the product, and looks after how many seeds a simulation
// finds it.
func TestMutants(t *testing.T) {
	if !*flagMutants {
		t.Skip("make sim-mutants does this")
	}
	for _, m := range mutants {
		if !strings.Contains(m.name, *flagMutant) {
			continue
		}
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			if seed, kind := m.find(t); kind == "" {
				t.Errorf("%s: not found within %d seeds", m.name, m.within)
			} else {
				fmt.Printf("| %s | %s | %s | %s |\n", m.name, m.workload, kind, seed)
			}
		})
	}
}

var foundIt = regexp.MustCompile(`(?m)^found: seed (\d+): (.*)$`)

// find returns the first seed that breaks a promise, and which kind of promise.
func (m *mutant) find(t *testing.T) (seed, kind string) {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "simulation.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", m.overlay(t, dir), "-o", bin, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, _ := exec.CommandContext(t.Context(), bin, "-test.run", "^TestSimulation$", "-test.timeout", "0", "-workload", m.workload,
		"-seeds", fmt.Sprint(m.within), "-minutes", fmt.Sprint(*flagMinutes), "-until", m.kind).CombinedOutput()
	if found := foundIt.FindSubmatch(out); found != nil {
		return string(found[1]), string(found[2])
	}
	return "", ""
}

// overlay writes a file for go build that replaces the mutant's file, besides those of the runtime.
func (m *mutant) overlay(t *testing.T, dir string) string {
	t.Helper()
	list := struct{ Replace map[string]string }{map[string]string{}}
	if *flagOverlay != "" {
		text, err := os.ReadFile(*flagOverlay)
		if err == nil {
			err = json.Unmarshal(text, &list)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	file, err := filepath.Abs(filepath.Join("..", m.file))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), m.from); n != 1 {
		t.Fatalf("%s has %d times: %s", m.file, n, m.from)
	}
	changed := filepath.Join(dir, "changed.go")
	list.Replace[file] = changed
	name := filepath.Join(dir, "overlay.json")
	all, err := json.Marshal(list)
	if err == nil {
		err = os.WriteFile(changed, []byte(strings.Replace(string(text), m.from, m.to, 1)), 0o600)
	}
	if err == nil {
		err = os.WriteFile(name, all, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return name
}
