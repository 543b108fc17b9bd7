-- +goose Up
-- IF NOT EXISTS: see 00001.
CREATE TABLE IF NOT EXISTS {prefix}secret (
    name            VARCHAR(200) NOT NULL COMMENT 'What it is for: claims signs the tokens of claimed jobs',
    secret          VARCHAR(200) NOT NULL COMMENT 'The key, in base64',
    created_at      DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) COMMENT 'When a daemon made it, the first that needed it',
    PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'Keys that only daemons know, and all of them share';

-- +goose Down
DROP TABLE IF EXISTS {prefix}secret;
