package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/smtp"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/plain"
)

// Mail says how mail is sent.
type Mail struct {
	// Server is smtp://HOST:PORT, encrypted by STARTTLS if the server offers it, or
	// smtps://HOST:PORT, encrypted from the start. The host may be preceded by a user. Default:
	// smtp://localhost:25, as for cron.
	Server   string
	Password string // of that user
	From     string // default: dbcron@ and this host's name

	roots *tls.Config // for tests

	tls        bool
	host, port string
	user       string
}

// filled fills in defaults, or returns what is wrong.
func (s Mail) filled() (Mail, error) {
	if s.Server == "" {
		s.Server = "smtp://localhost:25"
	}
	u, err := url.Parse(s.Server)
	if err != nil || u.Scheme != "smtp" && u.Scheme != "smtps" || u.Hostname() == "" || u.Path != "" || u.RawQuery != "" {
		return s, errors.New("the mail server is not smtp://HOST:PORT or smtps://HOST:PORT") // it may contain a password
	}
	if _, has := u.User.Password(); has {
		return s, errors.New("the mail server's URL has a password, which ps would show; DBCRON_SMTP_PASSWORD or --smtp-password-file has it")
	}
	s.tls, s.host, s.port, s.user = u.Scheme == "smtps", u.Hostname(), u.Port(), u.User.Username()
	if s.port == "" {
		s.port = map[bool]string{true: "465", false: "25"}[s.tls]
	}
	if s.From == "" {
		host, err := os.Hostname()
		if err != nil || strings.ContainsAny(host, " <>\r\n") {
			host = "localhost"
		}
		s.From = "dbcron@" + host
	}
	if !strings.Contains(s.From, "@") || strings.ContainsAny(s.From, " <>\r\n\t,;:") {
		return s, fmt.Errorf("%q is no address that mail may come from; write for example dbcron@example.org", s.From)
	}
	return s, nil
}

// mostSaid is how much a mail server may say while it takes a message, with its certificates.
const mostSaid = 256 << 10

// A listener reads no more than mostSaid from a mail server: its lines, and their number, have no end of their own.
type listener struct {
	net.Conn
	said int
}

var errSaid = fmt.Errorf("it said more than %d KiB, so nothing more is read", mostSaid>>10)

// Read is that of the connection, up to the bound.
func (l *listener) Read(p []byte) (int, error) {
	left := mostSaid - l.said
	if left == 0 {
		return 0, errSaid
	}
	n, err := l.Conn.Read(p[:min(len(p), left)])
	l.said += n
	return n, err
}

// send sends a message to the address of its target.
func (s *Mail) send(ctx context.Context, m *Message, id string) error {
	to := strings.TrimPrefix(m.Target, "mailto:")
	conn, err := (&net.Dialer{Timeout: 20 * time.Second}).DialContext(ctx, "tcp", net.JoinHostPort(s.host, s.port))
	if err != nil {
		return fmt.Errorf("the mail server at %s cannot be reached: %w", net.JoinHostPort(s.host, s.port), push.WithoutAddresses(err))
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	conn = &listener{Conn: conn}
	if s.tls {
		conn = tls.Client(conn, s.config())
	}
	c, err := smtp.NewClient(conn, s.host)
	if err != nil {
		conn.Close()
		return s.failed("greeting", err)
	}
	defer c.Close()
	if name, err := os.Hostname(); err == nil && !strings.ContainsAny(name, " \r\n") {
		if err := c.Hello(name); err != nil {
			return s.failed("EHLO", err)
		}
	}
	if err := s.secure(c); err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"MAIL FROM", func() error { return c.Mail(s.From) }},
		{"RCPT TO", func() error { return c.Rcpt(to) }},
		{"DATA", func() error {
			w, err := c.Data()
			if err != nil {
				return err
			}
			if _, err := w.Write(s.compose(m, to, id)); err != nil {
				return err
			}
			return w.Close()
		}},
	} {
		if err := step.do(); err != nil {
			return s.failed(step.name, err)
		}
	}
	_ = c.Quit() // the message is delivered
	return nil
}

func (s *Mail) failed(step string, err error) error {
	return fmt.Errorf("the mail server at %s: %s: %s", net.JoinHostPort(s.host, s.port), step, plain.Cut(push.WithoutAddresses(err).Error(), 300))
}

func (s *Mail) config() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.roots != nil {
		config = s.roots.Clone()
	}
	config.ServerName = s.host
	return config
}

// secure encrypts the connection and authenticates. A password never leaves this host unencrypted. A mail
// server on this host may have a certificate for another name.
func (s *Mail) secure(c *smtp.Client) error {
	local := s.host == "localhost"
	if ip := net.ParseIP(s.host); ip != nil {
		local = ip.IsLoopback()
	}
	if offers, _ := c.Extension("STARTTLS"); !s.tls && offers && (!local || s.user != "" || s.roots != nil) {
		if err := c.StartTLS(s.config()); err != nil {
			return s.failed("STARTTLS", err)
		}
	}
	if s.user == "" {
		return nil
	}
	if _, encrypted := c.TLSConnectionState(); !encrypted && !local {
		return s.failed("AUTH", errors.New("it offers no encryption, so the password was not sent"))
	}
	if offers, _ := c.Extension("AUTH"); !offers {
		return s.failed("AUTH", errors.New("it offers no authentication; leave the user out of the URL"))
	}
	if err := c.Auth(smtp.PlainAuth("", s.user, s.Password, s.host)); err != nil {
		return s.failed("AUTH", err)
	}
	return nil
}

// compose formats the mail. Text from tables cannot start a header line.
func (s *Mail) compose(m *Message, to, id string) []byte {
	_, domain, _ := strings.Cut(s.From, "@")
	subject := mime.QEncoding.Encode("utf-8", plain.Cut(m.Subject(), 200))
	var b bytes.Buffer
	for _, h := range [][2]string{
		{"From", s.From},
		{"To", to},
		{"Subject", strings.ReplaceAll(subject, "?= =?", "?=\r\n =?")},
		{"Date", time.UnixMicro(m.At).UTC().Format(time.RFC1123Z)},
		{"Message-ID", "<" + id + "@" + domain + ">"},
		{"Auto-Submitted", "auto-generated"},
		{"MIME-Version", "1.0"},
		{"Content-Type", "text/plain; charset=utf-8"},
		{"Content-Transfer-Encoding", "quoted-printable"},
	} {
		b.WriteString(h[0] + ": " + h[1] + "\r\n")
	}
	b.WriteString("\r\n")
	w := quotedprintable.NewWriter(&b)
	_, _ = w.Write([]byte(m.Text())) // into memory
	_ = w.Close()
	return b.Bytes()
}
