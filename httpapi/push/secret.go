package push

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const (
	secretPrefix = "whsec_"
	secretBytes  = 32 // of new ones; Standard Webhooks wants 24 to 64
)

// NewSecret returns a random secret.
func NewSecret() string {
	key := make([]byte, secretBytes)
	_, _ = rand.Read(key) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(key)
}

// CheckSecret returns what is wrong with a secret, without revealing it.
func CheckSecret(secret string) error {
	text, ok := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) < 24 || len(key) > 64 {
		return errors.New("it is not whsec_ and 24 to 64 bytes in base64")
	}
	return nil
}

// signatures returns the signatures of a request, one for each secret, as Standard Webhooks defines them.
func signatures(e *Endpoint, id string, at time.Time, payload []byte) (string, error) {
	var all []string
	for _, secret := range []string{e.Secret, e.OldSecret} {
		if secret == "" {
			continue
		}
		signature, err := Sign(secret, id, at, payload)
		if err != nil {
			return "", err
		}
		all = append(all, signature)
	}
	return strings.Join(all, " "), nil
}

// Sign returns the signature of a request with one secret, as Standard Webhooks defines it.
func Sign(secret, id string, at time.Time, payload []byte) (string, error) {
	w, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return "", errors.New("the endpoint's secret is not whsec_ and base64") // the library's error might show it
	}
	return w.Sign(id, at, payload)
}
