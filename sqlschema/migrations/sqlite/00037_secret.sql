-- +goose Up
CREATE TABLE {prefix}secret ( -- Keys that only daemons know, and all of them share
    name            TEXT NOT NULL, -- What it is for: claims signs the tokens of claimed jobs
    secret          TEXT NOT NULL, -- The key, in base64
    created_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When a daemon made it, the first that needed it
    CONSTRAINT {name}secret_key PRIMARY KEY (name)
) WITHOUT ROWID;

-- +goose Down
DROP TABLE {prefix}secret;
