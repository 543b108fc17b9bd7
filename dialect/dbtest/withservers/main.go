// Withservers runs a command with real database servers to test against:
//
//	go run ./dialect/dbtest/withservers [-durable] -- go test ./...
//
// It starts a PostgreSQL, a MariaDB and a MySQL server, sets DBCRON_TEST_POSTGRES,
// DBCRON_TEST_MARIADB and DBCRON_TEST_MYSQL for the command, prints the servers' versions, and stops
// them when the command ends. A variable that is set already keeps its value, and no server is
// started for it. A server that is not installed is left out, except in CI.
//
// If the command is gotestsum, it also prints what runs every 20 seconds and on a signal, and the
// slowest tests in the end.
//
// Without a command it prints the variables and keeps the servers until
// Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest/dbserver"
)

func main() {
	durable := flag.Bool("durable", false, "what is committed survives a crash of the server; slower")
	flag.Parse()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go watchParent(signals)

	started := make([]*dbserver.Server, len(dbserver.Engines))
	var each sync.WaitGroup
	for i, e := range dbserver.Engines {
		each.Go(func() { started[i] = setUp(e, dbserver.Options{Durable: *durable, Keep: true}) })
	}
	each.Wait()
	code := runCommand(signals, flag.Args())
	for _, s := range started {
		if s != nil {
			each.Go(func() { _ = s.Stop() })
		}
	}
	each.Wait()
	os.Exit(code)
}

// setUp starts a server and sets its variable, unless the variable is set already.
func setUp(e dbserver.Engine, opt dbserver.Options) *dbserver.Server {
	if os.Getenv(e.Variable) != "" {
		return nil
	}
	s, err := e.Start(context.Background(), opt)
	switch {
	case errors.Is(err, dbserver.ErrMissing) && os.Getenv("CI") != "true":
		fmt.Fprintf(os.Stderr, "%v\n  Until then, the tests on this engine are skipped.\n", err)
		return nil
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv(e.Variable, s.URL())
	os.Setenv(dbserver.KeptVariable(e.Name), s.Kept())
	fmt.Fprintln(os.Stderr, s.Version())
	return s
}

// runCommand forwards signals to the command and returns its exit code. Without a command it waits
// for a signal.
func runCommand(signals <-chan os.Signal, command []string) int {
	if len(command) == 0 {
		for _, e := range dbserver.Engines {
			fmt.Printf("export %s='%s'\n", e.Variable, os.Getenv(e.Variable))
		}
		<-signals
		return 0
	}
	folder, err := os.MkdirTemp("", "withservers-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	tests := newProgress(filepath.Join(folder, "events.json"))
	cmd := exec.CommandContext(context.Background(), command[0], command[1:]...)
	cmd.Env = append(os.Environ(), eventsVariable+"="+tests.file)
	ownGroup(cmd)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 127
	}
	go func() {
		for s := range signals {
			tests.interrupted(os.Stderr)
			signalGroup(cmd, s)
		}
	}()
	ended := make(chan struct{})
	go tests.every(ended, os.Stderr)
	_ = cmd.Wait() // the exit code tells
	close(ended)
	tests.slowest(os.Stderr)
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return code
	}
	return 1 // a signal ended it
}

// watchParent sends a signal when the parent process has ended. A killed go run does not forward
// its end.
func watchParent(signals chan<- os.Signal) {
	parent := os.Getppid()
	for range time.Tick(time.Second) {
		if os.Getppid() != parent {
			signals <- syscall.SIGTERM
			return
		}
	}
}
