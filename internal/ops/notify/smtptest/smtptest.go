// Package smtptest is a mail server for tests. It speaks the SMTP that package notify needs, and keeps the
// letters it receives.
package smtptest

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"slices"
	"strings"
	"sync"
)

// Options configures a Server.
type Options struct {
	TLS   *tls.Config  // nil: no STARTTLS
	Login string       // user and password, separated by NUL; "": no authentication
	Taken func(Letter) // called with each letter, before the sender gets an answer
}

// A Server is a mail server on this host.
type Server struct {
	opt      Options
	listener net.Listener
	serving  sync.WaitGroup

	mu       sync.Mutex
	refusing bool
	letters  []Letter
	open     map[net.Conn]bool
}

// A Letter is a message as it was sent.
type Letter struct{ From, To, Text string }

// Start starts a Server.
func Start(opt Options) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is at once
	if err != nil {
		return nil, err
	}
	s := &Server{opt: opt, listener: l, open: map[net.Conn]bool{}}
	s.serving.Go(s.accept)
	return s, nil
}

// Close stops the server.
func (s *Server) Close() {
	s.listener.Close()
	s.mu.Lock()
	for conn := range s.open {
		conn.Close()
	}
	s.mu.Unlock()
	s.serving.Wait()
}

// URL returns the server's address.
func (s *Server) URL() string { return "smtp://" + s.listener.Addr().String() }

// Refuse makes the server refuse letters, or accept them again.
func (s *Server) Refuse(is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusing = is
}

// Letters returns the accepted letters.
func (s *Server) Letters() []Letter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.letters)
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.open[conn] = true
		s.mu.Unlock()
		s.serving.Go(func() {
			s.serve(conn)
			conn.Close()
			s.mu.Lock()
			delete(s.open, conn)
			s.mu.Unlock()
		})
	}
}

func (s *Server) serve(conn net.Conn) {
	r := bufio.NewReader(conn)
	say := func(text string) { fmt.Fprintf(conn, "%s\r\n", text) }
	say("220 test")
	var one Letter
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		verb, rest, _ := strings.Cut(strings.TrimRight(line, "\r\n"), " ")
		switch strings.ToUpper(verb) {
		case "EHLO":
			say(s.greeting(conn))
		case "STARTTLS":
			say("220 go on")
			conn = tls.Server(conn, s.opt.TLS)
			r = bufio.NewReader(conn)
		case "AUTH":
			secret, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(rest, "PLAIN "))
			if string(secret) != "\x00"+s.opt.Login {
				say("535 no")
				continue
			}
			say("235 yes")
		case "MAIL":
			s.mu.Lock()
			refusing := s.refusing
			s.mu.Unlock()
			if refusing {
				say("451 not now")
				continue
			}
			one = Letter{From: between(rest)}
			say("250 ok")
		case "RCPT":
			one.To = between(rest)
			say("250 ok")
		case "DATA":
			say("354 go on")
			if one.Text, err = text(r); err != nil {
				return
			}
			s.take(one)
			say("250 taken")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("500 what?")
		}
	}
}

func (s *Server) greeting(conn net.Conn) string {
	text := "250-test\r\n250-8BITMIME"
	if _, encrypted := conn.(*tls.Conn); s.opt.TLS != nil && !encrypted {
		text += "\r\n250-STARTTLS"
	}
	if s.opt.Login != "" {
		text += "\r\n250-AUTH PLAIN"
	}
	return text + "\r\n250 SIZE 10000000"
}

func (s *Server) take(one Letter) {
	s.mu.Lock()
	s.letters = append(s.letters, one)
	s.mu.Unlock()
	if s.opt.Taken != nil {
		s.opt.Taken(one)
	}
}

// text reads a letter up to the final line.
func text(r *bufio.Reader) (string, error) {
	var b strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil || line == ".\r\n" {
			return b.String(), err
		}
		b.WriteString(strings.TrimPrefix(line, "."))
	}
}

func between(text string) string {
	_, text, _ = strings.Cut(text, "<")
	text, _, _ = strings.Cut(text, ">")
	return text
}

// Read parses a letter as a mail program shows it.
func (l Letter) Read() (header mail.Header, subject, body string, err error) {
	m, err := mail.ReadMessage(strings.NewReader(l.Text))
	if err != nil {
		return nil, "", "", err
	}
	subject, err = new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
	if err != nil {
		return nil, "", "", err
	}
	whole, err := io.ReadAll(quotedprintable.NewReader(m.Body))
	return m.Header, subject, strings.ReplaceAll(string(whole), "\r\n", "\n"), err
}
