-- +goose Up
ALTER TABLE {prefix}queue_block ADD COLUMN fifo VARCHAR(3) NOT NULL DEFAULT 'no';
COMMENT ON COLUMN {prefix}queue_block.fifo IS 'Whether its jobs run one after the other, as if they had one key: yes or no';

-- +goose Down
ALTER TABLE {prefix}queue_block DROP COLUMN fifo;
