package httpapi

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/smallfile"
)

// A pair is a certificate and its key, in files that may be replaced.
type pair struct {
	cert, key string
	log       *slog.Logger

	mu     sync.Mutex
	loaded *tls.Certificate
	seen   [2]version
}

// A version identifies the contents of a file without reading them.
type version struct {
	changed time.Time
	size    int64
}

func newPair(cert, key string, log *slog.Logger) (*pair, error) {
	p := &pair{cert: cert, key: key, log: log}
	return p, p.load()
}

func (p *pair) versions() (v [2]version, err error) {
	for i, name := range []string{p.cert, p.key} {
		info, err := os.Stat(name)
		if err != nil {
			return v, err
		}
		v[i] = version{info.ModTime(), info.Size()}
	}
	return v, nil
}

// load reads the files. It takes their versions first, so that files that change meanwhile are read
// again next time.
func (p *pair) load() error {
	seen, err := p.versions()
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	loaded, err := readPair(p.cert, p.key)
	p.seen = seen // even if the files are invalid, so that this is logged once
	if err != nil {
		return fmt.Errorf("certificate %s with key %s: %w", p.cert, p.key, err)
	}
	p.loaded = &loaded
	return nil
}

func readPair(cert, key string) (pair tls.Certificate, err error) {
	const most = 1 << 20 // bytes of a file
	certPEM, err := smallfile.Read(cert, most)
	if err != nil {
		return pair, err
	}
	keyPEM, err := smallfile.Read(key, most)
	if err != nil {
		return pair, err
	}
	return tls.X509KeyPair(certPEM, keyPEM)
}

// get returns the current certificate. If the files are invalid it returns the previous one: perhaps
// only one of the two has been replaced yet.
func (p *pair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if seen, err := p.versions(); err == nil && seen != p.seen {
		if err := p.load(); err != nil {
			p.log.Warn("http: the certificate stays as it was", "err", err)
		} else {
			p.log.Info("http: the certificate was read again", "file", p.cert)
		}
	}
	return p.loaded, nil
}
