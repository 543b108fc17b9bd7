package guardian

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dbcron/dbcron/internal/smallfile"
)

// subreaper means that orphans among the command's descendants become the
// guardian's children, so that it can find, kill and reap them.
const subreaper = true

// reusable means that a guardian can guard one command after another.
const reusable = true

// setTitle has ps show the command's name: it writes it over the last argument, which launch made long enough for most.
// A longer name is cut. The argument is memory that the kernel gave to the process, and not a constant.
func setTitle(name string) {
	if len(os.Args) != 2 || os.Args[1] == "" {
		return
	}
	room := unsafe.Slice(unsafe.StringData(os.Args[1]), len(os.Args[1]))
	clear(room[copy(room, name):])
}

func becomeSubreaper() {
	name := append([]byte(argv0), 0)
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0) // otherwise ps -e says "exe"
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)                      // Linux 3.4
}

// commandAttr has the kernel kill the command if the guardian is killed. It
// watches the thread that started the command, which must not end before.
func commandAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// program returns the file to start a guardian from: this very program, even if an upgrade has replaced
// its file.
func program() (string, error) {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err == nil {
		return self, nil
	}
	return os.Executable()
}

// family returns the processes that descend from root or are in its session,
// without root itself. It reads all of /proc: a few milliseconds.
func family(root int) []relative {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1)
	var found []relative
	children := map[int][]relative{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == root {
			continue
		}
		r, parent, session, ok := readStat(pid)
		switch {
		case !ok:
		case session == root || parent == root:
			found = append(found, r)
		default:
			children[parent] = append(children[parent], r)
		}
	}
	for i := 0; i < len(found); i++ {
		pid := found[i].pid
		found = append(found, children[pid]...)
		delete(children, pid)
	}
	return found
}

func readStat(pid int) (r relative, parent, session int, ok bool) {
	b, err := smallfile.Read("/proc/"+strconv.Itoa(pid)+"/stat", 4096)
	if err != nil {
		return r, 0, 0, false
	}
	// The second field, a name in parentheses, can hold anything.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 4 {
		return r, 0, 0, false
	}
	r.pid, r.dead = pid, f[0][0] == 'Z' || f[0][0] == 'X'
	parent, _ = strconv.Atoi(string(f[1]))
	r.group, _ = strconv.Atoi(string(f[2]))
	session, _ = strconv.Atoi(string(f[3]))
	return r, parent, session, true
}
