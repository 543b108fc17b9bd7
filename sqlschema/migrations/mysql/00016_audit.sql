-- +goose Up
-- IF NOT EXISTS: see 00001.
CREATE TABLE IF NOT EXISTS {prefix}audit (
    id              BIGINT NOT NULL AUTO_INCREMENT COMMENT 'Grows with each row',
    done_at         DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) COMMENT 'When it was done',
    actor           VARCHAR(200) NOT NULL COMMENT 'Who did it: a token''s name, user@host, or this host',
    login           VARCHAR(20) NOT NULL COMMENT 'How the actor is known: token, proxy, os (claimed by the user), or none (this host, as long as there is no token)',
    source          VARCHAR(20) NOT NULL COMMENT 'cli, api or dashboard',
    action          VARCHAR(100) NOT NULL COMMENT 'What was done, such as queue.pause',
    object          VARCHAR(500) NOT NULL COMMENT 'The object, such as the name of a queue',
    affected        BIGINT NOT NULL COMMENT 'Number of objects',
    detail          VARCHAR(500) NOT NULL COMMENT 'Details: a reason or a filter',
    PRIMARY KEY (id),
    KEY {name}audit_time (done_at, id),
    KEY {name}audit_actor (actor, id),
    KEY {name}audit_action (action, id),
    KEY {name}audit_object (object, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'What operators did, from the command line, the HTTP API and the dashboard';

-- +goose Down
DROP TABLE IF EXISTS {prefix}audit;
