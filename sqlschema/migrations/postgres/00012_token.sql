-- +goose Up
CREATE TABLE {prefix}token (
    name            VARCHAR(200) COLLATE "C" NOT NULL,
    hash            VARCHAR(64) COLLATE "C" NOT NULL,
    scopes          VARCHAR(200) NOT NULL,
    created_at      TIMESTAMPTZ(6) NOT NULL DEFAULT statement_timestamp(),
    expires_at      TIMESTAMPTZ(6),
    revoked_at      TIMESTAMPTZ(6),
    last_used_at    TIMESTAMPTZ(6),
    CONSTRAINT {name}token_key PRIMARY KEY (name),
    CONSTRAINT {name}token_hash UNIQUE (hash)
);

COMMENT ON TABLE {prefix}token IS 'Who may use the HTTP API: from the first row on nobody may without a token';
COMMENT ON COLUMN {prefix}token.name IS 'For people; compared by bytes';
COMMENT ON COLUMN {prefix}token.hash IS 'SHA-256 of the secret, in hexadecimal digits';
COMMENT ON COLUMN {prefix}token.scopes IS 'What it is good for: read, enqueue, work, admin, with commas between';
COMMENT ON COLUMN {prefix}token.created_at IS 'When it was made';
COMMENT ON COLUMN {prefix}token.expires_at IS 'From when on it is not good any more; NULL: never';
COMMENT ON COLUMN {prefix}token.revoked_at IS 'When it was revoked; NULL: it was not';
COMMENT ON COLUMN {prefix}token.last_used_at IS 'When it was used, to a minute; NULL: never';

-- +goose Down
DROP TABLE {prefix}token;
