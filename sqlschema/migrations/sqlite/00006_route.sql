-- +goose Up
CREATE TABLE {prefix}route ( -- Where jobs go that name no queue. Those of a kind without a row: to that of *, or else to the queue default
    kind            TEXT NOT NULL, -- Of the jobs, compared by bytes; *: all kinds without a row of their own
    queue           TEXT NOT NULL, -- The queue's name
    insert_time     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row was made
    update_time     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row last changed
    CONSTRAINT {name}route_key PRIMARY KEY (kind)
) WITHOUT ROWID;

-- +goose Down
DROP TABLE {prefix}route;
