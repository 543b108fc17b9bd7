-- +goose Up
ALTER TABLE {prefix}queue_block ADD COLUMN fifo TEXT NOT NULL DEFAULT 'no'; -- Whether its jobs run one after the other, as if they had one key: yes or no

-- +goose Down
ALTER TABLE {prefix}queue_block DROP COLUMN fifo;
