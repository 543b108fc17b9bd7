-- +goose Up
CREATE TABLE {prefix}token ( -- Who may use the HTTP API: from the first row on nobody may without a token
    name            TEXT NOT NULL, -- For people; compared by bytes
    hash            TEXT NOT NULL, -- SHA-256 of the secret, in hexadecimal digits
    scopes          TEXT NOT NULL, -- What it is good for: read, enqueue, work, admin, with commas between
    created_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When it was made
    expires_at      TEXT, -- From when on it is not good any more; NULL: never
    revoked_at      TEXT, -- When it was revoked; NULL: it was not
    last_used_at    TEXT, -- When it was used, to a minute; NULL: never
    CONSTRAINT {name}token_key PRIMARY KEY (name),
    CONSTRAINT {name}token_hash UNIQUE (hash)
) WITHOUT ROWID;

-- +goose Down
DROP TABLE {prefix}token;
