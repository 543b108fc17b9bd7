package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/dbcron/dbcron/httpapi"
)

const day = 24 * time.Hour

// writeCertificate writes a certificate for localhost, and its key.
func writeCertificate(cert, key string, from, to time.Time) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotBefore: from, NotAfter: to}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// certificate CERT KEY DURATION writes a certificate of a year that ends then, and its key.
func certificate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: certificate CERT KEY DURATION")
	}
	left, err := time.ParseDuration(args[2])
	ts.Check(err)
	end := hostNow().Add(left)
	ts.Check(writeCertificate(ts.MkAbs(args[0]), ts.MkAbs(args[1]), end.Add(-365*day), end))
}

// The log has it when it begins, once a day, and when the certificate has ended.
func TestTheLogSaysWhenACertificateEnds(t *testing.T) {
	end := time.Date(2026, 3, 20, 0, 0, 0, 0, time.UTC)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := writeCertificate(cert, key, end.Add(-365*day), end); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	server := &httpapi.Server{Cert: cert, Key: key, Logger: log}
	if err := server.Load(); err != nil {
		t.Fatal(err)
	}
	w := certWatch{server: server}
	for _, step := range []struct {
		before time.Duration
		lines  int
		words  string
	}{
		{15 * day, 0, ""},
		{14 * day, 0, ""},
		{14*day - time.Second, 1, "ends at 2026-03-20 00:00 UTC"},
		{14*day - time.Minute, 0, ""},
		{13*day - time.Second, 1, "clients will refuse it"},
		{time.Hour, 1, "ends at"},
		{time.Minute, 0, ""},
		{0, 1, "has ended at 2026-03-20 00:00 UTC: clients refuse it"},
		{-time.Hour, 0, ""},
		{-day, 1, "has ended"},
	} {
		text.Reset()
		w.look(end.Add(-step.before), log)
		if n := strings.Count(text.String(), "\n"); n != step.lines || !strings.Contains(text.String(), step.words) {
			t.Errorf("%s before its end: %d lines, want %d with %q: %s", step.before, n, step.lines, step.words, text.String())
		}
	}
	if got := (&certWatch{}).look(end, log); got != "" {
		t.Errorf("without a server: %s", got)
	}
}
