package queue

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/internal/jobfield"
)

// A callback is a job as stored in a group's row.
type callback struct {
	Queue       string `json:"queue"`
	Kind        string `json:"kind"`
	Payload     string `json:"payload,omitempty"`
	Binary      []byte `json:"binary,omitempty"`
	Key         string `json:"key,omitempty"`
	Priority    int    `json:"priority"`
	Delay       int64  `json:"delay_us,omitempty"`
	MaxAttempts int    `json:"max_attempts,omitempty"`
	Timeout     int64  `json:"timeout_us,omitempty"`
	Trace       string `json:"trace,omitempty"`
	Tenant      string `json:"tenant,omitempty"`
	Cost        int    `json:"cost,omitempty"`
	Endpoint    string `json:"endpoint,omitempty"`
}

func writeCallback(j Job) (string, error) {
	if err := j.check(); err != nil {
		return "", fmt.Errorf("callback: %w", err)
	}
	switch {
	case j.Unique != "":
		return "", invalid("callback", "it has a unique key, and needs none: it is enqueued once")
	case j.Group != 0:
		return "", invalid("callback", "it is of group %d itself, which may end before", j.Group)
	case !j.RunAt.IsZero():
		return "", invalid("callback", "it has a time to run at; give it a delay after the group's end, or none")
	}
	b := callback{
		Queue: j.Queue, Kind: j.Kind, Key: j.Key, Priority: j.Priority, Delay: j.Delay.Microseconds(),
		MaxAttempts: j.MaxAttempts, Timeout: j.Timeout.Microseconds(), Trace: j.Trace, Endpoint: j.Endpoint, Tenant: j.Tenant,
		Cost: j.cost(),
	}
	if j.Binary {
		b.Binary = j.Payload
	} else {
		b.Payload = string(j.Payload)
	}
	text, err := json.Marshal(b)
	return string(text), err
}

func readCallback(text string) (*Job, error) {
	if text == "" {
		return nil, nil
	}
	var b callback
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		return nil, invalid("callback", "%v", err)
	}
	j := &Job{
		Queue: b.Queue, Kind: b.Kind, Payload: []byte(b.Payload), Key: b.Key, Priority: b.Priority,
		Delay:       time.Duration(b.Delay) * time.Microsecond,
		MaxAttempts: b.MaxAttempts, Timeout: time.Duration(b.Timeout) * time.Microsecond, Trace: b.Trace, Endpoint: b.Endpoint, Tenant: b.Tenant,
		Cost: b.Cost,
	}
	if !jobfield.ValidTrace(j.Trace) { // earlier versions accepted any text
		j.Trace = ""
	}
	if len(b.Binary) > 0 {
		j.Payload, j.Binary = b.Binary, true
	}
	return j, nil
}
