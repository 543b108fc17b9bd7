package simulation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// onceWork is a queue whose workers remove jobs before they run: none may begin twice, whatever happens, and each thing that
// happens may cost only the jobs that had been read.
type onceWork struct {
	errands
	left   []int
	blocks int
	batch  int
	slots  int
}

const onceQueue = "once"

func (o *onceWork) Claims() []string {
	return []string{
		"kill", "restart", "stop", "lose", "mute", "slow", "hangup", "written, and the answer lost", "a job fails", "a job is lost", "a job is cut off by its worker's stop",
	}
}

func (o *onceWork) Begin(w *World) error {
	lease := time.Duration(w.Knob("lease", 8, 4, 2)) * time.Second
	if err := o.begin(w, lease+20*time.Second); err != nil {
		return err
	}
	a, err := admin.New(w.Operator, admin.Options{})
	if err != nil {
		return err
	}
	if _, err := a.Edit(w.Free(), onceQueue, func(*admin.Queue) {}); err != nil {
		return err
	}
	o.blocks = w.Knob("blocks", 1, 2, 5)
	if err := a.Resize(w.Free(), onceQueue, o.blocks); err != nil {
		return err
	}
	o.batch, o.slots = w.Knob("batch", 1, 5, 20), w.Knob("slots", 1, 4, 16)
	producers, jobs := w.Knob("producers", 1, 2), w.Knob("jobs", 40, 100, 300)
	for i := range producers {
		o.left = append(o.left, jobs/producers)
		w.StartOnce(fmt.Sprint("producer-", i), func(p *Process) error { return o.produce(p, i) })
	}
	for i := range w.Knob("workers", 1, 2, 3) {
		w.Start(fmt.Sprint("worker-", i), func(p *Process) error { return o.work(p, lease) })
	}
	return nil
}

func (o *onceWork) produce(p *Process, me int) error {
	_, c, err := p.client()
	if err != nil {
		return err
	}
	return each(p, &o.left[me], func(n int) {
		d := p.w.Dice("job", me, n)
		j := &errand{name: fmt.Sprintf("job%d.%d", me, n), who: p.who()}
		job := queue.Job{Queue: onceQueue, Kind: plainKind, Payload: payload(j.name)}
		switch d.IntN(3) {
		case 0:
			j.key = fmt.Sprintf("key%d.%d", me, d.IntN(3))
			job.Key = j.key
		case 1:
			job.Delay = d.about(time.Second)
		}
		p.Act(func() { o.add(j) })
		ctx, cancel := context.WithTimeout(p.ctx, d.between(2*time.Second, 60*time.Second))
		defer cancel()
		e, err := c.Enqueue(ctx, job)
		p.Note("enqueued %s: %d, %v", j.name, e.ID, err)
		p.Act(func() {
			j.id, j.fate = e.ID, fateOf(err)
			p.w.Done("enqueued")
		})
	})
}

// work is a worker's process.
func (o *onceWork) work(p *Process, lease time.Duration) error {
	db, err := p.Open(20)
	if err != nil {
		return err
	}
	c, err := queue.New(db, queue.Options{Node: p.Name, Logger: p.Log, Doorbell: p.doorbell()})
	if err != nil {
		return err
	}
	w, err := c.Worker(p.tune(queue.WorkerOptions{
		Queues: []string{onceQueue}, Lease: lease, Logger: p.Log, Concurrency: o.slots, Batch: o.batch, AtMostOnce: true,
		Grace: oneOf(p.Dice, -1, time.Second, 10*time.Second),
	}))
	if err != nil {
		return err
	}
	err = w.Handle(plainKind, func(ctx context.Context, d *queue.Delivery) error {
		return o.handle(p, d, func(j *errand) error { return o.do(ctx, p, j) })
	})
	if err != nil {
		return err
	}
	return w.Run(p.ctx)
}

// do is the only attempt at a job.
func (o *onceWork) do(ctx context.Context, p *Process, j *errand) error {
	p.Act(func() {
		if j.begins > 1 {
			p.w.violate("twice", j.words(), "%s begins for the %dth time", j.name, j.begins)
		}
		if j.late {
			p.w.violate("order", j.words(), "%s begins after a later job of its key", j.name)
		}
		if j.key == "" {
			return
		}
		for _, other := range o.list { // as enqueued
			if other == j {
				return
			}
			if other.key == j.key && other.who == j.who && other.fate == confirmed {
				other.late = true // it may not begin any more
			}
		}
	})
	dice := p.w.Dice("attempt", j.name)
	took := dice.about(100 * time.Millisecond)
	if dice.once(20) {
		took = dice.between(time.Second, 15*time.Second)
	}
	if err := p.Sleep(ctx, took); err != nil {
		p.Act(func() { p.w.Reached("a job is cut off by its worker's stop") })
		return err
	}
	if dice.once(10) {
		p.Act(func() { p.w.Reached("a job fails") })
		return errors.New("it fails")
	}
	return nil
}

func (o *onceWork) Left(w *World) string { return o.leftOf(w) }

// Check looks for jobs that have begun although they were not enqueued, and for more lost ones than what happened can have cost.
func (o *onceWork) Check(w *World) error {
	lost := 0
	for _, j := range o.list {
		switch {
		case j.fate == refused && j.begins > 0:
			w.Violate("phantom", j.words(), "%s was not enqueued, and was done", j.name)
		case j.fate == confirmed && j.begins == 0:
			lost++
			w.count("a job is lost")
		}
	}
	w.mu.Lock()
	events := w.reached["written, and the answer lost"] + w.reached["an answer comes late"] + w.reached["a process is cut off after a late answer"]
	for _, f := range faults {
		events += w.reached[f.name]
	}
	w.mu.Unlock()
	if most := events * o.blocks * (o.batch + o.slots); lost > most {
		w.Violate("lost", nil, "%d jobs have not begun, and the %d things that happened cost %d at the most", lost, events, most)
	}
	return nil
}
