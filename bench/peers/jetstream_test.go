package peers

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// jetStreamQueue is a stream with one file per server. It deletes messages once they are acknowledged.
type jetStreamQueue struct {
	as   string
	safe bool
	url  string
	js   jetstream.JetStream
	s    jetstream.Stream
}

func jetStreamQueues(t *testing.T) (all []queueSystem) {
	for _, sync := range []bool{true, false} {
		as := "JetStream, fsync every two minutes"
		if sync {
			as = "JetStream, fsync at each write"
		}
		s, err := server.NewServer(&server.Options{
			Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
			JetStream: true, StoreDir: t.TempDir(), SyncAlways: sync,
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		if !s.ReadyForConnections(10 * time.Second) {
			t.Fatal("NATS does not start")
		}
		q := &jetStreamQueue{as: as, safe: sync, url: s.ClientURL()}
		q.js = q.connect(t)
		q.s, err = q.js.CreateStream(t.Context(), jetstream.StreamConfig{
			Name: "jobs", Subjects: []string{"jobs"}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
		})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, q)
	}
	return all
}

func (q *jetStreamQueue) connect(t *testing.T) jetstream.JetStream {
	t.Helper()
	c, err := nats.Connect(q.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	js, err := jetstream.New(c, jetstream.WithPublishAsyncMaxPending(4096))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func (q *jetStreamQueue) String() string { return q.as }
func (q *jetStreamQueue) durable() bool  { return q.safe }
func (*jetStreamQueue) bulk() bool       { return true }

func (q *jetStreamQueue) one(ctx context.Context, n int) error {
	_, err := q.js.Publish(ctx, "jobs", payload(n))
	return err
}

func (q *jetStreamQueue) many(ctx context.Context, first, n int) error {
	acks := make([]jetstream.PubAckFuture, n)
	for i := range acks {
		ack, err := q.js.PublishAsync("jobs", payload(first+i), jetstream.WithStallWait(time.Minute))
		if err != nil {
			return err
		}
		acks[i] = ack
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// work fetches 500 messages at a time and acknowledges each.
func (q *jetStreamQueue) work(t *testing.T, do func(n int)) (stop func()) {
	t.Helper()
	js := q.connect(t)
	consumer, err := js.CreateOrUpdateConsumer(t.Context(), "jobs", jetstream.ConsumerConfig{
		Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 10_000,
	})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(500))
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			m, err := messages.Next()
			if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
				return
			}
			if err != nil {
				t.Errorf("%v: %v", q, err)
				return
			}
			do(number(t, m.Data()))
			if err := m.Ack(); err != nil {
				t.Errorf("%v: %v", q, err)
			}
		}
	})
	return func() {
		messages.Stop()
		group.Wait()
		js.Conn().Close()
	}
}

func (q *jetStreamQueue) wipe(t *testing.T) {
	t.Helper()
	if err := q.s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
}
