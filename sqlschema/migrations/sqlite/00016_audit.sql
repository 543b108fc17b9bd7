-- +goose Up
CREATE TABLE {prefix}audit ( -- What operators did, from the command line, the HTTP API and the dashboard
    id              INTEGER PRIMARY KEY AUTOINCREMENT, -- Grows with each row
    done_at         TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When it was done
    actor           TEXT NOT NULL, -- Who did it: a token's name, user@host, or this host
    login           TEXT NOT NULL, -- How that is known: token, proxy, os (the user says so himself), or none (this host, as long as there is no token)
    source          TEXT NOT NULL, -- cli, api or dashboard
    action          TEXT NOT NULL, -- What was done, such as queue.pause
    object          TEXT NOT NULL, -- To what, such as the name of a queue
    affected        BIGINT NOT NULL, -- To how many
    detail          TEXT NOT NULL -- Why, or which: a reason or a filter
);
CREATE INDEX {name}audit_time ON {prefix}audit (done_at, id);
CREATE INDEX {name}audit_actor ON {prefix}audit (actor, id);
CREATE INDEX {name}audit_action ON {prefix}audit (action, id);
CREATE INDEX {name}audit_object ON {prefix}audit (object, id);

-- +goose Down
DROP TABLE {prefix}audit;
