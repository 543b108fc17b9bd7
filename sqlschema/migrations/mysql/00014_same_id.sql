-- +goose Up
-- Two processes can draw one id for two jobs, which are in different blocks then: in one
-- block the key of {prefix}job keeps the second out. So the block is part of these keys, too.
-- Each statement can run again.
ALTER TABLE {prefix}job_dead DROP PRIMARY KEY, ADD PRIMARY KEY (queue_id, id, divided);
ALTER TABLE {prefix}job_done DROP PRIMARY KEY, ADD PRIMARY KEY (queue_id, id, divided);

-- +goose Down
-- Of two jobs with one id one has to be deleted before.
ALTER TABLE {prefix}job_done DROP PRIMARY KEY, ADD PRIMARY KEY (queue_id, id);
ALTER TABLE {prefix}job_dead DROP PRIMARY KEY, ADD PRIMARY KEY (queue_id, id);
