-- +goose Up
-- Two processes can draw one id for two jobs, which are in different blocks then: in one
-- block the key of {prefix}job keeps the second out. So the block is part of these keys, too.
ALTER TABLE {prefix}job_dead DROP CONSTRAINT {name}job_dead_key, ADD CONSTRAINT {name}job_dead_key PRIMARY KEY (queue_id, id, divided);
ALTER TABLE {prefix}job_done DROP CONSTRAINT {name}job_done_key, ADD CONSTRAINT {name}job_done_key PRIMARY KEY (queue_id, id, divided);

-- +goose Down
-- Of two jobs with one id one has to be deleted before.
ALTER TABLE {prefix}job_done DROP CONSTRAINT {name}job_done_key, ADD CONSTRAINT {name}job_done_key PRIMARY KEY (queue_id, id);
ALTER TABLE {prefix}job_dead DROP CONSTRAINT {name}job_dead_key, ADD CONSTRAINT {name}job_dead_key PRIMARY KEY (queue_id, id);
