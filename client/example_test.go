package client_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/dbcron/dbcron/client"
	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/sqlite"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/sqlschema"
	"github.com/dbcron/dbcron/wire"
)

// A daemon is up, and a program enqueues a job and does it. The program needs neither a database nor
// a driver.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	daemon, stopDaemon := startDaemon(ctx)
	defer stopDaemon()

	c, err := client.New(daemon, client.Options{})
	if err != nil {
		panic(err)
	}
	defer c.CloseIdleConnections()
	if _, err := c.Enqueue(ctx, client.Job{Kind: "welcome", Queue: "mail", Payload: map[string]string{"to": "ada@example.org"}}); err != nil {
		panic(err)
	}
	err = c.Work(ctx, client.WorkOptions{Queue: "mail", Handle: func(_ context.Context, j *wire.Claim) (any, error) {
		defer stop() // a program would continue
		var mail struct{ To string }
		if err := j.Decode(&mail); err != nil {
			return nil, client.Bury(err) // it will be wrong the next time as well
		}
		fmt.Println(j.Kind, mail.To)
		return nil, nil
	}})
	fmt.Println("stopped", err)
	// Output:
	// welcome ada@example.org
	// stopped <nil>
}

// startDaemon stands for dbcron serve.
func startDaemon(ctx context.Context) (url string, stop func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	db, err := sqlite.Open(ctx, "sqlite:"+filepath.Join(dir, "app.db"), dialect.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := sqlschema.Migrate(ctx, db); err != nil {
		log.Fatal(err)
	}
	api, err := httpapi.New(db, httpapi.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(api)
	return server.URL, func() {
		server.Close()
		api.Close()
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}
}

func ExampleClient_Enqueue() {
	ctx := context.Background()
	c, err := client.New("http://127.0.0.1:8686", client.Options{Token: os.Getenv("DBCRON_TOKEN")})
	if err != nil {
		log.Fatal(err)
	}
	job, err := c.Enqueue(ctx, client.Job{Kind: "welcome", Queue: "mail", Payload: map[string]string{"to": "ada@example.org"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("enqueued", job.ID)
}

func ExampleClient_Work() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	c, err := client.New("http://127.0.0.1:8686", client.Options{Token: os.Getenv("DBCRON_TOKEN")})
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	err = c.Work(ctx, client.WorkOptions{Queue: "mail", Concurrency: 10, Handle: func(_ context.Context, j *wire.Claim) (any, error) {
		var mail struct{ To string }
		if err := j.Decode(&mail); err != nil {
			return nil, client.Bury(err) // it will be wrong the next time as well
		}
		fmt.Println(j.Kind, mail.To)
		return nil, nil
	}})
	fmt.Println("stopped", err)
}

func ExamplePushHandler() {
	http.Handle("/jobs", client.PushHandler(client.PushOptions{
		Secrets: []string{os.Getenv("DBCRON_PUSH_SECRET")},
		Handle: func(_ context.Context, d *client.Delivery) error {
			fmt.Println(d.Kind, string(d.Payload))
			return nil
		},
	}))
	log.Fatal(http.ListenAndServe("127.0.0.1:9000", nil))
}
