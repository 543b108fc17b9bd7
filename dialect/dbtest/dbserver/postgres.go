package dbserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

var postgres = engine{
	name:  "postgres",
	users: []string{"postgres", "nobody"},
	ready: "database system is ready to accept connections",
	zone:  "JST-9",
	quit:  syscall.SIGQUIT,
	setUp: setUpPostgres,
	args:  postgresArgs,
	url: func(k *keeper) string {
		return (&url.URL{
			Scheme: "postgres", User: url.UserPassword("postgres", k.password),
			Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(k.port)),
			Path: "/postgres", RawQuery: "sslmode=disable",
		}).String()
	},
}

func setUpPostgres(ctx context.Context, k *keeper) error {
	pwfile := filepath.Join(k.dir, "password")
	if err := os.WriteFile(pwfile, []byte(k.password+"\n"), 0o600); err != nil {
		return err
	}
	if k.user != nil {
		if err := os.Chown(pwfile, k.user.uid, k.user.gid); err != nil {
			return err
		}
	}
	data := filepath.Join(k.dir, "data")
	args := []string{
		"--pgdata=" + data, "--username=postgres", "--pwfile=" + pwfile, "--auth=scram-sha-256",
		"--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions",
	}
	// Sort by the rules of a language by default, so that tests notice a column that lacks
	// COLLATE "C". Version 14, and builds without ICU, cannot do this.
	icu := k.run(ctx, k.bin.SetUp, append(args, "--locale-provider=icu", "--icu-locale=en-US")...)
	if icu == nil || ctx.Err() != nil {
		return icu
	}
	if err := os.RemoveAll(data); err != nil {
		return err
	}
	if err := k.run(ctx, k.bin.SetUp, args...); err != nil {
		return errors.Join(err, icu)
	}
	return nil
}

func postgresArgs(k *keeper) []string {
	args := []string{
		"-D", filepath.Join(k.dir, "data"),
		"-c", "listen_addresses=127.0.0.1",
		"-c", fmt.Sprintf("port=%d", k.port),
		"-c", "unix_socket_directories=",
		"-c", "max_connections=400",
		"-c", "timezone=America/St_Johns", // -03:30 or -02:30
		// Keep shared memory in files of the folder: /dev/shm is small in containers, and a crash
		// leaves segments behind.
		"-c", "dynamic_shared_memory_type=mmap",
	}
	if !k.durable {
		args = append(args, "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
	}
	return args
}
