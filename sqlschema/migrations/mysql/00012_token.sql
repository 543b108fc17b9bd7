-- +goose Up
-- IF NOT EXISTS: see 00001.
CREATE TABLE IF NOT EXISTS {prefix}token (
    name            VARCHAR(200) NOT NULL COMMENT 'For people; compared by bytes',
    hash            VARCHAR(64) NOT NULL COMMENT 'SHA-256 of the secret, in hexadecimal digits',
    scopes          VARCHAR(200) NOT NULL COMMENT 'What it is good for: read, enqueue, work, admin, with commas between',
    created_at      DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) COMMENT 'When it was made',
    expires_at      DATETIME(6) COMMENT 'From when on it is not good any more; NULL: never',
    revoked_at      DATETIME(6) COMMENT 'When it was revoked; NULL: it was not',
    last_used_at    DATETIME(6) COMMENT 'When it was used, to a minute; NULL: never',
    PRIMARY KEY (name),
    UNIQUE KEY {name}token_hash (hash)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'Who may use the HTTP API: from the first row on nobody may without a token';

-- +goose Down
DROP TABLE IF EXISTS {prefix}token;
