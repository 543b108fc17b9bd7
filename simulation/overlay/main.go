// Command overlay prints the name of a file for go build -overlay, which replaces a few functions of Go's
// runtime, so that goroutines in a bubble of testing/synctest do the same each time:
//
//   - What the runtime draws for them (the order of a map, of ready cases of a select, of timers of one
//     instant) comes from a sequence that begins anew with each bubble.
//   - The hash of a pointer depends on the order in which pointers were first hashed, and not on addresses.
//     So a map whose keys are pointers, such as the children of a context, has the same order each time.
//   - No goroutine of a bubble is interrupted because it has run, or waited, for long. None comes before
//     another one because a timer outside of the bubble has fired, or because of how many have run.
//   - The process has the same number each time, since names of workers and lockers have it.
//
// It changes copies of the sources that the installed Go has, and fails if they are not what it knows.
package main

import (
	"bytes"
	"crypto/sha256"
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
	{"runtime/rand.go", "func rand() uint64 {", "func rand() uint64 { if gp := getg().m.curg; gp != nil && gp.bubble != nil { return simulated(&simulatedRand) };"},
	// Only what decides something draws from the sequence. The runtime draws for itself, too, such as when its own locks
	// are contended for, which real time decides.
	{"runtime/select.go", "j := cheaprandn(uint32(norder + 1))", "j := uint32(simulatedBy(gp, uint32(norder + 1)))"},
	{"runtime/time.go", "t.rand = cheaprand()", "t.rand = simulatedBy(getg().m.curg, 1<<31)"},
	{"runtime/rand.go", "	mp.cheaprand = rand()", "	mp.cheaprand = bootstrapRand()"},
	{"runtime/rand.go", "	globalRand.state.Init(*seed)", "	for i := range seed { seed[i] = byte(i) }; globalRand.state.Init(*seed)"},
	{"runtime/rand.go", "", `
// The states of what goroutines in a bubble draw.
var simulatedRand, simulatedCheap uint64

//go:nosplit
func simulated(state *uint64) uint64 {
	*state += 0xa0761d6478bd642f
	hi, lo := math.Mul64(*state, *state^0xe7037ed1a0b428db)
	return hi ^ lo
}

// simulatedBy returns a number less than n that a goroutine draws.
func simulatedBy(gp *g, n uint32) uint32 {
	if gp == nil || gp.bubble == nil {
		return cheaprandn(n)
	}
	return uint32(simulated(&simulatedCheap)) % n
}
`},
	// From the first bubble on, no goroutine is interrupted, and none loses its processor in a system call.
	{"runtime/synctest.go", "	gp.bubble = bubble\n", "	simulating, simulatedRand, simulatedCheap = true, 1, 1; gp.bubble = bubble\n"},
	{
		"runtime/proc.go", "		if pp == nil || atomic.Load(&pp.status) != _Prunning {",
		"		if pp == nil || atomic.Load(&pp.status) != _Prunning || simulating {",
	},
	{"runtime/proc.go", "", "\nvar simulating bool\n"},
	// Goroutines outside of the bubble come last: real time decides when one of them is there.
	{"runtime/proc.go", "if pp.schedtick%61 == 0 && !sched.runq.empty() {", "if false && pp.schedtick%61 == 0 && !sched.runq.empty() {"},
	{"runtime/proc.go", "	runqput(mp.p.ptr(), gp, next)\n	wakep()\n	releasem(mp)\n}\n\n// freezeStopWait", "	runqput(mp.p.ptr(), gp, next && gp.bubble != nil)\n	wakep()\n	releasem(mp)\n}\n\n// freezeStopWait"},
	// Addresses of the heap are hashed by their number; see below. The instructions for AES have no such hook.
	{"runtime/malloc.go", "randomizeHeapBase = goexperiment.", "randomizeHeapBase = false && goexperiment."},
	{"runtime/alg.go", "		cpu.X86.HasAES && // AESENC", "		false && cpu.X86.HasAES && // AESENC"},
	{"runtime/alg.go", `if GOARCH == "arm64" && cpu.ARM64.HasAES {`, `if GOARCH == "arm64" && false && cpu.ARM64.HasAES {`},
	{"runtime/hash64.go", "	a := r8(p)\n", "	a := numbered(r8(p))\n"},
	{"runtime/hash64.go", "	case s == 8:\n		a = r8(p)\n", "	case s == 8:\n		a = numbered(r8(p))\n"},
	{"runtime/hash64.go", "		a = r8(p)\n		b = r8(add(p, s-8))\n", "		a = numbered(r8(p))\n		b = numbered(r8(add(p, s-8)))\n"},
	{"runtime/hash64.go", "", `
// The numbers of words that look like addresses of the heap, in the order in which they were first hashed,
// for each arena of 64 MiB.
var (
	numbers    [1 << 9]*[1 << 23]uint32
	lastNumber uint32
)

// numbered returns a word, or its number if it looks like an address of the heap.
func numbered(a uintptr) uintptr {
	const heap = 0xc0 << 32
	i := (a - heap) >> 3
	if a < heap || i>>23 >= uintptr(len(numbers)) {
		return a
	}
	arena := &numbers[i>>23]
	if *arena == nil {
		*arena = (*[1 << 23]uint32)(sysAlloc(4<<23, &memstats.other_sys, "numbers"))
	}
	n := &(*arena)[i&(1<<23-1)]
	if *n == 0 {
		lastNumber++
		*n = lastNumber
	}
	return heap + uintptr(*n)
}
`},
	{
		"os/exec.go", "func Getpid() int { return syscall.Getpid() }", // a guardian signals the processes of its own session
		`func Getpid() int { if len(Args) == 0 || Args[0] == "dbcron-guardian" { return syscall.Getpid() }; return 4711 }`,
	},
	// No mutex is starving because much real time has passed.
	{"runtime/sema.go", "func internal_sync_nanotime() int64 {", "func internal_sync_nanotime() int64 { if getg().bubble != nil { return 1 };"},
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
	texts, err := changed(root)
	if err != nil {
		return "", fmt.Errorf("%s: %w", version, err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	// Another version of this program has a folder of its own: both may build at the same time.
	dir := filepath.Join(cache, "dbcron-simulation", fmt.Sprintf("%s-%x", version, sha256.Sum256(fmt.Append(nil, root, changes)))[:len(version)+17])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, text := range texts {
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "-"))
		if err := put(to, []byte(text)); err != nil {
			return "", err
		}
		replace[filepath.Join(root, "src", file)] = to
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, put(name, list)
}

// changed returns the changed texts of the files of Go's sources.
func changed(root string) (map[string]string, error) {
	texts := map[string]string{}
	for _, c := range changes {
		text, read := texts[c.file]
		if !read {
			source, err := os.ReadFile(filepath.Join(root, "src", c.file))
			if err != nil {
				return nil, err
			}
			text = string(source)
		}
		switch n := strings.Count(text, c.from); {
		case c.from == "":
			text += c.to
		case n != 1:
			return nil, fmt.Errorf("%s has %d times: %s", c.file, n, c.from)
		default:
			text = strings.Replace(text, c.from, c.to, 1)
		}
		texts[c.file] = text
	}
	return texts, nil
}

// put writes a file at once: a build that runs beside this reads the old one or the new one.
func put(name string, text []byte) error {
	if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, text) {
		return nil
	}
	tmp := fmt.Sprint(name, ".", os.Getpid())
	if err := os.WriteFile(tmp, text, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, name)
}
