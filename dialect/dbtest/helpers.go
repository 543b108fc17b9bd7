package dbtest

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dbcron/dbcron/dialect/dbtest/dbserver"
)

// Must fails the test if err is not nil.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Eventually waits until is returns true. It fails the test if that takes longer than what must
// happen takes on a slow machine.
func Eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick, over := time.NewTicker(10*time.Millisecond), time.After(patience)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// Quiet returns a logger that logs nothing.
func Quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Parallel sets how many tests run at a time, unless the command line does. It is for TestMain, in
// packages whose tests mostly wait for the database.
func Parallel(n string) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set(n)
	}
}

// Main runs the tests of a package, calls cleanUp, and fails if a goroutine is left. It is for
// TestMain, and ends the program.
func Main(m *testing.M, cleanUp ...func()) {
	flag.Parse()
	code := m.Run()
	for _, f := range cleanUp {
		f()
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// FreePort returns a port of 127.0.0.1 on which nothing listens, and which no connection is given by chance:
// see dbserver.FreePort.
func FreePort(t *testing.T) string {
	t.Helper()
	port, err := dbserver.FreePort(t.Context())
	Must(t, err)
	return strconv.Itoa(port)
}
