package client_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/dbcron/dbcron/client"
)

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
	err = c.Work(ctx, client.WorkOptions{Queue: "mail", Concurrency: 10, Handle: func(_ context.Context, j *client.Claimed) (any, error) {
		var mail struct{ To string }
		if err := j.Decode(&mail); err != nil {
			return nil, client.Dead(err) // it will be wrong the next time as well
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
