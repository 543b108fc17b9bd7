-- +goose Up
CREATE TABLE {prefix}secret (
    name            VARCHAR(200) COLLATE "C" NOT NULL,
    secret          VARCHAR(200) COLLATE "C" NOT NULL,
    created_at      TIMESTAMPTZ(6) NOT NULL DEFAULT statement_timestamp(),
    CONSTRAINT {name}secret_key PRIMARY KEY (name)
);

COMMENT ON TABLE {prefix}secret IS 'Keys that only daemons know, and all of them share';
COMMENT ON COLUMN {prefix}secret.name IS 'What it is for: claims signs the tokens of claimed jobs';
COMMENT ON COLUMN {prefix}secret.secret IS 'The key, in base64';
COMMENT ON COLUMN {prefix}secret.created_at IS 'When a daemon made it, the first that needed it';

-- +goose Down
DROP TABLE {prefix}secret;
