package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// The limits of a connection. A request's own limit is [Options.Timeout].
const (
	headerTime  = 10 * time.Second // for the header of a request
	readTime    = time.Minute      // for a whole request
	writeTime   = 3 * time.Minute  // from the header of a request to the end of its answer
	idleTime    = 2 * time.Minute
	headerBytes = 32 << 10
)

// A Server serves a handler at an address until it is stopped.
type Server struct {
	Handler http.Handler
	Logger  *slog.Logger
	Grace   time.Duration // for running requests at the end; default: 10s

	// Connections limits the open connections; 0 means half of the descriptors that the process may have, and 10,000 at most: the
	// rest is for the database, commands and files. A further one ends the one that has been without a request for longest.
	// ConnectionClosed, if set, is called for each that is ended so.
	Connections      int
	ConnectionClosed func()

	// Cert and Key are files with a certificate and its key, in PEM. If set, the server speaks TLS.
	// It reads the files again when they change.
	Cert, Key string

	pair *pair
}

// Load reads the certificate, if there is one. Serve does so itself; call Load to find out earlier
// whether the files are valid.
func (s *Server) Load() error {
	if s.pair != nil || s.Cert == "" && s.Key == "" {
		return nil
	}
	loaded, err := newPair(s.Cert, s.Key, s.Logger)
	if err == nil {
		s.pair = loaded
	}
	return err
}

// Trouble says what is wrong with the certificate that is served, or is about to be, at a time of this host: that it ends within two weeks
// or a sixth of its life, or has ended. It is "" if nothing is, and before Load. The words stay the same until the certificate changes, or ends.
func (s *Server) Trouble(now time.Time) string {
	if s.pair == nil {
		return ""
	}
	return s.pair.trouble(now)
}

// Listen binds an address. Without a token the API serves this host only. So it refuses an address that
// others can reach, unless tokens has one.
func Listen(ctx context.Context, tokens *Tokens, address string) (net.Listener, error) {
	at, err := resolve(ctx, address)
	if err != nil {
		return nil, err
	}
	if !at.IP.IsLoopback() {
		needed, err := tokens.Any(ctx)
		if err != nil {
			return nil, err
		}
		if !needed {
			return nil, fmt.Errorf("%w: %s can be reached from other hosts, and there is no token: make one first with dbcron token create, or listen on 127.0.0.1", ErrInvalid, address)
		}
	}
	var c net.ListenConfig
	return c.Listen(ctx, "tcp", at.String()) // the address that was checked, whatever the name resolves to now
}

// resolve resolves an address. Without a host it means all addresses.
func resolve(ctx context.Context, address string) (*net.TCPAddr, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%w: address %q: write it as 127.0.0.1:8686, or :8686 for all addresses of this host", ErrInvalid, address)
	}
	n, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return nil, fmt.Errorf("%w: address %q: %q is not a port", ErrInvalid, address, port)
	}
	if host == "" {
		return &net.TCPAddr{Port: n}, nil
	}
	found, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", address, err)
	}
	return &net.TCPAddr{IP: found[0].IP, Zone: found[0].Zone, Port: n}, nil
}

// Serve answers requests until ctx ends, and then finishes running ones. It then returns nil; it returns
// an error if it cannot go on.
func (s *Server) Serve(ctx context.Context, at net.Listener) error {
	server := &http.Server{
		Handler: s.Handler, ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: writeTime,
		IdleTimeout: idleTime, MaxHeaderBytes: headerBytes,
		ConnState: newConnections(s.Connections, s.Logger, s.ConnectionClosed).changed,
		ErrorLog:  slog.NewLogLogger(s.Logger.Handler(), slog.LevelDebug), // errors of clients
		// Requests go on when ctx ends, which only stops the server.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	serve := server.Serve
	if err := s.Load(); err != nil {
		return errors.Join(err, at.Close())
	}
	if s.pair != nil {
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.pair.get}
		serve = func(at net.Listener) error { return server.ServeTLS(at, "", "") }
	}
	ended := make(chan error, 1)
	go func() { ended <- serve(at) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	grace := s.Grace
	if grace <= 0 {
		grace = 10 * time.Second
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := server.Shutdown(last); err != nil {
		s.Logger.Warn("http: requests were broken off", "after", grace)
		_ = server.Close() // break off the rest
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
