// Command overlay prints the name of a file for go build -overlay, which replaces a few functions of Go's
// runtime, so that goroutines in a bubble of testing/synctest do the same each time: what the runtime draws
// for them (the order of a map, of ready cases of a select, of timers of one instant) comes from a sequence
// that begins anew with each bubble, and no goroutine of a bubble is interrupted because it has run, or waited, for long.
//
// It changes copies of the sources that the installed Go has, and fails if they are not what it knows.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A change replaces text that a file has exactly once.
type change struct{ file, from, to string }

// They add lines only at the ends of files and lines, so that line numbers stay.
var changes = []change{
	{"rand.go", "func rand() uint64 {", "func rand() uint64 { if gp := getg().m.curg; gp != nil && gp.bubble != nil { return simulated(&simulatedRand) };"},
	{"rand.go", "func cheaprand() uint32 {", "func cheaprand() uint32 { if gp := getg().m.curg; gp != nil && gp.bubble != nil { return uint32(simulated(&simulatedCheap)) };"},
	{"rand.go", "	globalRand.state.Init(*seed)", "	for i := range seed { seed[i] = byte(i) }; globalRand.state.Init(*seed)"},
	{"rand.go", "", `
// The states of what goroutines in a bubble draw.
var simulatedRand, simulatedCheap uint64

//go:nosplit
func simulated(state *uint64) uint64 {
	*state += 0xa0761d6478bd642f
	hi, lo := math.Mul64(*state, *state^0xe7037ed1a0b428db)
	return hi ^ lo
}
`},
	{"synctest.go", "	gp.bubble = bubble\n", "	simulatedRand, simulatedCheap = 1, 1; gp.bubble = bubble\n"},
	{
		"proc.go", "		if pp == nil || atomic.Load(&pp.status) != _Prunning {",
		"		if pp == nil || atomic.Load(&pp.status) != _Prunning || simulates(pp) {",
	},
	{"proc.go", "", `
// simulates reports whether a processor runs a goroutine in a bubble, which keeps it, in system calls, too.
func simulates(pp *p) bool {
	mp := pp.m.ptr()
	return mp != nil && mp.curg != nil && mp.curg.bubble != nil
}
`},
	// No mutex is starving because much real time has passed.
	{"sema.go", "func internal_sync_nanotime() int64 {", "func internal_sync_nanotime() int64 { if getg().bubble != nil { return 1 };"},
}

func main() {
	name, err := write()
	if err != nil {
		fmt.Fprintln(os.Stderr, "overlay:", err)
		os.Exit(1)
	}
	fmt.Println(name)
}

func write() (string, error) {
	out, err := exec.Command("go", "env", "GOROOT", "GOVERSION").Output() //nolint:noctx // it ends at once
	if err != nil {
		return "", err
	}
	root, version, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "dbcron-simulation", version)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	replace, texts := map[string]string{}, map[string]string{}
	for _, c := range changes {
		text, read := texts[c.file]
		if !read {
			source, err := os.ReadFile(filepath.Join(root, "src", "runtime", c.file))
			if err != nil {
				return "", err
			}
			text = string(source)
		}
		switch n := strings.Count(text, c.from); {
		case c.from == "":
			text += c.to
		case n != 1:
			return "", fmt.Errorf("runtime/%s of %s has %d times: %s", c.file, version, n, c.from)
		default:
			text = strings.Replace(text, c.from, c.to, 1)
		}
		texts[c.file] = text
	}
	for file, text := range texts {
		to := filepath.Join(dir, file)
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, "src", "runtime", file)] = to
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, list, 0o600)
}
