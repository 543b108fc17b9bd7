-- +goose Up
CREATE TABLE {prefix}audit ( -- What operators did, from the command line, the HTTP API and the dashboard
    id              INTEGER PRIMARY KEY AUTOINCREMENT, -- Grows with each row
    done_at         TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When it was done
    actor           TEXT NOT NULL, -- Who did it: a token's name, user@host, or this host
    login           TEXT NOT NULL, -- How the actor is known: token, proxy, os (claimed by the user), or none (this host, as long as there is no token)
    source          TEXT NOT NULL, -- cli, api or dashboard
    action          TEXT NOT NULL, -- What was done, such as queue.pause
    object          TEXT NOT NULL, -- The object, such as the name of a queue
    affected        BIGINT NOT NULL, -- Number of objects
    detail          TEXT NOT NULL -- Details: a reason or a filter
);
CREATE INDEX {name}audit_time ON {prefix}audit (done_at, id);
CREATE INDEX {name}audit_actor ON {prefix}audit (actor, id);
CREATE INDEX {name}audit_action ON {prefix}audit (action, id);
CREATE INDEX {name}audit_object ON {prefix}audit (object, id);

-- +goose Down
DROP TABLE {prefix}audit;
