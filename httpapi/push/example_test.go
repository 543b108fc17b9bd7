package push_test

import (
	"fmt"
	"time"

	"github.com/dbcron/dbcron/client"
	"github.com/dbcron/dbcron/httpapi/push"
)

// An endpoint's request is signed as Standard Webhooks has it, and so can be verified in any
// language; in Go package client does.
func ExampleSign() {
	secret, body := push.NewSecret(), []byte(`{"to": "ada@example.org"}`)
	at := time.Now()
	signature, err := push.Sign(secret, "msg_1", at, body)
	if err != nil {
		panic(err)
	}
	header := map[string][]string{
		"Webhook-Id": {"msg_1"}, "Webhook-Timestamp": {fmt.Sprint(at.Unix())}, "Webhook-Signature": {signature},
	}
	fmt.Println(client.Verify([]string{secret}, header, body, time.Hour))
	fmt.Println(client.Verify([]string{push.NewSecret()}, header, body, time.Hour) != nil)
	// Output:
	// <nil>
	// true
}
