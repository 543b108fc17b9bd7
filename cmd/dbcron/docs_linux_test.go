package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// onEachEngine are the pages that are run on each engine, and not on SQLite alone: their
// scripts are the tests of what they show.
var onEachEngine = []string{"docs/lock-run.md", "docs/queue-cli.md", "docs/queue-groups.md"}

// TestDocs types the commands of the pages as printed: those of a page one after the other, in
// a folder and a database of their own. testdata/docs has a script for a page that needs files
// or another program, or where more than the success of its commands is checked; blocks that
// the script leaves out run after it.
func TestDocs(t *testing.T) {
	bin := shownPrograms(t)
	typeUsers(t, bin)
	for page, text := range shownPages(t) {
		if blocks, _ := shellBlocks(text); !slices.ContainsFunc(blocks, func(b block) bool { return b.notRun == "" }) {
			continue
		}
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			script := pageScript(t, page)
			on := func(t *testing.T, db *dbtest.DB) { typeShown(t, script, bin, db) }
			switch page {
			case "docs/scaling.md":
				on = func(t *testing.T, db *dbtest.DB) { typeShown(t, script, bin, db, twoShards(t)...) }
			case "docs/vitess.md":
				programs := os.Getenv(vitessVariable)
				if programs == "" {
					t.Skip("make compat SERVERS=vitess-page")
				}
				on = func(t *testing.T, db *dbtest.DB) { typeShown(t, script, bin, db, "PROGRAMS="+programs) }
			}
			if slices.Contains(onEachEngine, page) {
				dbtest.EachEmpty(t, on, (*testing.T).Parallel)
			} else {
				on(t, dbtest.Fresh(t, "sqlite"))
			}
		})
	}
}

// typeUsers types what the pages tell several kinds of users to do in their first ten minutes.
// packaging/check tests the installation.
func typeUsers(t *testing.T, bin string) {
	t.Helper()
	scripts, err := filepath.Glob(filepath.Join(root(t), "testdata", "users", "*.txtar"))
	if err != nil || len(scripts) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, script := range scripts {
		t.Run("users/"+filepath.Base(script), func(t *testing.T) {
			t.Parallel()
			typeShown(t, script, bin, dbtest.Fresh(t, "sqlite"))
		})
	}
}

// shownPrograms builds the programs that the pages run, and returns the folder.
func shownPrograms(t *testing.T) string {
	t.Helper()
	bin := programAlone(t)
	if err := buildInto(filepath.Join(bin, "first"), "../../examples/first"); err != nil {
		t.Fatal(err)
	}
	return bin
}

// typeShown runs a script that types what pages show.
func typeShown(t *testing.T, script, bin string, db *dbtest.DB, more ...string) {
	t.Helper()
	variables := map[string]string{"DBCRON_DATABASE_URL": db.URL}
	for _, v := range more {
		name, value, _ := strings.Cut(v, "=")
		variables[name] = value
	}
	p := scriptParams(t, script, bin, variables)
	usual := p.Setup
	p.Setup = func(env *testscript.Env) error {
		env.Values[shellPageKey{}] = &shellPage{others: map[string]*terminal{}}
		if err := usual(env); err != nil || db.Engine != "sqlite" || os.Getenv(shardsVariable) != "" { // another one's server is in this host's network
			return err
		}
		return alone(env)
	}
	for name, cmd := range docsCmds() {
		p.Cmds[name] = cmd
	}
	testscript.Run(t, p)
}

// shardsVariable may have the URLs of two empty databases, for what is typed on two shards: see tools/compat.
const shardsVariable = "DBCRON_TEST_SHARDS"

// vitessVariable has the folders of the programs that docs/vitess.md runs.
const vitessVariable = "DBCRON_TEST_VITESS"

// twoShards returns the variables that name two databases, of SQLite if there are no others.
func twoShards(t *testing.T) []string {
	t.Helper()
	urls := []string{"sqlite:" + filepath.Join(t.TempDir(), "north.db"), "sqlite:" + filepath.Join(t.TempDir(), "south.db")}
	if given, set := os.LookupEnv(shardsVariable); set {
		urls = strings.Fields(given)
	}
	if len(urls) != 2 {
		t.Fatalf("%s has %d URLs", shardsVariable, len(urls))
	}
	return []string{"NORTH_URL=" + urls[0], "SOUTH_URL=" + urls[1]}
}

// pageScript returns the file of a page's script, which begins with the page and ends with the
// rest of its blocks.
func pageScript(t *testing.T, page string) string {
	t.Helper()
	name := strings.TrimSuffix(filepath.Base(page), ".md")
	if dir := filepath.Base(filepath.Dir(page)); dir != "docs" && dir != "." {
		name = dir
	}
	text, err := os.ReadFile(filepath.Join(root(t), "testdata", "docs", name+".txtar"))
	if errors.Is(err, os.ErrNotExist) {
		text, err = []byte("exec dbcron migrate up\n"), nil
	}
	if err != nil {
		t.Fatal(err)
	}
	script, files, _ := strings.Cut(string(text), "\n-- ")
	if files != "" {
		files = "-- " + files
	}
	to := filepath.Join(t.TempDir(), name+".txtar")
	if err := os.WriteFile(to, []byte("page "+page+"\n"+script+"\nrest\n"+files), 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

// alone gives a script a network of its own, in which it finds the ports free that the pages
// name. That takes root; others share this host's, so that only one script at a time can have
// them. The goroutine keeps its thread, which ends with it: programs that it starts are in
// that network.
func alone(env *testscript.Env) error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		sharedNetwork <- struct{}{}
		env.Defer(func() { <-sharedNetwork })
		return nil
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	loopback, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	loopback.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, loopback)
}

var sharedNetwork = make(chan struct{}, 1)

// A shellPage is the page that a script types from.
type shellPage struct {
	page   string
	blocks []block // those that can be run
	next   int
	main   *terminal
	others map[string]*terminal // by what was asked for
}

type shellPageKey struct{}

// docsCmds are the commands of scripts that type what pages show.
func docsCmds() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"page": choosePage, "block": typeBlock, "pick": pickBlock, "rest": typeRest, "save": saveBlock,
		"terminal": openTerminal, "close": closeTerminal, "shown": saveShown,
	}
}

func shellPageOf(ts *testscript.TestScript) *shellPage { return ts.Value(shellPageKey{}).(*shellPage) }

// choosePage is page FILE: the blocks of that page come next, from its first.
func choosePage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: page FILE")
	}
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(args[0])))
	ts.Check(err)
	s := shellPageOf(ts)
	s.page, s.next, s.blocks = args[0], 0, nil
	all, _ := shellBlocks(string(text))
	for _, b := range all {
		if b.notRun == "" {
			s.blocks = append(s.blocks, b)
		}
	}
}

// find returns the next block that has a text, and types those before it.
func (s *shellPage) find(ts *testscript.TestScript, text string) *block {
	for i := s.next; i < len(s.blocks); i++ {
		if !strings.Contains(s.blocks[i].text, text) {
			continue
		}
		for ; s.next < i; s.next++ {
			s.typeIt(ts, &s.blocks[s.next], false)
		}
		s.next++
		return &s.blocks[i]
	}
	ts.Fatalf("%s has no block with %q after its %dth that is run", s.page, text, s.next)
	return nil
}

// typeBlock is block TEXT: the next block that has the text is typed, after those before it.
func typeBlock(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: block TEXT")
	}
	s := shellPageOf(ts)
	s.typeIt(ts, s.find(ts, args[0]), neg)
}

// pickBlock is pick TEXT: the next block that has the text is typed, without those before it.
func pickBlock(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: pick TEXT")
	}
	s := shellPageOf(ts)
	for s.next < len(s.blocks) && !strings.Contains(s.blocks[s.next].text, args[0]) {
		s.next++
	}
	s.typeIt(ts, s.find(ts, args[0]), neg)
}

// typeRest types the blocks that are left.
func typeRest(ts *testscript.TestScript, _ bool, _ []string) {
	s := shellPageOf(ts)
	for ; s.next < len(s.blocks); s.next++ {
		s.typeIt(ts, &s.blocks[s.next], false)
	}
}

// saveBlock is save TEXT FILE: the next block that has the text becomes a script, and is not
// typed.
func saveBlock(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: save TEXT FILE")
	}
	// A process that another test starts now would inherit the open file, and until it executes its program nobody can
	// execute the file: ETXTBSY.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(shellPageOf(ts).find(ts, args[0]).text), 0o700))
}

// saveShown is shown PAGE LANGUAGE FILE: the first block of a language on a page becomes a file.
func saveShown(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: shown PAGE LANGUAGE FILE")
	}
	page, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(args[0])))
	ts.Check(err)
	_, text, found := strings.Cut(string(page), "\n```"+args[1]+"\n")
	text, _, _ = strings.Cut(text, "```")
	if !found {
		ts.Fatalf("%s shows no %s", args[0], args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(text), 0o600))
}

// openTerminal is terminal TEXT [PATTERN]: it types the next block that has the text in a
// terminal of its own, where it keeps running, and where the pattern has to appear.
func openTerminal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: terminal TEXT [PATTERN]")
	}
	s := shellPageOf(ts)
	b := s.find(ts, args[0])
	t := s.open(ts)
	s.others[args[0]] = t
	t.begin(ts, b)
	if len(args) == 1 {
		return
	}
	defer t.show(ts)
	pattern := regexp.MustCompile("(?m)" + args[1])
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for timeout := time.After(5 * time.Minute); !pattern.MatchString(t.printed("out") + t.printed("err")); {
		select {
		case <-tick.C:
		case err := <-t.over:
			t.over <- err
			ts.Fatalf("%s:%d ends: %v", s.page, b.line, err)
		case <-timeout:
			ts.Fatalf("%q did not come", args[1])
		}
	}
}

// closeTerminal is close TEXT: it ends what runs in that terminal by SIGTERM.
func closeTerminal(ts *testscript.TestScript, neg bool, args []string) {
	s := shellPageOf(ts)
	if neg || len(args) != 1 || s.others[args[0]] == nil {
		ts.Fatalf("usage: close TEXT, as it was opened")
	}
	s.others[args[0]].end()
	s.others[args[0]].show(ts)
}

func (s *shellPage) typeIt(ts *testscript.TestScript, b *block, fails bool) {
	if s.main == nil {
		s.main = s.open(ts)
	}
	t := s.main
	t.begin(ts, b)
	select {
	case <-t.done:
	case <-time.After(5 * time.Minute):
		t.show(ts)
		ts.Fatalf("%s:%d goes on for more than five minutes; the script can have it in a terminal of its own", s.page, b.line)
	case err := <-t.over:
		t.over <- err
		t.show(ts)
		if s.main = nil; !fails {
			ts.Fatalf("%s:%d fails: %v", s.page, b.line, err)
		}
		return
	}
	t.show(ts)
	if fails {
		ts.Fatalf("%s:%d succeeds", s.page, b.line)
	}
}

// A terminal is a shell that somebody types into.
type terminal struct {
	cmd  *exec.Cmd
	in   io.Writer
	done chan struct{} // receives when what was typed has succeeded
	over chan error    // has how the shell ended
	dir  string        // has what was typed last, and what was printed
}

// open starts a shell with the script's variables, in its folder. It ends at the first error.
func (s *shellPage) open(ts *testscript.TestScript) *terminal {
	ts.Check(ts.Exec("env", "-0"))
	environ := strings.Split(strings.TrimSuffix(ts.ReadFile("stdout"), "\x00"), "\x00")
	dir, err := os.MkdirTemp(ts.Getenv("WORK"), ".terminal")
	ts.Check(err)
	succeeded, tell, err := os.Pipe()
	ts.Check(err)
	t := &terminal{cmd: exec.Command("sh", "-e"), done: make(chan struct{}), over: make(chan error, 1), dir: dir} //nolint:noctx // it is ended below, with what it has started
	t.cmd.Dir, t.cmd.Env, t.cmd.ExtraFiles = ts.MkAbs("."), environ, []*os.File{tell}
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	t.in, err = t.cmd.StdinPipe()
	ts.Check(err)
	ts.Check(t.cmd.Start())
	tell.Close()
	go func() {
		for lines := bufio.NewScanner(succeeded); lines.Scan(); {
			t.done <- struct{}{}
		}
	}()
	go func() { t.over <- t.cmd.Wait() }()
	ts.Defer(func() {
		t.end()
		succeeded.Close()
	})
	return t
}

// begin types a block.
func (t *terminal) begin(ts *testscript.TestScript, b *block) {
	file := filepath.Join(t.dir, "typed")
	ts.Check(os.WriteFile(file, []byte(b.text), 0o600))
	ts.Logf("%s", strings.TrimSpace("$ "+strings.ReplaceAll(strings.TrimSpace(b.text), "\n", "\n$ ")))
	_, err := fmt.Fprintf(t.in, "exec >'%s/out' 2>'%[1]s/err'; . '%[2]s' </dev/null; echo done >&3\n", t.dir, file)
	ts.Check(err)
}

// printed returns the output so far; nothing before the typed command has begun.
func (t *terminal) printed(stream string) string {
	text, _ := os.ReadFile(filepath.Join(t.dir, stream))
	return string(text)
}

// show makes the output that of the script's command.
func (t *terminal) show(ts *testscript.TestScript) {
	_, _ = io.WriteString(ts.Stdout(), t.printed("out")) // into memory
	_, _ = io.WriteString(ts.Stderr(), t.printed("err"))
}

// end ends the shell and what it has left running.
func (t *terminal) end() {
	_ = syscall.Kill(-t.cmd.Process.Pid, syscall.SIGTERM) // nobody may be left
	select {
	case err := <-t.over:
		t.over <- err
	case <-time.After(2 * time.Minute):
		_ = syscall.Kill(-t.cmd.Process.Pid, syscall.SIGKILL) // as above
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for over := time.After(2 * time.Minute); ; {
		if err := syscall.Kill(-t.cmd.Process.Pid, 0); errors.Is(err, syscall.ESRCH) {
			return
		}
		select {
		case <-tick.C:
		case <-over:
			_ = syscall.Kill(-t.cmd.Process.Pid, syscall.SIGKILL) // as above
			return
		}
	}
}
