package httpapi

import (
	"crypto/tls"
	"crypto/x509"
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
	life   life
	seen   [2]version
}

// A life is the time in which clients take a certificate and those with which its file vouches for it.
type life struct{ from, to time.Time }

func lifeOf(c *tls.Certificate) (l life, err error) {
	for _, der := range c.Certificate {
		one, err := x509.ParseCertificate(der)
		if err != nil {
			return l, err
		}
		if l.to.IsZero() || one.NotAfter.Before(l.to) {
			l = life{one.NotBefore, one.NotAfter}
		}
	}
	return l, nil
}

// soon is how long before its end a certificate is spoken of, or a sixth of its life if that is shorter: who has certificates of few days
// renews them late.
const soon = 14 * 24 * time.Hour

// trouble says what is wrong with a life at a time of this host, or is about to be, in words that stay the same; "" if nothing is.
func (l life) trouble(now time.Time) string {
	const who, what = "the certificate of the API (--tls-cert) ", "; put a new one into its file, which is read again"
	end := l.to.UTC().Format("2006-01-02 15:04 UTC")
	switch {
	case !now.Before(l.to):
		return who + "has ended at " + end + ": clients refuse it" + what
	case l.to.Sub(now) < min(soon, l.to.Sub(l.from)/6):
		return who + "ends at " + end + ": clients will refuse it" + what
	}
	return ""
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
	var life life
	if err == nil {
		life, err = lifeOf(&loaded)
	}
	if err != nil {
		return fmt.Errorf("certificate %s with key %s: %w", p.cert, p.key, err)
	}
	p.loaded, p.life = &loaded, life
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
	p.look()
	return p.loaded, nil
}

// look reads the files again if they have changed. mu is held.
func (p *pair) look() {
	if seen, err := p.versions(); err == nil && seen != p.seen {
		if err := p.load(); err != nil {
			p.log.Warn("http: the certificate stays as it was", "err", err)
		} else {
			p.log.Info("http: the certificate was read again", "file", p.cert)
		}
	}
}

// trouble looks at the files, and says what is wrong with the certificate that is served, or is about to be.
func (p *pair) trouble(now time.Time) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.look()
	return p.life.trouble(now)
}
